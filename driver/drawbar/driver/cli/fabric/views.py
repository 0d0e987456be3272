"""The output of `drawbar fabric`, as tables and as JSON; pure. A fabric manager's text loses its control characters."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich import console

from drawbar.driver.cli import tables
from drawbar.driver.cli.fabric import observed, oddities, prospects
from drawbar.driver.controller import hosts as host_map
from drawbar.fabric import attributes, contract, recognition
from drawbar.fabric.conformance import reports

_USER_INFO = re.compile(r"//[^/@]*@")


def endpoint(content: str) -> str:
    """Return an endpoint without a user name or password."""
    return _USER_INFO.sub("//[redacted]@", content)


def identity(credentials: contract.Credentials) -> str:
    """Return the kinds of an adapter's credentials, without a secret."""
    parts = [f"user {credentials.username}"] if credentials.username else []
    parts += ["a token"] if credentials.token else []
    parts += ["a client certificate"] if credentials.certificate else []
    return " and ".join(parts) or "none"


def capabilities(can: contract.Capabilities) -> dict[str, Any]:
    """Return capabilities as JSON values."""
    return {
        "exactDevice": can.exact_device,
        "selectByModel": can.select_by_model,
        "slices": can.slices,
        "forceDetach": can.force_detach,
        "watch": can.watch,
        "cancel": can.cancel,
        "marks": can.marks,
        "maxConcurrentOperations": can.max_concurrent_operations,
        "serializationScope": can.serialization_scope.value,
    }


def devices(
    items: Sequence[contract.Device], hosts: Sequence[contract.Host], source: observed.Source
) -> list[dict[str, Any]]:
    """Return all devices of a fabric as JSON values."""
    forecasts = prospects.forecasts(items, hosts)
    return [device(item, source, forecasts[item.id]) for item in items]


def device(
    item: contract.Device, source: observed.Source, forecast: recognition.Forecast | None = None
) -> dict[str, Any]:
    """Return a device as JSON values; without `forecast`, by a forecast for the device on its own."""
    expected = forecast or recognition.forecast(item)
    attachment = attachment_of(item.id, source)
    claim = attachment.spec.claim if attachment is not None else None
    connection, carving = item.connection, item.carving
    return {
        "id": item.id,
        "class": item.device_class.value,
        "vendor": item.vendor,
        "model": item.model,
        "serial": item.serial,
        "identifiers": [
            {"kind": each.kind.value, "value": each.value, "source": each.source} for each in item.identifiers
        ],
        "recognition": {
            "means": expected.means.value,
            "kinds": [kind.value for kind in expected.kinds],
            "needsDriver": expected.needs_driver,
            "text": str(expected),
        },
        "enclosure": item.enclosure,
        "switch": item.switch,
        "reachGroups": sorted(item.reach_groups),
        "memoryBytes": item.memory_bytes,
        "attributes": {
            each.name: each.value.text if isinstance(each.value, attributes.Version) else each.value
            for each in item.attributes
        },
        "sliceOf": item.slice_of.origin_id if item.slice_of is not None else None,
        "carving": {
            "freeBytes": carving.free_bytes,
            "stepBytes": carving.step_bytes,
            "isPool": carving.is_pool,
        }
        if carving is not None
        else None,
        "offered": is_offered(item, source),
        "health": item.health.value,
        "host": connection.host_id if connection is not None else None,
        "port": connection.port_id if connection is not None else None,
        "mark": connection.mark if connection is not None else None,
        "attachment": attachment.metadata.name if attachment is not None else None,
        "claim": f"{claim.namespace}/{claim.name}" if claim is not None else None,
    }


def is_offered(item: contract.Device, source: observed.Source) -> bool | None:
    """Return whether the Fabric's offer includes a device, or None if the controller selects by number."""
    offer = source.spec.offer
    whole = item.slice_of.origin_id if item.slice_of is not None else item.id
    if not offer.has_device(whole, item.device_class.value, item.model, item.enclosure):
        return False
    return None if offer.max_per_model is not None else True


def _describe_offer(item: Mapping[str, Any]) -> str:
    return {True: "yes", False: "not offered", None: "by number"}[item["offered"]]


def attachment_of(device_id: str, source: observed.Source) -> Any:
    """Return the DeviceAttachment of a device, or None."""
    listed = source.cluster.attachments if source.cluster is not None else ()
    return next((item for item in listed if item.device_id == device_id), None)


def show_devices(
    out: console.Console, items: Sequence[Mapping[str, Any]], *, forecasts: bool = False
) -> None:
    """Print a table of devices with the kinds of their identifiers, or with the forecasts of their recognition."""
    by = "RECOGNISED BY" if forecasts else "IDENTIFIERS"
    head: Sequence[str] = (
        "DEVICE",
        "CLASS",
        "MODEL",
        "SERIAL",
        by,
        "HEALTH",
        "HOST",
        "PORT",
        "ATTACHMENT",
        "CLAIM",
    )
    before, after = ("id", "class", "model", "serial"), ("health", "host", "port", "attachment", "claim")
    lines = [
        [
            *(item[key] for key in before),
            item["recognition"]["text"] if forecasts else _kinds(item),
            *(item[key] for key in after),
        ]
        for item in items
    ]
    if any(item["switch"] for item in items):
        head = (*head, "SWITCH")
        lines = [[*line, item["switch"]] for line, item in zip(lines, items, strict=True)]
    if not all(item["offered"] for item in items):
        head = (*head, "OFFER")
        lines = [[*line, _describe_offer(item)] for line, item in zip(lines, items, strict=True)]
    if any(item["reachGroups"] for item in items):
        head = (*head, "GROUPS")
        lines = [[*line, ", ".join(item["reachGroups"])] for line, item in zip(lines, items, strict=True)]
    if any(item["sliceOf"] or item["carving"] for item in items):
        head = (*head, "SLICES")
        lines = [[*line, _slices(item)] for line, item in zip(lines, items, strict=True)]
    tables.rows(out, head, lines, "The fabric manager shows no device.")


def _kinds(item: Mapping[str, Any]) -> str:
    return prospects.shorten(each["kind"] for each in item["identifiers"])


def _slices(item: Mapping[str, Any]) -> str:
    if item["sliceOf"]:
        return f"of {item['sliceOf']}"
    carving = item["carving"]
    return f"{carving['freeBytes'] >> 20} MiB free" if carving is not None else ""


def host(item: contract.Host, mapped: host_map.NodeMap) -> dict[str, Any]:
    """Return a host as JSON values."""
    return {
        "id": item.id,
        "name": item.name,
        "node": mapped.node_of(item.id),
        "identifiers": dict(item.identifiers),
        "reachGroups": sorted(item.reach_groups),
        "ports": [
            {"id": port.id, "state": port.state.value, "device": port.device_id, "slot": port.slot_hint}
            for port in item.ports
        ],
    }


def show_hosts(out: console.Console, items: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of hosts."""
    lines: list[tuple[object, ...]] = []
    for item in items:
        free = sum(port["state"] == contract.PortState.FREE.value for port in item["ports"])
        names = ", ".join(f"{key}={value}" for key, value in sorted(item["identifiers"].items()))
        held = ", ".join(f"{port['id']}={port['device']}" for port in item["ports"] if port["device"])
        lines.append((item["id"], item["name"], item["node"], f"{free} of {len(item['ports'])}", held, names))
    head: Sequence[str] = ("HOST", "NAME", "NODE", "FREE PORTS", "DEVICES", "IDENTIFIERS")
    if any(item["reachGroups"] for item in items):
        head = (*head, "GROUPS")
        lines = [(*line, ", ".join(item["reachGroups"])) for line, item in zip(lines, items, strict=True)]
    tables.rows(out, head, lines, "The fabric manager shows no host.")


def operation(item: contract.Operation) -> dict[str, Any]:
    """Return an operation as JSON values."""
    return {
        "id": item.id,
        "kind": item.kind.value,
        "device": item.device.id if item.device is not None else None,
        "done": item.done,
        "percent": item.percent,
        "error": f"{item.error.reason}: {item.error.message}" if item.error is not None else None,
        "requestId": item.request_id,
        "mark": item.mark,
    }


def _state(item: Mapping[str, Any]) -> str:
    if item["error"] is not None:
        return "failed"
    if item["done"]:
        return "done"
    return "running" if item["percent"] is None else f"running, {item['percent']} %"


def show_operations(out: console.Console, items: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of operations."""
    lines = [(item["id"], item["kind"], item["device"], _state(item), item["error"]) for item in items]
    tables.rows(
        out,
        ("OPERATION", "KIND", "DEVICE", "STATE", "ERROR"),
        lines,
        "The fabric manager lists no operation.",
    )


def event(item: contract.WatchEvent, source: observed.Source) -> dict[str, Any] | None:
    """Return an event of a watch as JSON values, or None if it changes nothing."""
    match item:
        case contract.DeviceChanged():
            return {"event": "device", "device": device(item.device, source)}
        case contract.DeviceGone():
            return {"event": "device-gone", "device": {"id": item.device_id}}
        case contract.HostChanged():
            return {"event": "host", "host": host(item.host, host_map.NodeMap())}
        case contract.OperationChanged():
            return {"event": "operation", "operation": operation(item.operation)}
        case contract.Resync():
            return {"event": "resync"}
        case contract.Bookmark():
            return None


def event_line(document: Mapping[str, Any]) -> str:
    """Return an event as a line for people."""
    match document["event"]:
        case "device":
            shown = document["device"]
            where = f"on host {shown['host']}" if shown["host"] is not None else "free"
            line = f"device {shown['id']}: {where}, health {shown['health']}"
        case "device-gone":
            line = f"device {document['device']['id']}: gone"
        case "host":
            ports = document["host"]["ports"]
            free = sum(port["state"] == contract.PortState.FREE.value for port in ports)
            line = f"host {document['host']['id']}: {free} of {len(ports)} ports free"
        case "operation":
            shown = document["operation"]
            error = f" {shown['error']}" if shown["error"] is not None else ""
            line = f"operation {shown['id']}: {shown['kind']} of {shown['device']}: {_state(shown)}{error}"
        case _:
            line = "changes were missed; the following ones are new"
    return tables.clean(line)


def report(outcome: reports.Report) -> dict[str, Any]:
    """Return the report of the conformance suite as JSON values."""
    return {
        "passed": outcome.passed,
        "checks": [
            {"name": single.name, "verdict": single.verdict.value, "detail": single.detail}
            for single in outcome.outcomes
        ],
    }


def show_report(out: console.Console, document: Mapping[str, Any]) -> None:
    """Print the report of the conformance suite: a row for each check that did not pass, and a sum."""
    checks = document["checks"]
    lines = [
        (item["verdict"], item["name"], item["detail"]) for item in checks if item["verdict"] != "passed"
    ]
    if lines:
        tables.rows(out, ("VERDICT", "CHECK", "DETAIL"), lines, "")
        out.print()
    counts = {verdict: sum(item["verdict"] == verdict for item in checks) for verdict in reports.Verdict}
    tables.sentence(out, "; ".join(f"{count} {verdict.value}" for verdict, count in counts.items()))


def check(
    source: observed.Source,
    can: contract.Capabilities,
    hosts: tuple[contract.Host, ...],
    inventory: contract.Inventory,
) -> dict[str, Any]:
    """Return the readings of a fabric as JSON values."""
    mapped = oddities.node_map(source, hosts)
    return {
        "fabric": source.name,
        "adapter": source.spec.adapter,
        "endpoint": endpoint(source.spec.endpoint),
        "credentials": identity(source.credentials),
        "capabilities": capabilities(can),
        "hosts": [host(item, mapped) for item in hosts],
        "devices": devices(inventory.devices, hosts, source),
        "odd": list(oddities.oddities(source, can, hosts, inventory)),
    }


def show_check(out: console.Console, document: Mapping[str, Any]) -> None:
    """Print the readings of a fabric."""
    can = document["capabilities"]
    tables.sentence(
        out,
        f"Fabric {document['fabric']}: reached at {document['endpoint']} with the adapter {document['adapter']}; "
        f"credentials: {document['credentials']}",
    )
    limit = can["maxConcurrentOperations"]
    able = [name for name, value in can.items() if value is True]
    scope = "no limit on operations at once" if limit is None else f"{limit} operations at once"
    tables.sentence(
        out,
        f"Capabilities: {', '.join(able) or 'none'}; {scope}; one at a time per {can['serializationScope']}",
    )
    out.print()
    show_hosts(out, document["hosts"])
    out.print()
    show_devices(out, document["devices"], forecasts=True)
    out.print()
    tables.sentence(out, f"Odd: {len(document['odd']) or 'nothing'}")
    for sentence in document["odd"]:
        tables.sentence(out, f"- {sentence}")


def show_adapters(out: console.Console, items: Sequence[Mapping[str, Any]]) -> None:
    """Print the installed adapters with their parameters."""
    lines: list[tuple[object, ...]] = []
    for item in items:
        if item["problem"] or item["parameters"] is None:
            lines.append((item["name"], None, item["problem"] or "its vendor describes no parameters"))
            continue
        properties = item["parameters"].get("properties", {})
        lines += [
            (item["name"] if number == 0 else " ", name, _description(described))
            for number, (name, described) in enumerate(properties.items())
        ] or [(item["name"], None, "no parameters")]
    tables.rows(out, ("ADAPTER", "PARAMETER", "DESCRIPTION"), lines, "No fabric adapter is installed.")


def _description(described: Mapping[str, Any]) -> str:
    allowed = f" ({', '.join(map(str, described['enum']))})" if "enum" in described else ""
    return f"{described.get('description', '')}{allowed}"
