"""Which stages run, and the messages about those that cannot."""

import io
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from realcluster import binaries, chart_stage, errors, processes, stages


def program(folder, name):
    path = folder / name
    path.write_text(f"#!/bin/sh\necho {'v3.5.16' if name == 'etcd' else 'v1.36.2'}\n")
    path.chmod(0o755)


def stage(name, run, **more):
    return stages.Stage(name=name, title=name, run=run, **more)


@pytest.fixture
def folder(tmp_path):
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"):
        program(tmp_path, name)
    return tmp_path


def test_stages_are_chosen_by_name_and_keep_their_order():
    names = [stage.name for stage in stages.select_stages("flows, contract")]
    assert names == ["contract", "flows"]
    assert stages.select_stages("") == list(stages.STAGES)
    with pytest.raises(errors.RealClusterError, match="no stage 'flow': STAGES takes contract, flows"):
        stages.select_stages("flow")


def test_a_failed_stage_leaves_its_logs_and_the_others_run(folder, capsys):
    def fails(context):
        (context.folder / "log").write_text("why")
        return stages.Outcome(failed=True, text="one failed")

    def passes(context):
        return stages.Outcome(text="all passed")

    listed = [stage("first", fails), stage("second", passes)]
    assert stages.run(folder, "", listed=listed) == 1
    printed = capsys.readouterr().err
    assert "1.36.2 second: passed: all passed" in printed
    kept = printed.split("state and logs of first are in ")[1].splitlines()[0]
    assert (Path(kept) / "first" / "log").read_text() == "why"
    shutil.rmtree(kept)


def test_without_root_or_a_kubelet_the_rest_runs(folder, capsys, monkeypatch):
    def passes(context):
        return stages.Outcome(text="done")

    listed = [stage("nodes", passes, needs_root=True), stage("rest", passes)]
    monkeypatch.setattr(stages.kubelets.os, "geteuid", lambda: 1000)
    assert stages.run(folder, "", listed=listed) == 0
    assert "nodes: skipped: kubelets need root" in capsys.readouterr().err
    monkeypatch.setattr(stages.kubelets.os, "geteuid", lambda: 0)
    assert stages.run(folder, "", listed=listed) == 0
    printed = capsys.readouterr().err
    assert "nodes: skipped: in" in printed
    assert "kubelet is not there" in printed
    assert "rest: passed" in printed


@pytest.mark.parametrize(("no_skips", "status"), [(False, 0), (True, 1)])
def test_a_run_without_skips_fails_where_a_stage_cannot_run(folder, capsys, no_skips, status):
    listed = [
        stage("nodes", lambda context: stages.Outcome(skipped=True, text="no root")),
        stage("rest", lambda context: stages.Outcome(text="done")),
    ]
    assert stages.run(folder, "", no_skips=no_skips, listed=listed) == status
    printed = capsys.readouterr().err
    assert "nodes: skipped: no root" in printed
    assert "rest: passed" in printed
    assert ("error: nodes did not run" in printed) == no_skips


@pytest.mark.parametrize(("variable", "strict"), [("STAGES=contract,flows", True), ("STAGES=", False)])
def test_make_kubernetes_allows_no_skips_of_the_stages_that_it_is_asked_for(variable, strict):
    words = ["make", "--dry-run", "kubernetes", "KUBERNETES_BIN=/bin", variable]
    printed = subprocess.run(
        words, cwd=stages.CHECKOUT, capture_output=True, text=True, check=True, timeout=60
    )
    assert "run.py kubernetes" in printed.stdout
    assert ('--stages "contract,flows" --no-skips' in printed.stdout) == strict
    assert ("--no-skips" in printed.stdout) == strict


def test_a_component_that_fails_fails_the_stage_with_its_words(folder, capsys):
    def fails(context):
        raise errors.ComponentFailed("etcd ended; its log")

    assert stages.run(folder, "", listed=[stage("one", fails)]) == 1
    assert "one: FAILED: etcd ended" in capsys.readouterr().err


WAITS_FOR_ITS_READER = """
import pathlib, time

def test_first():
    pass

def test_goes_on_once_the_first_was_shown():
    deadline = time.monotonic() + 60
    while not pathlib.Path({seen!r}).exists():
        assert time.monotonic() < deadline, "the first test's dot is shown"
        time.sleep(0.01)
"""


def test_the_output_of_pytest_is_shown_test_by_test_and_kept(tmp_path, monkeypatch):
    seen = tmp_path / "seen"
    file = tmp_path / "test_two.py"
    file.write_text(WAITS_FOR_ITS_READER.format(seen=str(seen)))

    class Screen(io.BytesIO):
        def write(self, reported):
            if b"." in reported:
                seen.touch()
            return super().write(reported)

    screen = Screen()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(screen))
    made = stages.Context(installed=None, folder=tmp_path)
    outcome = made.pytest([str(file)], {}, seconds=120)
    assert not outcome.failed, screen.getvalue()
    assert outcome.text.startswith("2 passed in ")
    assert (tmp_path / "summary.txt").read_bytes() == screen.getvalue()


BESIDE = """
import sys
print("binaries of", sys.argv[2], "stages", *sys.argv[4:])
sys.exit({status})
"""


@pytest.mark.parametrize("no_skips", [False, True])
@pytest.mark.parametrize("status", [0, 1])
def test_stages_that_run_beside_others_are_shown_and_fail_the_run(
    folder, tmp_path, capsys, monkeypatch, status, no_skips
):
    def passes(context):
        return stages.Outcome(text="done")

    program = tmp_path / "run.py"
    program.write_text(BESIDE.format(status=status))
    monkeypatch.setattr(stages, "RUN", program)
    listed = [
        stage("first", passes, beside=True),
        stage("second", passes),
        stage("third", passes, beside=True),
    ]
    assert stages.run(folder, "", no_skips=no_skips, listed=listed) == status
    printed = capsys.readouterr().err
    assert f"binaries of {folder} stages first,third{' --no-skips' if no_skips else ''}\n" in printed
    assert printed.endswith("1.36.2 second: passed: done\n")


@pytest.mark.parametrize(
    ("text", "skipped"),
    [
        pytest.param("", True, id="no test"),
        pytest.param("import pytest\n@pytest.mark.skip\ndef test_a(): pass\n", True, id="all are skipped"),
        pytest.param(
            "import pytest\n@pytest.mark.skip\ndef test_a(): pass\ndef test_b(): pass\n", False, id="some run"
        ),
    ],
)
def test_a_stage_in_which_no_test_ran_is_skipped(tmp_path, text, skipped):
    file = tmp_path / "test_nothing.py"
    file.write_text(text)
    outcome = stages.Context(installed=None, folder=tmp_path).pytest([str(file)], {}, seconds=120)
    assert not outcome.failed
    assert outcome.skipped == skipped


def test_stages_of_one_kind_run_in_this_process(folder, capsys):
    def passes(context):
        return stages.Outcome(text="done")

    listed = [stage("first", passes, beside=True), stage("second", passes, beside=True)]
    assert stages.run(folder, "", listed=listed) == 0
    assert "1.36.2 second: passed: done" in capsys.readouterr().err


def test_an_invalid_helm_engine_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAWBAR_HELM", str(tmp_path))
    release = binaries.Release(major=1, minor=36)
    installed = binaries.Binaries(
        folder=tmp_path, release=release, etcd=tmp_path, etcd_release=release, has_kubelet=True
    )
    outcome = chart_stage.run(stages.Context(installed=installed, folder=tmp_path))
    assert outcome.failed
    assert f"DRAWBAR_HELM={tmp_path} is no program" in outcome.text


async def test_waiting_ends_without_problems_and_an_unreadable_state_is_one():
    answers = [["one"], errors.RealClusterError("no answer"), []]

    async def problems():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    await stages.settle(problems, 60, pause_seconds=0)
    assert answers == []


async def test_problems_left_at_the_deadline_are_named():
    async def problems():
        return ["pod a is Pending", "pod b is Pending"]

    with pytest.raises(errors.RealClusterError, match="pod a is Pending; pod b is Pending"):
        await stages.settle(problems, 0.01, pause_seconds=0)


async def test_nobody_waits_for_a_component_that_has_ended(tmp_path):
    async def problems():
        return ["not ready"]

    ended = processes.Component("node", ["/bin/true"], tmp_path / "log")
    with pytest.raises(errors.ComponentFailed, match="node ended"):
        await stages.settle(problems, 60, pause_seconds=0, depends=ended)
