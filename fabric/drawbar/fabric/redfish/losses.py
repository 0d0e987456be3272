"""Devices that a change of a shared resource took from their host, as sentences; pure."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish import calls, documents, restoring, views
from drawbar.fabric.redfish.documents import Document


def find_owners(devices: Mapping[str, contract.Device]) -> dict[str, str]:
    """Return the host of each attached device, by the device's id."""
    return {
        device.id: device.connection.host_id for device in devices.values() if device.connection is not None
    }


def find_attached(owners: Mapping[str, str], host_id: str) -> frozenset[str]:
    """Return the attached devices of the host."""
    return frozenset(name for name, owner in owners.items() if owner == host_id)


def find_kept(owners: Mapping[str, str], host_id: str, meant: str) -> tuple[str, ...]:
    """Return the devices of the host that a change has to leave there.

    Args:
        owners: the host of each attached device before the change.
        host_id: of the changed host.
        meant: the device that the change attaches or detaches.
    """
    return tuple(sorted(find_attached(owners, host_id) - {meant}))


def find_lost(kept: Iterable[str], devices: Mapping[str, contract.Device], host_id: str) -> tuple[str, ...]:
    """Return the kept devices that are listed and are not at the host any more."""
    owners = find_owners(devices)
    return tuple(name for name in kept if name in devices and owners.get(name) != host_id)


def find_missing(change: restoring.Change, after: Document) -> tuple[str, ...]:
    """Return the members without a known device that are not in the array any more, in words."""
    left = {documents.build_key(uri) for uri in after.links(*after.find_links_path(change.name))}
    missing = (uri for uri in change.own if documents.build_key(uri) not in left)
    return tuple(sorted(f"the member {uri.rpartition('/')[2]}" for uri in missing))


def find_taken(
    uris: Iterable[str],
    devices: Mapping[str, contract.Device],
    host_id: str,
    find_ids: Callable[[Set[str]], frozenset[str]],
) -> frozenset[str]:
    """Return the members that are devices of another host now, or not listed any more.

    Args:
        uris: of the members.
        devices: of the last reading, by id.
        host_id: of the changed host.
        find_ids: returns the ids of the devices of some URIs.
    """
    owners = find_owners(devices)

    def is_taken(name: str) -> bool:
        return name not in devices or owners.get(name, host_id) != host_id

    return frozenset(uri for uri in uris if any(map(is_taken, find_ids({uri}))))


def build_error(
    call: calls.Call,
    host_id: str,
    *,
    lost: Sequence[str],
    remains: Collection[str],
    reason: str = "",
    remedy: str = "",
) -> errors.FailedPrecondition:
    """Return the error of a change that took other devices from their host.

    Args:
        call: the change.
        host_id: of the changed host.
        lost: all devices and members that the change took.
        remains: those that were not put back.
        reason: a clause with the reason why they were not; empty if unknown.
        remedy: the setting that avoids the next loss, as a clause; empty if unknown.
    """
    restored = [name for name in lost if name not in remains]
    text = (
        f"the Redfish service answered {call.method} {call.uri} and took others from host {host_id} with it "
        f"({views.name_some(lost)})"
    )
    if restored:
        text += f"; put back: {views.name_some(restored)}"
    if remains:
        why = f", since {reason}" if reason else ""
        text += f"; not put back: {views.name_some(tuple(remains))}{why}; attach them again at the service"
    text += f"; {remedy or 'look at `profile` and `zoneBody`'} before the next change"
    return errors.FailedPrecondition(text, reason=errors.Reason.OTHERS_LOST, host_id=host_id)
