"""The permissions of each role of the chart, their reasons, and the consequences of their absence.

`drawbar doctor` asks the API server for the permissions of the daemons. docs/reference/permissions.md and the rules of the
chart's ClusterRoles are written from the table. Tests compare it with all of the chart's roles and with the requests of a run.
"""

import msgspec

GRANULAR_STATUS_MINOR = 36
"""The first release that asks for `resourceclaims/driver` and `resourceclaims/binding`."""
DRIVER, LEASE, SECRETS = "drawbar.dev", "drawbar-controller", "fabric-credentials"
"""The names of the chart's defaults: the driver, the controller's lease, and a Secret of `credentialsSecrets`."""


class Permission(msgspec.Struct, frozen=True):
    """One rule of a role.

    Attributes:
        group: of the API; empty for the core.
        resource: with its subresource: `fabrics/status`.
        verbs: separated by spaces.
        why: its purpose, in Markdown.
        consequence: the effect of its absence, for a daemon's permission.
        only: the name of the only allowed object.
        in_namespace: granted only in the namespace of the daemons.
        in_default: granted only in the namespace `default`, which has the Events of objects without a namespace.
        since: the first minor version of Kubernetes that requires it.
    """

    group: str
    resource: str
    verbs: str
    why: str
    consequence: str = ""
    only: str = ""
    in_namespace: bool = False
    in_default: bool = False
    since: int = 0


class Role(msgspec.Struct, frozen=True):
    """The permissions of one account or person.

    Attributes:
        title: of its section in docs/reference/permissions.md.
        manifest: the file of deploy/manifests with its rules; empty if only a value of the chart makes it.
        template: the chart's template with its ClusterRole.
        permissions: its rules.
    """

    title: str
    name: str
    manifest: str
    template: str
    permissions: tuple[Permission, ...]


_OURS, _RESOURCES, _EVENTS = "drawbar.dev", "resource.k8s.io", "events.k8s.io"

_WAIT = "pods wait for their devices until the scheduler gives up"
_NOT_OFFERED = "devices of the node are not offered"
_NOT_AT_ONCE = "no claim is allocated at once"
_NO_ALLOCATION = "no claim is allocated"
_VIEW = "[`drawbar status`](../status.md), [`drawbar ui`](../ui.md)"
_DEVICES = "the devices, their taints and Events"
_PROGRESS = "the affected objects, to show them and to wait for them"

# One permission a line, as in the page that is made of it.
# fmt: off
CONTROLLER = Role("The controller", "drawbar-controller", "controller-rbac.yaml", "controller-rbac.yaml", (
    Permission(_OURS, "fabrics", "list watch patch", "the Fabrics, with a finalizer while a device is attached", "no Fabric is served"),
    Permission(_OURS, "fabrics/status", "patch", "their state", "no Fabric shows its state"),
    Permission(_OURS, "maintenances", "list watch", "the devices and nodes in maintenance", "nothing is taken out of service for maintenance"),
    Permission(_OURS, "maintenances/status", "patch", "their state", "no Maintenance shows whether it is in effect"),
    Permission(_OURS, "deviceattachments", "list watch create patch delete", "the intent and record of each attach", "no device is attached or detached"),
    Permission(_OURS, "deviceattachments/status", "patch", "the outcome of each attach and detach", "no device is attached"),
    Permission(_RESOURCES, "resourceslices", "list watch create update delete", "publishes the pools", "no device is published"),
    Permission(_RESOURCES, "resourceclaims", "list watch", "the allocations of claims", "the controller does not notice that a device was allocated"),
    Permission(_RESOURCES, "resourceclaims/status", "patch", "reports that a device is attached", _WAIT),
    Permission(_RESOURCES, "resourceclaims/driver", "arbitrary-node:patch", "the same since 1.36, for its driver's devices on any node", _WAIT, only=DRIVER, since=GRANULAR_STATUS_MINOR),
    Permission(_RESOURCES, "devicetaintrules", "list delete", "deletes expired rules of `drawbar taint`", "rules of `drawbar taint` do not end by themselves"),
    Permission("", "nodes", "list watch patch", "maps hosts to nodes, and labels them", "no host is mapped to a node"),
    Permission("", "namespaces", "get", "the cluster's identity, for the mark on its connections", "connections carry no mark of this cluster, and a lost one is never taken back", only="kube-system"),
    Permission(_EVENTS, "events", "create patch", "reports why a claim waits", "no Event explains why a pod waits"),
    Permission("coordination.k8s.io", "leases", "create", "one controller at a time; RBAC cannot limit creation by name", "no controller ever leads", in_namespace=True),
    Permission("coordination.k8s.io", "leases", "get update", "the same", "no controller ever leads", only=LEASE, in_namespace=True),
    Permission("", "pods", "list watch", "the node daemons' state; RBAC cannot limit it by label", "the controller never becomes ready, if it judges nodes by the pods of their daemons", in_namespace=True),
    Permission("", "secrets", "list watch", "fabric managers' credentials, by name (values: `credentialsSecrets`)", "the Fabric that names it is not connected", only=SECRETS, in_namespace=True),
))
IMMEDIATE = Role("The controller, with immediate allocation", "drawbar-controller-immediate", "", "controller-immediate.yaml", (
    Permission(_RESOURCES, "resourceclaims", "get", "the claim before its allocation", _NOT_AT_ONCE),
    Permission(_RESOURCES, "deviceclasses", "get", "the selectors of its class", _NOT_AT_ONCE),
    Permission(_RESOURCES, "resourceclaims/binding", "patch", "the allocation, since 1.36", _NOT_AT_ONCE, since=GRANULAR_STATUS_MINOR),
))
CLASSIC = Role("The controller, with classic allocation", "drawbar-controller-classic", "classic/controller-classic.yaml", "controller-classic.yaml", (
    Permission("", "pods", "list watch", "waiting pods; RBAC cannot limit it to these", _NO_ALLOCATION),
    Permission("", "configmaps", "list watch", "parameters of v1alpha2, by the label `drawbar.dev/parameters`. RBAC cannot limit it to that: **this token can read every ConfigMap**", _NO_ALLOCATION),
    Permission(_RESOURCES, "podschedulingcontexts", "list watch", "the scheduler's questions", _NO_ALLOCATION),
    Permission(_RESOURCES, "podschedulingcontexts/status", "patch", "the answer", "no pod finds a node"),
    Permission(_RESOURCES, "resourceclasses", "list watch", "the classes of v1alpha2", "no claim of v1alpha2 is allocated"),
    Permission(_RESOURCES, "deviceclasses", "list watch", "the classes of v1alpha3", "no claim of v1alpha3 is allocated"),
    Permission(_RESOURCES, "resourceclaims", "patch", "a finalizer while a device is attached for the claim", _NO_ALLOCATION),
))
NODE = Role("The node daemon", "drawbar-node", "node-rbac.yaml", "node-rbac.yaml", (
    Permission(_OURS, "deviceattachments", "list watch", "the devices attached to its node, by label", "the node daemon is never ready"),
    Permission(_OURS, "deviceattachments/status", "patch", "their state on the node", "no attached device is reported, and none released"),
    Permission(_RESOURCES, "resourceclaims", "get list watch", "the claim to prepare; all after the record's loss, or with [`bindWhenReady`](../local-pool.md#ready-before-the-pod-is-bound)", "no pod with a device starts"),
    Permission(_RESOURCES, "resourceclaims/status", "patch", "reports that a device is ready", _WAIT),
    Permission(_RESOURCES, "resourceclaims/driver", "associated-node:patch", "the same since 1.36, for its driver's devices on its node", _WAIT, only=DRIVER, since=GRANULAR_STATUS_MINOR),
    Permission(_RESOURCES, "resourceslices", "list watch create update delete", "publishes its node's devices; reads those of other drivers", _NOT_OFFERED),
    Permission("", "nodes", "get", "the owner of these slices; device plugins", _NOT_OFFERED),
    Permission(_EVENTS, "events", "create patch", "reports why a device is not ready or not released", "no Event explains why a device is not released"),
))
HEALTH_MONITOR = Role("The health monitor", "drawbar-health-monitor", "components/health-monitor/health-monitor-rbac.yaml", "health-monitor-rbac.yaml", (
    Permission(_OURS, "healthpolicies", "list watch", "the treatment of signals"),
    Permission(_RESOURCES, "resourceslices", "list watch", "the devices"),
    Permission(_RESOURCES, "devicetaintrules", "list watch create patch delete", "taints devices; counts others' rules. RBAC does not tell rules apart: **this token can delete every rule, and evict every pod with a device**"),
    Permission(_EVENTS, "events", "create patch", "reports its decisions, in the namespace `default`", in_default=True),
))
VIEWER = Role("The viewer", "drawbar-viewer", "viewer-rbac.yaml", "viewer-rbac.yaml", (
    Permission(_OURS, "fabrics", "get list watch", _VIEW),
    Permission(_OURS, "maintenances", "get list watch", _VIEW),
    Permission(_OURS, "deviceattachments", "get list watch", _VIEW),
    Permission(_OURS, "healthpolicies", "get list watch", _VIEW),
    Permission(_RESOURCES, "resourceslices", "list watch", _DEVICES),
    Permission(_RESOURCES, "devicetaintrules", "list watch", _DEVICES),
    Permission(_EVENTS, "events", "list watch", _DEVICES),
    Permission(_RESOURCES, "resourceclaims", "get list watch", "claims and their pods"),
    Permission("", "pods", "get list watch", "claims and their pods"),
    Permission(_RESOURCES, "deviceclasses", "get", "[`drawbar explain`](../explain.md): the possible devices of a claim"),
    Permission("", "nodes", "get list", "the same: the node's fabrics; `drawbar fabric`: each host's node"),
))
OPERATOR = Role("The operator", "drawbar-operator", "operator-rbac.yaml", "operator-rbac.yaml", (
    Permission(_RESOURCES, "devicetaintrules", "get list watch create patch delete", "`drawbar taint`"),
    Permission(_RESOURCES, "resourceslices", "list watch", _PROGRESS),
    Permission(_RESOURCES, "resourceclaims", "get list watch", _PROGRESS),
    Permission("", "pods", "get list watch", _PROGRESS),
    Permission("", "pods/eviction", "create", "`drawbar move`, within disruption budgets"),
    Permission(_EVENTS, "events", "list watch", _PROGRESS),
    Permission(_OURS, "maintenances", "get list watch create patch delete", "`drawbar maintenance`, `drawbar move`"),
    Permission(_OURS, "fabrics", "get list watch", _PROGRESS),
    Permission(_OURS, "healthpolicies", "get list watch create patch delete", "the [health monitor](../health-monitor.md)'s policies"),
    Permission(_OURS, "deviceattachments", "get list watch create patch delete", "attaching and detaching by hand; `--force` is an annotation"),
    Permission("", "nodes", "get list watch", _PROGRESS),
    Permission(_RESOURCES, "deviceclasses", "get", "[`drawbar explain`](../explain.md): the possible devices of a claim"),
    Permission("", "secrets", "get", "`drawbar fabric` calls the manager with the controller's Secrets", only=SECRETS, in_namespace=True),
))
TECHNICIAN = Role("The technician", "drawbar-technician", "technician-rbac.yaml", "technician-rbac.yaml", (
    Permission(_OURS, "maintenances", "get list watch create patch delete", "takes devices and nodes out of service and back, also others'"),
    Permission(_OURS, "fabrics", "get list watch", _PROGRESS),
    Permission(_OURS, "deviceattachments", "get list watch", _PROGRESS),
    Permission(_RESOURCES, "resourceslices", "list watch", _PROGRESS),
    Permission(_RESOURCES, "resourceclaims", "list watch", _PROGRESS),
    Permission("", "nodes", "get list watch", _PROGRESS),
    Permission(_EVENTS, "events", "list watch", _PROGRESS),
))
# fmt: on
ROLES = (CONTROLLER, IMMEDIATE, CLASSIC, NODE, HEALTH_MONITOR, VIEWER, OPERATOR, TECHNICIAN)
