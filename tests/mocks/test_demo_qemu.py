"""`drawbar demo --adapter qemu` up to the moment when a machine would boot."""

import asyncio
import os
import sys

import pytest

from drawbar.mocks import errors
from drawbar.mocks.demo import laboratory

SIMULATED = {"--nodes": None, "--attach-seconds": None, "--detach-seconds": None}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pods": 0}, ["--pods 0"]),
        ({"pods": 5}, ["--pods 5", "1 to 4 pods"]),
        ({"options": {**SIMULATED, "--nodes": 2}}, ["--nodes is for the simulated fabric alone"]),
        (
            {"options": {**SIMULATED, "--attach-seconds": 0.0, "--detach-seconds": 1.0}},
            ["--attach-seconds is for", "--detach-seconds is for"],
        ),
        ({"deadline_seconds": 0.0, "pods": 9}, ["--deadline 0", "--pods 9"]),
    ],
)
def test_options_impossible_with_a_real_kernel_are_listed_at_once(changes, words):
    with pytest.raises(errors.UsageError) as caught:
        laboratory.validate(**({"pods": 1, "options": SIMULATED, "deadline_seconds": 1.0} | changes))
    assert all(word in str(caught.value) for word in words)


def test_the_options_of_both_fabrics_are_taken():
    laboratory.validate(pods=laboratory.MOST_PODS, options=SIMULATED, deadline_seconds=1.0)


def test_this_checkout_has_the_lab():
    assert (laboratory.find(system="linux", machine="x86_64") / "lab" / "stage.py").is_file()


@pytest.mark.parametrize(("system", "machine"), [("darwin", "x86_64"), ("linux", "aarch64")])
def test_a_machine_that_cannot_boot_itself_is_told_which_one_could(system, machine):
    with pytest.raises(errors.UsageError, match=f"this is {system} on {machine}: run it on a Debian machine"):
        laboratory.find(system=system, machine=machine)


def test_an_installed_package_says_that_it_takes_a_checkout(tmp_path):
    with pytest.raises(
        errors.UsageError, match="in a checkout of Drawbar and not in the package: run make demo"
    ):
        laboratory.find(tmp_path, system="linux", machine="x86_64")


async def demo(folder, path, *arguments):
    """Run the demo with only the programs in `path`; return its exit status, stdout and stderr."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "drawbar.driver.main", "demo", "--adapter", "qemu", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder), "PATH": str(path), "XDG_CACHE_HOME": str(folder / "cache")},
    )
    reported, complaints = await process.communicate()
    return process.returncode, reported.decode(), complaints.decode()


@pytest.fixture
def folders(tmp_path):
    """Create a directory for temporary files, and one for the host's programs."""
    temporary, programs = tmp_path / "tmp", tmp_path / "bin"
    temporary.mkdir()
    programs.mkdir()
    return temporary, programs


async def test_a_missing_qemu_is_reported_with_the_install_command(folders):
    temporary, programs = folders
    status, _output, complaints = await demo(temporary, programs)
    assert status == 2
    [line] = complaints.splitlines()
    assert line.startswith("error: qemu-system-x86_64 is not installed: apt-get install ")
    assert list(temporary.iterdir()) == []


async def test_without_debians_tools_one_sentence_says_where_the_kernel_comes_from(folders):
    temporary, programs = folders
    for name in ("qemu-system-x86_64", "setpriv", "mkfs.ext4"):
        program = programs / name
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o755)
    status, reported, complaints = await demo(temporary, programs, "--json")
    assert status == 2
    [line] = complaints.splitlines()
    assert line.startswith("error: ")
    assert "Debian" in line
    assert "apt" in line
    assert '"waiting"' in reported
    assert list(temporary.glob("drawbar-*")) == []


async def test_options_of_the_other_fabric_are_refused_before_anything_is_looked_for(folders):
    temporary, programs = folders
    status, reported, complaints = await demo(temporary, programs, "--nodes", "2", "--pods", "7")
    assert (status, reported) == (2, "")
    [line] = complaints.splitlines()
    assert "--nodes" in line
    assert "--pods 7" in line
