"""What the daemons' service accounts have to be allowed, and what happens without, from `catalogue.permissions`; pure."""

import enum
from collections.abc import Collection
from dataclasses import dataclass

from drawbar.driver.catalogue import permissions


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
    roles = [
        (Daemon.CONTROLLER, Part.CORE, permissions.CONTROLLER),
        (Daemon.NODE, Part.CORE, permissions.NODE),
    ]
    roles += [(Daemon.CONTROLLER, part, _ROLES[part]) for part in parts if part in _ROLES]
    names = {permissions.DRIVER: (driver,), permissions.LEASE: (lease,), permissions.SECRETS: sorted(secrets)}
    return tuple(
        Permission(
            daemon=daemon,
            verb=verb,
            group=rule.group,
            resource=rule.resource,
            consequence=rule.consequence,
            namespace=namespace if rule.in_namespace else "",
            name=name,
            since=rule.since,
            part=part,
        )
        for daemon, part, role in roles
        for rule in role.permissions
        for name in names.get(rule.only, (rule.only,))
        for verb in rule.verbs.split()
    )


_ROLES = {Part.CLASSIC: permissions.CLASSIC, Part.IMMEDIATE: permissions.IMMEDIATE}
