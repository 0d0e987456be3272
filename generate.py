"""Writes what follows from the tables of `drawbar.driver.catalogue`, the classes of device and the daemons' settings.

docs/reference/ is wholly generated; of the definitions, the chart and the protocol only the lists of
classes, the rules of ClusterRoles and the schema of the settings are.
`make generate` runs this after a change of a table.
"""

import enum
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePath
from typing import Any

import yaml

from drawbar.driver.api import meta, parameters
from drawbar.driver.catalogue import (
    attachment_conditions,
    checks,
    events,
    fabric_conditions,
    permissions,
    taints,
)
from drawbar.driver.catalogue.tables import Row, Severity
from drawbar.driver.configuration import schema
from drawbar.driver.controller import settings as controller_settings
from drawbar.driver.controller.operation import gauges
from drawbar.driver.controller.operation import instrumentation as controller_instrumentation
from drawbar.driver.healthmonitor import metrics as monitor_metrics
from drawbar.driver.healthmonitor import settings as monitor_settings
from drawbar.driver.node import settings as node_settings
from drawbar.driver.node.health import policy
from drawbar.driver.node.operation import instrumentation as node_instrumentation
from drawbar.driver.operation import exposition
from drawbar.driver.webhook import settings as webhook_settings
from drawbar.fabric.classes import OFFERED_CLASSES, DeviceClass
from drawbar.fabric.redfish import parameters as redfish_parameters
from drawbar.mocks.redfish import quirks

ROOT = Path(__file__).resolve().parent
_NAMES = [str(listed) for listed in OFFERED_CLASSES]
# Settings that the chart decides.
_DECIDED = {
    "controller": {
        "driverName",
        "leaseNamespace",
        "nodeDaemonSelector",
        "kubeconfig",
        "identity",
        "http.address",
    },
    "node": {*("driverName", "kubeletDir", "cdiDir", "kubeconfig"), *("nodeName", "podUID", "http.address")},
}
_DAEMONS = {
    "controller": controller_settings.Settings,
    "node": node_settings.Settings,
    "webhook": webhook_settings.Settings,
    "health-monitor": monitor_settings.Settings,
}
# Memory by capacity and the null device have a DeviceClass and no module.
_CHART_ONLY = ["cxl-memory-pool", "none"]
# The characters of a text that stands once on its page.
_LONG = 40
_CLASS_ONLY = "; class only"
_HEAD = "<!-- `make generate` writes this page from {source}. -->\n\n# {title}\n\n{text}\n"


def files() -> dict[str, str]:
    """Return the text of each file that is generated, or has generated lists, by its path."""
    return {
        "docs/reference/conditions.md": _conditions(),
        "docs/reference/events.md": _events(),
        "docs/reference/taints.md": _taints(),
        "docs/reference/api.md": _api(),
        "docs/reference/parameters.md": _parameters(),
        "docs/reference/checks.md": _checks(),
        "docs/reference/findings.md": _findings(),
        "docs/reference/metrics.md": _metrics(),
        "docs/reference/device-classes.md": _classes(),
        "docs/reference/redfish-parameters.md": _redfish_parameters(),
        "docs/reference/redfish-quirks.md": _quirks(),
        "docs/reference/permissions.md": _permissions(),
        "docs/reference/settings.md": _settings(),
        "deploy/drawbar/definitions/deviceattachments.yaml": _definition("deviceattachments.yaml"),
        "deploy/drawbar/definitions/fabrics.yaml": _definition("fabrics.yaml"),
        **{f"deploy/drawbar/templates/{role.template}": _cluster_role(role) for role in permissions.ROLES},
        "deploy/drawbar/values.yaml": _values(),
        "deploy/drawbar/values.schema.json": _schema(),
        "proto/drawbar/proto/fabric/v1alpha1/fabric.proto": _protocol(),
    }


def _definition(name: str) -> str:
    text = (ROOT / "deploy/drawbar/definitions" / name).read_text()
    text = re.sub(r"enum: \[gpu, .*\]", f"enum: [{', '.join(_NAMES)}]", text)
    ways = [
        (listed, "none, reset, erase" if listed.can_erase else "none, reset") for listed in OFFERED_CLASSES
    ]
    lines = [
        f"{meta.camel_case(listed)}: {{type: string, enum: [{way}], description: {listed.meaning}.}}\n"
        for listed, way in ways
    ]
    pattern = r"^( +)gpu: \{type: string, enum: \[none, reset\].*\n(?:\1\w+: \{type: string, enum: \[none, reset.*\n)+"
    return re.sub(pattern, lambda old: "".join(old[1] + line for line in lines), text, flags=re.MULTILINE)


def _cluster_role(role: permissions.Role) -> str:
    """Return the template of a role, with the rules that hold in the whole cluster."""
    text = (ROOT / "deploy/drawbar/templates" / role.template).read_text()
    rules = [
        f"  # {_plain(rule.why)}.\n  - {{{_rule(rule)}}}\n"
        for rule in role.permissions
        if not (rule.in_namespace or rule.in_default)
    ]
    pattern = r"(\nkind: ClusterRole\n(?:.+\n)+?rules:\n)(?:  .*\n)+"
    return re.sub(pattern, lambda old: old[1] + "".join(rules), text, count=1)


def _rule(rule: permissions.Permission) -> str:
    verbs = ", ".join(f'"{verb}"' if ":" in verb else verb for verb in rule.verbs.split())
    only = "{{ .Values.driverName }}" if rule.only == permissions.DRIVER else rule.only
    names = f" resourceNames: [{only}]," if only else ""
    group = rule.group or '""'
    return f"apiGroups: [{group}], resources: [{rule.resource}],{names} verbs: [{verbs}]"


def _plain(markdown: str) -> str:
    """Return a text without its links and its emphasis, as a sentence without its full stop."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", markdown).replace("**", "")
    return text[:1].upper() + text[1:].rstrip(".")


def _values() -> str:
    text = (ROOT / "deploy/drawbar/values.yaml").read_text()
    offered = [name for name in _NAMES if name != DeviceClass.OTHER]
    return re.sub(
        r"^  classes: \[gpu, .*\]",
        f"  classes: [{', '.join(offered + _CHART_ONLY)}]",
        text,
        flags=re.MULTILINE,
    )


def _schema() -> str:
    chart = json.loads((ROOT / "deploy/drawbar/values.schema.json").read_text())
    classes = chart["properties"]["deviceClasses"]["properties"]
    classes["classes"]["items"]["enum"] = _NAMES + _CHART_ONLY
    resources = classes["extendedResources"]["patternProperties"]
    for pattern in [pattern for pattern in resources if pattern.startswith("^(gpu|")]:
        rule = resources.pop(pattern)
        resources[f"^({'|'.join(_NAMES)})$"] = rule
    for daemon, decided in _DECIDED.items():
        chart["properties"][daemon]["properties"]["config"] = _configuration(daemon, decided)
    return json.dumps(chart, indent=2, ensure_ascii=False) + "\n"


def _configuration(daemon: str, decided: set[str]) -> dict[str, Any]:
    """Return the schema of a daemon's settings, without those that the chart decides."""
    whole = _object()
    for option in schema.options(_DAEMONS[daemon]):
        if option.key not in decided:
            *topics, key = option.key.split(".")
            at = whole
            for topic in topics:
                at = at["properties"].setdefault(topic, _object())
            at["properties"][key] = _leaf(option.kind) | {"description": option.help}
    return whole


def _object() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def _leaf(kind: Any) -> dict[str, Any]:
    plain = schema.plain_kind(kind)
    if schema.is_list(plain):
        return {"type": "array", "items": _leaf(schema.element_kind(plain))}
    names = {bool: "boolean", int: "integer", float: "number"}
    values = {"enum": [str(value) for value in plain]} if issubclass(plain, enum.StrEnum) else {}
    return {"type": names.get(plain, "string")} | values


def _settings() -> str:
    head = _HEAD.format(
        source="the settings of the daemons",
        title="Settings of the daemons",
        text=(
            "Run a daemon with `--print-config` to see your settings and the source of each. A flag wins over the environment, the environment over the file. "
            "`localPool.quietSeconds` has the flag `--local-pool-quiet` and the variable `DRAWBAR_LOCAL_POOL_QUIET`; in the file it is "
            "`quietSeconds` below `localPool`. `health.rules` has no flags. In parentheses: the default, unless it is empty or no, and a further "
            "variable."
        ),
    )
    daemons = {daemon: _describe_settings(settings) for daemon, settings in _DAEMONS.items()}
    common = [row for row in daemons["controller"] if all(row in rows for rows in daemons.values())]
    parts = [head, f"\n## All daemons\n\n{_list(common)}"]
    first: dict[tuple[str, str], str] = {}
    for daemon, rows in daemons.items():
        own = []
        for name, meaning in rows:
            origin = first.setdefault((name, meaning), daemon)
            is_known = origin != daemon and len(meaning) > _LONG
            if (name, meaning) not in common:
                own.append((name, f"as the [{origin}](#drawbar-{origin})'s" if is_known else meaning))
        parts.append(f"\n## `drawbar {daemon}`\n\n{_list(own)}")
    return "".join(parts)


def _describe_settings(settings: type) -> list[tuple[str, str]]:
    """Return the name and the meaning of each setting; the rules of all findings share theirs."""
    rows = {}
    for option in schema.options(settings):
        key = re.sub(r"^health\.rules\.\w+", "health.rules.<finding>", option.key)
        default = _default(option.default) if key == option.key else "[by finding](findings.md)"
        known = [*filter(None, [default]), *(f"`{name}`" for name in option.variables[1:])]
        values = _leaf(option.kind).get("enum", ())
        rows[key] = (
            f"`{key}`" + (f" ({', '.join(known)})" if known else ""),
            option.help + _missing_values(values, option.help),
        )
    return list(rows.values())


def _missing_values(values: Iterable[str], text: str) -> str:
    """Return the allowed values to follow a text; empty if it names them."""
    listed = list(values)
    if listed == _NAMES:
        return " ([classes](device-classes.md))"
    if all(value in text for value in listed):
        return ""
    return ": " + ", ".join(f"`{value}`" for value in listed)


def _default(value: Any) -> str:
    """Return a default as text; empty if it is none or False."""
    plain = schema.builtin(value)
    if isinstance(plain, bool):
        return "yes" if plain else ""
    if isinstance(plain, list):
        return ", ".join(plain)
    if isinstance(plain, float):
        return f"{plain:g}"
    return "" if plain is None else str(plain)


def _protocol() -> str:
    text = (ROOT / "proto/drawbar/proto/fabric/v1alpha1/fabric.proto").read_text()
    lines = "".join(f"  DEVICE_CLASS_{listed.name} = {listed.number};\n" for listed in OFFERED_CLASSES)
    return re.sub(r"(  DEVICE_CLASS_UNSPECIFIED = 0;\n)(?:  DEVICE_CLASS_\w+ = \d+;\n)+", rf"\1{lines}", text)


def _classes() -> str:
    head = _HEAD.format(
        source="fabric/drawbar/fabric/classes.py",
        title="Classes of device",
        text=(
            "Use these names for the [attribute](../attributes.md) `class`, the field `deviceClass`, the chart's `deviceClasses.classes` "
            "and your node daemons' `localPool.classes`; in `policy.clean`, CXL memory is `cxlMemory`. "
            "A node tells the class by vendor, device ID and driver if it knows them, else by PCI class code. "
            "Between two users, a device is reset or left as it is."
        ),
    )
    rows = [
        (f"`{listed}`", listed.meaning + ("; can be erased" if listed.can_erase else ""))
        for listed in OFFERED_CLASSES
    ]
    return f"{head}\n{_list(rows)}"


def _redfish_parameters() -> str:
    head = _HEAD.format(
        source="fabric/drawbar/fabric/redfish/parameters.py",
        title="Parameters of the adapter redfish",
        text=(
            "Keys of a Fabric's `spec.parameters` with `adapter: redfish` ([Redfish](../redfish.md)). Each value is a text: write "
            '`pollSeconds: "10"`.'
        ),
    )
    rows = [
        (f"`{name}`", str(described["description"])) for name, described in redfish_parameters.SCHEMA.items()
    ]
    return f"{head}\n{_list(rows)}"


def _quirks() -> str:
    head = _HEAD.format(
        source="mocks/drawbar/mocks/redfish/quirks",
        title="Oddities of Redfish servers",
        text=(
            '`drawbar mock redfish --config FILE --quirk pages,gzip,weak-etags`, or `"quirks": ["pages"]` in the file, gives your emulated '
            "service any of these. Servers and reports are in italics; `owner/name #1` is an issue or pull request on GitHub. "
            "[Redfish servers](../redfish-servers.md) has versions.\n\n"
            "Forms in parentheses limit a quirk: `pair` and `port` are those of `zones`, `appliance` is `connections` without initiators, "
            "`constrained` is `composition` by counts."
        ),
    )
    rows = [
        (
            f"`{quirk.name}`" + ("" if quirk.forms == quirks.ALL else f" ({', '.join(sorted(quirk.forms))})"),
            quirk.text + (f" *{quirk.seen}*" if quirk.seen else ""),
        )
        for quirk in sorted(quirks.QUIRKS.values(), key=lambda quirk: quirk.name)
    ]
    return f"{head}\n{_list(rows)}"


def _conditions() -> str:
    head = _HEAD.format(
        source="driver/drawbar/driver/catalogue",
        title="Conditions and their reasons",
        text=(
            "Look up your reason: cause, then remedy. The message beside it quotes the fabric manager or the kernel, in at most 1,024 "
            "characters. [Conditions](../conditions.md) explains each condition. The prefix `drawbar.dev/` is the driver's name. "
            "*(taint)*: the device is tainted. A status in parentheses replaces the one above the list."
        ),
    )
    tables = (*attachment_conditions.TABLES, *fabric_conditions.TABLES)
    parts = [head]
    for title in dict.fromkeys(table.title for table in tables):
        listed = [table for table in tables if table.title == title]
        fine = [
            f"`{row.reason}` ({row.status or table.status})"
            for table in listed
            for row in table.rows
            if _is_plain(row)
        ]
        above = ": ".join(filter(None, [listed[0].conditions, listed[0].status]))
        rows = [row for table in listed for row in table.rows if not _is_plain(row)]
        note = f". Without a fault: {', '.join(fine)}." if fine else ""
        parts.append(f"\n## {title}\n\n{above}{note}\n\n{_list(_entries(rows, _status))}")
    return "".join(parts)


def _events() -> str:
    head = _HEAD.format(
        source="driver/drawbar/driver/catalogue/events.py",
        title="Events",
        text=(
            "Run `kubectl events --for KIND/NAME`, or `kubectl describe`. Events of objects without a namespace are in the "
            "namespace `default`. Your Event's message names the object and the details. The Event is a Warning unless it says *Normal*. Each reason of a "
            "[failed attach](conditions.md#why-an-attach-fails) is also an Event of the claim, its pods and the DeviceAttachment. Each "
            "reason of [`Released`](conditions.md#why-a-node-does-not-release-a-device) is one of the claim and its DeviceAttachment."
        ),
    )
    conditions = (*attachment_conditions.TABLES, *fabric_conditions.TABLES)
    known = [row for table in conditions for row in table.rows]
    parts = [head]
    *tables, common = events.TABLES
    for table in (*tables, common):
        own = [row for row in table.rows if table is common or row not in common.rows]
        fine = [f"`{row.reason}`" for row in own if _is_plain(row)]
        same = [f"`{row.reason}`{_type(row)}" for row in own if not _is_plain(row) and row in known]
        rows = [row for row in own if not _is_plain(row) and row not in known]
        notes = [
            *([f"Normal: {', '.join(fine)}."] if fine else []),
            *([f"Explained in [conditions](conditions.md): {', '.join(same)}."] if same else []),
        ]
        above = f"{' '.join(notes)}\n\n" if notes else ""
        parts.append(f"\n## {table.title}\n\n{above}{_list(_entries(rows, _type))}")
    return "".join(parts)


def _taints() -> str:
    head = _HEAD.format(
        source="driver/drawbar/driver/catalogue/taints.py",
        title="Taints in ResourceSlices",
        text=(
            "The prefix `drawbar.dev/` is the driver's name. The effect is NoSchedule unless another stands here. A node's "
            "[findings](findings.md) are taints as well, until the node finds them no more or has released the device."
        ),
    )
    parts = [head]
    for title, is_fault in (("Faults", True), ("On sound devices", False)):
        entries = [
            (
                f"`drawbar.dev/{row.key}{'=' + row.value if row.value else ''}`".replace(
                    "{reason}", "<reason>"
                )
                + (f" ({row.effect})" if row.effect != taints.NO_SCHEDULE else ""),
                f"{row.cause} Lifted {row.lifted}. {_next_step(row)}",
            )
            for row in taints.TAINTS
            if row.cause and row.is_fault is is_fault
        ]
        parts.append(f"\n## {title}\n\n{_list(entries)}")
    return "".join(parts)


def _api() -> str:
    head = _HEAD.format(
        source="deploy/drawbar/definitions",
        title="Objects",
        text=(
            "The fields of `spec`; `kubectl explain` shows them, too, with their rules. You must set the **bold** ones. Defaults are in "
            "parentheses. The controller writes [DeviceAttachments](../conditions.md#on-a-deviceattachment)."
        ),
    )
    parts = [head]
    for name in ("fabrics", "maintenances", "healthpolicies"):
        # The definitions' texts are not generated, only their lists.
        definition = yaml.load(_definition(f"{name}.yaml"), Loader=yaml.CSafeLoader)["spec"]
        (version,) = definition["versions"]
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        parts.append(f"\n## {definition['names']['kind']}\n\n{_list(_fields(spec, ''))}")
    return "".join(parts)


def _fields(schema_: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the meaning of each field below a schema, the outer ones first."""
    for name, field in schema_.get("properties", {}).items():
        shown = f"`{path}{name}`"
        default = field.get("default")
        usual = (
            ""
            if default is None or isinstance(default, dict)
            else " ({})".format(json.dumps(default).strip('"'))
        )
        text = field.get("description", "").strip().removesuffix(".")
        yield (
            (f"**{shown}**" if name in schema_.get("required", ()) else shown) + usual,
            text + _missing_values(field.get("enum", ()), text),
        )
        # The classes and their treatments are rows of device-classes.md.
        if f"{path}{name}" != "policy.clean":
            yield from _fields(field, f"{path}{name}.")
        if field.get("type") == "array":
            yield from _fields(field["items"], f"{path}{name}[].")


def _parameters() -> str:
    head = _HEAD.format(
        source="driver/drawbar/driver/api/parameters.py",
        title="Fields of parameters",
        text=(
            "The fields of [DeviceParameters](../parameters.md). You set those of the first list in a DeviceClass only; a claim with one is "
            "refused. A field without use for a device is ignored."
        ),
    )
    # Hooks have the same fields: they share an entry.
    names: dict[tuple[type, str], list[str]] = {}
    for owner, field, path in _list_parameters():
        names.setdefault((owner, field), []).append(f"`{path}`")
    entries = [
        (", ".join(shown), texts[field])
        for (owner, field), shown in names.items()
        for texts in [schema.attributes(owner)]
        if field in texts
    ]
    by_class = [
        (shown, text.removesuffix(_CLASS_ONLY)) for shown, text in entries if text.endswith(_CLASS_ONLY)
    ]
    others = [entry for entry in entries if not entry[1].endswith(_CLASS_ONLY)]
    return (
        f"{head}\n## In a DeviceClass\n\n{_list(by_class)}\n## In a DeviceClass or a claim\n\n{_list(others)}"
    )


def _list_parameters() -> Iterator[tuple[type, str, str]]:
    """Yield the struct, the name and the path of each field of parameters."""
    outer = parameters.DeviceParameters
    for name, shown in zip(outer.__struct_fields__, outer.__struct_encode_fields__, strict=True):
        yield outer, name, shown
        inner = type(getattr(parameters.NOTHING, name))
        if issubclass(inner, meta.Struct):
            for field, key in zip(inner.__struct_fields__, inner.__struct_encode_fields__, strict=True):
                yield inner, field, f"{shown}.{key}"


def _checks() -> str:
    head = _HEAD.format(
        source="driver/drawbar/driver/catalogue/checks.py",
        title="Checks of the doctor",
        text="[`drawbar doctor`](../doctor.md) and [`drawbar explain`](../explain.md) print the name of each check with its finding.",
    )
    parts = [head]
    for table in checks.TABLES:
        rows = [(f'<a id="{row.name}"></a>`{row.name}`', row.subject) for row in table.rows]
        parts.append(f"\n## {table.title}\n\n{_list(rows)}")
    return "".join(parts)


def _findings() -> str:
    head = _HEAD.format(
        source="driver/drawbar/driver/node/health/rules",
        title="Findings of a node",
        text=(
            "The node daemon's findings about the [health](../health.md) of its devices, the worst first. The taint's key is "
            "`<driver>/<finding>`. With an effect the device is also Unhealthy. Change an effect by `health.rules`, as "
            "`linkNarrow: {effect: NoSchedule}`."
        ),
    )
    rows = [
        [
            f"`{rule.name}`",
            rule.meaning,
            rule.default.effect.value,
            f"{rule.default.hold_down_seconds:g} s" if rule.default.hold_down_seconds else "",
        ]
        for rule in policy.RULES
    ]
    return f"{head}\n{_table(['finding', 'meaning', 'effect', 'must last'], rows)}"


def described_metrics() -> dict[str, exposition.Exposition]:
    """Return the metrics of each daemon with them, to be described and not to be read."""
    nothing: Any = None
    controller = controller_instrumentation.Instrumentation(controller_settings.Settings())
    gauges.Gauges(cluster=nothing, devices_queue=nothing, fabrics_queue=nothing).show(controller.metrics)
    node = node_instrumentation.Instrumentation(node_settings.Settings(node_name="node"))
    node.watch_attachments(())
    node.watch_devices(nothing)
    node.watch_prepared(nothing)
    node.watch_verdicts(nothing)
    node.watch_queue(nothing, nothing)
    node.watch_unreadable(nothing)
    node.watch_neighbours(nothing, nothing)
    monitor = monitor_metrics.Metrics("drawbar.dev")
    monitor.show()
    return {"controller": controller.metrics, "node": node.metrics, "health-monitor": monitor}


def _metrics() -> str:
    head = _HEAD.format(
        source="the daemons' metrics",
        title="List of metrics",
        text=(
            "[Metrics](../metrics.md) shows you how to read them. Labels stand in braces; each series also has `driver`. Names with `_total` are "
            "counters, those with `_duration_seconds` histograms, all others gauges. Each daemon also has the `process_` series of "
            "Prometheus' Python client. `<daemon>` is `controller`, `node` or `health_monitor`."
        ),
    )
    daemons = {
        f"drawbar_{daemon.replace('-', '_')}": measured.list_described()
        for daemon, measured in described_metrics().items()
    }
    rows = {
        prefix: [
            (
                name.removeprefix(f"{prefix}_")
                + (f"{{{', '.join(metric.labels)}}}" if metric.labels else ""),
                metric.help,
            )
            for name, metric in sorted(described.items())
        ]
        for prefix, described in daemons.items()
    }
    common = [row for row in next(iter(rows.values())) if all(row in others for others in rows.values())]
    parts = [head, _metric_list("All daemons", "drawbar_<daemon>", common)]
    for prefix, own in rows.items():
        title = f"`{prefix.replace('drawbar_', 'drawbar ').replace('_', '-')}`"
        parts.append(_metric_list(title, prefix, [row for row in own if row not in common]))
    return "".join(parts)


def _metric_list(title: str, prefix: str, rows: list[tuple[str, str]]) -> str:
    return f"\n## {title}\n\n{_list((f'`{prefix}_{name}`', text) for name, text in rows)}"


def _permissions() -> str:
    head = _HEAD.format(
        source="driver/drawbar/driver/catalogue/permissions.py",
        title="Permissions",
        text=(
            "The rules of the chart's roles ([security](../security.md)), each with verbs and purpose. Names after *only* are your chart's "
            "defaults."
        ),
    )
    parts = [head]
    for role in permissions.ROLES:
        named: dict[tuple[str, str], list[str]] = {}
        for rule in role.permissions:
            named.setdefault((rule.verbs.replace(" ", ", "), rule.why), []).append(_resource(rule))
        rows = [(f"{', '.join(resources)} ({verbs})", why) for (verbs, why), resources in named.items()]
        parts.append(f"\n## {role.title}: `{role.name}`\n\n{_list(rows)}")
    return "".join(parts)


def _resource(rule: permissions.Permission) -> str:
    """Return the resource as kubectl writes it, and the only allowed object."""
    kind, slash, part = rule.resource.partition("/")
    group = f".{rule.group}" if rule.group else ""
    return f"`{kind}{group}{slash}{part}`" + (f" only `{rule.only}`" if rule.only else "")


def _status(row: Row) -> str:
    """Return the marks of a condition's reason: its own status, and whether the device is tainted."""
    return (f" ({row.status})" if row.status else "") + (" (taint)" if row.blames_device else "")


def _type(row: Row) -> str:
    return " (Normal)" if row.severity in (Severity.OK, Severity.NOTE) else ""


def _is_plain(row: Row) -> bool:
    """Return whether a row is about a sound state that its reason explains."""
    return row.severity is Severity.OK and not _explain(row)


def _entries(rows: Iterable[Row], mark: Callable[[Row], str]) -> Iterator[tuple[str, str]]:
    """Yield the reasons with their marks, and their cause and remedy; rows with the same share an entry."""
    named: dict[str, list[str]] = {}
    for row in rows:
        named.setdefault(_explain(row), []).append(f"`{row.reason}`{mark(row)}")
    for text, names in named.items():
        yield ", ".join(names), text


def _explain(row: Row) -> str:
    """Return the cause of a reason and its remedy."""
    return f"{row.cause} {_next_step(row)}".strip()


def _next_step(row: Row | taints.Taint) -> str:
    """Return the remedy and the page with the details as a sentence; empty if there is neither."""
    link = f"[{PurePath(row.page.partition('#')[0]).stem}](../{row.page})" if row.page else ""
    if not row.remedy:
        return f"See {link}." if link else ""
    return f"{row.remedy[0].upper()}{row.remedy[1:]}{f' ({link})' if link else ''}."


def _list(entries: Iterable[tuple[str, str]]) -> str:
    return "".join(f"- {name}: {text}{'' if text.endswith('.') else '.'}\n" for name, text in entries)


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(columns)
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n".replace("|  |", "| |") for cells in lines)


def main() -> None:
    """Write the files, or with --check only name those that are not up to date and fail."""
    wanted = {ROOT / path: text for path, text in files().items()}
    stale = {path: text for path, text in wanted.items() if not path.exists() or path.read_text() != text}
    if "--check" in sys.argv[1:]:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        sys.exit(f"error: not up to date: {names}; run make generate" if stale else 0)
    for path, text in stale.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
