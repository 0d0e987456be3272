"""How an attach or a detach can end, as closed lists, so that nobody can make more series than these.

The reasons of a failed attach are those of docs/conditions.md, the node daemon's among them; pure.
"""

from drawbar.driver.api import attachments

ATTACHED = "Attached"
REUSED = "Reused"
OTHER = "Other"

FAILURES = frozenset(
    {
        # The controller's own, and the fabric's in our words.
        "AttachDeadlineExceeded",
        "DeviceGone",
        "DeviceInUse",
        "DeviceIncompatible",
        "DeviceLost",
        "FabricCredentialsRefused",
        "FabricError",
        "FabricUnreachable",
        "InvalidParameters",
        "ModelsConflict",
        "NoFreePort",
        "NoAllocationTimestamp",
        "NodeLimitReached",
        "NodeNotOnFabric",
        "NodeNotResponding",
        "OperationPending",
        # The node's.
        "DeviceNotFound",
        "DriverNotBound",
        "LinkDown",
        "NoDeviceFiles",
        "NotCleaned",
        "NotInitialised",
        "SerialNotUnique",
        "SlotNotPowered",
        "WrongDevice",
    }
)

RELEASED = "Released"
FORCED = "Forced"
NODE_GONE = "NodeGone"
DETACHES = (RELEASED, FORCED, NODE_GONE)

# As the two daemons write them, in the order in which an attachment goes through them.
PHASES = ("Pending", "Attached", "Ready", "Idle", "Failed", "Releasing", "Released")


def failure(reason: str) -> str:
    """The reason as a label: an object of the API could hold any text."""
    return reason if reason in FAILURES else OTHER


def detach(attachment: attachments.DeviceAttachment) -> str:
    """Why the device of an attachment that is gone could be taken back."""
    if attachment.holds(attachments.RELEASED):
        return RELEASED
    return FORCED if attachment.forced else NODE_GONE


def phase(attachment: attachments.DeviceAttachment) -> str:
    """Where it stands."""
    if attachment.deleting:
        return "Released" if attachment.holds(attachments.RELEASED) else "Releasing"
    known = attachment.status.phase or "Pending"
    return known if known in PHASES else OTHER
