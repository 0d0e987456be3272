"""What a benchmark says: a table of numbers beside their targets, and ``bench/latest.json`` for programs.

A target is judged: a number that misses it is a regression.  A goal is what is wanted next; it is shown, not judged.

``latest.json`` is a list of ``{name, value, unit, target, met, goal}``.  A benchmark replaces its own entries and leaves
the others alone; an entry without a target is stated, not judged (``target`` and ``met`` are null).
"""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

LATEST = Path(__file__).with_name("latest.json")


class Measure(msgspec.Struct, frozen=True):
    """One number.

    Attributes:
        name: what was measured, the same in every run.
        value: the number.
        unit: of value and target.
        target: the most that is allowed, or the least with ``at_least``; None where nothing is asked.
        goal: what is wanted next, in the sense of the target; None where that is the target, or nothing.
        at_least: more is better.
    """

    name: str
    value: float
    unit: str
    target: float | None = None
    goal: float | None = None
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Return whether the target is reached; None without one."""
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: float
    unit: str
    target: float | None
    met: bool | None
    goal: float | None = None


def machine() -> str:
    """Describe the machine in one line: processor, cores, load, Python."""
    model = platform.processor() or platform.machine()
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        lines = (line.partition(":") for line in facts.read_text(encoding="utf-8").splitlines())
        model = next((value.strip() for key, _, value in lines if key.strip() == "model name"), model)
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, load {os.getloadavg()[0]:.1f} before, Python {platform.python_version()}"


def memory(pid: int, file: str = "status") -> dict[str, float]:
    """Return the sizes in that file of the process's /proc directory by name, such as `VmRSS`, in MB."""
    lines = Path(f"/proc/{pid}/{file}").read_text(encoding="utf-8").splitlines()
    sizes = (line.partition(":") for line in lines)
    return {name: float(size.split()[0]) / 1024 for name, _, size in sizes if size.endswith(" kB")}


def processor_seconds(pid: int) -> float:
    """Return the processor time that the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def p99(values: list[float]) -> float:
    """Return the 99th percentile."""
    return statistics.quantiles(values, n=100)[98]


def publish(title: str, measures: Sequence[Measure], *, where: str, path: Path = LATEST) -> bool:
    """Print the table and merge the numbers into the file; whether every target is met.

    Args:
        title: the heading.
        measures: the numbers, in the order of the table.
        where: the machine, as ``machine`` gave it before the run.
        path: the file.
    """
    table = Table(title=title, caption=where, title_justify="left", caption_justify="left")
    for name, side in (
        ("what", "left"),
        ("measured", "right"),
        ("target", "right"),
        ("", "left"),
        ("goal", "right"),
    ):
        table.add_column(name, justify="right" if side == "right" else "left")
    for measure in measures:
        sign = "≥" if measure.at_least else "≤"
        target, goal = (
            "" if limit is None else f"{sign} {limit:g} {measure.unit}"
            for limit in (measure.target, measure.goal)
        )
        verdict = {None: "", True: "[green]met[/green]", False: "[red]missed[/red]"}[measure.met]
        table.add_row(measure.name, f"{measure.value:.3g} {measure.unit}", target, verdict, goal)
    Console(width=None if os.isatty(1) else 120).print(table)
    _merge(path, measures)
    return all(measure.met is not False for measure in measures)


def _merge(path: Path, measures: Sequence[Measure]) -> None:
    kept = msgspec.json.decode(path.read_bytes(), type=list[_Entry]) if path.exists() else []
    fresh = {
        m.name: _Entry(
            name=m.name, value=round(m.value, 4), unit=m.unit, target=m.target, met=m.met, goal=m.goal
        )
        for m in measures
    }
    entries = [fresh.pop(entry.name, entry) for entry in kept] + list(fresh.values())
    text = msgspec.json.format(msgspec.json.encode(entries), indent=1)
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(text + b"\n")
    temporary.replace(path)
