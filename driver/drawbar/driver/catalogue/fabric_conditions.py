"""The conditions of Fabrics and Maintenances, with the cause and the remedy of each reason."""

from drawbar.driver.catalogue import reasons as r
from drawbar.driver.catalogue.tables import Row, Severity, Table

# One row a line, as in the page that is made of it.
# fmt: off
CREDENTIALS = Table("Why a fabric manager does not accept the credentials", "`Connected`", "False", (
    Row(r.UNAUTHENTICATED, "", "correct the Fabric's Secret"),
    Row(r.PERMISSION_DENIED, "", "give the fabric manager's user the rights to list, attach and detach"),
    Row(r.CREDENTIALS_MISSING, "The Secret does not exist, or has no known key.", "create the Secret of `spec.credentialsSecretRef` with known keys", "fabrics.md#credentials"),
    Row(r.CREDENTIALS_INVALID, "", "correct the Secret as the message says"),
    Row(r.CREDENTIALS_UNBOUND, "The Secret has no key `origins`, so nothing is sent.", "run the message's command, if it names the right fabric manager"),
    Row(r.CREDENTIALS_NOT_FOR_FABRIC, "The Secret is for another origin, Fabric or certificate, so nothing is sent.", "correct the Fabric, or allow the change by the message's command", "fabrics.md#where-credentials-are-sent"),
    Row(r.CREDENTIALS_FORBIDDEN, "", "name the Secret in the Role `drawbar-fabric-credentials`"),
    Row(r.CREDENTIALS_UNREAD, "The API server did not return the Secret.", "wait, or read the controller's log"),
))

CONNECTED = Table("Whether a fabric manager is connected", "`Connected`", "False", (
    Row(r.CONNECTED, severity=Severity.OK, status="True"),
    Row(r.PENDING, "No controller has served the Fabric yet.", "`drawbar doctor`", status="Unknown"),
    Row(r.CONNECTING, "", "wait a moment", severity=Severity.WARNING),
    Row(r.INVALID_CONFIGURATION, "", "correct the Fabric as the message says"),
    Row(r.UNAVAILABLE, "The manager or sidecar does not answer.", "`drawbar fabric check NAME`; check that it runs, and that `spec.endpoint` reaches it"),
    Row(r.DEADLINE_EXCEEDED, "No answer within `spec.timeoutSeconds`.", "read the fabric manager's log; it may be overloaded"),
    Row(r.SOCKET_FORBIDDEN, "The controller may not open the sidecar's socket.", "run the sidecar as the controller's user (chart: 65532), or in its group with socket mode 0660"),
    *CREDENTIALS.rows,
    Row(r.ADAPTER_DEFECT, "", "send the traceback of the controller's log to the adapter's vendor"),
    Row(r.UNEXPECTED_ERROR, "Drawbar itself failed.", "report the trace after 'unexpected error, will try again' in the controller's log", "alerts.md#drawbarcontrollerunexpectederrors"),
    Row(r.LIMIT_EXCEEDED, "The manager lists more than `policy.limits` allows.", "`kubectl edit fabric NAME`: raise the field in the message, or correct the manager", "fabrics.md#limits-of-a-manager"),
))

DEGRADED = Table("Whether a part of a fabric is at fault", "`Degraded`", "True", (
    Row(r.HEALTHY, severity=Severity.OK, status="False"),
    Row(r.NOT_CONNECTED, "Faults are not known.", "see `Connected`", severity=Severity.NOTE, status="False"),
    Row(r.LIMIT_EXCEEDED, "The manager or its ResourceSlices exceed `policy.limits`.", "`kubectl edit fabric NAME`: raise the field in the message, or correct the manager", "fabrics.md#limits-of-a-manager", Severity.WARNING),
    Row(r.TROUBLES, "The message lists each host, node, device or object at fault.", "check them at the fabric manager, and run `drawbar doctor`", severity=Severity.WARNING),
    Row(r.DEVICES_MISSING, "The last listing lacks attached devices, or over a quarter of all devices or hosts; they still count.", "check whether the fabric manager is starting", severity=Severity.WARNING),
    Row(r.CONNECTIONS_NOT_SHOWN, "The manager no longer shows attached devices' connections.", "ask the fabric manager's operator whether it lost its state", "fabrics.md#lost-connections", Severity.WARNING),
))

FEATURES_DROPPED = Table("Whether the API server drops fields of ResourceSlices", "`FeaturesDropped`", "True", (
    Row(r.ALL_KEPT, severity=Severity.OK, status="False"),
    Row(r.FIELDS_DROPPED, "Devices (tainted ones, if it drops taints) are not published.", "enable the feature gates in the message; checked again within 10 minutes"),
))

HOSTS_MAPPED = Table("Whether a fabric's hosts are nodes", "`HostsMapped`", "False", (
    Row(r.HOSTS_MAPPED, severity=Severity.OK, status="True"),
    Row(r.HOSTS_NOT_MAPPED, "No host is a node, or hosts and nodes contradict each other.", "map the hosts in `spec.hosts`", "fabrics.md#hosts-and-nodes"),
))

PUBLISHED = Table("Whether a fabric's devices are offered", "`Published`", "False", (
    Row(r.PUBLISHED, severity=Severity.OK, status="True"),
    Row(r.REFUSED, "The API server refuses some ResourceSlices, which stay as they were.", "do as the message says; `drawbar doctor` shows missing permissions"),
    Row(r.FIELDS_DROPPED, "See the condition `FeaturesDropped`.", "`drawbar doctor` names the feature gates"),
    Row(r.DELETING, "The Fabric is being deleted and waits for its last device.", "delete the claims with its devices, and its DeviceAttachments made by hand", severity=Severity.NOTE),
    Row(r.GIVEN_UP, "By `drawbar.dev/give-up`, DeviceAttachments go without a detach while the manager is silent.", "disconnect the devices at the fabric manager", "fabrics.md"),
))

WRITABLE = Table("Whether the API server takes the controller's writes", "`Writable`", "False", (
    Row(r.ACCEPTED, severity=Severity.OK, status="True"),
    Row(r.REFUSED, "It refuses writes (401, 403, 422), repeated each minute.", "correct the role `drawbar-controller`, or the admission policy in the message"),
))

READY = Table("Whether claims can be given a fabric's devices", "`Ready`", "False", (
    Row(r.READY, severity=Severity.OK, status="True"),
    Row(r.NO_USABLE_NODE, "Each node is down, in maintenance, without a node daemon, or at a host with failed attaches. For other reasons see `Connected`, `HostsMapped` and `Published`.", "`drawbar explain fabric/NAME`", severity=Severity.WARNING),
    Row(r.NO_USABLE_DEVICE, "Each device has a taint against further claims.", "`drawbar explain fabric/NAME`", severity=Severity.WARNING),
))

APPLIED = Table("Whether a Maintenance is in effect", "`Applied`", "False", (
    Row(r.APPLIED, severity=Severity.OK, status="True"),
    Row(r.PENDING, "No controller of its `spec.driver` has checked it yet.", "`drawbar doctor`", severity=Severity.WARNING, status="Unknown"),
    Row(r.PARTLY_APPLIED, "The manager does not list some of its names.", "correct the names in the message, or wait", severity=Severity.WARNING, status="True"),
    Row(r.NOTHING_MATCHES, "The Fabric has none of its devices and nodes.", "correct the names", severity=Severity.WARNING),
    Row(r.FABRIC_NOT_LISTED, "", "see the Fabric's condition `Connected`", severity=Severity.WARNING),
    Row(r.NO_FABRIC, "", "delete the Maintenance, or create the Fabric", severity=Severity.WARNING),
))

TABLES = (CONNECTED, DEGRADED, FEATURES_DROPPED, HOSTS_MAPPED, PUBLISHED, WRITABLE, READY, APPLIED)
