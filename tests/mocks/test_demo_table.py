"""The live table, as it stands at the end."""

import io
import re
import sys

import pytest

from drawbar.mocks.demo import progress, summary, table
from drawbar.mocks.demo.progress import Step

SEEN = progress.View(
    pod="demo-1",
    device_class="gpu",
    node="node-2",
    pool="rack-1/chassis-1",
    device="gpu-1",
    serial="48-b0-2d-00-00-00-00-01",
    cdi=("drawbar.dev/device=uid-gpu-1",),
    steps={Step.ALLOCATED: 5.25, Step.ATTACHING: 5.5},
)


def draw_table(monkeypatch, columns, *, stuck=()):
    """Return the screen after two steps of one of two pods."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("COLUMNS", str(columns))
    with table.LiveTable({"demo-1": "gpu", "demo-2": "nvme"}, lambda: 5.0) as screen:
        screen.report_ready(5.0)
        for step in SEEN.steps:
            screen.report_step(SEEN, step)
        screen.report_stuck(stuck)
        screen.report_summary(summary.summarise([SEEN], leaked=0, seconds=1.0))
    return out.getvalue().splitlines()


def test_a_wide_terminal_gets_a_column_per_step_counted_from_the_pods_creation(monkeypatch):
    lines = draw_table(monkeypatch, 150)
    assert lines[0].split()[4:] == [step.value for step in progress.SIMULATED if step is not Step.DELETED]
    assert lines[1].split()[:6] == ["demo-1", "gpu", "node-2", "gpu-1", "0.25", "0.50"]
    assert "48-b0-2d-00-00-00-00-01" in lines[2]
    assert "drawbar.dev/device=uid-gpu-1" in lines[2]
    assert lines[3].split()[:2] == ["demo-2", "nvme"]


@pytest.mark.parametrize("columns", [70, 80, 100])
def test_a_narrow_terminal_gets_the_last_step_and_no_line_is_wrapped(monkeypatch, columns):
    lines = draw_table(monkeypatch, columns)
    assert lines[1].split() == ["demo-1", "gpu", "node-2", "gpu-1", "attaching", "0.50", "s"]
    assert lines[3].split()[:2] == ["demo-2", "nvme"]
    assert all(len(line) <= columns for line in lines[:3])


def test_stuck_pods_are_above_and_the_summary_below(monkeypatch):
    lines = draw_table(monkeypatch, 150, stuck=["demo-2 is stuck"])
    assert lines[0] == "demo-2 is stuck"
    assert "0 of 1 pods ran" in lines[-1]


def test_without_colours_no_text_has_a_style(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1m" in "".join(draw_table(monkeypatch, 150))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[0-9;]*m", "".join(draw_table(monkeypatch, 150)))
