"""What the daemons' service accounts have to be allowed, and what happens without; pure.

The tables list what the daemons request of the API server. They are not made from the roles of `deploy/`, so a verb that
is missing there is found.
"""

import enum
import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

GRANULAR_STATUS_MINOR = 36
"""The first release that asks for `resourceclaims/driver`."""
_RESOURCES = "resource.k8s.io"
_OURS = "drawbar.dev"


class Daemon(enum.StrEnum):
    """Whose account."""

    CONTROLLER = "controller"
    NODE = "node"


class Part(enum.StrEnum):
    """What of a daemon asks for something."""

    CORE = "core"
    CLASSIC = "classic"
    IMMEDIATE = "immediate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """One thing that a daemon asks of the API server.

    Attributes:
        resource: with its subresource, as in a role: `fabrics/status`.
        name: of the only object that is meant; empty for any.
        consequence: what does not work without it.
        since: the first minor version that asks for it; 0 for all.
        part: by what; all but the core is not in every cluster.
    """

    daemon: Daemon
    verb: str
    group: str
    resource: str
    consequence: str
    namespace: str = ""
    name: str = ""
    since: int = 0
    part: Part = Part.CORE

    @property
    def rule(self) -> str:
        """Return the resource, its name, group and namespace for a message."""
        named = f" {self.name}" if self.name else ""
        group = f" of {self.group}" if self.group else ""
        inside = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.resource}{named}{group}{inside}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The API server's answer to an access review."""

    permission: Permission
    allowed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The outcome of a daemon's write, tried as its account by a dry run.

    Attributes:
        what: was written.
        refused: why not, in the API server's words; empty where it would have been stored.
        tried: False where it could not be tried.
    """

    daemon: Daemon
    what: str
    refused: str = ""
    tried: bool = True


_WAIT = "pods wait for their devices until the scheduler gives up"
_NOT_OFFERED = "devices of the node are not offered"
_NOT_AT_ONCE = "no claim is allocated at once"
_CONTROLLER: Mapping[tuple[str, str], tuple[str, str]] = {
    (_OURS, "fabrics"): ("list watch patch", "no Fabric is served"),
    (_OURS, "fabrics/status"): ("patch", "no Fabric shows its state"),
    (_OURS, "maintenances"): ("list watch", "nothing is taken out of service for maintenance"),
    (_OURS, "maintenances/status"): ("patch", "no Maintenance shows whether it is in effect"),
    (_OURS, "deviceattachments"): ("list watch create patch delete", "no device is attached or detached"),
    (_OURS, "deviceattachments/status"): ("patch", "no device is attached"),
    (_RESOURCES, "resourceslices"): ("list watch create update delete", "no device is published"),
    (_RESOURCES, "resourceclaims"): (
        "list watch",
        "the controller does not notice that a device was allocated",
    ),
    (_RESOURCES, "resourceclaims/status"): ("patch", _WAIT),
    (_RESOURCES, "devicetaintrules"): ("list delete", "rules of `drawbar taint` do not end by themselves"),
    ("", "nodes"): ("list watch patch", "no host is mapped to a node"),
    ("events.k8s.io", "events"): ("create patch", "no Event explains why a pod waits"),
}
_CLASSIC: Mapping[tuple[str, str], tuple[str, str]] = {
    ("", "pods"): ("list watch", "no claim is allocated"),
    ("", "configmaps"): ("list watch", "no claim is allocated"),
    (_RESOURCES, "podschedulingcontexts"): ("list watch", "no claim is allocated"),
    (_RESOURCES, "resourceclasses"): ("list watch", "no claim of v1alpha2 is allocated"),
    (_RESOURCES, "deviceclasses"): ("list watch", "no claim of v1alpha3 is allocated"),
    (_RESOURCES, "podschedulingcontexts/status"): ("patch", "no pod finds a node"),
    (_RESOURCES, "resourceclaims"): ("patch", "no claim is allocated"),
}
_IMMEDIATE: Mapping[tuple[str, str], tuple[str, str]] = {
    (_RESOURCES, "resourceclaims"): ("get", _NOT_AT_ONCE),
    (_RESOURCES, "deviceclasses"): ("get", _NOT_AT_ONCE),
}
_NODE: Mapping[tuple[str, str], tuple[str, str]] = {
    (_OURS, "deviceattachments"): ("list watch", "the node daemon is never ready"),
    (_OURS, "deviceattachments/status"): ("patch", "no attached device is reported, and none released"),
    (_RESOURCES, "resourceclaims"): ("get list watch", "no pod with a device starts"),
    (_RESOURCES, "resourceclaims/status"): ("patch", _WAIT),
    (_RESOURCES, "resourceslices"): ("list watch create update delete", _NOT_OFFERED),
    ("", "nodes"): ("get", _NOT_OFFERED),
    ("events.k8s.io", "events"): ("create patch", "no Event explains why a device is not released"),
}


def needed(
    *, driver: str, namespace: str, lease: str, secrets: Collection[str] = (), parts: Collection[Part] = ()
) -> tuple[Permission, ...]:
    """Return everything that both daemons request.

    Args:
        driver: the driver's name.
        namespace: of the daemons.
        lease: of the controller.
        secrets: names of the Secrets that the Fabrics name.
        parts: beside the core.
    """
    controller = functools.partial(_each, Daemon.CONTROLLER)
    claim_driver = (_RESOURCES, "resourceclaims/driver", _WAIT)
    leases = ("coordination.k8s.io", "leases", "no controller ever leads")
    # What becomes of connections without the UID of this Namespace, which marks them.
    mark = "connections carry no mark of this cluster, and a lost one is never taken back"
    pods = "the controller never becomes ready, if it judges nodes by the pods of their daemons"
    secret = "the Fabric that names it is not connected"  # noqa: S105 - a consequence
    return (
        *_all(Daemon.CONTROLLER, _CONTROLLER),
        *controller("arbitrary-node:patch", *claim_driver, name=driver, since=GRANULAR_STATUS_MINOR),
        *controller("get", "", "namespaces", mark, name="kube-system"),
        *(permission for part in parts for permission in _PARTS[part]),
        *controller("create", *leases, namespace=namespace),
        *controller("get update", *leases, namespace=namespace, name=lease),
        *controller("list watch", "", "pods", pods, namespace=namespace),
        *(
            permission
            for name in sorted(secrets)
            for permission in controller("list watch", "", "secrets", secret, namespace=namespace, name=name)
        ),
        *_all(Daemon.NODE, _NODE),
        *_each(
            Daemon.NODE,
            "associated-node:patch",
            *claim_driver,
            name=driver,
            since=GRANULAR_STATUS_MINOR,
        ),
    )


def _each(
    daemon: Daemon,
    verbs: str,
    group: str,
    resource: str,
    consequence: str,
    *,
    namespace: str = "",
    name: str = "",
    since: int = 0,
    part: Part = Part.CORE,
) -> Iterator[Permission]:
    for verb in verbs.split():
        yield Permission(
            daemon=daemon,
            verb=verb,
            group=group,
            resource=resource,
            consequence=consequence,
            namespace=namespace,
            name=name,
            since=since,
            part=part,
        )


def _all(
    daemon: Daemon, table: Mapping[tuple[str, str], tuple[str, str]], part: Part = Part.CORE
) -> Iterator[Permission]:
    for (group, resource), (verbs, consequence) in table.items():
        yield from _each(daemon, verbs, group, resource, consequence, part=part)


_PARTS: Mapping[Part, tuple[Permission, ...]] = {
    Part.CORE: (),
    Part.CLASSIC: tuple(_all(Daemon.CONTROLLER, _CLASSIC, Part.CLASSIC)),
    Part.IMMEDIATE: (
        *_all(Daemon.CONTROLLER, _IMMEDIATE, Part.IMMEDIATE),
        *_each(
            Daemon.CONTROLLER,
            "patch",
            _RESOURCES,
            "resourceclaims/binding",
            _NOT_AT_ONCE,
            since=GRANULAR_STATUS_MINOR,
            part=Part.IMMEDIATE,
        ),
    ),
}
