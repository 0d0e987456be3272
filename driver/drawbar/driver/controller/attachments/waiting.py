"""Claims that wait for a device which somebody else still has, decided purely.

Invariant: none of them waits longer than the scheduler does without hearing why.
"""

import datetime
from collections.abc import Iterable

from drawbar.driver.api import attachments, meta
from drawbar.driver.controller.attachments import actions

# A claim that lets go of a device and the next one that gets it may overlap for so long.
OVERLAP_SECONDS = 5.0


def refuse(
    first: actions.Wish | None, rivals: Iterable[actions.Wish], reason: str, now: datetime.datetime
) -> tuple[actions.Action, ...]:
    """A device that was given to two claims by mistake stays with the first; the others hear of it."""
    if first is None:
        return ()
    message = f"the device was given to claim {first.claim.namespace}/{first.claim.name} already"
    failure = attachments.Failure(reason=reason, message=message)
    steps: list[actions.Action] = []
    for rival in rivals:
        left = OVERLAP_SECONDS - (now - rival.seen_at).total_seconds()
        steps.append(
            actions.SayFailed(wish=rival, failure=failure) if left <= 0 else actions.LookAgain(seconds=left)
        )
    return tuple(steps)


def unfit(wish: actions.Wish) -> tuple[actions.Action, ...]:
    """A claim with parameters that nobody can obey is told so, and nothing is attached for it."""
    if wish.unfit is None or wish.failed_said:
        return ()
    return (actions.SayFailed(wish=wish, failure=wish.unfit),)


def both(waits: tuple[actions.Action, ...], rest: tuple[actions.Action, ...]) -> tuple[actions.Action, ...]:
    """One after the other; of two moments to look again, the later step has the earlier one."""
    pauses = [one.seconds for one in (*waits, *rest[-1:]) if isinstance(one, actions.LookAgain)]
    if rest and isinstance(rest[-1], actions.LookAgain):
        rest = (*rest[:-1], actions.LookAgain(seconds=min(pauses)))
    others = tuple(one for one in waits if not isinstance(one, actions.LookAgain))
    early = tuple(one for one in waits if isinstance(one, actions.LookAgain))
    return (*others, *early, *rest)


def for_release(
    wish: actions.Wish | None,
    attachment: attachments.DeviceAttachment,
    left: datetime.timedelta,
    reason: str,
) -> tuple[actions.Action, ...]:
    """The next claim waits for a device that is being released, and hears what blocks when its time is over.

    Args:
        wish: of the claim that is next; one that was told that it is attached has the device itself.
        attachment: that is being deleted.
        left: until the claim is to be told.
        reason: to tell it.
    """
    if wish is None or wish.failed_said or wish.attached_said:
        return ()
    if left > datetime.timedelta():
        return (actions.LookAgain(seconds=left.total_seconds()),)
    released = meta.find(attachment.status.conditions, attachments.RELEASED)
    why = f": {released.message}" if released is not None and released.message else ""
    message = f"the device is still being released from node {attachment.spec.node_name}{why}"
    failure = attachments.Failure(reason=reason, message=message)
    return (actions.SayFailed(wish=wish, failure=failure),)
