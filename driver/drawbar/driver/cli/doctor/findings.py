"""The doctor's findings, and the exit status that follows from them; pure.

Each kind of finding is a `Check` with a fixed name, for programs and for its row in `catalogue.checks`.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from drawbar.driver import errors, wording
from drawbar.driver.catalogue import links

NAMED_MAX = 5


class Severity(enum.StrEnum):
    """The importance of a finding, the worst first."""

    ERROR = "error"
    UNCHECKED = "unchecked"
    WARNING = "warning"
    NOTE = "note"
    OK = "ok"


class Check(enum.StrEnum):
    """The subject of a check; the part before the dot is the topic."""

    SERVER_VERSION = "server.version"
    SERVER_RESOURCE_API = "server.resource-api"
    SERVER_DEFINITION = "server.definition"
    SERVER_OBJECTS = "server.objects"
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
    NODES_LEFT_OUT = "nodes.left-out"
    CLOCKS_HERE = "clocks.here"
    CLOCKS_CONTROLLER = "clocks.controller"
    CLOCKS_NODE = "clocks.node"
    FABRICS_SERVED = "fabrics.served"
    FABRICS_CONNECTED = "fabrics.connected"
    FABRICS_CREDENTIALS = "fabrics.credentials"
    FABRICS_DEGRADED = "fabrics.degraded"
    FABRICS_PUBLISHED = "fabrics.published"
    FABRICS_READY = "fabrics.ready"
    FABRICS_WRITABLE = "fabrics.writable"
    FABRICS_MAINTENANCE = "fabrics.maintenance"
    HOSTS_MAPPED = "hosts.mapped"
    HOSTS_AMBIGUOUS = "hosts.ambiguous"
    HOSTS_NODE = "hosts.node"
    ATTACHMENTS_ATTACH = "attachments.attach"
    ATTACHMENTS_VISIBLE = "attachments.visible"
    ATTACHMENTS_DETACH = "attachments.detach"
    ATTACHMENTS_FAILED = "attachments.failed"
    ATTACHMENTS_HEALTH = "attachments.health"
    ATTACHMENTS_EXCLUSIVE = "attachments.exclusive"
    ATTACHMENTS_ORPHANED = "attachments.orphaned"
    PODS_PLACED = "pods.placed"
    PODS_STARTED = "pods.started"
    CLAIMS_ALLOCATED = "claims.allocated"
    CLAIMS_READY = "claims.ready"
    DEVICES_OFFERED = "devices.offered"
    DEVICES_TAINTED = "devices.tainted"
    HOST_SETTINGS = "host.settings"
    HOST_POD = "host.pod"
    HOST_SOCKETS = "host.sockets"
    HOST_DAEMON = "host.daemon"
    HOST_CDI = "host.cdi"
    HOST_HOTPLUG = "host.hotplug"
    HOST_BUSES = "host.buses"
    HOST_WINDOWS = "host.windows"
    HOST_BARS = "host.bars"
    HOST_IOMMU = "host.iommu"
    HOST_DRIVERS = "host.drivers"
    HOST_LEFT_OUT = "host.left-out"

    @property
    def topic(self) -> str:
        """Return the topic; findings of one topic are printed together."""
        return self.value.partition(".")[0]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check of one thing.

    Attributes:
        subject: the thing, such as `node worker-3`.
        message: its state or trouble, in one sentence.
        remedy: the next step; empty only if there is none.
    """

    check: Check
    severity: Severity
    subject: str
    message: str
    remedy: str = ""


class Unread(msgspec.Struct, frozen=True, kw_only=True):
    """Something that could not be read.

    Attributes:
        what: its name, such as `nodes`.
        why: the reason, in the API server's words or ours.
        permission: the missing permission, such as `list nodes`; empty for other reasons.
        remedy: the next step, if the cause is neither a permission nor the API server.
    """

    what: str
    why: str
    permission: str = ""
    remedy: str = ""


def make_unread(check: Check, lost: Unread) -> Finding:
    """Return the finding on something that could not be read."""
    remedy = lost.remedy or "try again; if it stays so, look at the API server's log"
    if lost.permission:
        remedy = f"run this as a user who may {lost.permission} ({links.url('doctor.md')} has a role for it)"
    message = f"cannot be looked at: {lost.why}"
    return Finding(
        check=check, severity=Severity.UNCHECKED, subject=lost.what, message=message, remedy=remedy
    )


def make_ok(check: Check, subject: str, message: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(check=check, severity=Severity.OK, subject=subject, message=message)


def make_error(check: Check, subject: str, message: str, remedy: str) -> Finding:
    """Return an error."""
    return Finding(check=check, severity=Severity.ERROR, subject=subject, message=message, remedy=remedy)


def make_warning(check: Check, subject: str, message: str, remedy: str) -> Finding:
    """Return a warning."""
    return Finding(check=check, severity=Severity.WARNING, subject=subject, message=message, remedy=remedy)


def make_note(check: Check, subject: str, message: str, remedy: str) -> Finding:
    """Return a note."""
    return Finding(check=check, severity=Severity.NOTE, subject=subject, message=message, remedy=remedy)


def join_names(names: Sequence[str]) -> str:
    """Return the first `NAMED_MAX` names as text, and the number of the others."""
    return wording.join_some(names, NAMED_MAX)


def sort_findings(unsorted: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings by check, the worst of each check first."""
    checks, severities = list(Check), list(Severity)
    return tuple(
        sorted(unsorted, key=lambda it: (checks.index(it.check), severities.index(it.severity), it.subject))
    )


def counts(findings: Iterable[Finding]) -> dict[Severity, int]:
    """Return the number of findings of each severity."""
    counted = Counter(finding.severity for finding in findings)
    return {severity: counted[severity] for severity in Severity}


def exit_status(findings: Iterable[Finding]) -> int:
    """Return 1 for an error, else 3 if something could not be read, else 0. A warning does not stop a script."""
    severities = {finding.severity for finding in findings}
    if Severity.ERROR in severities:
        return errors.ExitStatus.FOUND
    return errors.ExitStatus.UNREAD if Severity.UNCHECKED in severities else errors.ExitStatus.FINE
