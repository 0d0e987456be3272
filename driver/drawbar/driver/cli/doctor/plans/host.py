"""The troubles of a node as seen from itself, with its container runtime's configuration; pure.

Source: containerd `docs/cri/config.md` (`enable_cdi`, `cdi_spec_dirs`; off by default before 2.0, whose own
configuration is version 3), CRI-O `crio.conf(5)` (`cdi_spec_dirs`; there is no switch).
"""

import enum
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import msgspec

from drawbar.driver.api import core, leftout
from drawbar.driver.catalogue import links
from drawbar.driver.cli.doctor import findings
from drawbar.driver.cli.doctor.findings import Check, Finding, Severity, Unread
from drawbar.driver.cli.doctor.observed import Clock, Reading
from drawbar.driver.cli.doctor.plans import clocks, coexistence, machine
from drawbar.driver.cli.doctor.plans import nodes as node_plan

DEFAULT_DIRS = ("/etc/cdi", "/var/run/cdi")
_CONTAINERD = ("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
_ON_SINCE_CONFIGURATION = 3
SUBJECT = "the container runtime"
LEFT_OUT_MAX = 16
"""The most left-out devices with a finding of their own."""


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a runtime's configuration.

    Attributes:
        runtime: containerd or cri-o.
        path: the path on the host.
        text: the content; empty if it could not be read.
        problem: the reason why it could not be read.
    """

    runtime: str
    path: str
    text: str = ""
    problem: str = ""


class _Configured(msgspec.Struct, frozen=True, kw_only=True):
    """The merged configuration of one runtime; later files win. A value is None if no file sets it."""

    runtime: str
    files: tuple[str, ...]
    enabled: bool | None = None
    spec_dirs: tuple[str, ...] | None = None
    version: int = 0


def plan_runtime(files: Sequence[File], cdi_dir: str, node_version: str) -> Iterator[Finding]:
    """Yield the findings on the runtimes that are configured on this host.

    Args:
        files: the files in the order in which their runtime reads them.
        cdi_dir: the directory of the node daemon's CDI files.
        node_version: the runtime as the kubelet reports it, such as containerd://1.7.2; empty if not known.
    """
    parsed: dict[str, _Configured] = {}
    for file in files:
        former = parsed.get(file.runtime, _Configured(runtime=file.runtime, files=()))
        content = _content(file)
        if isinstance(content, str):
            yield Finding(
                check=Check.HOST_CDI,
                severity=Severity.UNCHECKED,
                subject=SUBJECT,
                message=f"{file.path} cannot be read: {content}",
                remedy="run this as root, or correct the file",
            )
            continue
        parsed[file.runtime] = _merge(former, file, content)
    in_use = [
        configured
        for configured in parsed.values()
        if not node_version or node_version.startswith(f"{configured.runtime}:")
    ]
    for configured in in_use:
        yield _judge(configured, cdi_dir, node_version)


def _content(file: File) -> dict[str, Any] | str:
    if file.problem:
        return file.problem
    try:
        return tomllib.loads(file.text)
    except tomllib.TOMLDecodeError as error:
        return f"it is not TOML ({error})"


def _merge(former: _Configured, file: File, content: Mapping[str, Any]) -> _Configured:
    tables = (
        [_table(content, "plugins", name) for name in _CONTAINERD]
        if file.runtime == "containerd"
        else [_table(content, "crio", "runtime")]
    )
    enabled, dirs = former.enabled, former.spec_dirs
    for table in tables:
        if isinstance(table.get("enable_cdi"), bool):
            enabled = table["enable_cdi"]
        if isinstance(table.get("cdi_spec_dirs"), list):
            dirs = tuple(str(directory) for directory in table["cdi_spec_dirs"])
    version = content.get("version")
    return _Configured(
        runtime=file.runtime,
        files=(*former.files, file.path),
        enabled=enabled,
        spec_dirs=dirs,
        version=max(former.version, version if isinstance(version, int) else 0),
    )


def _table(content: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    table: Any = content
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else {}


def _judge(configured: _Configured, cdi_dir: str, node_version: str) -> Finding:
    where = ", ".join(configured.files)
    if not _is_enabled(configured, node_version):
        setting = (
            "says enable_cdi = false" if configured.enabled is False else "does not say enable_cdi = true"
        )
        return _error(
            f"{where} {setting}, which containerd before 2.0 needs: containers do not get their devices",
            f'set enable_cdi = true in [plugins."{_CONTAINERD[0]}"], and restart containerd',
        )
    dirs = configured.spec_dirs if configured.spec_dirs is not None else DEFAULT_DIRS
    if _plain(cdi_dir) not in {_plain(directory) for directory in dirs}:
        return _error(
            f"{where} has it read CDI files in {', '.join(dirs) or 'no directory'}, and the node daemon writes them to "
            f"{cdi_dir}: containers do not get their devices",
            f"add {cdi_dir} to cdi_spec_dirs and restart {configured.runtime}, or let cdiDir be one of those",
        )
    return findings.make_ok(
        Check.HOST_CDI, SUBJECT, f"{configured.runtime} reads CDI files in {cdi_dir}, by {where}"
    )


def _is_enabled(configured: _Configured, node_version: str) -> bool:
    if configured.runtime != "containerd":
        return True
    if configured.enabled is not None:
        return configured.enabled
    if node_version:
        return not node_version.removeprefix("containerd://").removeprefix("v").startswith(("0.", "1."))
    return configured.version >= _ON_SINCE_CONFIGURATION


def _plain(path: str) -> PurePosixPath:
    """Return the path with /run for /var/run; both are the same on every distribution with a kubelet."""
    directory = PurePosixPath(path)
    return (
        PurePosixPath("/run") / directory.relative_to("/var/run")
        if directory.is_relative_to("/var/run")
        else directory
    )


def _error(message: str, remedy: str) -> Finding:
    return findings.make_error(Check.HOST_CDI, SUBJECT, message, remedy)


_POD = f"{links.url('node.md')} has the fields of the pod"


class Knock(enum.Enum):
    """The reaction of a socket to a client."""

    ANSWERS = enum.auto()
    REFUSES = enum.auto()
    ABSENT = enum.auto()


class Socket(msgspec.Struct, frozen=True, kw_only=True):
    """A socket that the kubelet looks for, or finds."""

    path: str
    knock: Knock


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the node daemon.

    Attributes:
        good: whether the answer is good; None without an answer.
        text: the text of the answer, or the reason why there is none.
    """

    good: bool | None
    text: str


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A node, seen from itself.

    Attributes:
        problems: the mistakes in the settings.
        fatal, warnings: the pod's missing prerequisites, in sentences; see `node.operation.host`.
        sockets: our registration sockets; None if their paths are too long.
        too_long: the reason why the paths are too long.
        registry: the kubelet's directory of these sockets, and whether it exists.
        alive, ready: the daemon's own pages; None if it serves none.
        runtime_files: the container runtime's configuration; None if it was not to be read.
        cdi_dir: the directory of the daemon's CDI files.
        clock: the API server's clock; None if no API server is configured or answers.
        offline: the reason why no API server answers.
        node: this node's object; None if it has none.
        machine: the host's preparation for hot-plug.
        left_out: the devices that the node daemon leaves to other components.
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
    runtime_files: tuple[File, ...] | None
    cdi_dir: str
    clock: Clock | None
    offline: str
    node: Reading[core.Node | None]
    machine: machine.Machine
    left_out: tuple[leftout.LeftOut, ...] | Unread = ()


def plan(host: Host) -> tuple[Finding, ...]:
    """Return all findings on a node by check, the worst of each check first."""
    return findings.sort_findings(
        (
            *_settings(host),
            *_pod(host),
            *_sockets(host),
            *_daemon(host),
            *_cdi(host),
            *machine.plan(host.machine),
            *_judge_left_out(host),
            *_cluster(host),
        )
    )


def _settings(host: Host) -> Iterator[Finding]:
    for problem in host.problems:
        yield findings.make_error(
            Check.HOST_SETTINGS,
            "the node daemon's settings",
            problem,
            "correct it in the file or the variables; drawbar node --print-config shows where each comes from",
        )
    if not host.problems:
        yield findings.make_ok(Check.HOST_SETTINGS, "the node daemon's settings", "are in order")


def _pod(host: Host) -> Iterator[Finding]:
    subject = "this pod, or this user on the host"
    for sentence in host.fatal:
        yield findings.make_error(Check.HOST_POD, subject, f"{sentence}; the daemon does not start", _POD)
    for sentence in host.warnings:
        yield findings.make_warning(Check.HOST_POD, subject, sentence, _POD)
    if not host.fatal and not host.warnings:
        yield findings.make_ok(Check.HOST_POD, subject, "has all that the node daemon needs")


def _sockets(host: Host) -> Iterator[Finding]:
    registry, there = host.registry
    if host.sockets is None:
        yield findings.make_error(
            Check.HOST_SOCKETS, registry, host.too_long, "see kubeletDir and driverName"
        )
        return
    if not there:
        yield findings.make_error(
            Check.HOST_SOCKETS,
            registry,
            "does not exist: this is not the kubelet's directory, or it is not mounted at the same path",
            "mount it, or name the kubelet's own (its --root-dir) with kubeletDir",
        )
        return
    alive = [socket.path for socket in host.sockets if socket.knock is Knock.ANSWERS]
    for socket in host.sockets:
        if socket.knock is Knock.REFUSES:
            yield findings.make_warning(
                Check.HOST_SOCKETS,
                socket.path,
                "no process listens there: an instance that died left it, and the kubelet keeps calling it",
                "restart the node daemon, which removes it",
            )
    if alive:
        yield findings.make_ok(
            Check.HOST_SOCKETS, registry, f"the kubelet finds {findings.join_names(alive)}"
        )
    else:
        yield findings.make_error(
            Check.HOST_SOCKETS,
            registry,
            "the node daemon has no socket there, so the kubelet does not know the driver: no pod with a device starts",
            "does the node daemon run here, with the same kubeletDir and driverName? its log has the reason",
        )


def _daemon(host: Host) -> Iterator[Finding]:
    subject = "the node daemon"
    for page, what in ((host.alive, "alive"), (host.ready, "ready")):
        if page is None or (page.good is None and what == "ready"):
            continue
        if page.good is None:
            yield findings.make_error(Check.HOST_DAEMON, subject, page.text, "look at its log: kubectl logs")
        elif not page.good:
            yield findings.make_error(
                Check.HOST_DAEMON,
                subject,
                f"is not {what}: {page.text}",
                f"its log has the reason; {links.url('node.md')}",
            )
        else:
            yield findings.make_ok(Check.HOST_DAEMON, subject, f"is {what}")
    if host.alive is None:
        yield findings.make_note(
            Check.HOST_DAEMON,
            subject,
            "serves no probes (http.address is off), so it cannot be asked",
            "let http.address be auto",
        )


def _cdi(host: Host) -> Iterator[Finding]:
    node = host.node
    version = node.status.node_info.container_runtime_version if isinstance(node, core.Node) else ""
    judged = list(plan_runtime(host.runtime_files or (), host.cdi_dir, version))
    yield from judged
    if judged:
        return
    is_read = host.runtime_files is not None
    verify = node_plan.IN_FORCE if is_read else node_plan.VERIFY
    if isinstance(node, core.Node):
        yield from node_plan.runtimes([node], verify)
        return
    why = (
        "no configuration of containerd or CRI-O is there, so its defaults count"
        if is_read
        else "its configuration is not read without --host-root"
    )
    yield findings.make_note(
        Check.HOST_CDI,
        SUBJECT,
        f"{why}; this does not show whether containers get their devices (CDI)",
        verify,
    )


def _judge_left_out(host: Host) -> Iterator[Finding]:
    subject = "the node's own devices"
    if isinstance(host.left_out, Unread):
        yield findings.make_unread(Check.HOST_LEFT_OUT, host.left_out)
    elif host.left_out:
        for device in host.left_out[:LEFT_OUT_MAX]:
            yield coexistence.describe_left_out(subject, Check.HOST_LEFT_OUT, (device,))
        if rest := host.left_out[LEFT_OUT_MAX:]:
            yield coexistence.describe_left_out(subject, Check.HOST_LEFT_OUT, rest)
    else:
        yield findings.make_ok(
            Check.HOST_LEFT_OUT, subject, "none is left to another driver, device plugin or process"
        )


def _cluster(host: Host) -> Iterator[Finding]:
    if host.clock is None:
        lost = Unread(
            what="the clock of this machine", why=host.offline, remedy="name a --kubeconfig that works"
        )
        yield findings.make_unread(Check.CLOCKS_HERE, lost)
        return
    yield clocks.here(host.clock)
    if isinstance(host.node, Unread):
        yield findings.make_unread(Check.HOST_SETTINGS, host.node)
    elif host.node is None:
        yield findings.make_error(
            Check.HOST_SETTINGS,
            f"node {host.node_name}",
            "does not exist in the cluster, so nothing is attached here",
            "let NODE_NAME come from spec.nodeName; kubectl get nodes has the names",
        )
