"""What the daemons' service accounts have to be allowed, and what happens without; pure.

Taken from what the daemons ask of the API server, not from the roles of `deploy/`: whoever removes a verb that is asked
for hears of it here, and one that nobody asks for is not missed.
"""

import enum
from collections.abc import Collection, Iterable, Mapping
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
        """As a person would say it."""
        named = f" {self.name}" if self.name else ""
        group = f" of {self.group}" if self.group else ""
        inside = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.resource}{named}{group}{inside}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the API server said to an access review."""

    permission: Permission
    allowed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How a write of a daemon's ended, tried as its account by a dry run.

    Attributes:
        what: was written.
        refused: why not, in the API server's words; empty where it would have been stored.
        tried: False where it could not be tried.
    """

    daemon: Daemon
    what: str
    refused: str = ""
    tried: bool = True


def needed(
    *, driver: str, namespace: str, lease: str, secrets: Collection[str] = (), parts: Collection[Part] = ()
) -> tuple[Permission, ...]:
    """Everything that both daemons ask for.

    Args:
        driver: the driver's name.
        namespace: of the daemons.
        lease: of the controller.
        secrets: names of the Secrets that the Fabrics name.
        parts: beside the core.
    """
    return (
        *_controller(driver),
        *(one for part in parts for one in _PARTS[part]),
        *_lease(namespace, lease),
        *_daemon_pods(namespace),
        *_secrets(namespace, secrets),
        *_node(driver),
    )


_CONTROLLER: Mapping[tuple[str, str], tuple[str, str]] = {
    (_OURS, "fabrics"): ("list watch patch", "no Fabric is served"),
    (_OURS, "fabrics/status"): ("patch", "no Fabric says how it fares"),
    (_OURS, "deviceattachments"): ("list watch create patch delete", "no device is attached or detached"),
    (_OURS, "deviceattachments/status"): ("patch", "no device is attached"),
    (_RESOURCES, "resourceslices"): ("list watch create update delete", "no device is published"),
    (_RESOURCES, "resourceclaims"): ("list watch", "nobody notices that a device was allocated"),
    (_RESOURCES, "resourceclaims/status"): (
        "patch",
        "pods wait for their devices until the scheduler gives up",
    ),
    ("", "nodes"): ("list watch patch", "no host is mapped to a node"),
    ("events.k8s.io", "events"): ("create", "nobody is told why a pod waits"),
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
    (_RESOURCES, "resourceclaims"): ("get", "no claim is allocated at once"),
    (_RESOURCES, "deviceclasses"): ("get", "no claim is allocated at once"),
}
_NODE: Mapping[tuple[str, str], tuple[str, str]] = {
    (_OURS, "deviceattachments"): ("list watch", "the node daemon is never ready"),
    (_OURS, "deviceattachments/status"): ("patch", "no attached device is reported, and none released"),
    (_RESOURCES, "resourceclaims"): ("get list", "no pod with a device starts"),
    (_RESOURCES, "resourceclaims/status"): (
        "patch",
        "pods wait for their devices until the scheduler gives up",
    ),
    (_RESOURCES, "resourceslices"): (
        "list watch create update delete",
        "devices of the node are not offered",
    ),
    ("", "nodes"): ("get", "devices of the node are not offered"),
    ("events.k8s.io", "events"): ("create", "nobody is told why a device is not released"),
}


def _controller(driver: str) -> Iterable[Permission]:
    yield from _all(Daemon.CONTROLLER, _CONTROLLER)
    yield _claim_driver(Daemon.CONTROLLER, "arbitrary-node:patch", driver)
    yield Permission(
        daemon=Daemon.CONTROLLER,
        verb="get",
        group="",
        resource="namespaces",
        name="kube-system",
        consequence="connections carry no mark of this cluster, and a lost one is never taken back",
    )


def _node(driver: str) -> Iterable[Permission]:
    yield from _all(Daemon.NODE, _NODE)
    yield _claim_driver(Daemon.NODE, "associated-node:patch", driver)


def _all(
    daemon: Daemon, table: Mapping[tuple[str, str], tuple[str, str]], part: Part = Part.CORE
) -> Iterable[Permission]:
    for (group, resource), (verbs, consequence) in table.items():
        for verb in verbs.split():
            yield Permission(
                daemon=daemon,
                verb=verb,
                group=group,
                resource=resource,
                consequence=consequence,
                part=part,
            )


def _claim_driver(daemon: Daemon, verb: str, driver: str) -> Permission:
    return Permission(
        daemon=daemon,
        verb=verb,
        group=_RESOURCES,
        resource="resourceclaims/driver",
        name=driver,
        consequence="pods wait for their devices until the scheduler gives up",
        since=GRANULAR_STATUS_MINOR,
    )


def _lease(namespace: str, lease: str) -> Iterable[Permission]:
    for verb, name in (("create", ""), ("get", lease), ("update", lease)):
        yield Permission(
            daemon=Daemon.CONTROLLER,
            verb=verb,
            group="coordination.k8s.io",
            resource="leases",
            namespace=namespace,
            name=name,
            consequence="no controller ever leads",
        )


def _daemon_pods(namespace: str) -> Iterable[Permission]:
    for verb in ("list", "watch"):
        yield Permission(
            daemon=Daemon.CONTROLLER,
            verb=verb,
            group="",
            resource="pods",
            namespace=namespace,
            consequence="the controller never becomes ready, if it judges nodes by the pods of their daemons",
        )


def _secrets(namespace: str, names: Collection[str]) -> Iterable[Permission]:
    for name in sorted(names):
        for verb in ("list", "watch"):
            yield Permission(
                daemon=Daemon.CONTROLLER,
                verb=verb,
                group="",
                resource="secrets",
                namespace=namespace,
                name=name,
                consequence="the Fabric that names it is not connected",
            )


_PARTS: Mapping[Part, tuple[Permission, ...]] = {
    Part.CORE: (),
    Part.CLASSIC: tuple(_all(Daemon.CONTROLLER, _CLASSIC, Part.CLASSIC)),
    Part.IMMEDIATE: (
        *_all(Daemon.CONTROLLER, _IMMEDIATE, Part.IMMEDIATE),
        Permission(
            daemon=Daemon.CONTROLLER,
            verb="patch",
            group=_RESOURCES,
            resource="resourceclaims/binding",
            consequence="no claim is allocated at once",
            since=GRANULAR_STATUS_MINOR,
            part=Part.IMMEDIATE,
        ),
    ),
}
