"""What `make kubernetes` runs on real components, in order; each stage starts what it needs and stops it.

A new stage is a function of a `Context` that gives an `Outcome`, and a line in `STAGES`.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from realcluster import binaries, control_plane, errors, kubelets, processes, programs

CHECKOUT = Path(__file__).parents[2]
BINARIES = "DRAWBAR_KUBERNETES_BIN"
"""Tells tests where the binaries are, so that they start components themselves."""
LOGS = "DRAWBAR_KUBERNETES_LOGS"
"""Tells tests where state and logs of these components go."""
CONTRACT = "DRAWBAR_CONTRACT_KUBECONFIG"
INTERRUPT_SECONDS = 60.0
CHUNK_BYTES = 1 << 16
NO_TESTS = 5
"""Pytest's status where nothing was selected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a stage ended.

    Attributes:
        failed: whether something in it did.
        text: what to say at the end; where the stage was skipped, the reason.
        skipped: it could not run here.
    """

    failed: bool = False
    text: str = ""
    skipped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a stage has.

    Attributes:
        installed: the binaries.
        folder: for state and logs of this stage.
    """

    installed: binaries.Binaries
    folder: Path

    def say(self, text: str) -> None:
        """Print one line of progress."""
        sys.stderr.write(f"== {text}\n")
        sys.stderr.flush()

    @contextlib.contextmanager
    def plane(self, **options: Any) -> Iterator[control_plane.ControlPlane]:
        """Run a control plane in a folder of the stage; see `ControlPlane.running`."""
        begun = time.monotonic()
        folder = self.folder / f"plane-{len(list(self.folder.glob('plane-*')))}"
        with control_plane.ControlPlane.running(self.installed, folder, **options) as plane:
            self.say(
                f"control plane {self.installed.release} is ready after {time.monotonic() - begun:.0f} s"
            )
            yield plane

    def pytest(self, arguments: Sequence[str], environment: Mapping[str, str], *, seconds: float) -> Outcome:
        """Run pytest in the checkout, its output streamed; kill it after `seconds`."""
        report = self.folder / "summary.txt"
        pytest = str(Path(sys.executable).with_name("pytest"))
        # --tb=native: pytest's own format ends with a SystemError on deep structures under Python 3.11.
        command = [pytest, "-q", "--tb=native", "-p", "no:cacheprovider", *arguments]
        own = {LOGS: str(self.folder), **environment}
        with (
            subprocess.Popen(
                command, cwd=CHECKOUT, env={**os.environ, **own}, stdout=subprocess.PIPE, bufsize=0
            ) as process,
            _deadline(process, seconds) as late,
            report.open("wb") as file,
        ):
            assert process.stdout is not None
            # Not by line: pytest ends a line of dots after 72 tests, which may take many minutes.
            while reported := process.stdout.read(CHUNK_BYTES):
                sys.stdout.buffer.write(reported)
                sys.stdout.flush()
                file.write(reported)
        last = _last_line(report.read_text(errors="replace"))
        if late():
            return Outcome(failed=True, text=f"not done after {seconds:.0f} s and killed; {last}")
        failed = process.returncode not in (0, NO_TESTS)
        # Where every test is skipped, the status is that of success.
        return Outcome(failed=failed, skipped=not failed and "passed" not in last, text=last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One part of the run.

    Attributes:
        name: as STAGES= names it.
        title: what it tries.
        run: does it.
        needs_root: kubelets or containers are part of it.
        beside: runs at the same time as those that do not: together they wait more than they compute.
    """

    name: str
    title: str
    run: Callable[[Context], Outcome]
    needs_root: bool = False
    beside: bool = False


def contract(context: Context) -> Outcome:
    """Check on the real control plane the rules of Kubernetes that the doubles keep."""
    with context.plane(gates=programs.contract_gates(context.installed.release)) as plane:
        return context.pytest(["mocks/contract"], {CONTRACT: str(plane.admin)}, seconds=1500)


def flows(context: Context) -> Outcome:
    """Run the flows of tests/driver/flows with both daemons as they are, but for the attacks."""
    return _flows(context, "not attack")


def attacks(context: Context) -> Outcome:
    """Run the attacks of tenants, nodes and managers; `docs/attacks.md` lists them."""
    return _flows(context, "attack")


def _flows(context: Context, marked: str) -> Outcome:
    """Run the flows so marked; the tests start the components.

    Two processes, each with a control plane and two kubelets: most of a flow is waiting for the scheduler's next look.
    """
    environment = {BINARIES: str(context.installed.folder)}
    arguments = ["tests/driver/flows", "-m", marked, "--timeout=300", "-n", "2", "--dist", "loadfile"]
    return context.pytest(arguments, environment, seconds=1800)


def accidents(context: Context) -> Outcome:
    """Kill things at random moments, and check that no device is lost, leaked or attached twice."""
    from realcluster import accident_stage

    return accident_stage.run(context)


def restore(context: Context) -> Outcome:
    """Restore etcd from an older backup, and check that no device is lost, leaked or attached twice."""
    from realcluster import restore_stage

    return restore_stage.run(context)


def chart(context: Context) -> Outcome:
    """Install the chart as users do, its pods in real containers."""
    from realcluster import chart_stage

    return chart_stage.run(context)


def simulation(context: Context) -> Outcome:
    """Follow docs/try-it.md on pretended hardware, its pods in real containers."""
    from realcluster import simulation_stage

    return simulation_stage.run(context)


def guest(context: Context) -> Outcome:
    """Let pods read disks that a real kernel hot-plugs."""
    from realcluster import guest_stage

    return guest_stage.run(context)


async def settle(
    problems: Callable[[], Awaitable[list[str]]],
    seconds: float,
    *,
    pause_seconds: float = 0.5,
    depends: processes.Component | None = None,
) -> None:
    """Return when there are no problems any more, one sentence each; where they cannot be read, that is one.

    Args:
        problems: reads them.
        seconds: how long there may be some.
        pause_seconds: between two readings.
        depends: a component without which waiting makes no sense.

    Raises:
        errors.RealClusterError: there are some then; names them.
        errors.ComponentFailed: the component ended.
    """
    remaining: list[str] = []
    try:
        async with asyncio.timeout(seconds):
            while remaining := await _or_failure(problems):
                if depends is not None and not depends.running:
                    raise errors.ComponentFailed(
                        f"{depends.name} ended; its log {depends.log} ends with: {depends.tail()}"
                    )
                await asyncio.sleep(pause_seconds)
    except TimeoutError as error:
        raise errors.RealClusterError(f"after {seconds:.0f} s: {'; '.join(remaining)}") from error


async def _or_failure(problems: Callable[[], Awaitable[list[str]]]) -> list[str]:
    try:
        return await problems()
    except errors.ComponentFailed:
        raise
    except errors.RealClusterError as error:
        return [str(error)]


STAGES = (
    Stage(name="contract", title="the contract suite on the real control plane", run=contract, beside=True),
    Stage(name="flows", title="the flows of both daemons with real kubelets", run=flows, needs_root=True),
    Stage(name="attacks", title="attacks with real kubelets", run=attacks, needs_root=True),
    Stage(name="accidents", title="accidents while pods come and go", run=accidents, needs_root=True),
    Stage(name="restore", title="etcd is restored from a backup", run=restore, needs_root=True),
    Stage(name="chart", title="the chart with containerd and runc", run=chart, needs_root=True, beside=True),
    Stage(
        name="simulation",
        title="docs/try-it.md with containerd and runc",
        run=simulation,
        needs_root=True,
        beside=True,
    ),
    Stage(
        name="guest",
        title="a node in QEMU, and its kernel's hot-plug",
        run=guest,
        needs_root=True,
        beside=True,
    ),
)
RUN = CHECKOUT / "hil-tests" / "run.py"
LANE_POLL_SECONDS = 1.0


def select_stages(names: str, listed: Sequence[Stage] = STAGES) -> list[Stage]:
    """Return the stages that a comma separated list names, in their order; all of them where it is empty.

    Raises:
        errors.RealClusterError: there is none of a name.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in {stage.name for stage in listed}]
    if unknown:
        raise errors.RealClusterError(
            f"no stage {unknown[0]!r}: STAGES takes {', '.join(stage.name for stage in listed)}"
        )
    return [stage for stage in listed if not wanted or stage.name in wanted]


def run(folder: Path, names: str, *, no_skips: bool = False, listed: Sequence[Stage] = STAGES) -> int:
    """Run stages on the binaries of a folder; return the exit status.

    State and logs of a stage that fails stay in a temporary folder, which is named at the end.

    Args:
        folder: the binaries of one release.
        names: of stages, separated by commas; all where it is empty.
        no_skips: a stage that cannot run here fails the run.
        listed: the stages that there are.

    Raises:
        errors.RealClusterError: a binary or a stage of that name is missing.
    """
    chosen = select_stages(names, listed)
    installed = binaries.find(folder)
    sys.stderr.write(
        f"== Kubernetes {installed.release} and etcd {installed.etcd_release} of {installed.folder}\n"
    )
    beside = [stage.name for stage in chosen if stage.beside]
    if len(beside) in (0, len(chosen)):
        outcomes, status = _run_all(installed, chosen), 0
    else:
        with _Lane.running(installed, beside, no_skips=no_skips) as lane:
            outcomes = _run_all(installed, [stage for stage in chosen if not stage.beside], lane.show)
            status = lane.wait()
    for name, outcome in outcomes.items():
        sys.stderr.write(f"== {installed.release} {name}: {_verdict(outcome)}: {outcome.text}\n")
    skipped = [name for name, outcome in outcomes.items() if outcome.skipped]
    if skipped and no_skips:
        sys.stderr.write(f"error: {', '.join(skipped)} did not run, for the reason above\n")
    failed = any(outcome.failed for outcome in outcomes.values())
    return int(bool(status) or failed or bool(skipped and no_skips))


def _run_all(
    installed: binaries.Binaries, chosen: Sequence[Stage], after_each: Callable[[], None] = lambda: None
) -> dict[str, Outcome]:
    """Run the stages one after the other; return their outcomes by name."""
    outcomes = {}
    base = Path(tempfile.mkdtemp(prefix="drawbar-k8s-"))
    try:
        for stage in chosen:
            begun = time.monotonic()
            sys.stderr.write(f"== {stage.name}: {stage.title}\n")
            outcomes[stage.name] = outcome = _run(stage, installed, base / stage.name)
            took = f"{time.monotonic() - begun:.0f} s"
            sys.stderr.write(f"== {stage.name}: {_verdict(outcome)} after {took}: {outcome.text}\n")
            after_each()
    finally:
        kept = [stage.name for stage in chosen if (base / stage.name).exists()]
        if kept:
            sys.stderr.write(f"== state and logs of {', '.join(kept)} are in {base}\n")
        else:
            _remove(base)
    return outcomes


def _verdict(outcome: Outcome) -> str:
    return "skipped" if outcome.skipped else "FAILED" if outcome.failed else "passed"


class _Lane:
    """Stages in a process of their own, since components are started by a main thread; what it prints is shown in parts."""

    def __init__(self, process: processes.Component, names: str) -> None:
        self._process, self._names = process, names
        self._shown = 0

    @classmethod
    @contextlib.contextmanager
    def running(
        cls, installed: binaries.Binaries, names: Sequence[str], *, no_skips: bool
    ) -> Iterator["_Lane"]:
        """Run the stages while the block lasts; interrupt them at its end if they have not ended."""
        listed = ",".join(names)
        words = [sys.executable, str(RUN), "kubernetes", str(installed.folder), "--stages", listed]
        words += ["--no-skips"] if no_skips else []
        with tempfile.TemporaryDirectory(prefix="drawbar-k8s-") as folder:
            process = processes.Component(f"stages {listed}", words, Path(folder) / "log")
            process.start()
            sys.stderr.write(f"== {listed} run beside the others; what they print follows in parts\n")
            try:
                yield cls(process, listed)
            finally:
                process.stop(INTERRUPT_SECONDS)

    def show(self) -> None:
        """Print what has come since the last time, under a line that says whose it is."""
        if reported := self._read_log():
            sys.stderr.write(f"== meanwhile, of {self._names}:\n{reported.rstrip()}\n")

    def wait(self) -> int:
        """Print what they say until they have ended, each by its own deadline; return the exit status."""
        if self._process.status is None:
            sys.stderr.write(f"== only {self._names} still run:\n")
        else:
            self.show()
        while (status := self._process.status) is None:
            sys.stderr.write(self._read_log())
            sys.stderr.flush()
            time.sleep(LANE_POLL_SECONDS)
        sys.stderr.write(self._read_log())
        return status

    def _read_log(self) -> str:
        with self._process.log.open("rb") as file:
            file.seek(self._shown)
            reported = file.read()
        self._shown += len(reported)
        return reported.decode(errors="replace")


def _run(stage: Stage, installed: binaries.Binaries, folder: Path) -> Outcome:
    if stage.needs_root and (why := kubelets.missing_root()):
        return Outcome(skipped=True, text=why)
    if stage.needs_root and not installed.has_kubelet:
        return Outcome(
            skipped=True, text=f"in {installed.folder} {binaries.describe_missing((), ['kubelet'])}"
        )
    folder.mkdir()
    try:
        outcome = stage.run(Context(installed=installed, folder=folder))
    except errors.Unavailable as error:
        outcome = Outcome(skipped=True, text=str(error))
    except errors.RealClusterError as error:
        outcome = Outcome(failed=True, text=str(error))
    if not outcome.failed:
        _remove(folder)
    return outcome


def _remove(folder: Path) -> None:
    kubelets.unmount_below(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


@contextlib.contextmanager
def _deadline(process: "subprocess.Popen[bytes]", seconds: float) -> Iterator[Callable[[], bool]]:
    """Interrupt the process after a time, and kill it where that does not help; it is ended on leaving."""
    late = threading.Event()

    def end() -> None:
        late.set()
        _end(process)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield late.is_set
    finally:
        timer.cancel()
        if not late.is_set() and sys.exc_info()[0] is not None:
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    # As Ctrl-C does, so that pytest stops what its tests started.
    for number, patience in ((signal.SIGINT, INTERRUPT_SECONDS), (signal.SIGKILL, INTERRUPT_SECONDS)):
        if process.poll() is None:
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience)
