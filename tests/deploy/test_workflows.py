"""The workflows of the forge: what they run is there, what they use is pinned, and they may do no more than they need."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))


def jobs(path):
    """Return the jobs of the workflow by name."""
    return yaml.safe_load(path.read_text())["jobs"]


def steps(path):
    """Return the steps of all jobs of the workflow."""
    return [step for job in jobs(path).values() for step in job["steps"]]


def make_targets():
    """Return the targets that the Makefile declares as phony."""
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    return set(phony[1].split())


def made(path):
    """Return the targets of make that the workflow runs."""
    return {
        target
        for step in steps(path)
        for target in re.findall(r"^\s*(?:sudo )?make ([\w-]+)", step.get("run", ""), re.MULTILINE)
    }


def test_every_change_passes_the_tests_and_the_chart_and_every_night_kubernetes_and_the_lab():
    by_name = {path.stem: made(path) for path in WORKFLOWS}
    assert by_name["ci"] == {"test", "chart"}
    assert by_name["nightly"] == {"kubernetes", "hil"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_only_targets_that_the_makefile_has(path):
    assert made(path) <= make_targets()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_by_a_full_commit_hash_beside_its_version(path):
    lines = re.findall(r"^\s*(?:- )?uses: (.*)$", path.read_text(), re.MULTILINE)
    assert len(lines) == sum("uses" in step for step in steps(path))
    for line in lines:
        assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*", line), line


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_job_has_a_deadline_and_names_its_permissions(path):
    assert yaml.safe_load(path.read_text())["permissions"] == {}
    for name, job in jobs(path).items():
        assert 0 < job["timeout-minutes"] <= 240, name
        assert job["permissions"] == {"contents": "read"}, name


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_script_is_one_that_bash_can_parse(path):
    for step in steps(path):
        subprocess.run(["bash", "-n"], input=step.get("run", ""), text=True, check=True, timeout=30)
