"""What a view may show, and the ports that operations in flight take; pure."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from drawbar.fabric import budget, contract, errors
from drawbar.fabric.redfish import methods


def find_excess(view: methods.View, listing: budget.Listing) -> str:
    """Return a sentence for a view with more devices, hosts or ports than the listing permits; else an empty one."""
    try:
        listing.count(budget.Counted.DEVICES, len(view.devices))
        listing.count(budget.Counted.HOSTS, len(view.hosts))
        listing.count(budget.Counted.PORTS, sum(len(host.ports) for host in view.hosts.values()))
    except errors.FabricError as error:
        return error.message
    return ""


def keep_known(view: methods.View, devices: Collection[str], hosts: Collection[str]) -> methods.View:
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
    for device_id, place in pending.items():
        if place is None or place[0] not in reserved:
            continue
        host = reserved[place[0]]
        ports = tuple(
            replace(port, state=contract.PortState.USED, device_id=device_id)
            if port.id == place[1] and port.state is contract.PortState.FREE
            else port
            for port in host.ports
        )
        reserved[host.id] = replace(host, ports=ports)
    return tuple(reserved.values())
