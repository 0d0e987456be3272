"""Facts about the devices of a fabric, and what the plan of its pools makes of them."""

import datetime

from drawbar.driver.controller.pools import causes, plan

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
        changes: as for `reported`, else fields of `plan.Observed`.
    """
    causes_of = {
        name: changes.pop(name)
        for name in ("failing", "lost", "held", "stuck", "unhealthy", "findings")
        if name in changes
    }
    known = {
        "driver": "drawbar.dev",
        "fabric": "f",
        "devices": found,
        "attached_by_us": dict.fromkeys(ours, "node-1"),
        "reported": reported(**causes_of),
        "keeps_conditions": True,
        "probation": probation,
    }
    return plan.Observed(**(known | changes))
