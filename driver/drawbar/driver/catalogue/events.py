"""The Events that Drawbar records, by the object that they are about.

An Event of severity `ok` or `note` has the type Normal, every other one Warning.
"""

from drawbar.driver.catalogue import reasons as r
from drawbar.driver.catalogue.tables import Row, Severity, Table

_OK, _NOTE, _WARNING = Severity.OK, Severity.NOTE, Severity.WARNING
_RETRIED = "wait: the kubelet tries again"
UNEXPECTED = Row(
    r.UNEXPECTED_ERROR,
    "Drawbar itself failed over the object, and keeps retrying.",
    "look for 'unexpected error, will try again' in the log of the pod that reports it, and send its trace to Drawbar's maintainers",
    "alerts.md#drawbarcontrollerunexpectederrors",
)
UNREADABLE = Row(
    r.OBJECT_UNREADABLE,
    "The object has more than 16 MiB as JSON, or is no valid object of its kind, so it stays as it was last read.",
    "correct the field that the message names, or shorten or delete the object",
    "conditions.md#objects-that-cannot-be-read",
)

# One row a line, as in the page that is made of it.
# fmt: off
CLAIM = Table("On claims, the pods that wait for them, and DeviceAttachments", "ResourceClaim", "", (
    Row(r.DEVICE_ATTACHING, "The fabric has begun to connect the device.", severity=_OK),
    Row(r.DEVICE_ATTACHED, "The fabric has connected the device.", severity=_OK),
    Row(r.INITIALISING, "The hook of its class runs.", severity=_OK),
    Row(r.DEVICE_READY, "The device is ready; the scheduler binds the pod within 5 s.", severity=_OK),
    Row(r.DEVICE_WAITING, "The device has not been attached for 5 s, or its node has not reported it for 15 s; the message has the cause.", "do as the message says; drawbar explain claim/NAME", severity=_NOTE),
    Row(r.DEVICE_NEVER_ATTACHED, "The scheduler allocated the device without binding conditions, so nothing is attached.", "update the scheduler to 1.34 or enable its gate `DRADeviceBindingConditions`, then delete the claim"),
    Row(r.ATTACH_ROLLED_BACK, "The attach failed, and the claim still has its allocation `bindingTimeout` later, so the device is detached.", "delete the claim"),
    Row(r.HOOK_TOO_LONG, "The hook of its class, or its bitstream, may take longer than the scheduler waits.", "shorten `initialise.timeoutSeconds`, or lengthen both binding timeouts", severity=_WARNING),
    Row(r.OFFERED_BY_ANOTHER_DRIVER, "Another driver's ResourceSlice offers the device as well.", "exclude the device from the other driver", "beside-other-drivers.md#devices-offered-twice", _WARNING),
    Row(r.DEVICE_UNHEALTHY, "A device of the claim became Unhealthy, or its findings changed.", "look up the finding in the message", "reference/findings.md", _WARNING),
    Row(r.DEVICE_HEALTHY, "A device of the claim is healthy again.", severity=_OK),
    UNEXPECTED,
))

PREPARE = Table("On claims, from Prepare", "ResourceClaim", "", (
    Row(r.DEVICE_NOT_ATTACHED, "The device is not attached for this claim and this allocation yet.", _RETRIED),
    Row(r.DEVICE_NOT_VISIBLE, "The node does not see the device yet.", _RETRIED),
    Row(r.DEVICE_NOT_READY, "The node makes the device ready; the message has the step.", _RETRIED),
    Row(r.NOT_CLEANED, "The node removes the traces of an earlier use first.", _RETRIED),
    Row(r.DEVICE_FAILED, "The device did not become ready; the message quotes the condition `Visible` or `status.error`.", "delete the pod"),
    Row(r.DEVICE_DETACHING, "The device is being detached from this node.", _RETRIED),
    Row(r.DEVICE_REPLACED, "Another device is now in the place of the allocated one.", "delete the pod"),
    Row(r.DEVICE_IN_USE, "The device is prepared for another claim on the node, which the message names.", "delete the pods of the other claim; the kubelet tries again"),
    Row(r.HOST_USES_DEVICE, "The node itself uses an interface of the device.", "end the use that the message names, or delete the pod"),
    Row(r.VENDOR_FILE_MISSING, "The vendor's CDI file that the class names is missing.", "run the vendor's service that writes its CDI files on the node", "parameters.md"),
    Row(r.INVALID_PARAMETERS, "The opaque parameters cannot be applied, so nothing was changed.", "read the message; make a new claim, or correct the DeviceClass", "parameters.md"),
    Row(r.CLAIM_UNREADABLE, "The claim cannot be read from the API server.", _RETRIED),
    Row(r.CLAIM_NOT_ALLOCATED, "The claim has no allocation.", "delete the pod"),
    Row(r.CLAIM_GONE, "The claim does not exist any more; only the kubelet gets this answer.", "delete the pod"),
    Row(r.PREPARE_FAILED, "The claim cannot be prepared; only the message has the reason.", _RETRIED),
    Row(r.RESOURCE_HANDLE_WRONG, "Up to 1.30: the handle of the allocation is not this driver's, or is for another node.", "delete the claim", "classic.md"),
    Row(r.CHECKPOINT_FAILED, "The record of prepared claims cannot be written.", "make room on the node's disk: the message has the file"),
    Row(r.CDI_FILE_FAILED, "A CDI file cannot be written or removed.", "make room on the node's disk: the message has the file"),
    Row(r.DEVICE_METADATA_FAILED, "The file with the device's metadata cannot be written or removed.", "mount the folder read-write and make room on its disk: the message has the file"),
))

ATTACHMENT = Table("On DeviceAttachments", "DeviceAttachment", "", (
    Row(r.DEVICE_TAKEN_BACK, "This cluster had attached the device and had no DeviceAttachment for it; now it has one.", page="fabrics.md#marks", severity=_OK),
    Row(r.CLEANING, "The node erases the device; the message shows the progress.", severity=_OK),
    Row(r.OFFERED_BY_THIS_DRIVER, "The other driver has left the device out for 300 s.", severity=_OK),
    Row(r.FABRIC_MISSING, "No Fabric of its name and driver exists, so nothing is attached or detached.", "create the Fabric again, as it was, or delete the DeviceAttachment"),
    Row(r.FOREIGN_FINALIZER, "The device is detached, and finalizers of others keep the object, so no claim gets the device.", "run the command of the message"),
    Row(r.LEFT_UNCLEAN, "The device left a node that did not confirm it, and was not erased; the next node erases it first.", severity=_WARNING),
    Row(r.GIVEN_UP, "Its Fabric was given up, so it went without a detach.", "disconnect the device from the host that the message names, at the fabric manager", "fabrics.md"),
    Row(r.CONNECTION_NOT_SHOWN, "The fabric manager no longer shows the connection.", "ask the fabric manager's operator whether it lost its state", "fabrics.md#lost-connections"),
    Row(r.CONNECTED_ELSEWHERE, "The fabric manager shows the device at another host.", "ask the fabric manager's operator who moved the device", "fabrics.md#lost-connections"),
    Row(r.OPERATION_PENDING, "For a minute the fabric manager has refused attach or detach because of another operation.", "end the operation at the fabric manager, unless it ends by itself"),
    UNEXPECTED,
))

NODE = Table("On Nodes", "Node", "", (
    Row(r.NULL_DEVICE_NOT_SHARED, "The API server cannot share the node's null device, so there are fewer of them.", page="local-pool.md", severity=_WARNING),
    Row(r.DEVICES_LEFT_TO_OTHERS, "Another driver or a device plugin has some devices, so they are not offered; the message names the first.", page="beside-other-drivers.md", severity=_OK),
    Row(r.DEVICE_OFFERED_TWICE, "A claim has a device of the node, and another driver or a device plugin offers it as well.", "exclude the device from that component", "beside-other-drivers.md"),
    Row(r.SLICES_REFUSED, "The API server refuses ResourceSlices of the node's own devices; the message quotes it.", "correct what the message names; the write is repeated at least once a minute"),
))

RULE = Table("On DeviceTaintRules", "DeviceTaintRule", "", (
    Row(r.TAINT_RULE_EXPIRED, "The time of a rule of `drawbar taint` ended, so the controller deleted it.", page="taints.md", severity=_OK),
    Row(r.DEVICE_LIFTED, "The HealthPolicy of a rule is gone, so the health monitor deleted the rule.", page="health-monitor.md", severity=_OK),
))

POLICY = Table("On HealthPolicies", "HealthPolicy", "", (
    Row(r.DEVICE_TAINTED, "A signal has lasted long enough, so the device has a rule.", severity=_OK),
    Row(r.DEVICE_CHANGED, "The policy's effect changed, and so did the device's rule.", severity=_OK),
    Row(r.DEVICE_LIFTED, "The device was clear for long enough, or the policy has another taint or Fabric.", severity=_OK),
    Row(r.EVICTION_RATE_DROPPED, "The API server did not keep `taint.evictionsPerSecond` in the first rule, so it has no effect.", "use a release of Kubernetes that has the field", severity=_WARNING),
    Row(r.DEVICE_WITHHELD, "The policy asks for more than its minimum healthy share or its rate allows; Normal in a dry run.", "replace devices, or change the limits of the policy", "health-monitor.md", _WARNING),
))

IMMEDIATE = Table("On claims, from immediate allocation", "ResourceClaim", "", (
    Row(r.IMMEDIATELY_ALLOCATED, "The claim has its devices; the message names them.", severity=_OK),
    Row(r.NO_RESERVED_DEVICE, "No free reserved device fits, or no node has a port for it; tried again when anything changes.", "wait, or reserve more devices in `policy.immediate` of the Fabric"),
    Row(r.IMMEDIATE_ALLOCATION_FAILED, "The device could not be attached, or its node could not use it, so the allocation is taken back.", "read the message; other devices are tried first"),
    Row(r.NODE_GONE, "The node has been gone for `policy.nodeGoneSeconds`, or has the taint out-of-service, and no pod uses the claim.", "nothing: the claim gets devices of another node"),
    Row(r.IMMEDIATE_ALLOCATION_UNSUPPORTED, "The claim asks for what only the scheduler can do, or its selectors have more than 65,536 characters.", "make a claim without it, or leave the claim to the scheduler", "immediate.md"),
    Row(r.SELECTORS_TOO_EXPENSIVE, "The selectors of the claims in its namespace took 20 s of processor time, and get a quarter of the passing time.", "simplify the selectors; one that takes more than 1 s for 128 devices is refused for 10 minutes"),
    Row(r.BINDING_CONDITIONS_DROPPED, "The API server drops binding conditions, so a pod would be bound before its device is there.", "enable the feature gate DRADeviceBindingConditions"),
    Row(r.DEVICE_CLASS_MISSING, "There is no such DeviceClass; looked up again after 90 s at most.", "create the DeviceClass, or make a new claim"),
    Row(r.IMMEDIATE_ALLOCATION_OFF, "The controller runs without immediate allocation.", "start the controller with --immediate-allocation"),
))

CLASSIC = Table("On claims, from classic allocation", "ResourceClaim", "", (
    Row(r.ALLOCATED, "The claim has its devices.", severity=_OK),
    Row(r.DEALLOCATED, "The claim's devices are free again.", severity=_OK),
    Row(r.CANNOT_SERVE_CLAIM, "The parameters cannot be applied, or a class does not exist; the message says which.", "correct the parameters or the class"),
    Row(r.SELECTORS_TOO_EXPENSIVE, "The selectors of the claims in its namespace took 20 s of processor time, and get a quarter of the passing time.", "simplify the selectors; the processor time of a class's expression is shared among the namespaces that use it"),
    Row(r.DEVICE_NOT_READY, "The device is attached, and its node did not report in time.", "does the node daemon run there?"),
    Row(r.NODE_GONE, "The node was gone for `policy.nodeGoneSeconds` during the attach, or has the taint out-of-service.", "nothing: another node is chosen"),
    Row(r.NOBODY_WAITS, "The pod was deleted during the attach.", "nothing"),
    Row(r.DEVICE_RELEASED, "Another client than the controller deleted the DeviceAttachment.", "nothing: the allocation is tried again"),
    Row(r.ATTEMPTS_MIXED, "Two controllers decided on old data; the devices are released, and it is tried again.", "nothing"),
    Row(r.ALLOCATION_TOO_LARGE, "The claim has more than 24 devices, with longer names than a ResourceHandle can store.", "ask for fewer devices in one claim"),
    Row(r.NO_DEVICE_LEFT, "An attempt was interrupted, and others have taken the missing devices.", "nothing: it is tried again"),
))

ANY = Table("On every object that Drawbar follows", "any", "", (UNREADABLE, UNEXPECTED))

TABLES = (CLAIM, PREPARE, ATTACHMENT, NODE, RULE, POLICY, IMMEDIATE, CLASSIC, ANY)
