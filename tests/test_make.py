"""`make storm` runs every part, whatever becomes of the others."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PARTS = ("the controller", "classic negotiation", "the redfish adapter")
# Stands in for pytest: fails for the arguments that are named in the environment.
PYTEST = """#!/bin/sh
echo "ran $*"
case "$*" in *"$FAILING"*) exit 1;; esac
"""


@pytest.fixture
def storm(tmp_path):
    """`storm(failing)`: makes the storm, in which the tests of that path fail; returns the run."""
    pytest_file = tmp_path / "bin" / "pytest"
    pytest_file.parent.mkdir()
    pytest_file.write_text(PYTEST)
    pytest_file.chmod(0o755)
    (tmp_path / ".installed").touch()

    def run(failing):
        return subprocess.run(
            ["make", "--no-print-directory", "storm", f"VENV={tmp_path}", "SEED=5", "EXAMPLES=3"],
            cwd=ROOT,
            env=os.environ | {"FAILING": failing},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.parametrize(
    ("failing", "part"),
    [
        ("tests/driver/storm", "the controller"),
        ("test_negotiation_property", "classic negotiation"),
        ("test_random_steps", "the redfish adapter"),
    ],
)
def test_a_part_of_the_storm_that_fails_is_named_and_the_others_are_run(storm, failing, part):
    run = storm(failing)
    assert run.returncode != 0
    assert run.stdout.count("ran ") == len(PARTS)
    assert f"failed in: {part}\n" in run.stderr
    assert f"storm: {part} FAILED" in run.stdout


def test_a_storm_without_failures_prints_its_seed_and_ends_well(storm):
    run = storm("no such test")
    assert run.returncode == 0
    assert [f"storm: {part} passed" in run.stdout for part in PARTS] == [True] * len(PARTS)
    assert "every part passed with SEED=5" in run.stdout
