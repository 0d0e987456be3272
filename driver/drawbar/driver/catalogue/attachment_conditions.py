"""The conditions of claims and DeviceAttachments, with the cause and the remedy of each reason."""

from drawbar.driver.catalogue import reasons as r
from drawbar.driver.catalogue.tables import Row, Severity, Table

# One row a line, as in the page that is made of it.
# fmt: off
_LOG = "run `dmesg` on the node and read the kernel's messages"
_MEND_CLASS = (
    "do as the message says: correct the hook, the bitstream, or the parameters of the claim or DeviceClass"
)

NODE_FAILURES = Table("Why a device does not become ready on its node", "`drawbar.dev/node-failed`, `Visible`", "", (
    Row(r.DEVICE_LOST, "The device was lost while in use, or disappeared from its node.", "check the device's link and power", blames_device=True),
    Row(r.DEVICE_NOT_FOUND, "The device is attached, but no device with its serial number appeared on the node.", "look at link, slot and power of the host", blames_device=True),
    Row(r.DRIVER_NOT_BOUND, "No kernel driver has taken the device.", "load the device's driver on the node", blames_device=True),
    Row(r.RESOURCES_NOT_ASSIGNED, "The kernel had no memory addresses for the device's BARs, so no driver takes it.", "run `drawbar doctor --node` on the node: it names the firmware or kernel setting", "host-preparation.md", blames_device=True),
    Row(r.NO_DEVICE_FILES, "The driver is bound, and the device's files are missing.", _LOG, blames_device=True),
    Row(r.NOT_INITIALISED, "Driver and files are there, but the device does not meet its class's other requirements, such as memory online.", "read the message: it quotes the kernel's refusal", blames_device=True),
    Row(r.WRONG_DEVICE, "The slot contains another device, or the matched card shows another device's number.", "look at the fabric manager's ports", blames_device=True),
    Row(r.SERIAL_NOT_UNIQUE, "Several cards on the node show the device's numbers.", "remove the other devices with that serial number", blames_device=True),
    Row(r.DEVICE_NOT_RECOGNISED, "No card is the device without doubt: its node can read none of its numbers, and it was not the only arrival.", "do as the message says: provide an identifier from the fabric manager, or attach one device at a time", "recognition.md"),
    Row(r.SLOT_NOT_POWERED, "A card is in the slot and gets no power.", "give the node daemon a writable `/sys`", blames_device=True),
    Row(r.LINK_DOWN, "The device has power, but its PCI Express link does not come up, or every read returns ones.", "look at cable and port", blames_device=True),
    Row(r.VERSION_TOO_OLD, "Its driver or firmware is older than `minimumVersions` of its class, or shows no version.", "update the node's driver or the device's firmware, or correct the DeviceClass", blames_device=True),
    Row(r.FUNCTIONS_NOT_SET_UP, "The device cannot have the virtual functions that its class asks for, or its node offers none.", "do as the message says: correct the DeviceClass, or the node's settings"),
    Row(r.NOT_INTERLEAVED, "The memory of a composite's members cannot be one region, as `memory.interleave` asks.", "do as the message says: correct the composite, or the parameters of the claim or DeviceClass", "classes/cxl-memory.md"),
    Row(r.HOOK_FAILED, "The hook of its class failed, or loaded another bitstream than the requested one.", _MEND_CLASS, "classes/fpga.md"),
    Row(r.BITSTREAM_NOT_LOADED, "No hook is named, and the card cannot load the requested bitstream by itself.", "do as the message says: correct the bitstream, the parameters of the claim or DeviceClass, or the card's drivers", "classes/fpga.md#dfl-cards"),
    Row(r.NOT_CLEANED, "The device was used, and cannot be erased or reset for the next claim.", "kubectl delete deviceattachment NAME", "node-release.md#blocked-releases", blames_device=True),
))

CONTROLLER_FAILURES = Table("Why an attach fails", "`drawbar.dev/attach-failed`, `Attached`, `status.error`", "", (
    Row(r.FABRIC_ERROR, "The fabric manager refused the attach, or its operation failed.", "read the message and the fabric manager's log", blames_device=True),
    Row(r.FABRIC_CREDENTIALS_REFUSED, "The fabric manager refused the credentials until the deadline.", "correct the Fabric's Secret, or the sidecar's own", "fabrics.md#credentials"),
    Row(r.DEVICE_INCOMPATIBLE, "The fabric manager refuses this device at this host; both work with others.", "let the pod go to another node, select another device, or move the device", "conditions.md#a-device-and-a-host-that-do-not-fit"),
    Row(r.DEVICE_GONE, "The fabric manager no longer lists the device, which is then withdrawn.", "nothing, if the device was removed on purpose", blames_device=True),
    Row(r.DEVICE_IN_USE, "Another host, an operator or another claim has the device.", "detach it from its host, or delete the DeviceAttachment or the other claim"),
    Row(r.NODE_LIMIT_REACHED, "`policy.models` of the Fabric allows no more devices of the model on the node.", "nothing: the node is closed to the model until one of them is detached"),
    Row(r.MODELS_CONFLICT, "The node has a device of a model that must not share a node with this one.", "nothing: the node is closed to the model until the other device is detached"),
    Row(r.ADMIN_ACCESS_NEVER_ATTACHES, "A claim with `adminAccess` was given a device that is not in use on its node.", "let the pod go to the device's node, by a node selector"),
    Row(r.INVALID_PARAMETERS, "The opaque parameters of the claim or its DeviceClass cannot be applied, so nothing was attached.", "read the message; make a new claim, or correct the DeviceClass", "parameters.md"),
    Row(r.NO_ALLOCATION_TIMESTAMP, "An allocator other than the scheduler set no `allocationTimestamp`, so no pod can be bound to the claim on 1.36.", "let the allocator set it, or leave the claim to the scheduler; then make a new claim"),
    Row(r.NODE_NOT_ON_FABRIC, "The node is not a host of the fabric.", "map it in `spec.hosts` of the Fabric", "fabrics.md#hosts-and-nodes"),
    Row(r.NO_CAPACITY, "Until the deadline the pool of memory had less left than the claim asks for.", "wait for other claims to return memory, or ask for less", "classes/cxl-memory.md#shares-of-a-pool"),
    Row(r.NO_FREE_PORT, "The host has no free port.", "detach a device from the host, or let the pod go to another node"),
    Row(r.FABRIC_UNREACHABLE, "The fabric manager was not reached.", "see the Fabric's condition `Connected`"),
    Row(r.ATTACH_NOT_BEGUN, "The attach waited until the deadline for others of its fabric or namespace.", "begin fewer at once, or raise the limit"),
    Row(r.ATTACH_DEADLINE_EXCEEDED, "The attach was begun and not finished within `attachTimeoutSeconds`, or the device's last node did not release it.", "see the Fabric's condition `Connected`, or the message for the cause of the blocked release", blames_device=True),
    Row(r.CONNECTION_NOT_SHOWN, "The fabric manager lost the connection before the node saw the device, also after further attaches.", "ask the fabric manager's operator whether it lost its state", "fabrics.md#lost-connections", blames_device=True),
    Row(r.OPERATION_PENDING, "Another operation keeps the device busy at the fabric manager.", "end the operation at the fabric manager, unless it ends by itself", blames_device=True),
    Row(r.NODE_NOT_RESPONDING, "The device is attached, and its node reported neither success nor failure before the scheduler's `bindingTimeout`.", "look at the node and its `drawbar node` pod", blames_device=True),
    Row(r.ATTACHMENT_MISMATCH, "A DeviceAttachment made by hand names another device or host than the Fabric has, so nothing is attached.", "delete it and make it again: the message has the command and the right value"),
))

OTHER = Table("A reason that the controller does not know", CONTROLLER_FAILURES.conditions, CONTROLLER_FAILURES.status, (
    Row(r.OTHER, "The node daemon reported a reason that the controller does not know.", "read the conditions `Visible` and `Released`; update the controller if the node daemon is newer", blames_device=True),
))

ATTACHED = Table("While a device is attached or detached", "`Attached`, `Detached`", "False", (
    Row(r.ATTACHED, "The fabric has connected the device.", severity=Severity.OK, status="True"),
    Row(r.ATTACH_QUEUED, "Another device of the model is attached to the node first; the message names it.", "wait for the other device", "recognition.md#sole-arrival", Severity.WARNING),
    Row(r.FABRIC_BUSY, "The fabric manager refuses for now, or gave no answer; the request is repeated.", "read the message and the fabric manager's log", severity=Severity.WARNING),
    Row(r.CONNECTION_NOT_SHOWN, "The fabric manager shows an attached device as free; True if its node has seen it.", "ask the fabric manager's operator whether it lost its state, and do as the message says", "fabrics.md#lost-connections", Severity.WARNING),
    Row(r.CONNECTED_ELSEWHERE, "The fabric manager shows the device at another host, so another client of the manager moved it.", "ask the fabric manager's operator who moved the device, and do as the message says", "fabrics.md#lost-connections", Severity.WARNING),
))

VISIBLE = Table("While a node makes a device ready", "`Visible`, `drawbar.dev/visible`", "True", (
    Row(r.DEVICE_READY, "The node sees the device, and it is ready for its claim.", severity=Severity.OK),
))

RELEASED = Table("Why a node does not release a device", "`Released`", "False", (
    Row(r.NOT_IN_USE, "No process, kernel module or claim of the node uses the device, so the fabric may detach it.", severity=Severity.OK, status="True"),
    Row(r.PREPARED, "The kubelet has had the device prepared for a claim for more than 5 s.", "delete the pods that use its claim"),
    Row(r.IN_USE, "The message names the user: a process, a mount, md or dm, a CXL region, or a virtual machine.", "end what the message names; the node daemon checks again every 2 s"),
    Row(r.KERNEL_REFUSED, "The kernel does not unbind, remove or power off the device.", "do as the message says: it has the file and the remedy"),
    Row(r.KERNEL_SILENT, "The kernel has not answered, and may still do it.", _LOG),
    Row(r.CLEANING, "The device is being erased; the message shows the progress.", "wait for the erase to end", severity=Severity.NOTE),
    Row(r.NOT_CLEANED, "The device cannot be erased or reset, so it stays on its node and no other claim gets it.", "do as the message says, or power-cycle the device, then drawbar fabric detach --force", "node-release.md#blocked-releases"),
    Row(r.NO_PROGRESS, "A step was taken, and it had no effect.", _LOG),
    Row(r.SERIAL_NOT_UNIQUE, "The node cannot tell which of several devices to release.", "remove the other devices with that serial number"),
))

EXCLUSIVE = Table("Whether another driver offers a device as well", "`Exclusive`", "", (
    Row(r.OFFERED_BY_ANOTHER_DRIVER, "Another driver's ResourceSlice offers the device as well.", "exclude the device from the other driver", "beside-other-drivers.md#devices-offered-twice", Severity.WARNING, status="False"),
    Row(r.OFFERED_BY_THIS_DRIVER, "The other driver has left the device out for 300 s.", severity=Severity.OK, status="True"),
))

FAILURES = (CONTROLLER_FAILURES, NODE_FAILURES)
TABLES = (*FAILURES, OTHER, ATTACHED, VISIBLE, RELEASED, EXCLUSIVE)
# fmt: on


def find_attached(reason: str) -> Row:
    """Return the row of a reason why `Attached` or `Detached` is False."""
    return ATTACHED.find(reason) if reason in ATTACHED.reasons else find_failure(reason)


def find_failure(reason: str) -> Row:
    """Return the row of a failed attach, of the controller's table or the node's."""
    table = NODE_FAILURES if reason in NODE_FAILURES.reasons else CONTROLLER_FAILURES
    return table.find(reason)
