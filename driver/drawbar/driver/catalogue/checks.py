"""The checks of `drawbar doctor` and `drawbar explain`; docs/reference/checks.md is written from the tables.

`cli.doctor.findings.Check` has the names.
"""

import msgspec


class Check(msgspec.Struct, frozen=True):
    """One check.

    Attributes:
        name: its fixed name, such as `nodes.daemon`.
        subject: the checked state, as a clause in Markdown.
    """

    name: str
    subject: str


class Table(msgspec.Struct, frozen=True):
    """The checks of one command."""

    title: str
    rows: tuple[Check, ...]


TABLES = (
    Table("Of the cluster", (
        Check("server.version", "Kubernetes 1.34 or later, or one with classic allocation"),
        Check("server.resource-api", "`resource.k8s.io/v1` or PodSchedulingContexts are served"),
        Check("server.definition", "the CRDs have all fields of this release"),
        Check("server.objects", "[unreadable objects](../conditions.md#objects-that-cannot-be-read)"),
        Check("features.binding-conditions", "the API server keeps `bindingConditions` (dry run)"),
        Check("features.taints", "the API server keeps device taints"),
        Check("features.taint-details", "a taint may carry description, data and rate"),
        Check("features.taint-rules", "DeviceTaintRules are served"),
        Check("features.scheduler", "reminds you of the scheduler's gates"),
        Check("access.account", "both daemons' service accounts exist"),
        Check("access.permission", "the daemons have all permissions, also for Fabrics' Secrets"),
        Check("access.policies", "admission policies pin the daemons' tokens to their own objects"),
        Check("access.writes", "the API server takes the daemons' writes (dry runs)"),
        Check("controller.leader", "a controller leads"),
        Check("nodes.kubelet", "kubelets from 1.34 (classic allocation: 1.27) to the API server's version"),
        Check("nodes.runtime", "the runtime's version has CDI"),
        Check("nodes.ready", "nodes with attached devices are Ready"),
        Check("nodes.daemon", "the node daemon is Ready on each node of a fabric"),
        Check("nodes.left-out", "devices left to [other drivers](../beside-other-drivers.md)"),
        Check("clocks.here", "your clock against the API server's"),
        Check("clocks.controller", "the leader's clock: a warning above 2 s, an error above 30 s"),
        Check("clocks.node", "the nodes' clocks, with the same limits"),
        Check("fabrics.served", "each Fabric has a controller"),
        Check("fabrics.connected", "the fabric manager answers"),
        Check("fabrics.credentials", "the manager takes the credentials"),
        Check("fabrics.degraded", "a Fabric's faults"),
        Check("fabrics.published", "a Fabric's devices are offered"),
        Check("fabrics.ready", "a Fabric has a node for its devices"),
        Check("fabrics.maintenance", "each [Maintenance](../maintenance.md) is fully in effect"),
        Check("fabrics.writable", "the API server takes the controller's writes"),
        Check("hosts.mapped", "a Fabric's hosts are nodes"),
        Check("hosts.ambiguous", "no two nodes have the same system UUID, serial or mark"),
        Check("hosts.node", "nodes with a daemon and without a fabric"),
        Check("attachments.attach", "no attach exceeds `attachTimeoutSeconds`"),
        Check("attachments.visible", "at most 60 s from attached to visible"),
        Check("attachments.detach", "at most 60 s from deletion to the end"),
        Check("attachments.exclusive", "no other driver or device plugin offers an attached device"),
        Check("attachments.failed", "failed devices"),
        Check("attachments.health", "unhealthy devices"),
        Check("attachments.orphaned", "devices without a Fabric"),
        Check("claims.allocated", "a waiting claim has matching, free and untainted devices (the first 4 claims)"),
        Check("devices.tainted", "taints for a device's fault; in `drawbar explain`, the end of each taint"),
    )),
    Table("Of one object, by `drawbar explain`", (
        Check("pods.placed", "the pod has a node and its claims"),
        Check("pods.started", "the pod's containers run"),
        Check("claims.ready", "the claim's binding conditions are True"),
        Check("devices.offered", "the device is in a slice"),
    )),
    Table("Of a node, with `--node`", (
        Check("host.settings", "the node daemon's settings; its Node object exists"),
        Check("host.pod", "privileges, mounts and namespaces"),
        Check("host.sockets", "the kubelet's directory; the registration socket answers"),
        Check("host.daemon", "the daemon answers, is alive and ready"),
        Check("host.left-out", "devices left to others"),
        Check("host.cdi", "the runtime reads the daemon's CDI directory; needs `--host-root`"),
        Check("host.hotplug", "the kernel's `pciehp` serves each hot-plug slot"),
        Check("host.buses", "enough bus numbers behind each slot"),
        Check("host.windows", "the memory windows behind each slot fit the largest offered device"),
        Check("host.bars", "every device has addresses for its memory"),
        Check("host.iommu", "the IOMMU is on, and its mode"),
        Check("host.drivers", "the kernel has a driver for each offered class"),
    )),
)  # fmt: skip
