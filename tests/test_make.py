"""`make storm` runs every part even if one fails, and `make demo` installs only the packages of the demo."""

import os
import pathlib
import re
import subprocess

import pytest
from packaging import utils
from tests.scenes import packages

ROOT = pathlib.Path(__file__).parents[1]
PARTS = ("the controller", "classic negotiation", "the redfish adapter")
# Stands in for pytest: fails for the arguments that are named in the environment.
PYTEST = """#!/bin/sh
echo "ran $*"
case "$*" in *"$FAILING"*) exit 1;; esac
"""


@pytest.fixture
def storm(tmp_path):
    """Return a function: `storm(failing)` makes the storm, in which the tests of that path fail."""
    pytest_file = tmp_path / "bin" / "pytest"
    pytest_file.parent.mkdir()
    pytest_file.write_text(PYTEST)
    pytest_file.chmod(0o755)
    # `make` compares times: the second follows from the first.
    (tmp_path / ".demo").touch()
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


def read_locked_versions(file):
    """Return the versions of a lock file by package."""
    lines = (ROOT / file).read_text().splitlines()
    found = (re.match(r"([A-Za-z0-9._-]+)==(\S+)", line) for line in lines)
    return {utils.canonicalize_name(match[1]): match[2] for match in found if match}


def test_the_demo_installs_its_dependencies_and_no_development_tools():
    demo, everything = (
        read_locked_versions("requirements-demo.txt"),
        read_locked_versions("requirements-dev.txt"),
    )
    assert demo.items() <= everything.items()
    assert demo.keys() == packages.list_dependencies("drawbar[mocks]", "hatchling") - {"drawbar"}
    assert not {"mypy", "hypothesis", "pytest", "ruff"} & demo.keys()


def test_make_demo_does_not_install_the_packages_for_development(tmp_path):
    run = subprocess.run(
        ["make", "--no-print-directory", "-n", "demo", f"VENV={tmp_path / 'venv'}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "-r requirements-demo.txt" in run.stdout
    assert "requirements-dev.txt" not in run.stdout


def test_pip_is_renewed_before_it_installs_the_demo(tmp_path):
    run = subprocess.run(
        ["make", "--no-print-directory", "-n", "demo", f"VENV={tmp_path / 'venv'}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert read_locked_versions("requirements-pip.txt").keys() == {"pip"}
    assert 0 < run.stdout.index("-r requirements-pip.txt") < run.stdout.index("-r requirements-demo.txt")
