"""Facts about the devices of a fabric, and what the plan of its pools makes of them."""

import datetime

from drawbar.driver.api import fabrics, maintenances, meta, slices
from drawbar.driver.controller.pools import causes, desired, fabric_state
from drawbar.driver.slices import encoding, pool_writes
from drawbar.fabric import contract

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)


def make_reported_causes(*, failing=(), lost=(), held=(), stuck=(), unhealthy=(), findings=()):
    """Return by device name the causes that its attachment reports; `failing` and `findings` are mappings."""
    by_device = {}
    for names, cause in (
        (lost, causes.Lost()),
        (held, causes.HeldByHand()),
        (stuck, causes.NotReleased()),
        (unhealthy, causes.Unhealthy()),
    ):
        for name in names:
            by_device.setdefault(name, []).append(cause)
    for name in failing:
        by_device.setdefault(name, []).append(causes.AttachFailed(reason=failing[name]))
    for name in findings:
        by_device.setdefault(name, []).extend(findings[name])
    return {name: tuple(device_causes) for name, device_causes in by_device.items()}


def make_fabric_state(*devices, ours=(), probation=HOUR, **changes):
    """Return everything that the plan of the pools of a fabric `f` rests on.

    Args:
        devices: the devices that its manager lists.
        ours: names of devices that a claim's attachment covers.
        probation: how long a failure counts.
        changes: as for `make_reported_causes`, else fields of the state, of what it consists of, or of the Fabric.
    """

    def pop_changes(*names):
        return {name: changes.pop(name) for name in names if name in changes}

    by_device = make_reported_causes(
        **pop_changes("failing", "lost", "held", "stuck", "unhealthy", "findings")
    )
    policy = fabrics.Policy(
        probation_seconds=int(probation.total_seconds()),
        immediate=fabrics.Reservation(devices=tuple(changes.pop("reserved", ()))),
        **pop_changes("evictions_per_second", "limits"),
    )
    going = "2026-01-01T00:00:00Z" if changes.pop("going", False) else None
    fabric = fabrics.Fabric(
        metadata=meta.ObjectMeta(name=changes.pop("fabric", "f"), deletion_timestamp=going),
        spec=fabrics.FabricSpec(
            adapter="a",
            endpoint="e",
            policy=policy,
            composites=tuple(changes.pop("wanted", ())),
            composite_rules=tuple(changes.pop("rules", ())),
        ),
    )
    silent = policy.unreachable_grace_seconds + 1.0 if changes.pop("unreachable", False) else 0.0
    failed = {
        name: meta.moment(added)
        for published in changes.get("published", ())
        for name, added in causes.failures("drawbar.dev", published).items()
    }
    dropped = () if changes.pop("keeps_conditions", True) else ("bindsToNode",)
    return fabric_state.FabricState(
        driver="drawbar.dev",
        facts=fabric_state.Facts(
            fabric=fabric,
            devices=changes.pop("devices", devices),
            silent_seconds=silent,
            maintenance=maintenances.Scope(devices=frozenset(changes.pop("maintenance", ()))),
            **pop_changes(
                "probations",
                "allocated_pools",
                "missing",
                "made",
                "chooses",
                "worn",
                "not_offered",
                "refused",
                "refused_until",
            ),
        ),
        date=changes.pop("date", NOW),
        attached_by_us=dict.fromkeys(ours, "node-1"),
        kept=encoding.Kept(
            dropped=dropped,
            form=changes.pop("form", encoding.Encoding.PER_DEVICE),
            **pop_changes("details", "informs", "shares"),
        ),
        **({"reported": by_device, "failed_since": failed} | changes),
    )


def device(device_id, enclosure="e", **changes):
    """Return a GPU as the fabric manager lists it."""
    gpu = contract.DeviceClass.GPU
    return contract.Device(id=device_id, device_class=gpu, enclosure=enclosure, **changes)


def make_stored_slice(action, number=0):
    """Return the slice as the API server holds it after a write."""
    metadata = action.slice.metadata
    fresh = meta.ObjectMeta(
        name=metadata.name, labels=metadata.labels, uid=f"u{number}", resource_version=str(number + 1)
    )
    return slices.ResourceSlice(metadata=fresh, spec=action.slice.spec)


def carried_out(before, actions):
    """Yield the slices after each write of a plan."""
    state = {published_slice.metadata.name: published_slice for published_slice in before}
    for number, action in enumerate(actions):
        if isinstance(action, pool_writes.Delete):
            del state[action.slice.metadata.name]
        elif isinstance(action, pool_writes.Create | pool_writes.Replace):
            state[action.slice.metadata.name] = make_stored_slice(action, number)
        else:
            continue
        yield tuple(state.values())


def update_slices(before, *devices, now=NOW, **changes):
    """Return the slices after the plan for these devices."""
    states = list(
        carried_out(
            before, desired.plan(make_fabric_state(*devices, published=before, date=now, **changes), now)
        )
    )
    return states[-1] if states else before


def publish_slices(*devices, **changes):
    """Return the slices after the plan for these devices, with no slices published before."""
    return update_slices((), *devices, **changes)
