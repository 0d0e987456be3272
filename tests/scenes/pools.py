"""Facts about the devices of a fabric, and what the plan of its pools makes of them."""

import datetime

from drawbar.driver.api import fabrics, meta
from drawbar.driver.controller.pools import causes, plan
from drawbar.driver.slices import encoding

HOUR = datetime.timedelta(hours=1)


def reported(*, failing=(), lost=(), held=(), stuck=(), unhealthy=(), findings=()):
    """By device name the causes that its attachment reports; `failing` and `findings` are mappings."""
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
    return {name: tuple(found) for name, found in by_device.items()}


def observed(*found, ours=(), probation=HOUR, **changes):
    """Everything that the plan of the pools of a fabric `f` rests on.

    Args:
        found: the devices that its manager lists.
        ours: names of devices that a claim's attachment covers.
        probation: how long a failure counts.
        changes: as for `reported`, else fields of `plan.Observed`, of what it consists of, or of the Fabric.
    """

    def taken(*names):
        return {name: changes.pop(name) for name in names if name in changes}

    by_device = reported(**taken("failing", "lost", "held", "stuck", "unhealthy", "findings"))
    policy = fabrics.Policy(
        probation_seconds=int(probation.total_seconds()),
        immediate=fabrics.Reservation(devices=tuple(changes.pop("reserved", ()))),
        **taken("evictions_per_second"),
    )
    going = "2026-01-01T00:00:00Z" if changes.pop("going", False) else None
    fabric = fabrics.Fabric(
        metadata=meta.ObjectMeta(name=changes.pop("fabric", "f"), deletion_timestamp=going),
        spec=fabrics.FabricSpec(
            adapter="a", endpoint="e", policy=policy, maintenance=tuple(changes.pop("maintenance", ()))
        ),
    )
    silent = policy.unreachable_grace_seconds + 1.0 if changes.pop("unreachable", False) else 0.0
    dropped = () if changes.pop("keeps_conditions", True) else ("bindsToNode",)
    return plan.Observed(
        driver="drawbar.dev",
        told=plan.Told(
            fabric=fabric,
            devices=changes.pop("devices", found),
            silent_seconds=silent,
            **taken("probations", "claimed", "missing"),
        ),
        attached_by_us=dict.fromkeys(ours, "node-1"),
        kept=encoding.Kept(
            dropped=dropped,
            form=changes.pop("form", encoding.Encoding.PER_DEVICE),
            **taken("details", "informs"),
        ),
        **({"reported": by_device} | changes),
    )
