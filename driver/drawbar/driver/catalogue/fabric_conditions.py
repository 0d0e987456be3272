"""The conditions of Fabrics and Maintenances, with the cause and the remedy of each reason."""

from drawbar.driver.catalogue import reasons as r
from drawbar.driver.catalogue.tables import Row, Severity, Table

# One row a line, as in the page that is made of it.
# fmt: off
CREDENTIALS = Table("Why a fabric manager does not accept the credentials", "`Connected`", "False", (
    Row(r.UNAUTHENTICATED, "The fabric manager refuses the credentials.", "correct the Secret that the Fabric names"),
    Row(r.PERMISSION_DENIED, "The credentials do not allow the request.", "give the fabric manager's user the rights to list, attach and detach"),
    Row(r.CREDENTIALS_MISSING, "There is no Secret of that name, or it has no known key.", "create the Secret that spec.credentialsSecretRef names, with known keys", "fabrics.md#credentials"),
    Row(r.CREDENTIALS_INVALID, "A key of the Secret is wrong; the message says which, and never its value.", "correct the Secret as the message says"),
    Row(r.CREDENTIALS_UNBOUND, "The Secret has no key `origins`, so nothing is sent.", "if the message names the fabric manager, run its command, which adds the manager to the Secret"),
    Row(r.CREDENTIALS_NOT_FOR_FABRIC, "The Secret is for another origin, Fabric or certificate, so nothing is sent.", "correct the Fabric; or, if the change is intended, run the command of the message", "fabrics.md#where-credentials-are-sent"),
    Row(r.CREDENTIALS_FORBIDDEN, "The controller may not read the Secret.", "add the Secret's name to resourceNames of the Role drawbar-fabric-credentials"),
    Row(r.CREDENTIALS_UNREAD, "The API server did not return the Secret.", "wait for the API server; if it stays so, look at the controller's log"),
))

CONNECTED = Table("Whether a fabric manager is connected", "`Connected`", "False", (
    Row(r.CONNECTED, "The fabric manager answers.", severity=Severity.OK, status="True"),
    Row(r.PENDING, "No controller has served the Fabric yet.", "drawbar doctor", status="Unknown"),
    Row(r.CONNECTING, "The first answer has not arrived yet.", "wait a moment and ask again", severity=Severity.WARNING),
    Row(r.INVALID_CONFIGURATION, "A field of the Fabric is wrong; the message says which, and which adapters are installed.", "correct the Fabric as the message says"),
    Row(r.UNAVAILABLE, "The fabric manager, or the adapter's sidecar, does not answer.", "is the fabric manager, or the adapter's sidecar, running and reached at spec.endpoint?"),
    Row(r.DEADLINE_EXCEEDED, "The fabric manager, or the adapter's sidecar, did not answer in time.", "is the fabric manager overloaded? look at its log; spec.timeoutSeconds is the deadline of one call"),
    Row(r.SOCKET_FORBIDDEN, "The controller may not open the sidecar's socket.", "run the sidecar as the controller's user (65532 in the chart), or give both a group and the socket the mode 0660"),
    *CREDENTIALS.rows,
    Row(r.ADAPTER_DEFECT, "The adapter raised an error that its contract does not allow.", "tell the adapter's vendor; the controller's log has the traceback"),
    Row(r.UNEXPECTED_ERROR, "Drawbar itself failed.", "look for 'unexpected error, will try again' in the controller's log, and send its trace to Drawbar's maintainers", "alerts.md#drawbarcontrollerunexpectederrors"),
    Row(r.LIMIT_EXCEEDED, "The fabric manager lists more than `policy.limits` allows, so it cannot be connected.", "kubectl edit fabric NAME, and raise the field of `policy.limits` that the message names; or correct the manager", "fabrics.md#limits-of-a-manager"),
))

DEGRADED = Table("Whether a part of a fabric is at fault", "`Degraded`", "True", (
    Row(r.HEALTHY, "Nothing is at fault.", severity=Severity.OK, status="False"),
    Row(r.LIMIT_EXCEEDED, "The manager lists or streams more than `policy.limits` allows, or its devices need more ResourceSlices.", "kubectl edit fabric NAME, and raise the field of `policy.limits` that the message names; or correct the manager", "fabrics.md#limits-of-a-manager", Severity.WARNING),
    Row(r.TROUBLES, "The message has one sentence for each host, node, device or object that is at fault or avoided.", "look at those hosts and devices at the fabric manager, and at the nodes' daemons with drawbar doctor", severity=Severity.WARNING),
    Row(r.DEVICES_MISSING, "Attached devices, or more than a quarter of all devices or hosts, are missing from the last listing; they count as they were.", "is the fabric manager starting, or its listing partial?", severity=Severity.WARNING),
    Row(r.CONNECTIONS_NOT_SHOWN, "The fabric manager no longer shows the connections of attached devices; the message names them.", "ask the fabric manager's operator whether it lost its state", "fabrics.md#lost-connections", Severity.WARNING),
))

FEATURES_DROPPED = Table("Whether the API server drops fields of ResourceSlices", "`FeaturesDropped`", "True", (
    Row(r.ALL_KEPT, "The API server keeps every field.", severity=Severity.OK, status="False"),
    Row(r.FIELDS_DROPPED, "The API server drops fields, so devices are not published; if it drops only taints, tainted devices are not.", "enable the feature gates that the message names; checked again every 10 minutes"),
))

HOSTS_MAPPED = Table("Whether a fabric's hosts are nodes", "`HostsMapped`", "False", (
    Row(r.HOSTS_MAPPED, "The hosts of the fabric are nodes.", severity=Severity.OK, status="True"),
    Row(r.HOSTS_NOT_MAPPED, "No host is a node, or hosts and nodes contradict each other; the message names them.", "map the hosts in spec.hosts", "fabrics.md#hosts-and-nodes"),
))

PUBLISHED = Table("Whether a fabric's devices are offered", "`Published`", "False", (
    Row(r.PUBLISHED, "The ResourceSlices are written.", severity=Severity.OK, status="True"),
    Row(r.REFUSED, "The API server refuses some ResourceSlices, which stay as they were; all others are current.", "correct what the message names; drawbar doctor shows missing permissions"),
    Row(r.FIELDS_DROPPED, "See the condition `FeaturesDropped`.", "drawbar doctor names the feature gates to enable"),
    Row(r.DELETING, "The Fabric is being deleted, and goes when its last device is back.", "delete the pods or claims that have its devices, and its DeviceAttachments made by hand", severity=Severity.NOTE),
    Row(r.GIVEN_UP, "The annotation `drawbar.dev/give-up` is set: while the manager is not reached, DeviceAttachments go without a detach.", "disconnect the devices at the fabric manager", "fabrics.md"),
))

WRITABLE = Table("Whether the API server takes the controller's writes", "`Writable`", "False", (
    Row(r.ACCEPTED, "The API server refuses no write.", severity=Severity.OK, status="True"),
    Row(r.REFUSED, "The API server refuses writes (401, 403, 422); the message names up to three. They are repeated once a minute.", "correct the permission (deploy/manifests/controller-rbac.yaml), or the admission policy that the message names"),
))

READY = Table("Whether claims can be given a fabric's devices", "`Ready`", "False", (
    Row(r.READY, "Claims can be given its devices.", severity=Severity.OK, status="True"),
    Row(r.NO_USABLE_NODE, "Each node of the fabric is avoided, in maintenance, down or without a node daemon. Other reasons are those of `Connected`, `HostsMapped` and `Published`.", "drawbar explain fabric/NAME", severity=Severity.WARNING),
    Row(r.NO_USABLE_DEVICE, "Each device in the fabric's ResourceSlices has a taint that keeps further claims away.", "drawbar explain fabric/NAME", severity=Severity.WARNING),
))

APPLIED = Table("Whether a Maintenance is in effect", "`Applied`", "False", (
    Row(r.APPLIED, "All its devices and nodes are in maintenance.", severity=Severity.OK, status="True"),
    Row(r.PENDING, "No controller of its `spec.driver` has checked it yet.", "drawbar doctor", severity=Severity.WARNING, status="Unknown"),
    Row(r.PARTLY_APPLIED, "The fabric manager does not list some of its names; the others are in maintenance.", "correct the names that the message lists, or wait until the fabric manager lists them", severity=Severity.WARNING, status="True"),
    Row(r.NOTHING_MATCHES, "The Fabric has none of its devices and nodes.", "correct the names", severity=Severity.WARNING),
    Row(r.FABRIC_NOT_LISTED, "The fabric manager was not reached yet.", "see the Fabric's condition `Connected`", severity=Severity.WARNING),
    Row(r.NO_FABRIC, "There is no such Fabric of this driver.", "delete the Maintenance, or create the Fabric", severity=Severity.WARNING),
))

TABLES = (CONNECTED, DEGRADED, FEATURES_DROPPED, HOSTS_MAPPED, PUBLISHED, WRITABLE, READY, APPLIED)
