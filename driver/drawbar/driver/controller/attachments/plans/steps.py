"""Steps that several plans share: the next look, and the calls to the fabric.

A call is always the last step of a plan: its effect is observed, never assumed.
"""

from typing import assert_never

from drawbar.driver.api import attachments, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import outcomes
from drawbar.driver.controller.attachments import actions
from drawbar.driver.controller.attachments.plans.part_state import Call, CallState

READ_AGAIN_SECONDS = 1.0
# The longest pause before a call is repeated.
PAUSE_MAX_SECONDS = 60.0
AGAIN = f"; tried again in at most {PAUSE_MAX_SECONDS:.0f} s"
Steps = tuple[actions.Action, ...]


def look_within(steps: Steps, seconds: float | None) -> Steps:
    """Return the steps with the next look no later than that; a step at the fabric is observed anyway."""
    if seconds is None or (steps and isinstance(steps[-1], actions.FabricAction | actions.Taint)):
        return steps
    if steps and isinstance(steps[-1], actions.RequeueAfter):
        seconds, steps = min(seconds, steps[-1].seconds), steps[:-1]
    return (*steps, actions.RequeueAfter(seconds=seconds))


def pursue(attachment: attachments.DeviceAttachment | None, side: outcomes.Side, call: Call) -> Steps:
    """Return the record of the latest refusal, if it is due, and the next step for the call."""
    return (*record_refusal(attachment, side, call), *_follow(side, call))


def _follow(side: outcomes.Side, call: Call) -> Steps:
    """Return the next step for a call whose effect does not show yet."""
    match call.state:
        case CallState.UNASKED:
            return (actions.QueryOperation(side=side),)
        case CallState.UNKNOWN:
            return (actions.CallFabric(side=side),)
        case CallState.SUCCEEDED if call.due:
            # The news of a change was lost. Reading a large fabric is expensive, so this does not happen again at once.
            seconds = max(READ_AGAIN_SECONDS, call.retry_after_seconds)
            return (actions.ReadFabric(), actions.RequeueAfter(seconds=seconds))
        case CallState.FAILED if call.due:
            return retry(side, call)
        case CallState.RUNNING | CallState.SUCCEEDED | CallState.FAILED:
            return (actions.RequeueAfter(seconds=call.retry_after_seconds),)
        case _:
            assert_never(call.state)


def retry(side: outcomes.Side, call: Call) -> Steps:
    """Return the retry; an operation that keeps the device busy has to be ended first, or it would block forever."""
    pending = call.failure is not None and call.failure.reason == reasons.OPERATION_PENDING
    return (*((actions.EndBlocker(),) if pending else ()), actions.Retry(side=side))


def cancel(side: outcomes.Side, call: Call) -> Steps:
    """Return the end of a running call, and the next look."""
    return (actions.Cancel(side=side), actions.RequeueAfter(seconds=call.retry_after_seconds))


def record_refusal(attachment: attachments.DeviceAttachment | None, side: outcomes.Side, call: Call) -> Steps:
    """Return the step to record a refusal of a call that is repeated.

    There is no step if the record is written already, or changes too often. If only the words of a condition differ, it is not written at each attempt (`Call.is_report_due`). If the manager is
    not reached, it is never written again: the Fabric has the words, and an outage would write every attachment.
    """
    refused = call.refused
    if attachment is None or refused is None:
        return ()
    kind = attachments.ATTACHED if side is outcomes.Side.ATTACH else attachments.DETACHED
    condition = meta.find(attachment.status.conditions, kind)
    message = f"{refused.message[: meta.MESSAGE_CHARS - len(AGAIN)]}{AGAIN}"
    if condition is not None and condition.status == "False" and condition.reason == refused.reason:
        is_same = refused.reason == reasons.FABRIC_UNREACHABLE or condition.message == message
        if is_same or not call.is_report_due:
            return ()
    return (actions.RecordRefusal(side=side, reason=refused.reason, words=refused.message, message=message),)
