"""A reading of the fabric in terms of the contract: its devices, hosts and ports; pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from drawbar.fabric import budget, contract, errors

NAMED_MAX = 5
"""How many devices or hosts are named in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A reading of the fabric in terms of the contract.

    Attributes:
        devices: with their connections, by id.
        hosts: without the ports that are only reserved, by id.
        oddities: one sentence for each listed resource that cannot be used.
        unread: by URI, a sentence for each resource that the service failed to show; dependent resources are omitted.
    """

    devices: Mapping[str, contract.Device] = field(default_factory=dict)
    hosts: Mapping[str, contract.Host] = field(default_factory=dict)
    oddities: tuple[str, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)


def find_usable_ids(ids: Iterable[str]) -> frozenset[str]:
    """Return the ids that are short enough, and of one resource alone.

    None of several resources has their common id: the next listing could show another one by it.
    """
    counts = Counter(ids)
    return frozenset(
        name for name, count in counts.items() if count == 1 and len(name.encode()) <= contract.STRING_BYTES
    )


def explain_unusable_id(what: str, own_id: str) -> str:
    """Return why a resource is left out, with the remedy: its Id is too long, or another resource has it, too."""
    if len(own_id.encode()) > contract.STRING_BYTES:
        return f"{what} is left out: its Id is longer than {contract.STRING_BYTES} bytes; ask the vendor for a shorter one"
    return f"{what} is left out: its Id {own_id} is not unique; give each resource its own"


def check_read(view: View, device_id: str | None) -> None:
    """Refuse to judge a device that is not shown while a part of the service cannot be read.

    Raises:
        Unavailable: it may be there, and attached.
    """
    if device_id is not None and view.unread and device_id not in view.devices:
        raise errors.Unavailable(
            f"device {device_id} is not listed, and the Redfish service cannot show all of its parts "
            f"({next(iter(view.unread.values()))}); look at the service",
            reason="NOT_READ",
        )


def find_excess(view: View, listing: budget.Listing) -> str:
    """Return a sentence for a view with more devices, hosts or ports than the listing permits; else an empty one."""
    try:
        listing.count(budget.Counted.DEVICES, len(view.devices))
        listing.count(budget.Counted.HOSTS, len(view.hosts))
        listing.count(budget.Counted.PORTS, sum(len(host.ports) for host in view.hosts.values()))
    except errors.FabricError as error:
        return error.message
    return ""


def keep_known(view: View, devices: Collection[str], hosts: Collection[str]) -> View:
    """Return the view without devices and hosts other than these."""
    return replace(
        view,
        devices={name: view.devices[name] for name in devices if name in view.devices},
        hosts={name: host for name, host in view.hosts.items() if name in hosts},
    )


def reserve_ports(
    hosts: Mapping[str, contract.Host], pending: Mapping[str, tuple[str, str] | None]
) -> tuple[contract.Host, ...]:
    """Return the hosts; the ports of attaches in flight are in use.

    Args:
        hosts: by id.
        pending: by device id, the host and port of every attach in flight, or None for a detach.
    """
    reserved = dict(hosts)
    for device_id, host_port in pending.items():
        if host_port is None or host_port[0] not in reserved:
            continue
        host = reserved[host_port[0]]
        ports = tuple(
            replace(port, state=contract.PortState.USED, device_id=device_id)
            if port.id == host_port[1] and port.state is contract.PortState.FREE
            else port
            for port in host.ports
        )
        reserved[host.id] = replace(host, ports=ports)
    return tuple(reserved.values())


def describe_unreached(
    devices: Mapping[str, contract.Device], hosts: Mapping[str, contract.Host], kind: str
) -> tuple[str, ...]:
    """Return a sentence for each group of devices that some hosts cannot have.

    Args:
        devices: by id, with their reachability groups.
        hosts: likewise.
        kind: of the groups, such as "resource zone".
    """
    alike: dict[frozenset[str], list[str]] = {}
    for device in devices.values():
        if device.reach_groups:
            alike.setdefault(device.reach_groups, []).append(device.id)
    sentences = []
    for groups, device_ids in sorted(alike.items(), key=lambda entry: entry[1]):
        beyond = [host.id for host in hosts.values() if not contract.reaches(groups, host.reach_groups)]
        if beyond:
            verb = "is" if len(device_ids) == 1 else "are"
            sentences.append(f"{name_some(device_ids)} {verb} in no {kind} of {name_some(beyond)}")
    return tuple(sentences)


def drop_twins(
    devices: Mapping[str, contract.Device],
    parts: Mapping[str, frozenset[str]],
    cards: Mapping[str, frozenset[str]],
) -> tuple[dict[str, contract.Device], tuple[str, ...]]:
    """Return the devices without the free ones that consist of the parts or cards of another one, and a sentence for each of these.

    A card with two endpoints would be offered twice, and be free at the second while it is attached by the first. One of them may
    link to its PCIe device, and the other one to its processor.

    Args:
        devices: by id.
        parts: the URIs of each device's parts, by device id, also of devices that are not shown.
        cards: the URIs of these parts' PCIe devices and drives, by device id.
    """
    kept = dict(devices)
    sentences = []
    first: dict[frozenset[str], str] = {}
    by_card: dict[frozenset[str], str] = {}
    # Those that are not shown may be attached.
    shown = {name for name, device in devices.items() if device.connection is None}
    # Of a card's functions, that of a class is its device.
    unclassed = {name for name in shown if devices[name].device_class is contract.DeviceClass.OTHER}
    for name in sorted(parts, key=lambda name: (name in shown, name in unclassed, name)):
        if not parts[name]:
            continue
        other = first.setdefault(parts[name], name)
        card = cards.get(name, frozenset())
        if other == name:
            other = by_card.get(parts[name]) or first.get(card, name)
        if card:
            by_card.setdefault(card, name)
        if other != name and name in shown:
            del kept[name]
            sentences.append(f"device {name} has the parts of device {other}, so it is not listed")
    return kept, tuple(sentences)


def describe_shared(device_id: str, host_ids: Iterable[str]) -> str:
    """Return the sentence for a device that is connected to several hosts."""
    names = name_some(sorted(host_ids))
    return (
        f"device {device_id} is connected to several hosts ({names}), and shown at one of them; disconnect it "
        f"from the others at the service, unless they share it"
    )


def name_some(names: Sequence[str]) -> str:
    """Return the first few of the names in words, with a count of the rest."""
    rest = len(names) - NAMED_MAX
    return f"{', '.join(names[:NAMED_MAX])}{f' and {rest} more' if rest > 0 else ''}"


def port_id(origin: str, device_id: str) -> str:
    """Return the id of the port with a device, below a host or one of its endpoints.

    The services have ports with many devices, the contract has one device for each port.
    """
    return f"{origin}/{device_id}"


def ports(origin: str, device_ids: Sequence[str], *, most: int) -> tuple[contract.Port, ...]:
    """Return the ports with devices, and free ones up to `most`."""
    used = [
        contract.Port(id=port_id(origin, device_id), state=contract.PortState.USED, device_id=device_id)
        for device_id in device_ids
    ]
    free = [
        contract.Port(id=port_id(origin, f"free-{number}"), state=contract.PortState.FREE)
        for number in range(1, most - len(used) + 1)
    ]
    return (*used, *free)
