"""How the lab is run: what is installed, what runs beside what, the messages where nothing could be tested."""

import shutil
import subprocess
from pathlib import Path

import pytest
from lab import sessions

pytestmark = pytest.mark.short

TOOLS = ("bash", "cut", "dirname", "env", "nice", "tail", "timeout", "true")
RECORDING = """#!/bin/bash
echo "$(basename "$0") $*" >>"{folder}/calls"
"""


class Host:
    """A machine as `hil-tests/install` sees it: the programs of one folder, and no others."""

    def __init__(self, folder):
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir()
        for tool in (*TOOLS, "basename"):
            self.bin.joinpath(tool).symlink_to(shutil.which(tool))
        self.has("id", 'echo "${FAKE_UID:-0}"')
        for program in ("apt-cache", "apt-get", "dpkg-deb", "mkfs.ext4", "python3", "setpriv"):
            self.has(program)
        (folder / "cache/drawbar-lab/linux-image-1").mkdir(parents=True)

    def has(self, program, does="", status=0):
        path = self.bin / program
        path.write_text(RECORDING.format(folder=self.folder) + f"{does}\nexit {status}\n")
        path.chmod(0o755)

    def environment(self, uid=0):
        return {"PATH": str(self.bin), "XDG_CACHE_HOME": str(self.folder / "cache"), "FAKE_UID": str(uid)}

    def install(self, uid=0):
        """Return the status, the output, and the calls of apt-get."""
        done = subprocess.run(
            [str(sessions.INSTALL)],
            check=False,
            env=self.environment(uid),
            capture_output=True,
            text=True,
            timeout=60,
        )
        calls = self.folder / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        asked = [line.rpartition("Timeout=120 ")[2] for line in lines if line.startswith("apt-get")]
        return done.returncode, done.stderr, asked


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


QEMU = "install -y --no-install-recommends qemu-system-x86"


def test_where_nothing_is_missing_nothing_is_installed(host):
    host.has("qemu-system-x86_64")
    assert host.install(uid=1000) == (0, "", [])


def test_root_installs_the_missing_packages(host):
    status, reported, asked = host.install()
    assert (status, asked) == (0, ["update", QEMU])
    assert "apt-get install qemu-system-x86" in reported


def test_sudo_installs_where_it_asks_nothing(host):
    host.has("sudo", 'shift; exec "$@"')
    assert host.install(uid=1000)[::2] == (0, ["update", QEMU])


@pytest.mark.parametrize("sudo", [True, False])
def test_a_user_without_rights_is_shown_the_install_command(host, sudo):
    if sudo:
        host.has("sudo", status=1)
    status, reported, asked = host.install(uid=1000)
    assert (status, asked) == (1, [])
    by_hand = "apt-get update && apt-get install --no-install-recommends qemu-system-x86"
    assert reported == f"error: the lab needs packages, and only root may install them: {by_hand}\n"


def test_without_package_lists_and_kernel_the_lists_are_fetched(host):
    host.has("qemu-system-x86_64")
    shutil.rmtree(host.folder / "cache")
    host.has("apt-cache", status=1)
    assert host.install()[::2] == (0, ["update"])


def test_an_error_of_apt_is_quoted(host):
    host.has("apt-get", "echo Reading; echo E: no such mirror >&2", status=100)
    status, reported, _ = host.install()
    assert status == 1
    assert "apt-get update failed (E: no such mirror): is the package mirror reachable?" in reported


def test_a_machine_without_apt_is_told_so(host):
    (host.bin / "apt-get").unlink()
    assert host.install()[:2] == (
        1,
        "error: the lab takes QEMU and its kernel from Debian, and this machine has no apt-get\n",
    )


def test_a_box_holds_every_line_whole(host):
    text = sessions.box(["a " * 80, "b" * 150, "c"], width=60)
    lines = text.splitlines()
    assert {len(line) for line in lines} == {60}
    assert text.count("a") == 80 and text.count("b") == 150  # noqa: PT018  (two counts of one text)


async def test_an_unavailable_lab_is_reported_last_and_fails_no_run(host, monkeypatch, capfd):
    for name, value in host.environment(uid=1000).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("DRAWBAR_HIL", raising=False)
    assert await sessions.run_commands_and_tests(["true"], ["--version"], folder=host.folder) == 0
    reported = capfd.readouterr().err.splitlines()
    assert reported[-1].startswith("+--")
    box = reported[max(number for number, line in enumerate(reported[:-1]) if line.startswith("+--")) :]
    text = " ".join(line.strip("| ") for line in box)
    assert "NOT TESTED: the node daemon on a real kernel" in text
    assert "apt-get install --no-install-recommends qemu-system-x86" in text


async def test_a_lab_that_fails_is_the_status_and_shows_its_output(monkeypatch, capfd, tmp_path):
    monkeypatch.setenv("DRAWBAR_HIL", "off")
    assert await sessions.run_commands_and_tests(["true"], ["nowhere"], folder=tmp_path) == 4
    reported = capfd.readouterr().err
    assert "ended with status 4" in reported
    assert "file or directory not found: nowhere" in reported


@pytest.mark.parametrize("fails", [True, False])
async def test_consoles_and_logs_are_kept_where_a_test_fails(fails, monkeypatch, capfd, tmp_path):
    monkeypatch.delenv(sessions.LOGS, raising=False)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    saying = tmp_path / "test_saying.py"
    saying.write_text(
        "import os, pathlib\ndef test_it():\n"
        f"    pathlib.Path(os.environ['{sessions.LOGS}'], 'w.console.log').write_text('last words')\n"
        f"    assert {not fails}\n"
    )
    assert await sessions.pytest([str(saying)], {}, folder=tmp_path) == fails
    kept = [path.read_text() for path in tmp_path.glob("drawbar-hil-logs-*/w.console.log")]
    assert kept == ["last words"] * fails
    assert len(list(tmp_path.glob("drawbar-hil-logs-*"))) == fails
    assert (str(tmp_path / "drawbar-hil-logs-") in capfd.readouterr().err) is fails


async def test_a_failing_command_ends_the_lab_and_skips_later_commands(monkeypatch, tmp_path):
    monkeypatch.setenv("DRAWBAR_HIL", "off")
    waiting = tmp_path / "test_waiting.py"
    waiting.write_text("import time\ndef test_it():\n    time.sleep(300)\n")
    # Where the lab's pytest gets so far before it is ended, it would leave what it compiled.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    status = await sessions.run_commands_and_tests(
        ["false", f"touch {tmp_path / 'never'}"], [str(waiting)], folder=tmp_path
    )
    assert status == 1
    assert names(tmp_path) == ["test_waiting.py"], "neither the second command's file nor the lab's"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_every_file_with_tests_is_in_one_half():
    files = names(Path(__file__).parent)
    tests = [name for name in files if name.startswith("test_") and name.endswith(".py")]
    first, second = sessions.halves(tests)
    assert sorted(first + second) == [f"hil-tests/{name}" for name in tests]
    assert len(second) == 3, "a file that was renamed"
