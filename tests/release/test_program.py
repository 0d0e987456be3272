"""The self-contained program of a release: what is in it, that it runs alone, and that a broken one is refused."""

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import krew
import program
import pytest

SECONDS = 600


def list_locked_packages(name):
    """Return the packages that a list of deploy/image names."""
    lines = (program.ROOT / "deploy" / "image" / name).read_text().splitlines()
    return {line.split("==")[0] for line in lines if "==" in line}


@pytest.fixture(scope="module")
def built_program(tmp_path_factory):
    """Return the folder with the script's results, made in the environment of a new machine."""
    folder = tmp_path_factory.mktemp("program")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run(
        [sys.executable, program.ROOT / "release" / "program.py", folder],
        env=environment,
        check=True,
        capture_output=True,
        timeout=SECONDS,
    )
    return folder


@pytest.fixture(scope="module")
def unpacked_program(built_program, tmp_path_factory):
    """Return the folder with the files that krew unpacks."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(built_program / f"{program.stem()}.tar.gz") as tar:
        tar.extractall(folder, filter="data")
    return folder


@pytest.mark.tool("chart")
@pytest.mark.timeout(SECONDS)
def test_the_archive_is_one_that_krew_installs(built_program):
    archive = built_program / f"{program.stem()}.tar.gz"
    assert krew._hash_archive(archive) == hashlib.sha256(archive.read_bytes()).hexdigest()
    with tarfile.open(archive) as tar:
        assert {(member.mtime, member.uid, member.uname) for member in tar.getmembers()} == {
            (program.EPOCH, 0, "")
        }


@pytest.mark.tool("chart")
@pytest.mark.timeout(SECONDS)
def test_the_program_has_every_package_of_the_image_and_no_double(unpacked_program, built_program):
    names = zipfile.ZipFile(unpacked_program / program.NAME).namelist()
    assert any(name.startswith("drawbar/proto/") for name in names)
    assert not [name for name in names if name.startswith(("drawbar/mocks", "drawbar/fabric/qemu"))]
    bill = json.loads((built_program / f"{program.stem()}.cdx.json").read_text())
    listed = {component["name"] for component in bill["components"]}
    assert listed == list_locked_packages("requirements.txt")


@pytest.mark.tool("chart")
@pytest.mark.timeout(SECONDS)
def test_the_program_works_under_the_plugins_name_that_krew_gives_it(unpacked_program, tmp_path):
    plugin = tmp_path / "bin" / "kubectl-drawbar"
    plugin.parent.mkdir()
    plugin.symlink_to(unpacked_program / program.NAME)
    program.try_out(plugin)


@pytest.mark.tool("chart")
@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize(
    ("remove", "add", "words"),
    [
        pytest.param("drawbar/fabric/redfish/", {}, "redfish", id="without an adapter"),
        pytest.param("drawbar/proto/", {}, "drawbar.proto", id="without a portion"),
        pytest.param("kubernetes/", {}, "kubernetes", id="without what reads a kubeconfig"),
        pytest.param("drawbar/driver/cli/status/", {}, "drawbar.driver.cli.status", id="without a verb"),
        pytest.param(None, {"drawbar/mocks/__init__.py": ""}, "the doubles are in it", id="with the doubles"),
    ],
)
def test_a_program_that_is_not_whole_is_refused(unpacked_program, tmp_path, remove, add, words):
    broken = tmp_path / program.NAME
    whole = (unpacked_program / program.NAME).read_bytes()
    with zipfile.ZipFile(unpacked_program / program.NAME) as before:
        # The line that names the interpreter stands before the archive.
        broken.write_bytes(whole[: whole.index(b"\n") + 1])
        with zipfile.ZipFile(broken, "a", zipfile.ZIP_DEFLATED) as after:
            for entry in before.infolist():
                if remove is None or not entry.filename.startswith(remove):
                    after.writestr(entry, before.read(entry))
            for name, text in add.items():
                after.writestr(name, text)
    broken.chmod(0o755)
    with pytest.raises(program.ProgramError, match=words):
        program.try_out(broken)


def test_a_program_that_does_not_start_is_refused_with_its_output(tmp_path):
    broken = tmp_path / program.NAME
    broken.write_text("#!/bin/sh\necho no interpreter >&2\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(program.ProgramError, match=r"ended with 3, not 0: no interpreter"):
        program.try_out(broken)


@pytest.mark.parametrize(
    ("silent", "words"),
    [("--help", "--help printed"), ("--version", "--version printed"), ("status", "status --help printed")],
)
def test_a_program_with_wrong_output_is_refused(tmp_path, silent, words):
    broken = tmp_path / program.NAME
    printed = "drawbar 0.1.0: usage: drawbar status"
    broken.write_text(f'#!/bin/sh\ncase "$1" in -c) ;; {silent}) ;; *) echo "{printed}";; esac\n')
    broken.chmod(0o755)
    with pytest.raises(program.ProgramError, match=words):
        program.try_out(broken)


def test_there_is_no_program_for_a_machine_that_was_not_thought_of(monkeypatch, capsys):
    monkeypatch.setattr(program.platform, "machine", lambda: "riscv64")
    with pytest.raises(program.ProgramError, match="no program is made for linux on riscv64"):
        program.stem()


def test_the_programs_maker_is_pinned_with_its_hashes():
    text = (program.ROOT / "requirements-release.txt").read_text()
    assert text.startswith("pex==")
    assert text.count("--hash=sha256:") >= 1
    assert "://" not in text


def test_a_step_that_fails_ends_it_with_one_sentence(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(program, "ROOT", Path(tmp_path))
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.1.0"\n')
    assert program.main([str(tmp_path / "out")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert "deploy/image/install" in captured.err
