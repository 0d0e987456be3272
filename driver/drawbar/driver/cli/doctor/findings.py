"""What the doctor says: findings, and the exit status that follows from them; pure.

Each kind of finding is a `Check` with a fixed name, for programs and for the documentation (`docs/doctor.md` has a row for each).
"""

import enum
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NAMED_MAX = 5


class Severity(enum.StrEnum):
    """How much a finding matters, the worst first."""

    ERROR = "error"
    UNCHECKED = "unchecked"
    WARNING = "warning"
    NOTE = "note"
    OK = "ok"


class Check(enum.StrEnum):
    """What was looked at; the part before the dot is the topic."""

    SERVER_VERSION = "server.version"
    SERVER_RESOURCE_API = "server.resource-api"
    SERVER_DEFINITION = "server.definition"
    FEATURES_BINDING_CONDITIONS = "features.binding-conditions"
    FEATURES_TAINTS = "features.taints"
    FEATURES_TAINT_DETAILS = "features.taint-details"
    FEATURES_TAINT_RULES = "features.taint-rules"
    FEATURES_SCHEDULER = "features.scheduler"
    ACCESS_ACCOUNT = "access.account"
    ACCESS_PERMISSION = "access.permission"
    ACCESS_POLICIES = "access.policies"
    ACCESS_WRITES = "access.writes"
    CONTROLLER_LEADER = "controller.leader"
    NODES_KUBELET = "nodes.kubelet"
    NODES_RUNTIME = "nodes.runtime"
    NODES_READY = "nodes.ready"
    NODES_DAEMON = "nodes.daemon"
    CLOCKS_HERE = "clocks.here"
    CLOCKS_CONTROLLER = "clocks.controller"
    CLOCKS_NODE = "clocks.node"
    FABRICS_SERVED = "fabrics.served"
    FABRICS_CONNECTED = "fabrics.connected"
    FABRICS_CREDENTIALS = "fabrics.credentials"
    FABRICS_DEGRADED = "fabrics.degraded"
    FABRICS_PUBLISHED = "fabrics.published"
    FABRICS_WRITABLE = "fabrics.writable"
    HOSTS_MAPPED = "hosts.mapped"
    HOSTS_AMBIGUOUS = "hosts.ambiguous"
    HOSTS_NODE = "hosts.node"
    ATTACHMENTS_ATTACH = "attachments.attach"
    ATTACHMENTS_VISIBLE = "attachments.visible"
    ATTACHMENTS_DETACH = "attachments.detach"
    ATTACHMENTS_FAILED = "attachments.failed"
    ATTACHMENTS_HEALTH = "attachments.health"
    ATTACHMENTS_ORPHANED = "attachments.orphaned"
    HOST_SETTINGS = "host.settings"
    HOST_POD = "host.pod"
    HOST_SOCKETS = "host.sockets"
    HOST_DAEMON = "host.daemon"
    HOST_CDI = "host.cdi"

    @property
    def topic(self) -> str:
        """Findings of one topic stand together."""
        return self.value.partition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        subject: the thing, such as `node worker-3`.
        message: what is the matter with it, in one sentence.
        remedy: what to do; empty only where there is nothing to do.
    """

    check: Check
    severity: Severity
    subject: str
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Something that could not be looked at.

    Attributes:
        what: such as `nodes`.
        why: in the API server's words, or ours.
        permission: what is missing, as `list nodes`; empty where that is not the reason.
        remedy: what to do, where it is neither a permission nor the API server.
    """

    what: str
    why: str
    permission: str = ""
    remedy: str = ""


def unread(check: Check, one: Unread) -> Finding:
    """What could not be looked at is not well, and not ill either."""
    remedy = one.remedy or "try again; if it stays so, look at the API server's log"
    if one.permission:
        remedy = f"run this as somebody who may {one.permission} (docs/doctor.md has a role for it)"
    return Finding(
        check=check,
        severity=Severity.UNCHECKED,
        subject=one.what,
        message=f"cannot be looked at: {one.why}",
        remedy=remedy,
    )


def ok(check: Check, subject: str, message: str) -> Finding:
    """Nothing to do."""
    return Finding(check=check, severity=Severity.OK, subject=subject, message=message)


def listed(names: Sequence[str]) -> str:
    """The first few of many names, and how many more there are."""
    shown = ", ".join(names[:NAMED_MAX])
    return shown if len(names) <= NAMED_MAX else f"{shown} and {len(names) - NAMED_MAX} more"


def ordered(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """By check, the worst of each first."""
    checks, severities = list(Check), list(Severity)
    return tuple(
        sorted(found, key=lambda one: (checks.index(one.check), severities.index(one.severity), one.subject))
    )


def counts(found: Iterable[Finding]) -> dict[Severity, int]:
    """How many there are of each severity."""
    counted = Counter(one.severity for one in found)
    return {severity: counted[severity] for severity in Severity}


def exit_status(found: Iterable[Finding]) -> int:
    """1 with an error, else 2 if something could not be looked at, else 0: warnings are no reason to stop a script."""
    severities = {one.severity for one in found}
    if Severity.ERROR in severities:
        return 1
    return 2 if Severity.UNCHECKED in severities else 0
