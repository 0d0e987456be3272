"""The demo's numbers, and how they are shown."""

import io
import json
import shlex
import sys
from pathlib import Path

import pytest

from drawbar.driver import main
from drawbar.mocks.demo import progress, screens, stages, summary
from drawbar.mocks.demo.progress import Step
from drawbar.mocks.fabric import commands

WAY = {
    Step.ALLOCATED: 1.0,
    Step.ATTACHING: 1.1,
    Step.ATTACHED: 3.25,
    Step.VISIBLE: 3.5,
    Step.BOUND: 6.0,
    Step.PREPARED: 6.5,
    Step.RUNNING: 7.0,
    Step.DELETED: 8.0,
    Step.RELEASED: 8.25,
    Step.DETACHED: 10.0,
}


def view(name="p", *, steps=None, attach=2.0, detach=1.0, **changes):
    return progress.View(
        pod=name,
        device_class="gpu",
        steps=WAY if steps is None else steps,
        attach_seconds=attach,
        detach_seconds=detach,
        **changes,
    )


def pick_steps(*steps):
    return {step: WAY[step] for step in steps}


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(view(), 500.0, id="visible came last"),
        pytest.param(view(steps={**WAY, Step.VISIBLE: 3.0}), 250.0, id="attached came last"),
        pytest.param(view(attach=3.0), 0.0, id="never negative"),
        pytest.param(view(attach=None), None, id="the fabric's own time is not known"),
        pytest.param(view(steps=pick_steps(Step.ALLOCATED, Step.ATTACHED)), None, id="never visible"),
        pytest.param(view(steps={}), None, id="nothing happened"),
    ],
)
def test_added_time_is_from_allocation_to_both_conditions_without_the_fabrics(seen, expected):
    assert summary.added_milliseconds(seen) == expected


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (Step.ALLOCATED, None),
        (Step.ATTACHING, 100.0),
        (Step.ATTACHED, 150.0),
        (Step.VISIBLE, 250.0),
        (Step.BOUND, 2500.0),
        (Step.PREPARED, 500.0),
        (Step.RUNNING, 500.0),
        (Step.DELETED, None),
        (Step.RELEASED, 250.0),
        (Step.DETACHED, 750.0),
    ],
)
def test_each_step_counts_from_the_one_before_without_the_fabrics_time(step, expected):
    milliseconds = summary.step_milliseconds(view(), step)
    assert milliseconds == pytest.approx(expected) if expected is not None else milliseconds is None


def test_steps_seen_in_the_other_order_take_no_time():
    assert summary.step_milliseconds(view(steps={**WAY, Step.VISIBLE: 2.0}), Step.VISIBLE) == 0.0


@pytest.mark.parametrize(
    ("times", "p50", "p99"),
    [([5.0], 5.0, 5.0), ([4.0, 1.0, 3.0, 2.0], 2.0, 4.0), ([float(n) for n in range(1, 201)], 100.0, 198.0)],
)
def test_percentiles_are_times_that_occurred(times, p50, p99):
    assert summary.percentiles(times) == summary.Percentiles(p50=p50, p99=p99)


@pytest.mark.parametrize(
    ("views", "leaked", "good"),
    [
        pytest.param([view("a"), view("b")], 0, True, id="all well"),
        pytest.param([view("a"), view("b")], 1, False, id="a leak"),
        pytest.param([view("a"), view("b", steps=pick_steps(Step.ALLOCATED))], 0, False, id="one never ran"),
        pytest.param([view("a", steps=pick_steps(Step.RUNNING))], 0, False, id="one never came back"),
    ],
)
def test_a_run_is_good_only_if_all_ran_all_came_back_and_nothing_leaked(views, leaked, good):
    whole = summary.summarise(views, leaked=leaked, seconds=1.0)
    assert whole.good is good
    assert whole.pods == len(views)


def test_the_summary_in_json_has_the_promised_keys():
    whole = summary.summarise([view("a"), view("b", attach=1.9)], leaked=3, seconds=12.3456)
    document = screens.document(whole)
    promised = {key: document[key] for key in ("pods", "running", "detached", "leaked", "added_ms")}
    assert promised == {
        "pods": 2,
        "running": 2,
        "detached": 2,
        "leaked": 3,
        "added_ms": {"p50": 500.0, "p99": 600.0},
    }
    assert document["steps_ms"]["visible"] == {"p50": 250.0, "p99": 250.0}
    assert document["seconds"] == 12.346


def test_nothing_measured_is_null_and_not_zero():
    whole = summary.summarise([view(steps={}, attach=None, detach=None)], leaked=0, seconds=1.0)
    assert screens.document(whole)["added_ms"] == {"p50": None, "p99": None}
    assert len(screens.lines(whole)) == 1


def test_json_lines_are_one_object_per_event(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    screen = screens.JsonLines(lambda: 0.5)
    screen.report_step(view(device="gpu-1", serial="s1", cdi=("x=y",)), Step.PREPARED)
    screen.report_stuck(["p is stuck"])
    assert [json.loads(line) for line in out.getvalue().splitlines()] == [
        {
            "event": "prepared",
            "at": 6.5,
            "pod": "p",
            "deviceClass": "gpu",
            "device": "gpu-1",
            "serial": "s1",
            "cdi": ["x=y"],
        },
        {"event": "stuck", "at": 0.5, "message": "p is stuck"},
    ]


def test_plain_lines_name_the_device_its_serial_and_the_cdi_device(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    screen = screens.PlainLines(lambda: 0.5)
    seen = view(node="n1", pool="rack/e", device="gpu-1", serial="s1", cdi=("x=y",))
    for step in WAY:
        screen.report_step(seen, step)
    lines = out.getvalue().splitlines()
    assert len(lines) == len(WAY)
    assert "rack/e/gpu-1 for n1" in lines[0]
    assert "serial s1" in lines[1]
    assert "x=y" in lines[5]


LATE = {**WAY, Step.ATTACHING: 1.0, Step.ATTACHED: 3.25, Step.VISIBLE: 3.5, Step.ALLOCATED: 3.75}


def test_where_claims_are_allocated_after_the_attach_the_time_is_from_the_attachment_to_the_allocation():
    late = view(steps=LATE)
    assert summary.added_milliseconds(late, classic=True) == 750.0
    assert summary.step_milliseconds(late, Step.ALLOCATED, classic=True) == 250.0
    assert summary.step_milliseconds(late, Step.ATTACHING, classic=True) is None
    assert summary.step_milliseconds(late, Step.BOUND, classic=True) == 2250.0
    reported = "\n".join(screens.lines(summary.summarise([late], leaked=0, seconds=1.0, classic=True)))
    assert "from choice to allocation" in reported
    reported = "\n".join(screens.lines(summary.summarise([view()], leaked=0, seconds=1.0)))
    assert "from allocation to ready" in reported


def test_the_story_says_who_took_how_long_within_80_columns():
    seen = view(
        cdi=("drawbar.dev/device=15ed24c8-3bb9-4766-8c8e-ed079efb8228-cxl-memory-1",), serial="1" * 23
    )
    read = view(steps=WAY | {Step.READ: 7.5})
    for whole in (
        summary.summarise([view()], leaked=0, seconds=16.84),
        summary.summarise([read], leaked=0, seconds=16.84, reads=True),
        summary.summarise([view(steps=LATE)], leaked=0, seconds=16.84, classic=True),
    ):
        assert all(len(line) <= 80 for line in screens.lines(whole))
    assert screens.lines(summary.summarise([view()], leaked=0, seconds=16.84)) == [
        "1 of 1 pods ran, 1 of 1 devices came back, 0 leaked, in 16.8 s.",
        "",
        "Median time of a pod:",
        "   2.0 s  the fabric manager attached the device to the node",
        "   0.5 s  Drawbar added, from allocation to ready (at most 0.5 s)",
        "   2.5 s  the scheduler noticed; it looks every 5 s",
        "   0.5 s  the kubelet asked Drawbar to prepare the device",
        "   0.5 s  the kubelet started the container",
        "   0.2 s  the node released the device after the pod's end",
        "   1.0 s  the fabric manager detached it",
    ]
    assert screens.detail(seen, Step.PREPARED) == "drawbar.dev/device=15ed24c8…-cxl-memory-1"


@pytest.fixture
def programs(monkeypatch, tmp_path):
    """Return the folder of the running program, on no PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "drawbar").write_text("#!/bin/sh\n")
    (folder / "drawbar").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    return folder


def list_hints():
    where = stages.Whereabouts(
        kubeconfig=Path("/tmp/d/admin"), directory=Path("/tmp/d"), logs=Path("/tmp/d/l")
    )
    return [line.strip() for line in screens.hints(where) if line.startswith("  ")]


def test_a_kept_cluster_is_looked_at_with_drawbars_own_verbs_first(programs):
    shown = list_hints()
    assert shown[:2] == [f"export PATH={programs}:$PATH KUBECONFIG=/tmp/d/admin", "drawbar status"]
    assert any(command.startswith("kubectl get") for command in shown)
    assert 'make demo ARGS="--keep --profile 1.37"' in shown


@pytest.mark.parametrize(
    ("environment", "path"),
    [
        pytest.param(False, "", id="installed for all"),
        pytest.param(True, "PATH={}:$PATH ", id="a virtual environment activated in this terminal alone"),
    ],
)
def test_a_second_terminal_of_a_kept_cluster_finds_drawbar(monkeypatch, programs, environment, path):
    monkeypatch.setenv("PATH", str(programs))
    if environment:
        (programs.parent / "pyvenv.cfg").touch()
    assert list_hints()[0] == f"export {path.format(programs)}KUBECONFIG=/tmp/d/admin"


def list_hint_commands(control):
    """Return the commands of a kept cluster, as words."""
    where = stages.Whereabouts(
        kubeconfig=Path("/tmp/d/admin"),
        directory=Path("/tmp/d"),
        logs=Path("/tmp/d/l"),
        fabric_control=control,
    )
    lines = screens.hints(where)
    # The paths in the first command are as long as they are.
    assert all(len(line) <= 80 for line in lines if not line.startswith("  export PATH"))
    return [shlex.split(line) for line in lines if line.startswith("  drawbar ")]


@pytest.mark.parametrize("control", [Path("/tmp/drawbar-12345678/control.sock"), None])
def test_each_of_drawbars_commands_for_a_kept_cluster_is_understood(control):
    for words in list_hint_commands(control):
        assert main.parser(words[1:]).parse_args(words[1:])
    told = [words[words.index("--tell") + 1 :] for words in list_hint_commands(control) if "--tell" in words]
    assert len(told) == (2 if control else 0)
    assert all(commands.parse(commands.from_words(words)) for words in told)
