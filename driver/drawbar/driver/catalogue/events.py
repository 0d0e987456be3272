"""The Events that Drawbar records, by the object that they are about.

An Event of severity `ok` or `note` has the type Normal, every other one Warning.
"""

from drawbar.driver.catalogue import attachment_conditions as conditions
from drawbar.driver.catalogue import reasons as r
from drawbar.driver.catalogue.tables import Row, Severity, Table

_OK, _NOTE, _WARNING = Severity.OK, Severity.NOTE, Severity.WARNING
_RETRIED = "wait; the kubelet retries"
_DELETE_POD = "delete the pod"
_MAKE_ROOM = "make room on the node's disk for the file in the message"
_NOTHING = "do nothing; it is retried"
_EXPENSIVE = "The namespace's selectors took 20 s of processor time, and now get a quarter of a core."
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

# One row a line, as in the page that is made of it. A Normal Event without a cause needs no explanation.
# fmt: off
CLAIM = Table("On claims, the pods that wait for them, and DeviceAttachments", "ResourceClaim", "", (
    Row(r.DEVICE_ATTACHING, severity=_OK),
    Row(r.DEVICE_ATTACHED, severity=_OK),
    Row(r.INITIALISING, "Its class's hook runs.", severity=_OK),
    Row(r.DEVICE_READY, severity=_OK),
    Row(r.DEVICE_WAITING, "The attach takes more than 5 s, or its node's report more than 15 s.", "`drawbar explain claim/NAME`", severity=_NOTE),
    Row(r.DEVICE_NEVER_ATTACHED, "The scheduler dropped the binding conditions, so nothing is attached.", "update the scheduler to 1.34 or enable its gate `DRADeviceBindingConditions`; delete the claim"),
    Row(r.ATTACH_ROLLED_BACK, "After a failed attach, the claim kept its allocation for `bindingTimeout`; the device is detached.", "delete the claim"),
    Row(r.HOOK_TOO_LONG, "Hook or bitstream may take longer than the scheduler waits.", "shorten `initialise.timeoutSeconds`, or lengthen both binding timeouts", severity=_WARNING),
    conditions.EXCLUSIVE.find(r.OFFERED_BY_ANOTHER_DRIVER),
    Row(r.DEVICE_UNHEALTHY, "It became Unhealthy, or its findings changed.", "look up the finding in the message", "reference/findings.md", _WARNING),
    Row(r.DEVICE_HEALTHY, severity=_OK),
    UNEXPECTED,
))

PREPARE = Table("On claims, from Prepare", "ResourceClaim", "", (
    Row(r.DEVICE_NOT_ATTACHED, "", _RETRIED),
    Row(r.DEVICE_NOT_VISIBLE, "", _RETRIED),
    Row(r.DEVICE_NOT_READY, "", _RETRIED),
    Row(r.NOT_CLEANED, "", _RETRIED),
    Row(r.DEVICE_FAILED, "", _DELETE_POD),
    Row(r.DEVICE_DETACHING, "", _RETRIED),
    Row(r.DEVICE_REPLACED, "", _DELETE_POD),
    Row(r.DEVICE_IN_USE, "Another claim of the node has it prepared.", "delete the other claim's pods; the kubelet retries"),
    Row(r.HOST_USES_DEVICE, "The node itself uses an interface of it.", "end that use, or delete the pod"),
    Row(r.VENDOR_FILE_MISSING, "", "run the vendor's service that writes CDI files on the node", "parameters.md"),
    conditions.CONTROLLER_FAILURES.find(r.INVALID_PARAMETERS),
    Row(r.CLAIM_UNREADABLE, "", _RETRIED),
    Row(r.CLAIM_NOT_ALLOCATED, "", _DELETE_POD),
    Row(r.CLAIM_GONE, "", _DELETE_POD),
    Row(r.PREPARE_FAILED, "", _RETRIED),
    Row(r.RESOURCE_HANDLE_WRONG, "Up to 1.30: the allocation's handle is another driver's or node's.", "delete the claim", "classic.md"),
    Row(r.CHECKPOINT_FAILED, "", _MAKE_ROOM),
    Row(r.CDI_FILE_FAILED, "", _MAKE_ROOM),
    Row(r.DEVICE_METADATA_FAILED, "", "mount its folder read-write, with room"),
))

ATTACHMENT = Table("On DeviceAttachments", "DeviceAttachment", "", (
    Row(r.DEVICE_TAKEN_BACK, "This cluster's connection had no DeviceAttachment; now it has one.", page="fabrics.md#marks", severity=_OK),
    conditions.RELEASED.find(r.CLEANING),
    conditions.EXCLUSIVE.find(r.OFFERED_BY_THIS_DRIVER),
    Row(r.FABRIC_MISSING, "This driver has no such Fabric, so nothing is attached or detached.", "create the Fabric again, or delete the DeviceAttachment"),
    Row(r.FOREIGN_FINALIZER, "Others' finalizers keep the object, so no claim gets the detached device.", "run the command of the message"),
    Row(r.LEFT_UNCLEAN, "It left its node without an erase; the next node erases it first.", severity=_WARNING),
    Row(r.GIVEN_UP, "Its Fabric was given up: no detach was made.", "disconnect it from the host in the message, at the fabric manager", "fabrics.md"),
    conditions.ATTACHED.find(r.CONNECTION_NOT_SHOWN),
    conditions.ATTACHED.find(r.CONNECTED_ELSEWHERE),
    conditions.CONTROLLER_FAILURES.find(r.OPERATION_PENDING),
    UNEXPECTED,
))

NODE = Table("On Nodes", "Node", "", (
    Row(r.NULL_DEVICE_NOT_SHARED, "The API server cannot share the null device, so there are fewer.", page="local-pool.md", severity=_WARNING),
    Row(r.DEVICES_LEFT_TO_OTHERS, "Devices of other drivers or device plugins are not offered.", page="beside-other-drivers.md", severity=_OK),
    Row(r.DEVICE_OFFERED_TWICE, "Another driver or a device plugin also offers a claim's device.", "exclude the device there", "beside-other-drivers.md"),
    Row(r.SLICES_REFUSED, "The API server refuses the node's ResourceSlices.", "do as the message says; repeated within a minute"),
))

RULE = Table("On DeviceTaintRules", "DeviceTaintRule", "", (
    Row(r.TAINT_RULE_EXPIRED, "A rule of `drawbar taint` expired and was deleted.", page="taints.md", severity=_OK),
    Row(r.DEVICE_LIFTED, "The rule's HealthPolicy is gone, so the rule was deleted.", page="health-monitor.md", severity=_OK),
))

POLICY = Table("On HealthPolicies", "HealthPolicy", "", (
    Row(r.DEVICE_TAINTED, "A signal lasted long enough: the device has a rule.", severity=_OK),
    Row(r.DEVICE_CHANGED, "The device's rule follows a changed effect.", severity=_OK),
    Row(r.DEVICE_LIFTED, "The device was clear for long enough, or the policy's taint or Fabric changed.", severity=_OK),
    Row(r.EVICTION_RATE_DROPPED, "The API server dropped `taint.evictionsPerSecond`, so it has no effect.", "remove it: no release of Kubernetes has the field", severity=_WARNING),
    Row(r.DEVICE_WITHHELD, "The policy's healthy share or rate allows no more; Normal in a dry run.", "replace devices, or change the policy's limits", "health-monitor.md", _WARNING),
))

IMMEDIATE = Table("On claims, from immediate allocation", "ResourceClaim", "", (
    Row(r.IMMEDIATELY_ALLOCATED, severity=_OK),
    Row(r.NO_RESERVED_DEVICE, "No free reserved device fits, or no node has a port.", "wait, or reserve more devices in `policy.immediate`"),
    Row(r.IMMEDIATE_ALLOCATION_FAILED, "", "read the message; other devices are tried next"),
    Row(r.NODE_GONE, "The node of the unused claim is gone (`policy.nodeGoneSeconds`) or out of service.", "do nothing: the claim gets another node's devices"),
    Row(r.IMMEDIATE_ALLOCATION_UNSUPPORTED, "Only the scheduler can serve the claim, or its selectors have over 65,536 characters.", "change the claim, or leave it to the scheduler", "immediate.md"),
    Row(r.SELECTORS_TOO_EXPENSIVE, _EXPENSIVE, "simplify the selectors: above 1 s for 128 devices they are refused for 10 minutes"),
    Row(r.BINDING_CONDITIONS_DROPPED, "The API server drops binding conditions, so a pod would be bound too early.", "enable the feature gate `DRADeviceBindingConditions`"),
    Row(r.DEVICE_CLASS_MISSING, "", "create the DeviceClass, checked again within 90 s, or make a new claim"),
    Row(r.IMMEDIATE_ALLOCATION_OFF, "", "start the controller with `--immediate-allocation`"),
))

CLASSIC = Table("On claims, from classic allocation", "ResourceClaim", "", (
    Row(r.ALLOCATED, severity=_OK),
    Row(r.DEALLOCATED, severity=_OK),
    Row(r.CANNOT_SERVE_CLAIM, "", "correct the parameters or the class, as the message says"),
    Row(r.SELECTORS_TOO_EXPENSIVE, _EXPENSIVE, "simplify the selectors; namespaces share the time of a class's selectors"),
    Row(r.DEVICE_NOT_READY, "The device is attached, but its node did not report in time.", "check the node daemon there"),
    Row(r.NODE_GONE, "The node is gone (`policy.nodeGoneSeconds`) or out of service.", "do nothing: another node is chosen"),
    Row(r.NOBODY_WAITS, "The pod was deleted during the attach.", "do nothing"),
    Row(r.DEVICE_RELEASED, "Another client deleted the DeviceAttachment.", _NOTHING),
    Row(r.ATTEMPTS_MIXED, "Two controllers decided on old data, so the devices are released.", _NOTHING),
    Row(r.ALLOCATION_TOO_LARGE, "A ResourceHandle cannot store its devices' names (over 24).", "ask for fewer devices in one claim"),
    Row(r.NO_DEVICE_LEFT, "After an interrupted attempt, others have taken the devices.", _NOTHING),
))

ANY = Table("On every object that Drawbar follows", "any", "", (UNREADABLE, UNEXPECTED))

TABLES = (CLAIM, PREPARE, ATTACHMENT, NODE, RULE, POLICY, IMMEDIATE, CLASSIC, ANY)
