"""The Events that Drawbar records, by the object that they are about.

An Event of severity `ok` or `note` has the type Normal, every other one Warning.
"""

from drawbar.driver.catalogue import reasons as r
from drawbar.driver.catalogue.tables import Row, Severity, Table

_OK, _NOTE, _WARNING = Severity.OK, Severity.NOTE, Severity.WARNING
_RETRIED = "wait: the kubelet retries"
UNEXPECTED = Row(
    r.UNEXPECTED_ERROR,
    "Drawbar itself failed, and keeps retrying.",
    "report the trace after 'unexpected error, will try again' in the log of the reporting pod",
    "alerts.md#drawbarcontrollerunexpectederrors",
)
UNREADABLE = Row(
    r.OBJECT_UNREADABLE,
    "The object is invalid, or has more than 16 MiB as JSON, so its last state counts.",
    "correct the field in the message, or shorten or delete the object",
    "conditions.md#objects-that-cannot-be-read",
)

# One row a line, as in the page that is made of it.
# fmt: off
CLAIM = Table("On claims, the pods that wait for them, and DeviceAttachments", "ResourceClaim", "", (
    Row(r.DEVICE_ATTACHING, "The fabric connects the device.", severity=_OK),
    Row(r.DEVICE_ATTACHED, "The fabric has connected the device.", severity=_OK),
    Row(r.INITIALISING, "Its class's hook runs.", severity=_OK),
    Row(r.DEVICE_READY, "The device is ready; the scheduler binds the pod within 5 s.", severity=_OK),
    Row(r.DEVICE_WAITING, "The attach takes more than 5 s, or its node's report more than 15 s; the message has the cause.", "drawbar explain claim/NAME", severity=_NOTE),
    Row(r.DEVICE_NEVER_ATTACHED, "The scheduler dropped the binding conditions, so nothing is attached.", "update the scheduler to 1.34 or enable its gate `DRADeviceBindingConditions`; delete the claim"),
    Row(r.ATTACH_ROLLED_BACK, "The claim kept its allocation `bindingTimeout` after a failed attach; the device is detached.", "delete the claim"),
    Row(r.HOOK_TOO_LONG, "Hook or bitstream may take longer than the scheduler waits.", "shorten `initialise.timeoutSeconds`, or lengthen both binding timeouts", severity=_WARNING),
    Row(r.OFFERED_BY_ANOTHER_DRIVER, "Another driver's ResourceSlice offers the device as well.", "exclude the device from the other driver", "beside-other-drivers.md#devices-offered-twice", _WARNING),
    Row(r.DEVICE_UNHEALTHY, "A device became Unhealthy, or its findings changed.", "look up the finding in the message", "reference/findings.md", _WARNING),
    Row(r.DEVICE_HEALTHY, "The device is healthy again.", severity=_OK),
    UNEXPECTED,
))

PREPARE = Table("On claims, from Prepare", "ResourceClaim", "", (
    Row(r.DEVICE_NOT_ATTACHED, "The device is not attached for this allocation yet.", _RETRIED),
    Row(r.DEVICE_NOT_VISIBLE, "The node does not see the device yet.", _RETRIED),
    Row(r.DEVICE_NOT_READY, "The node makes the device ready; the message has the step.", _RETRIED),
    Row(r.NOT_CLEANED, "The node cleans the device first.", _RETRIED),
    Row(r.DEVICE_FAILED, "The device did not become ready; the message has the cause.", "delete the pod"),
    Row(r.DEVICE_DETACHING, "The device is being detached from this node.", _RETRIED),
    Row(r.DEVICE_REPLACED, "Another device has taken its place.", "delete the pod"),
    Row(r.DEVICE_IN_USE, "Another claim of the node, in the message, has the device prepared.", "delete the other claim's pods; the kubelet retries"),
    Row(r.HOST_USES_DEVICE, "The node itself uses an interface of the device.", "end the use that the message names, or delete the pod"),
    Row(r.VENDOR_FILE_MISSING, "The class's CDI file of the vendor is missing.", "run the vendor's service that writes CDI files on the node", "parameters.md"),
    Row(r.INVALID_PARAMETERS, "The opaque parameters cannot be applied.", "read the message; make a new claim, or correct the DeviceClass", "parameters.md"),
    Row(r.CLAIM_UNREADABLE, "The API server does not return the claim.", _RETRIED),
    Row(r.CLAIM_NOT_ALLOCATED, "The claim has no allocation.", "delete the pod"),
    Row(r.CLAIM_GONE, "The claim is gone; only the kubelet gets this answer.", "delete the pod"),
    Row(r.PREPARE_FAILED, "The claim cannot be prepared; the message has the reason.", _RETRIED),
    Row(r.RESOURCE_HANDLE_WRONG, "Up to 1.30: the allocation's handle is another driver's or node's.", "delete the claim", "classic.md"),
    Row(r.CHECKPOINT_FAILED, "The record of prepared claims cannot be written.", "make room on the node's disk: the message has the file"),
    Row(r.CDI_FILE_FAILED, "A CDI file cannot be written or removed.", "make room on the node's disk: the message has the file"),
    Row(r.DEVICE_METADATA_FAILED, "The device's metadata file cannot be written or removed.", "mount its folder read-write, with room: the message has the file"),
))

ATTACHMENT = Table("On DeviceAttachments", "DeviceAttachment", "", (
    Row(r.DEVICE_TAKEN_BACK, "The cluster's own connection had no DeviceAttachment; now it has one.", page="fabrics.md#marks", severity=_OK),
    Row(r.CLEANING, "The node erases the device; the message shows the progress.", severity=_OK),
    Row(r.OFFERED_BY_THIS_DRIVER, "The other driver has left the device out for 300 s.", severity=_OK),
    Row(r.FABRIC_MISSING, "This driver has no such Fabric, so nothing is attached or detached.", "create the Fabric again, or delete the DeviceAttachment"),
    Row(r.FOREIGN_FINALIZER, "Others' finalizers keep the object, so no claim gets the detached device.", "run the command of the message"),
    Row(r.LEFT_UNCLEAN, "It left its node without an erase; the next node erases it first.", severity=_WARNING),
    Row(r.GIVEN_UP, "Its Fabric was given up: no detach was made.", "disconnect it from the host in the message, at the fabric manager", "fabrics.md"),
    Row(r.CONNECTION_NOT_SHOWN, "The manager no longer shows the connection.", "ask the fabric manager's operator whether it lost its state", "fabrics.md#lost-connections"),
    Row(r.CONNECTED_ELSEWHERE, "The manager shows the device at another host.", "ask the fabric manager's operator who moved the device", "fabrics.md#lost-connections"),
    Row(r.OPERATION_PENDING, "Another operation has kept the device busy for a minute.", "end the operation at the fabric manager, if it hangs"),
    UNEXPECTED,
))

NODE = Table("On Nodes", "Node", "", (
    Row(r.NULL_DEVICE_NOT_SHARED, "The API server cannot share the node's null device, so there are fewer.", page="local-pool.md", severity=_WARNING),
    Row(r.DEVICES_LEFT_TO_OTHERS, "Devices of other drivers or device plugins are not offered; the message names the first.", page="beside-other-drivers.md", severity=_OK),
    Row(r.DEVICE_OFFERED_TWICE, "Another driver or a device plugin also offers a claim's device.", "exclude the device there", "beside-other-drivers.md"),
    Row(r.SLICES_REFUSED, "The API server refuses the node's ResourceSlices.", "do as the message says; the write is repeated within a minute"),
))

RULE = Table("On DeviceTaintRules", "DeviceTaintRule", "", (
    Row(r.TAINT_RULE_EXPIRED, "A rule of `drawbar taint` expired and was deleted.", page="taints.md", severity=_OK),
    Row(r.DEVICE_LIFTED, "The rule's HealthPolicy is gone, so the rule was deleted.", page="health-monitor.md", severity=_OK),
))

POLICY = Table("On HealthPolicies", "HealthPolicy", "", (
    Row(r.DEVICE_TAINTED, "A signal lasted long enough: the device has a rule.", severity=_OK),
    Row(r.DEVICE_CHANGED, "The device's rule follows a changed effect of the policy.", severity=_OK),
    Row(r.DEVICE_LIFTED, "The device was clear for long enough, or the policy's taint or Fabric changed.", severity=_OK),
    Row(r.EVICTION_RATE_DROPPED, "The API server dropped `taint.evictionsPerSecond`, so it has no effect.", "remove it: no release of Kubernetes has the field", severity=_WARNING),
    Row(r.DEVICE_WITHHELD, "The policy's healthy share or rate allows no more; Normal in a dry run.", "replace devices, or change the policy's limits", "health-monitor.md", _WARNING),
))

IMMEDIATE = Table("On claims, from immediate allocation", "ResourceClaim", "", (
    Row(r.IMMEDIATELY_ALLOCATED, "The claim has its devices; the message names them.", severity=_OK),
    Row(r.NO_RESERVED_DEVICE, "No free reserved device fits, or no node has a port.", "wait, or reserve more devices in `policy.immediate`"),
    Row(r.IMMEDIATE_ALLOCATION_FAILED, "Attach or node failed, so the allocation is taken back.", "read the message; other devices are tried next"),
    Row(r.NODE_GONE, "The node of the unused claim is gone (`policy.nodeGoneSeconds`) or has the taint out-of-service.", "nothing: the claim gets another node's devices"),
    Row(r.IMMEDIATE_ALLOCATION_UNSUPPORTED, "Only the scheduler can serve the claim, or its selectors have more than 65,536 characters.", "change the claim, or leave it to the scheduler", "immediate.md"),
    Row(r.SELECTORS_TOO_EXPENSIVE, "The namespace's selectors took 20 s of processor time, and now get a quarter of a core.", "simplify the selectors: above 1 s for 128 devices they are refused for 10 minutes"),
    Row(r.BINDING_CONDITIONS_DROPPED, "The API server drops binding conditions, so a pod would be bound too early.", "enable the feature gate DRADeviceBindingConditions"),
    Row(r.DEVICE_CLASS_MISSING, "The DeviceClass is missing; checked again within 90 s.", "create the DeviceClass, or make a new claim"),
    Row(r.IMMEDIATE_ALLOCATION_OFF, "The controller runs without immediate allocation.", "start the controller with --immediate-allocation"),
))

CLASSIC = Table("On claims, from classic allocation", "ResourceClaim", "", (
    Row(r.ALLOCATED, "The claim has its devices.", severity=_OK),
    Row(r.DEALLOCATED, "The claim's devices are free again.", severity=_OK),
    Row(r.CANNOT_SERVE_CLAIM, "The message names the wrong parameters, or the missing class.", "correct the parameters or the class"),
    Row(r.SELECTORS_TOO_EXPENSIVE, "The namespace's selectors took 20 s of processor time, and now get a quarter of a core.", "simplify the selectors; namespaces share the time of a class's selectors"),
    Row(r.DEVICE_NOT_READY, "The attached device's node did not report in time.", "check the node daemon there"),
    Row(r.NODE_GONE, "The node is gone (`policy.nodeGoneSeconds`) or has the taint out-of-service.", "nothing: another node is chosen"),
    Row(r.NOBODY_WAITS, "The pod was deleted during the attach.", "nothing"),
    Row(r.DEVICE_RELEASED, "Another client deleted the DeviceAttachment.", "nothing: it is retried"),
    Row(r.ATTEMPTS_MIXED, "Two controllers decided on old data, so the devices are released.", "nothing: it is retried"),
    Row(r.ALLOCATION_TOO_LARGE, "A ResourceHandle cannot store the names of its devices (over 24).", "ask for fewer devices in one claim"),
    Row(r.NO_DEVICE_LEFT, "After an interrupted attempt, others have taken the devices.", "nothing: it is retried"),
))

ANY = Table("On every object that Drawbar follows", "any", "", (UNREADABLE, UNEXPECTED))

TABLES = (CLAIM, PREPARE, ATTACHMENT, NODE, RULE, POLICY, IMMEDIATE, CLASSIC, ANY)
