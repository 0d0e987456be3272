"""How an attach or a detach can end, as closed lists, so that the number of metric series is bounded.

The reasons of a failed attach are those of docs/conditions.md, the node daemon's among them; pure.
"""

import enum

import msgspec

from drawbar.driver.api import attachments, meta
from drawbar.driver.controller import policies


class Side(enum.StrEnum):
    """Which of the two calls to the fabric; the value is its letter in request ids."""

    ATTACH = "a"
    DETACH = "d"


GONE = "DeviceGone"
IN_USE = "DeviceInUse"
NO_HOST = "NodeNotOnFabric"
NO_FREE_PORT = "NoFreePort"
NO_CAPACITY = "NoCapacity"
INCOMPATIBLE = "DeviceIncompatible"
DEADLINE = "AttachDeadlineExceeded"
NODE_SILENT = "NodeNotResponding"
UNREACHABLE = "FabricUnreachable"
CREDENTIALS = "FabricCredentialsRefused"
PENDING = "OperationPending"
MISFIT = "AttachmentMismatch"
BUSY = "FabricBusy"
"""The fabric manager refuses for now, or gives no answer; it is asked again."""
NOT_SHOWN = "ConnectionNotShown"
ELSEWHERE = "ConnectedElsewhere"
CONTRADICTIONS = frozenset({NOT_SHOWN, ELSEWHERE})
"""The reasons of `Attached` for which the fabric manager's listing contradicts the record."""

NOT_RECOGNISED = "DeviceNotRecognised"
HOOK_FAILED = "HookFailed"
BITSTREAM_NOT_LOADED = "BitstreamNotLoaded"
NOT_SET_UP = "FunctionsNotSetUp"
NOT_INTERLEAVED = "NotInterleaved"

# Reasons for which another device would have failed as well, or may have (a claim chooses what is loaded, cards came at once),
# the device is tainted already, or it works with other hosts.
NOT_THE_DEVICE = frozenset(
    {
        IN_USE,
        NO_HOST,
        NO_FREE_PORT,
        NO_CAPACITY,
        INCOMPATIBLE,
        UNREACHABLE,
        CREDENTIALS,
        MISFIT,
        NOT_RECOGNISED,
        HOOK_FAILED,
        BITSTREAM_NOT_LOADED,
        NOT_SET_UP,
        NOT_INTERLEAVED,
        policies.NODE_FULL,
        policies.MODELS_CONFLICT,
    }
)

# With these the device is not connected, whatever the record was.
NOT_CONNECTED = frozenset({IN_USE, NOT_SHOWN})

ATTACHED = "Attached"
REUSED = "Reused"
OTHER = "Other"

NODE_FAILURES = frozenset(
    {
        "DeviceLost",
        "DeviceNotFound",
        NOT_RECOGNISED,
        "DriverNotBound",
        NOT_SET_UP,
        HOOK_FAILED,
        BITSTREAM_NOT_LOADED,
        "LinkDown",
        "NoDeviceFiles",
        "NotCleaned",
        "NotInitialised",
        NOT_INTERLEAVED,
        "ResourcesNotAssigned",
        "SerialNotUnique",
        "SlotNotPowered",
        "VersionTooOld",
        "WrongDevice",
    }
)
"""The reasons of a node for which its device does not become ready."""

FAILURES = NODE_FAILURES | frozenset(
    {
        # The controller's own, and the fabric's in our words.
        "AttachDeadlineExceeded",
        MISFIT,
        "DeviceGone",
        "DeviceInUse",
        INCOMPATIBLE,
        "FabricCredentialsRefused",
        "FabricError",
        "FabricUnreachable",
        "InvalidParameters",
        "ModelsConflict",
        "NoFreePort",
        "NoCapacity",
        "NoAllocationTimestamp",
        "NodeLimitReached",
        "NodeNotOnFabric",
        "NodeNotResponding",
        NOT_SHOWN,
        "OperationPending",
    }
)

BLOCKERS = frozenset(
    {
        attachments.CLEANING,
        attachments.NOT_CLEANED,
        "InUse",
        "KernelRefused",
        "KernelSilent",
        "NoProgress",
        "Prepared",
        "SerialNotUnique",
    }
)
"""The reasons of a node for which it does not release a device."""

RELEASED = "Released"
FORCED = "Forced"
NODE_GONE = "NodeGone"
DETACHES = (RELEASED, FORCED, NODE_GONE)

# As the two daemons write them, in the order in which an attachment goes through them.
PHASES = ("Pending", "Attached", "Ready", "Idle", "Failed", "Releasing", "Released")


def failure(reason: str) -> str:
    """Return the reason, or `Other` for one that is not of the closed list: an object of the API could hold any text."""
    return reason if reason in FAILURES else OTHER


def detach(attachment: attachments.DeviceAttachment) -> str:
    """Return why the device of an attachment that is gone could be detached."""
    if attachment.holds(attachments.RELEASED):
        return RELEASED
    return FORCED if attachment.forced else NODE_GONE


def phase(attachment: attachments.DeviceAttachment) -> str:
    """Return the phase of an attachment."""
    if attachment.deleting:
        return "Released" if attachment.holds(attachments.RELEASED) else "Releasing"
    reported = attachment.status.phase or "Pending"
    return reported if reported in PHASES else OTHER


def problem(attachment: attachments.DeviceAttachment) -> attachments.Failure | None:
    """Return why the attachment does not come about: the controller's own record, else the node's report.

    A reason that is not of the closed list reads `Other`: what a node writes becomes a taint, a condition and an Event.
    """
    recorded = attachment.status.error
    if recorded is not None:
        return msgspec.structs.replace(recorded, reason=failure(recorded.reason))
    visible = meta.find(attachment.status.conditions, attachments.VISIBLE)
    if visible is not None and visible.status == "False":
        reason = visible.reason if visible.reason in NODE_FAILURES else OTHER
        return attachments.Failure(reason=reason, message=visible.message)
    return None


def contradiction(attachment: attachments.DeviceAttachment) -> meta.Condition | None:
    """Return the condition `Attached` if it says that the fabric manager's listing contradicts the record, else None."""
    attached = meta.find(attachment.status.conditions, attachments.ATTACHED)
    return attached if attached is not None and attached.reason in CONTRADICTIONS else None


def blocker(attachment: attachments.DeviceAttachment) -> str:
    """Return why the node does not release the device; empty where it does, or reports nothing."""
    released = meta.find(attachment.status.conditions, attachments.RELEASED)
    if released is None or released.status != "False":
        return ""
    return released.reason if released.reason in BLOCKERS else OTHER
