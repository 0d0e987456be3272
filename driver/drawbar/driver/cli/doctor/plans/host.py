"""What is wrong with a node, seen from itself; pure."""

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from drawbar.driver.cli.doctor import findings, objects
from drawbar.driver.cli.doctor.findings import Check, Finding, Severity, Unread
from drawbar.driver.cli.doctor.observed import Clock, Reading
from drawbar.driver.cli.doctor.plans import clocks, runtime
from drawbar.driver.cli.doctor.plans import nodes as node_plan

_POD = "docs/node.md has the fields of the pod"


class Knock(enum.Enum):
    """What a socket does when somebody knocks."""

    ANSWERS = enum.auto()
    REFUSES = enum.auto()
    ABSENT = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Socket:
    """A socket that the kubelet looks for, or finds."""

    path: str
    knock: Knock


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What the node daemon said on a page of its own.

    Attributes:
        good: whether it is content; None where nobody answered.
        text: its words, or why nobody answered.
    """

    good: bool | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A node, seen from itself.

    Attributes:
        problems: with the settings.
        fatal, warnings: what the pod lacks, in sentences; see `node.operation.host`.
        sockets: our registration sockets; None where their paths are too long.
        too_long: why they are.
        registry: the kubelet's directory for them, and whether it is there.
        alive, ready: the daemon's own pages; None where it serves none.
        runtime_files: the container runtime's configuration; None if it was not to be read.
        cdi_dir: where the daemon writes.
        clock: None where no API server is configured or answers.
        offline: why there is none.
        node: this node's object; None if it has none.
    """

    node_name: str
    problems: tuple[str, ...]
    fatal: tuple[str, ...]
    warnings: tuple[str, ...]
    sockets: tuple[Socket, ...] | None
    too_long: str
    registry: tuple[str, bool]
    alive: Page | None
    ready: Page | None
    runtime_files: tuple[runtime.File, ...] | None
    cdi_dir: str
    clock: Clock | None
    offline: str
    node: Reading[objects.Node | None]


def plan(host: Host) -> tuple[Finding, ...]:
    """All findings on a node, by check, the worst of each first."""
    return findings.ordered(
        (
            *_settings(host),
            *_pod(host),
            *_sockets(host),
            *_daemon(host),
            *_cdi(host),
            *_cluster(host),
        )
    )


def _settings(host: Host) -> Iterator[Finding]:
    for problem in host.problems:
        yield _finding(
            Check.HOST_SETTINGS,
            Severity.ERROR,
            "the node daemon's settings",
            problem,
            "mend it in the file or the variables; drawbar node --print-config shows where each comes from",
        )
    if not host.problems:
        yield findings.ok(Check.HOST_SETTINGS, "the node daemon's settings", "are in order")


def _pod(host: Host) -> Iterator[Finding]:
    subject = "this pod, or this user on the host"
    for sentence in host.fatal:
        yield _finding(
            Check.HOST_POD, Severity.ERROR, subject, f"{sentence}; the daemon does not start", _POD
        )
    for sentence in host.warnings:
        yield _finding(Check.HOST_POD, Severity.WARNING, subject, sentence, _POD)
    if not host.fatal and not host.warnings:
        yield findings.ok(Check.HOST_POD, subject, "has all that the node daemon needs")


def _sockets(host: Host) -> Iterator[Finding]:
    registry, there = host.registry
    if host.sockets is None:
        yield _finding(
            Check.HOST_SOCKETS, Severity.ERROR, registry, host.too_long, "see kubeletDir and driverName"
        )
        return
    if not there:
        yield _finding(
            Check.HOST_SOCKETS,
            Severity.ERROR,
            registry,
            "does not exist: this is not the kubelet's directory, or it is not mounted at the same path",
            "mount it, or name the kubelet's own (its --root-dir) with kubeletDir",
        )
        return
    alive = [one.path for one in host.sockets if one.knock is Knock.ANSWERS]
    for one in host.sockets:
        if one.knock is Knock.REFUSES:
            yield _finding(
                Check.HOST_SOCKETS,
                Severity.WARNING,
                one.path,
                "nobody listens there: an instance that died left it, and the kubelet knocks at it for ever",
                "restart the node daemon, which removes it",
            )
    if alive:
        yield findings.ok(Check.HOST_SOCKETS, registry, f"the kubelet finds {findings.listed(alive)}")
    else:
        yield _finding(
            Check.HOST_SOCKETS,
            Severity.ERROR,
            registry,
            "the node daemon has no socket there, so the kubelet does not know the driver: no pod with a device starts",
            "does the node daemon run here, with the same kubeletDir and driverName? its log says what keeps it",
        )


def _daemon(host: Host) -> Iterator[Finding]:
    subject = "the node daemon"
    for page, what in ((host.alive, "alive"), (host.ready, "ready")):
        if page is None or (page.good is None and what == "ready"):
            continue
        if page.good is None:
            yield _finding(
                Check.HOST_DAEMON, Severity.ERROR, subject, page.text, "look at its log: kubectl logs"
            )
        elif not page.good:
            yield _finding(
                Check.HOST_DAEMON,
                Severity.ERROR,
                subject,
                f"is not {what}: {page.text}",
                "docs/node.md tells what keeps it; its log has the reason",
            )
        else:
            yield findings.ok(Check.HOST_DAEMON, subject, f"is {what}")
    if host.alive is None:
        yield _finding(
            Check.HOST_DAEMON,
            Severity.NOTE,
            subject,
            "serves no probes (http.address is off), so it cannot be asked",
            "let http.address be auto",
        )


def _cdi(host: Host) -> Iterator[Finding]:
    node = host.node
    version = node.status.node_info.container_runtime_version if isinstance(node, objects.Node) else ""
    found = list(runtime.plan(host.runtime_files or (), host.cdi_dir, version))
    yield from found
    if not found and isinstance(node, objects.Node):
        yield from node_plan.runtimes([node])
    elif not found:
        why = (
            "its configuration is not read without --host-root"
            if host.runtime_files is None
            else "no configuration of containerd or CRI-O is there, so its defaults count"
        )
        yield _finding(
            Check.HOST_CDI,
            Severity.NOTE,
            runtime.SUBJECT,
            f"{why}; whether it gives CDI devices to containers cannot be seen from here",
            "on the host: drawbar doctor --node --host-root /",
        )


def _cluster(host: Host) -> Iterator[Finding]:
    if host.clock is None:
        lost = Unread(
            what="the clock of this machine", why=host.offline, remedy="name a --kubeconfig that works"
        )
        yield findings.unread(Check.CLOCKS_HERE, lost)
        return
    yield clocks.here(host.clock)
    if isinstance(host.node, Unread):
        yield findings.unread(Check.HOST_SETTINGS, host.node)
    elif host.node is None:
        yield _finding(
            Check.HOST_SETTINGS,
            Severity.ERROR,
            f"node {host.node_name}",
            "does not exist in the cluster, so nothing is ever attached here",
            "let NODE_NAME come from spec.nodeName; kubectl get nodes has the names",
        )


def _finding(check: Check, severity: Severity, subject: str, message: str, remedy: str) -> Finding:
    return Finding(check=check, severity=severity, subject=subject, message=message, remedy=remedy)
