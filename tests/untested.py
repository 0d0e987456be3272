"""Tests that need something absent on this machine: deselected at collection, and counted on the last screen.

A test names its need with `@pytest.mark.tool("chart")`. The fixtures of `FIXTURES` have needs, too. `tests/conftest.py` has
the hooks of this module as its own. In a run with pytest-xdist, workers collect and the controller reports.
"""

import collections
import ctypes.util
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from drawbar.mocks.testing import browser, helm

PROGRAMS = str(Path(sys.executable).parent)
LINES = 12
"""Of the list; the last screen of `make test` has room for 24."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Something that a machine can lack.

    Attributes:
        tests: what is not tested without it, and how to have it tested.
        is_here: returns true if the machine has it.
    """

    tests: str
    is_here: Callable[[], bool]


def _under_make_chart() -> bool:
    return os.environ.get("DRAWBAR_CHART") == "required"


def _is_root() -> bool:
    return os.geteuid() == 0


def _has_umockdev() -> bool:
    libraries = ("umockdev", "umockdev-preload", "udev")
    return shutil.which("umockdev-wrapper") is not None and all(map(ctypes.util.find_library, libraries))


def _has_packages(*names: str) -> Callable[[], bool]:
    return lambda: all(importlib.util.find_spec(name) for name in names)


_CHART = "the chart and the release's program: make chart"
_REDFISH = "Redfish by the DMTF's validators, schemas, mock-ups and others' clients: make redfish SCHEMAS=DIR MOCKUPS=DIR"
# Under `make chart` a test without its package fails.
TOOLS: Mapping[str, Tool] = {
    "chart": Tool(tests=_CHART, is_here=_under_make_chart),
    "helm": Tool(tests=_CHART, is_here=lambda: _under_make_chart() or helm.program() is not None),
    "kubernetes-validate": Tool(
        tests=_CHART, is_here=lambda: _under_make_chart() or _has_packages("kubernetes_validate")()
    ),
    "promql-parser": Tool(
        tests=_CHART, is_here=lambda: _under_make_chart() or _has_packages("promql_parser")()
    ),
    "validators": Tool(
        tests=_REDFISH,
        is_here=lambda: all(
            shutil.which(program, path=PROGRAMS)
            for program in ("rf_service_validator", "rf_protocol_validator")
        ),
    ),
    "sushy": Tool(tests=_REDFISH, is_here=_has_packages("sushy")),
    "redfish": Tool(tests=_REDFISH, is_here=_has_packages("redfish")),
    "schemas": Tool(tests=_REDFISH, is_here=lambda: bool(os.environ.get("SCHEMAS"))),
    "mock-ups": Tool(tests=_REDFISH, is_here=lambda: bool(os.environ.get("MOCKUPS"))),
    "kubectl": Tool(
        tests="the doubles by kubectl: install kubectl on the PATH",
        is_here=lambda: shutil.which("kubectl") is not None,
    ),
    "chromium": Tool(
        tests=f"the web page in a browser: {browser.MISSING}", is_here=lambda: browser.PROGRAM is not None
    ),
    "umockdev": Tool(
        tests="uevents as libudev sees them: install Debian's packages umockdev and libumockdev0",
        is_here=_has_umockdev,
    ),
    "root": Tool(tests="other users, mounts and capabilities: run the tests as root", is_here=_is_root),
    "another user": Tool(
        tests="files that a user may not read: run the tests as another user than root",
        is_here=lambda: not _is_root(),
    ),
    "kernel events": Tool(
        tests="uevents of this kernel: run the tests as root, where /sys can be written",
        is_here=lambda: os.access("/sys/devices/virtual/mem/null/uevent", os.W_OK),
    ),
}
FIXTURES = {"engine": "helm", "validator": "kubernetes-validate", "promql": "promql-parser"}


def _explain_missing_tool(item: pytest.Item, tools: Mapping[str, Tool]) -> str | None:
    named = [name for mark in item.iter_markers("tool") for name in mark.args]
    if unknown := sorted(set(named) - set(tools)):
        raise pytest.UsageError(f"{item.nodeid}: no tool {unknown[0]!r}; use one of {', '.join(tools)}")
    named += [FIXTURES[name] for name in getattr(item, "fixturenames", ()) if name in FIXTURES]
    return next((tools[name].tests for name in named if not tools[name].is_here()), None)


_COUNTS = pytest.StashKey[dict[str, int]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests whose tool is absent."""
    missing = {item: why for item in items if (why := _explain_missing_tool(item, TOOLS)) is not None}
    counts = dict(collections.Counter(missing.values()))
    config.stash[_COUNTS] = counts
    if hasattr(config, "workeroutput"):
        config.workeroutput["untested"] = counts
    if missing:
        config.hook.pytest_deselected(items=list(missing))
        items[:] = [item for item in items if item not in missing]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Keep the counts of a worker of pytest-xdist: each collects the same tests."""
    counts = getattr(node, "workeroutput", {}).get("untested")
    if counts is not None:
        node.config.stash[_COUNTS] = counts


def reasons(skipped: Iterable[pytest.TestReport]) -> dict[str, int]:
    """Return how many tests were skipped while they ran, by reason."""
    texts = (
        report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        for report in skipped
    )
    return dict(collections.Counter(text.removeprefix("Skipped: ") for text in texts))


def table(counts: Mapping[str, int], width: int) -> list[str]:
    """Return a line for each cause, the most frequent first, and at most `LINES` lines."""
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    shown, rest = ordered[:LINES], ordered[LINES:]
    if rest:
        shown, rest = ordered[: LINES - 1], ordered[LINES - 1 :]
    lines = [f"{count:5}  {' '.join(cause.split())}"[:width] for cause, count in shown]
    if rest:
        lines.append(f"{sum(count for _, count in rest):5}  for {len(rest)} other reasons: pytest -rs")
    return lines


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write the list of skipped checks, and how to run them."""
    counts = collections.Counter(config.stash.get(_COUNTS, {}))
    counts.update(reasons(terminalreporter.stats.get("skipped", ())))
    if not counts:
        return
    terminalreporter.section("not tested here")
    for line in table(counts, max(terminalreporter._tw.fullwidth, 120)):
        terminalreporter.line(line)
