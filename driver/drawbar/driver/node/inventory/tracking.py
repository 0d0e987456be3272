"""How closely the model follows the kernel."""

import dataclasses

_DAY_SECONDS = 86_400.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tracking:
    """What can be set.

    Attributes:
        coalesce_seconds: the shortest time between two readings that events cause; all events of a device within it
            cost one reading. The first event after a pause is acted on at once.
        audit_seconds: how often, give or take a fifth, everything is compared with the kernel, for changes that no
            event told of; 0 never.
        audit_share: how much of one processor core such a comparison may take, from above 0 to 1.
    """

    coalesce_seconds: float = 0.01
    audit_seconds: float = 600.0
    audit_share: float = 0.1


def problems(tracking: Tracking) -> list[str]:
    """One sentence for each value that cannot be."""
    found = []
    # Written so that they hold for no NaN.
    if not 0 <= tracking.coalesce_seconds <= 1:
        found.append(f"coalesce_seconds is {tracking.coalesce_seconds}: give 0 to 1 second")
    if not (tracking.audit_seconds == 0 or 1 <= tracking.audit_seconds <= _DAY_SECONDS):
        found.append(f"audit_seconds is {tracking.audit_seconds}: give 0, or 1 to {_DAY_SECONDS:.0f} seconds")
    if not 0 < tracking.audit_share <= 1:
        found.append(f"audit_share is {tracking.audit_share}: give more than 0, and at most 1")
    return found
