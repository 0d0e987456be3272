"""The demo's output: JSON for programs, lines for files and pipes. `table` has the live form.

Every form receives the same events; times are seconds since the demo began.
"""

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from drawbar.mocks import cluster
from drawbar.mocks.demo import progress, stages, summary
from drawbar.mocks.fabric import journal
from drawbar.mocks.scheduler import settings

COLUMNS = 80
_UID = re.compile(r"([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Screen(Protocol):
    """One form of output."""

    def report_happening(self, what: cluster.Happening) -> None:
        """Report that a process was started, or that the demo waits."""

    def report_step(self, view: progress.View, step: progress.Step) -> None:
        """Report that a pod's device reached a step."""

    def report_fabric(self, entry: journal.Entry, at: float) -> None:
        """Report that the fabric started or finished an operation."""

    def report_ready(self, seconds: float) -> None:
        """Report the end of set-up after `seconds`; the pods are created next."""

    def report_stuck(self, sentences: Sequence[str]) -> None:
        """Report that the deadline passed, with a sentence per pod."""

    def report_whereabouts(self, where: stages.Whereabouts) -> None:
        """Report that everything runs on until Ctrl-C."""

    def report_summary(self, whole: summary.Summary) -> None:
        """Report the summary at the end."""


class JsonLines:
    """One JSON object per event on stdout."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    def report_happening(self, what: cluster.Happening) -> None:
        """Print `started` or `restarted` with name and pid, or `waiting`."""
        if isinstance(what, cluster.Started):
            event = "restarted" if what.restarted else "started"
            self._say(event, self._clock(), name=what.name, pid=what.pid)
        else:
            self._say("waiting", self._clock(), what=what.what)

    def report_step(self, view: progress.View, step: progress.Step) -> None:
        """Print the step as the event."""
        details: dict[str, Any] = {
            "pod": view.pod,
            "deviceClass": view.device_class,
            "node": view.node,
            "pool": view.pool,
            "device": view.device,
            "serial": view.serial,
            "address": view.address,
            "cdi": list(view.cdi),
            "content": view.content,
        }
        values = {key: value for key, value in details.items() if value}
        self._say(step.value, view.steps[step], **values)

    def report_fabric(self, entry: journal.Entry, at: float) -> None:
        """Print the journal's entry; its `event` becomes `state` here."""
        reported = msgspec.to_builtins(entry)
        reported["state"] = reported.pop("event")
        self._say("fabric", at, **reported)

    def report_ready(self, seconds: float) -> None:
        """Print `ready`."""
        self._say("ready", self._clock(), setUpSeconds=round(seconds, 3))

    def report_stuck(self, sentences: Sequence[str]) -> None:
        """Print one event per pod."""
        for sentence in sentences:
            self._say("stuck", self._clock(), message=sentence)

    def report_whereabouts(self, where: stages.Whereabouts) -> None:
        """Print the paths of the kept cluster."""
        self._say("kept", self._clock(), kubeconfig=str(where.kubeconfig), directory=str(where.directory))

    def report_summary(self, whole: summary.Summary) -> None:
        """Print the last line."""
        _write(json.dumps({"summary": document(whole)}))

    def _say(self, event: str, at: float, **details: Any) -> None:
        _write(json.dumps({"event": event, "at": round(at, 4), **details}))


def document(whole: summary.Summary) -> dict[str, Any]:
    """Return the summary as JSON; `read` is present only if containers read their devices."""
    return {
        "pods": whole.pods,
        "running": whole.running,
        **({} if whole.read is None else {"read": whole.read}),
        "detached": whole.detached,
        "leaked": whole.leaked,
        "added_ms": _both(whole.added),
        "steps_ms": {step.value: _both(times) for step, times in whole.steps.items()},
        "fabric_ms": {"attach": _both(whole.attach), "detach": _both(whole.detach)},
        "seconds": round(whole.seconds, 3),
    }


def _both(times: summary.Percentiles | None) -> dict[str, float | None]:
    if times is None:
        return {"p50": None, "p99": None}
    return {"p50": round(times.p50, 1), "p99": round(times.p99, 1)}


class PlainLines:
    """One line per event, for output that cannot be overwritten."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    def report_happening(self, what: cluster.Happening) -> None:
        """Print the started process, or the awaited state."""
        if isinstance(what, cluster.Started):
            verb = "started again" if what.restarted else "started"
            self._say(self._clock(), f"{what.name} {verb}, process {what.pid}")
        else:
            self._say(self._clock(), what.what)

    def report_step(self, view: progress.View, step: progress.Step) -> None:
        """Print the step and its detail."""
        self._say(view.steps[step], f"{view.pod:<9} {step.value:<10} {detail(view, step)}".rstrip())

    def report_fabric(self, entry: journal.Entry, at: float) -> None:
        """Print the fabric's operation."""
        failed = f", failed: {entry.error}" if entry.error else ""
        self._say(at, f"fabric    {entry.kind.value} of {entry.device} on {entry.host} {entry.event}{failed}")

    def report_ready(self, seconds: float) -> None:
        """Print the duration of set-up."""
        self._say(self._clock(), f"the cluster runs after {seconds:.1f} s; creating the pods")

    def report_stuck(self, sentences: Sequence[str]) -> None:
        """Print one line per pod."""
        for sentence in sentences:
            self._say(self._clock(), sentence)

    def report_whereabouts(self, where: stages.Whereabouts) -> None:
        """Print the commands to look at the kept cluster."""
        _write("\n".join(hints(where)))

    def report_summary(self, whole: summary.Summary) -> None:
        """Print the summary's lines."""
        _write("\n".join(lines(whole)))

    def _say(self, at: float, text: str) -> None:
        _write(f"{at:7.2f} s  {text}")


def detail(view: progress.View, step: progress.Step) -> str:
    """Return the detail of a step for people; empty if there is none."""
    match step:
        case progress.Step.ALLOCATED:
            return f"{view.pool}/{view.device} for {view.node}"
        case progress.Step.ATTACHING | progress.Step.VISIBLE:
            return f"serial {view.serial}" if view.serial else ""
        case progress.Step.SEEN:
            return f"by the kernel, at {view.address}"
        case progress.Step.READ:
            return f'by its container: "{view.content}"'
        case progress.Step.BOUND:
            return view.node
        case progress.Step.PREPARED:
            return ", ".join(short(name) for name in view.cdi)
        case _:
            return ""


def short(cdi: str) -> str:
    """Return the name of a CDI device with the beginning of the claim's UID alone."""
    return _UID.sub(r"\1…", cdi)


def hints(where: stages.Whereabouts) -> list[str]:
    """Return the lines about a kept cluster: commands, logs and notes."""
    return [
        "Everything keeps running until Ctrl-C. Look at it from a second terminal:",
        "",
        f"  export {_path(Path(sys.executable).parent)}KUBECONFIG={where.kubeconfig}",
        "  drawbar status",
        "  drawbar explain pod/demo-1",
        "  drawbar ui",
        "  kubectl get pods,resourceclaims,deviceattachments",
        *_failure(where.fabric_control),
        "",
        "Take a device out of service, and put it back:",
        "",
        "  drawbar maintenance on device/gpu-2 --yes",
        "  drawbar maintenance off device/gpu-2 --yes",
        "",
        "Taint a device, and lift the taint. This needs Kubernetes 1.37:",
        "",
        '  make demo ARGS="--keep --profile 1.37"',
        "  drawbar taint add psu device/gpu-2 --effect NoSchedule --yes",
        "  drawbar explain device/gpu-2",
        "  drawbar taint remove psu --yes",
        "",
        f"Logs: {where.logs}/*.log",
        *where.notes,
    ]


def _failure(control: Path | None) -> list[str]:
    """Return the lines about a sick device; none if the fabric takes no commands."""
    if control is None:
        return []
    return [
        "",
        "Let the fabric report a sick device, ask about it, and let it recover:",
        "",
        f"  export FABRIC=unix:{control}",
        "  drawbar mock fabric --control $FABRIC --tell set-health gpu-1 critical",
        "  drawbar explain device/gpu-1",
        "  drawbar mock fabric --control $FABRIC --tell set-health gpu-1 ok",
    ]


def _path(programs: Path) -> str:
    """Return the assignment that makes `drawbar` known to a new shell; empty if it is known there."""
    program = programs / "drawbar"
    folders = os.get_exec_path()
    if (programs.parent / "pyvenv.cfg").is_file():
        # An activated virtual environment is on the PATH of one terminal alone.
        folders = [folder for folder in folders if Path(folder).resolve() != programs.resolve()]
    found = shutil.which("drawbar", path=os.pathsep.join(folders))
    if not program.is_file() or (found is not None and program.samefile(found)):
        return ""
    return f"PATH={programs}:$PATH "


def lines(whole: summary.Summary) -> list[str]:
    """Return the story of the run for people, as lines of at most 80 columns."""
    read = "" if whole.read is None else f"{whole.read} of {whole.pods} containers read their device, "
    first = (
        f"{whole.running} of {whole.pods} pods ran, {read}{whole.detached} of {whole.pods} devices came back, "
        f"{whole.leaked} leaked, in {whole.seconds:.1f} s."
    )
    rows = [f"{times.p50 / summary.MILLISECONDS:6.1f} s  {what}" for times, what in _story(whole)]
    if not rows:
        return textwrap.wrap(first, COLUMNS)
    return [*textwrap.wrap(first, COLUMNS), "", "Median time of a pod:", *rows]


def _story(whole: summary.Summary) -> Iterator[tuple[summary.Percentiles, str]]:
    """Yield the time of each part of the run, and the part's description."""
    if whole.attach is not None:
        yield whole.attach, "the fabric manager attached the device to the node"
    if whole.added is not None:
        kernel = "" if whole.read is None else " and kernel"
        slowest = f"(at most {whole.added.p99 / summary.MILLISECONDS:.1f} s)"
        span = "from choice to allocation" if whole.classic else "from allocation to ready"
        yield whole.added, f"Drawbar{kernel} added, {span} {slowest}"
    steps = {
        progress.Step.SEEN: "the node's kernel saw the device",
        progress.Step.BOUND: "the scheduler bound the pod"
        if whole.classic
        else f"the scheduler noticed; it looks every {settings.Settings().poll_seconds:.0f} s",
        progress.Step.PREPARED: "the kubelet asked Drawbar to prepare the device",
        progress.Step.RUNNING: "the kubelet started the container",
        progress.Step.RELEASED: "the node released the device after the pod's end",
    }
    yield from ((whole.steps[step], what) for step, what in steps.items() if step in whole.steps)
    if whole.detach is not None:
        yield whole.detach, "the fabric manager detached it"


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
