"""The oddities of a fabric, by its manager's lists and by the cluster's objects; pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from drawbar.driver import wording
from drawbar.driver.api import attachments, fabrics, meta
from drawbar.driver.cli.fabric import observed, prospects
from drawbar.driver.controller import host_claims, reach
from drawbar.driver.controller import hosts as host_map
from drawbar.driver.controller.fabrics import numbers
from drawbar.fabric import contract, identifiers, recognition, witnesses

# The most ids or attributes in one sentence.
NAMED_MAX = 8
# The way to compare a host's identifiers, by kind; other kinds are compared as serial numbers.
COMPARABLE: Mapping[str, Callable[[str], str]] = {**host_claims.COMPARABLE, "hostname": identifiers.host_name}


def oddities(
    source: observed.Source,
    can: contract.Capabilities,
    hosts: tuple[contract.Host, ...],
    inventory: contract.Inventory,
) -> tuple[str, ...]:
    """Return a sentence with the remedy for each oddity."""
    devices = inventory.devices
    return (
        *(f"{sentence}; its devices are in doubt" for sentence in inventory.unread),
        *inventory.oddities,
        *_setup(source, can, hosts, inventory),
        *_hosts(hosts),
        *_devices(hosts, devices),
        *_recognition(hosts, devices),
        *_cluster(source, hosts, devices),
    )


def node_map(source: observed.Source, hosts: tuple[contract.Host, ...]) -> host_map.NodeMap:
    """Return the node of each host, as the controller maps them; empty without a cluster."""
    if source.cluster is None:
        return host_map.NodeMap()
    held = host_map.from_status(source.cluster.fabric)
    return host_map.node_map(source.spec, hosts, source.cluster.nodes, held)


def _setup(
    source: observed.Source,
    can: contract.Capabilities,
    hosts: tuple[contract.Host, ...],
    inventory: contract.Inventory,
) -> Iterator[str]:
    devices = inventory.devices
    if not source.spec.tls.verify:
        yield "tls.verify is off: any server may pose as the fabric manager; give ca.crt and turn it on"
    if not hosts:
        yield "the fabric manager lists no host; check the rights of the account"
    if not devices and not inventory.unread:
        yield "the fabric manager lists no device; check the rights of the account, and the adapter's parameters"
    offer = source.spec.offer
    if devices and not any(
        offer.has_device(device.id, device.device_class.value, device.model, device.enclosure)
        for device in devices
    ):
        yield "spec.offer leaves out every device; compare it with `drawbar fabric devices`"
    listed = {device.id for device in devices}
    if missing := [device_id for device_id in offer.devices if device_id not in listed]:
        yield f"spec.offer names devices that are not listed: {', '.join(missing[:NAMED_MAX])}; correct the ids"
    if not can.marks:
        yield "the fabric keeps no marks, so the owner of a connection is not visible; let only one cluster use it"


def _hosts(hosts: tuple[contract.Host, ...]) -> Iterator[str]:
    """Yield a sentence for each identifier that several hosts share, and for each that the maker left at a default."""
    holders: dict[tuple[str, str], list[str]] = {}
    placeholders: dict[tuple[str, str], list[str]] = {}
    # Of several equal identifiers, the first form is shown.
    forms: dict[tuple[str, str], str] = {}
    for host in hosts:
        for kind, shown in host.identifiers.items():
            compared = COMPARABLE.get(kind, identifiers.serial)(shown)
            first = forms.setdefault((kind, compared), shown) if compared else shown
            listed = holders if compared else placeholders
            listed.setdefault((kind, first), []).append(host.id)
    remedy = "map hosts to nodes in spec.hosts, or have the manager show a number of each machine"
    for (kind, shown), ids in sorted(placeholders.items()):
        yield f"{_describe_ids(ids, 'host')} {_show(ids)} the placeholder {kind} {shown}, which identifies no machine; {remedy}"
    for (kind, shown), ids in sorted(holders.items()):
        if len(ids) > 1:
            yield f"{_describe_ids(ids, 'host')} show the same {kind} {shown}, so it identifies none of them; {remedy}"


def _show(ids: Sequence[str]) -> str:
    return "shows" if len(ids) == 1 else "show"


def _devices(hosts: tuple[contract.Host, ...], devices: tuple[contract.Device, ...]) -> Iterator[str]:
    host_ids = {host.id for host in hosts}
    for device in devices:
        if device.connection is not None and device.connection.host_id not in host_ids:
            yield (
                f"device {device.id} is attached to host {device.connection.host_id}, which is not listed; "
                "check the rights of the account"
            )
        if device.health in (contract.Health.WARNING, contract.Health.CRITICAL):
            yield f"device {device.id} has the health {device.health.value}; see the fabric manager's log"
        for refused in device.refused_attributes[:NAMED_MAX]:
            yield f"device {device.id} is offered without an attribute of its adapter: {refused}; tell the vendor"
    if stranded := reach.find_stranded(devices, hosts):
        yield stranded
    for host in hosts:
        if faulty := [port.id for port in host.ports if port.state is contract.PortState.FAULT]:
            yield f"host {host.id} has ports with a fault: {', '.join(faulty)}; see the fabric manager's log"


def _recognition(hosts: tuple[contract.Host, ...], devices: tuple[contract.Device, ...]) -> Iterator[str]:
    forecasts = prospects.forecasts(devices, hosts)
    listed = numbers.Numbers.from_devices(devices)
    carved = contract.find_carved(devices)
    by_cause: dict[str, list[str]] = {}
    for device in devices:
        if device.id not in carved and forecasts[device.id].means is recognition.Means.SOLE_ARRIVAL:
            own = numbers.remove_identifiers(device, listed.find_shared(device)).identifiers
            kinds = prospects.shorten(each.kind.value for each in own)
            cause = f"nodes cannot read {kinds}" if kinds else "the fabric manager shows no identifier"
            if device.identifiers and not own:
                cause = "no identifier is theirs alone"
            by_cause.setdefault(cause, []).append(device.id)
    for shown, ids in by_cause.items():
        yield (
            f"{_describe_ids(ids)} can be recognised only by sole arrival: {shown}; attach one such device to a host at a time, "
            "and none by hand meanwhile"
        )
    shared = listed.holders()
    # A serial number also appears under its declared kind.
    declared = {
        (value, named) for (kind, value), named in shared.items() if kind is not witnesses.Kind.SERIAL
    }
    for (kind, value), named in sorted(shared.items()):
        if kind is witnesses.Kind.SERIAL and (value, named) in declared:
            continue
        yield (
            f"{_describe_ids(named)} show the same {kind.value} {value}, so it identifies none of them; ask the vendor of the fabric "
            "manager for an identifier of each device"
        )


def _describe_ids(ids: Sequence[str], kind: str = "device") -> str:
    """Return the number of devices or hosts in words, with the ids of a few."""
    return f"{kind}{'' if len(ids) == 1 else 's'} {wording.join_some(ids, NAMED_MAX)}"


def _cluster(
    source: observed.Source, hosts: tuple[contract.Host, ...], devices: tuple[contract.Device, ...]
) -> Iterator[str]:
    cluster = source.cluster
    if cluster is None:
        return
    mapped = node_map(source, hosts)
    yield from mapped.problems
    for host in hosts:
        if mapped.node_of(host.id) is None:
            yield f"host {host.id} is not a node of the cluster; map it in spec.hosts if it should be one"
    condition = meta.find(cluster.fabric.status.conditions, fabrics.CONNECTED)
    if condition is None or not condition.is_true:
        message = condition.message if condition is not None else "no controller has served the Fabric yet"
        yield f"the controller is not connected to it: {message}; see `drawbar doctor`"
    for pair in cluster.fabric.status.incompatible:
        yield (
            f"device {pair.device} is not offered to host {pair.host} for now, since the fabric manager refused it there "
            f"({pair.message}); have the adapter tell their reachability groups, or look at the cables between them"
        )
    by_id = {device.id: device for device in devices}
    for attachment in cluster.attachments:
        device = by_id.get(attachment.device_id)
        # A place has no device before the fabric has chosen one.
        is_undecided = attachment.spec.device_id not in by_id and attachment.status.device is None
        if attachment.deleting or (is_undecided and not attachment.holds(attachments.ATTACHED)):
            continue
        if device is None:
            yield f"DeviceAttachment {attachment.metadata.name} has a device that is not listed; see its conditions"
        elif attachment.holds(attachments.ATTACHED) and (
            device.connection is None or device.connection.host_id != attachment.spec.host_id
        ):
            yield (
                f"DeviceAttachment {attachment.metadata.name} is Attached to host {attachment.spec.host_id}, and the fabric "
                "manager shows the device elsewhere; see the Fabric's conditions"
            )
