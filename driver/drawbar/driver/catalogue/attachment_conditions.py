"""The conditions of claims and DeviceAttachments, with the cause and the remedy of each reason."""

from drawbar.driver.catalogue import reasons as r
from drawbar.driver.catalogue.tables import Row, Severity, Table

# One row a line, as in the page that is made of it.
# fmt: off
_LOG = "read `dmesg` on the node"
_MEND_CLASS = "correct the hook, the bitstream or the parameters"

NODE_FAILURES = Table("Why a device does not become ready on its node", "`drawbar.dev/node-failed`, `Visible`", "", (
    Row(r.DEVICE_LOST, "", "check the device's link and power", blames_device=True),
    Row(r.DEVICE_NOT_FOUND, "Its serial number did not appear on the node.", "check the host's link, slot and power", blames_device=True),
    Row(r.DRIVER_NOT_BOUND, "", "load its driver on the node", blames_device=True),
    Row(r.RESOURCES_NOT_ASSIGNED, "The kernel had no addresses for its BARs, so no driver takes it.", "`drawbar doctor --node` on the node names the firmware or kernel setting", "host-preparation.md", blames_device=True),
    Row(r.NO_DEVICE_FILES, "Its driver is bound, but made no files.", _LOG, blames_device=True),
    Row(r.NOT_INITIALISED, "It lacks another requirement of its class, such as memory online.", "read the message: it quotes the kernel", blames_device=True),
    Row(r.WRONG_DEVICE, "The slot has another device, or the matched card shows another device's number.", "check the fabric manager's ports", blames_device=True),
    Row(r.SERIAL_NOT_UNIQUE, "", "remove the other devices with that serial number", blames_device=True),
    Row(r.DEVICE_NOT_RECOGNISED, "Its node can read no number of it, and it was not the only arrival.", "let the fabric manager provide an identifier, or attach one device at a time", "recognition.md"),
    Row(r.SLOT_NOT_POWERED, "", "give the node daemon a writable `/sys`", blames_device=True),
    Row(r.LINK_DOWN, "It has power, but its link is down, or every read returns ones.", "check cable and port", blames_device=True),
    Row(r.VERSION_TOO_OLD, "Driver or firmware is older than `minimumVersions`, or shows no version.", "update it, or correct the DeviceClass", blames_device=True),
    Row(r.FUNCTIONS_NOT_SET_UP, "It cannot have its class's virtual functions, or its node offers none.", "correct the DeviceClass or the node's settings"),
    Row(r.NOT_INTERLEAVED, "`memory.interleave` is true, but the composite's memory cannot be one region.", "correct the composite or the parameters", "classes/cxl-memory.md"),
    Row(r.HOOK_FAILED, "Its class's hook failed, or loaded another bitstream than requested.", _MEND_CLASS, "classes/fpga.md"),
    Row(r.BITSTREAM_NOT_LOADED, "The card cannot load the bitstream by itself, and no hook is named.", "correct the bitstream, the parameters or the card's drivers", "classes/fpga.md#dfl-cards"),
    Row(r.NOT_CLEANED, "It cannot be erased or reset for the next claim.", "`kubectl delete deviceattachment NAME`", "node-release.md#blocked-releases", blames_device=True),
))

CONTROLLER_FAILURES = Table("Why an attach fails", "`drawbar.dev/attach-failed`, `Attached`, `status.error`", "", (
    Row(r.FABRIC_ERROR, "The manager refused the attach, or failed.", "read the message and the fabric manager's log", blames_device=True),
    Row(r.FABRIC_CREDENTIALS_REFUSED, "The manager refused the credentials until the deadline.", "correct the Fabric's Secret or the sidecar's", "fabrics.md#credentials"),
    Row(r.DEVICE_INCOMPATIBLE, "The manager refuses it at this host; both are sound.", "choose another node or device, or move the device", "conditions.md#a-device-and-a-host-that-do-not-fit"),
    Row(r.DEVICE_GONE, "The manager no longer lists it.", "do nothing, if it was removed on purpose", blames_device=True),
    Row(r.DEVICE_IN_USE, "Another host, an operator or another claim has it.", "detach it there, or delete that DeviceAttachment or claim"),
    Row(r.NODE_LIMIT_REACHED, "The node has as many of the model as `policy.models` allows.", "do nothing: the node gets it when one is detached"),
    Row(r.MODELS_CONFLICT, "`policy.models` keeps it apart from another device of the node.", "do nothing: the node gets it when that is detached"),
    Row(r.ADMIN_ACCESS_NEVER_ATTACHES, "A claim with `adminAccess` got a device not in use on its node.", "add a nodeSelector for the device's node to the pod"),
    Row(r.INVALID_PARAMETERS, "The opaque parameters cannot be applied.", "read the message; correct the DeviceClass, or make a new claim", "parameters.md"),
    Row(r.NO_ALLOCATION_TIMESTAMP, "The allocator set no `allocationTimestamp`, so 1.36 binds no pod.", "use the scheduler or another allocator, and a new claim"),
    Row(r.NODE_NOT_ON_FABRIC, "", "map the node in the Fabric's `spec.hosts`", "fabrics.md#hosts-and-nodes"),
    Row(r.NO_CAPACITY, "Until the deadline, the memory pool had too little left.", "wait for other claims to end, or ask for less", "classes/cxl-memory.md#shares-of-a-pool"),
    Row(r.NO_FREE_PORT, "", "detach a device from the host, or choose another node"),
    Row(r.FABRIC_UNREACHABLE, "", "see the Fabric's condition `Connected`"),
    Row(r.ATTACH_NOT_BEGUN, "Until the deadline, it waited for others of its fabric or namespace.", "begin fewer at once, or raise the limit if the message names one"),
    Row(r.ATTACH_DEADLINE_EXCEEDED, "The attach took longer than `attachTimeoutSeconds`, or its last node did not release it.", "read the message, and the Fabric's condition `Connected`", blames_device=True),
    Row(r.CONNECTION_NOT_SHOWN, "The manager repeatedly lost the connection before the node saw it.", "ask the fabric manager's operator whether it lost its state", "fabrics.md#lost-connections", blames_device=True),
    Row(r.OPERATION_PENDING, "Another operation at the manager keeps it busy.", "end the operation at the fabric manager, if it hangs", blames_device=True),
    Row(r.NODE_NOT_RESPONDING, "The node reported nothing before the scheduler's `bindingTimeout`.", "check the node and its `drawbar node` pod", blames_device=True),
    Row(r.ATTACHMENT_MISMATCH, "A DeviceAttachment made by hand has a wrong device or host.", "make it again, as the message says"),
))

OTHER = Table(CONTROLLER_FAILURES.title, CONTROLLER_FAILURES.conditions, CONTROLLER_FAILURES.status, (
    Row(r.OTHER, "The node daemon reported an unknown reason.", "read the conditions `Visible` and `Released`; update the controller, if it is older", blames_device=True),
))

ATTACHED = Table("While a device is attached or detached", "`Attached`, `Detached`", "False", (
    Row(r.ATTACHED, severity=Severity.OK, status="True"),
    Row(r.ATTACH_QUEUED, "Another device of the model, in the message, is attached first.", "wait for the other device", "recognition.md#sole-arrival", Severity.WARNING),
    Row(r.FABRIC_BUSY, "The manager refuses for now, or is silent; it is asked again.", "read the message and the fabric manager's log", severity=Severity.WARNING),
    Row(r.CONNECTION_NOT_SHOWN, "The manager shows it as free; True if its node has seen it.", "do as the message says; ask the fabric manager's operator whether it lost its state", "fabrics.md#lost-connections", Severity.WARNING),
    Row(r.CONNECTED_ELSEWHERE, "The manager shows it at another host: another client moved it.", "do as the message says; ask the fabric manager's operator who moved the device", "fabrics.md#lost-connections", Severity.WARNING),
))

VISIBLE = Table(NODE_FAILURES.title, "`Visible`, `drawbar.dev/visible`", "True", (
    Row(r.DEVICE_READY, severity=Severity.OK),
))

RELEASED = Table("Why a node does not release a device", "`Released`", "False", (
    Row(r.NOT_IN_USE, severity=Severity.OK, status="True"),
    Row(r.PREPARED, "A claim still has it prepared after 5 s.", "delete its claim's pods"),
    Row(r.IN_USE, "The message names its user, such as a process, mount or virtual machine.", "end this use; checked again every 2 s"),
    Row(r.KERNEL_REFUSED, "The kernel does not unbind, remove or power it off.", "do as the message says"),
    Row(r.KERNEL_SILENT, "", _LOG),
    Row(r.CLEANING, "", "wait for the erase to end", severity=Severity.NOTE),
    Row(r.NOT_CLEANED, "It cannot be erased or reset, so no other claim gets it.", "do as the message says, or power-cycle it and run `drawbar fabric detach --force`", "node-release.md#blocked-releases"),
    Row(r.NO_PROGRESS, "", _LOG),
    Row(r.SERIAL_NOT_UNIQUE, "Several devices show its serial number.", "remove the other devices with that serial number"),
))

EXCLUSIVE = Table("Whether another driver offers a device as well", "`Exclusive`", "", (
    Row(r.OFFERED_BY_ANOTHER_DRIVER, "Another driver's ResourceSlice offers it, too.", "exclude the device from the other driver", "beside-other-drivers.md#devices-offered-twice", Severity.WARNING, status="False"),
    Row(r.OFFERED_BY_THIS_DRIVER, "The other driver has left it out for `localPool.quietSeconds`.", severity=Severity.OK, status="True"),
))

FAILURES = (CONTROLLER_FAILURES, NODE_FAILURES)
TABLES = (*FAILURES, OTHER, VISIBLE, ATTACHED, RELEASED, EXCLUSIVE)
# fmt: on


def find_attached(reason: str) -> Row:
    """Return the row of a reason why `Attached` or `Detached` is False."""
    return ATTACHED.find(reason) if reason in ATTACHED.reasons else find_failure(reason)


def find_failure(reason: str) -> Row:
    """Return the row of a failed attach, of the controller's table or the node's."""
    table = NODE_FAILURES if reason in NODE_FAILURES.reasons else CONTROLLER_FAILURES
    return table.find(reason)
