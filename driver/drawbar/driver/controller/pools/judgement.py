"""The causes that keep a device from new claims: reports of its attachment, the fabric manager and administrators."""

import datetime
from collections.abc import Mapping
from dataclasses import replace

from drawbar.driver.controller.pools import causes
from drawbar.driver.controller.pools.fabric_state import FabricState
from drawbar.fabric import contract


def find_all_causes(
    observed: FabricState,
    name: str,
    device: contract.Device | None,
    members_of: Mapping[str, tuple[str, ...]],
    by_name: Mapping[str, contract.Device],
) -> tuple[causes.Cause, ...]:
    """Return the causes of a device; those of a composite include each of its members', each once."""
    members = members_of.get(name, ())
    own = find_causes(observed, name, device) if device is not None or not members else ()
    of_members = (cause for member in members for cause in find_causes(observed, member, by_name.get(member)))
    return tuple(dict.fromkeys((*own, *of_members)))


def find_causes(observed: FabricState, name: str, device: contract.Device | None) -> tuple[causes.Cause, ...]:
    """Return why a device should not be allocated: the reports of its attachment, the fabric manager and administrators."""
    ours = name in observed.attached_by_us
    host = device.connection.host_id if device is not None and device.connection is not None else ""
    connected = device is not None and device.connection is not None
    listed = device is not None or observed.devices is None
    result = [
        replace(cause, host=host)
        if isinstance(cause, causes.HeldByHand)
        else replace(cause, listed=listed)
        if isinstance(cause, causes.Lost)
        else cause
        for cause in observed.reported.get(name, ())
    ]
    is_lost = any(isinstance(cause, causes.Lost) for cause in result)
    if not listed and not is_lost and name not in observed.facts.missing:
        result.append(causes.Lost(node=observed.attached_by_us.get(name, ""), listed=False))
    if connected and not ours:
        result.append(causes.InUse(host=host))
    if device is not None and device.health is contract.Health.CRITICAL:
        result.append(causes.FabricHealth(health="critical"))
    elif device is not None and device.health is contract.Health.WARNING:
        result.append(causes.FabricHealth(health="warning"))
    silent = 0 < observed.facts.silent_seconds >= observed.policy.unreachable_grace_seconds
    if silent and not ours and not connected:
        result.append(causes.Unreachable())
    if observed.facts.maintenance.has_device(name, device.id if device is not None else name):
        result.append(causes.Maintenance())
    if device is not None and observed.policy.immediate.holds(device.id, device.model):
        result.append(causes.Reserved())
    if name in observed.facts.not_offered:
        result.append(causes.NotOffered())
    if name in observed.facts.worn and name not in observed.attached_by_us:
        result.append(causes.WearLimited(erasures=observed.policy.erases_per_device_per_day))
    return tuple(result)


def find_probation(observed: FabricState, name: str, now: datetime.datetime) -> causes.Probation:
    """Return the time for which a device's failure counts."""
    usual = datetime.timedelta(seconds=observed.policy.probation_seconds)
    return causes.Probation(
        length=observed.facts.probations.get(name, usual), since=observed.failed_since.get(name, now)
    )
