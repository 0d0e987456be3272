"""The permissions that the daemons' service accounts need, and the effects of missing ones, from `catalogue.permissions`; pure."""

import enum
from collections.abc import Collection

import msgspec

from drawbar.driver.catalogue import permissions


class Daemon(enum.StrEnum):
    """The daemon that uses the account."""

    CONTROLLER = "controller"
    NODE = "node"


class Part(enum.StrEnum):
    """The part of a daemon that needs the permission."""

    CORE = "core"
    CLASSIC = "classic"
    IMMEDIATE = "immediate"


class Permission(msgspec.Struct, frozen=True, kw_only=True):
    """A permission that a daemon needs.

    Attributes:
        resource: the resource with its subresource, as in a role: `fabrics/status`.
        name: the name of the only object; empty for any.
        consequence: the function that fails without the permission.
        since: the first Kubernetes minor version that needs it; 0 for all.
        part: the part that needs it; only the core is in every cluster.
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


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The API server's answer to an access review."""

    permission: Permission
    allowed: bool


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a daemon's write, tried as its account by a dry run.

    Attributes:
        what: the object written.
        refused: the API server's reason for a refusal; empty if it would have stored the object.
        tried: False if the write could not be tried.
    """

    daemon: Daemon
    what: str
    refused: str = ""
    tried: bool = True


def list_permissions(
    *, driver: str, namespace: str, lease: str, secrets: Collection[str] = (), parts: Collection[Part] = ()
) -> tuple[Permission, ...]:
    """Return all permissions of both daemons.

    Args:
        driver: the driver's name.
        namespace: the daemons' namespace.
        lease: the name of the controller's lease.
        secrets: the names of the Fabrics' Secrets.
        parts: the parts in use besides the core.
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
