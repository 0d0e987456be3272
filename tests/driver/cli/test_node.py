"""What a user or an administrator can get wrong with `drawbar node` and `drawbar discover`: one sentence, no traceback."""

import asyncio
import contextlib
import json
import logging
import signal
import socket
import sys
from pathlib import Path

import pytest
import yaml

from drawbar.driver import main
from drawbar.driver.kube import client, config, kinds
from drawbar.mocks import apiserver, sysfs

CRD = Path(__file__).parents[3] / "deploy" / "drawbar" / "definitions" / "deviceattachments.yaml"
RBAC = "rbac.authorization.k8s.io"


@pytest.fixture
def root_logger():
    """Yield the root logger, and restore it afterwards: the verbs configure logging for their process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def options(tmp_path, root_logger):
    """Return options of a node daemon that would run if its API server answered."""
    sysfs.SysfsTree.create(tmp_path / "sys")
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(content))
    return {
        "--node-name": "node-1",
        "--pod-uid": "",
        "--kubeconfig": tmp_path / "kubeconfig",
        "--kubelet-dir": tmp_path / "k",
        "--cdi-dir": tmp_path / "cdi",
        "--sysfs": tmp_path / "sys",
        "--uevents": f"unix:{tmp_path / 'uevents'}",
    }


def words(options):
    return [f"{name}={value}" for name, value in options.items()]


def one_sentence(text):
    """Return the error, after checking that it stands alone on stderr."""
    lines = [line for line in text.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, text
    assert "Traceback" not in text
    assert lines[0] == text.splitlines()[-1]
    return lines[0]


CASES = {
    "no-node-name": ({"--node-name": ""}, 2, "NODE_NAME"),
    "node-name-that-selects-others": (
        {"--node-name": "a,b"},
        2,
        "--node-name 'a,b' is not the name of a node",
    ),
    "driver-name-with-a-slash": ({"--driver-name": "a/b"}, 2, "--driver-name 'a/b'"),
    "driver-name-too-long": ({"--driver-name": "a" * 64}, 2, "at most 63"),
    "uid-with-a-slash": ({"--pod-uid": "../x"}, 2, "--pod-uid"),
    "timeout-of-zero": ({"--visible-timeout": "0"}, 2, "--visible-timeout"),
    "timeout-that-is-no-number": ({"--visible-timeout": "nan"}, 2, "--visible-timeout"),
    "timeout-without-end": ({"--visible-timeout": "inf"}, 2, "--visible-timeout"),
    "timeout-in-words": ({"--visible-timeout": "soon"}, 2, "--visible-timeout: 'soon' is not a number"),
    "no-form-of-a-log": ({"--log-format": "xml"}, 2, "--log-format: 'xml' is not one of text, json"),
    "http-for-the-world": ({"--http-address": "0.0.0.0:80"}, 2, "only this host"),
    "no-configuration-file": (
        {"--config": "/nonexistent"},
        2,
        "cannot read the configuration file /nonexistent",
    ),
    "relative-directory": ({"--cdi-dir": "cdi"}, 2, "--cdi-dir cdi is not an absolute path"),
    "no-kubeconfig": ({"--kubeconfig": "/nonexistent/kubeconfig"}, 2, "cannot read /nonexistent/kubeconfig"),
    "socket-path-too-long": ({"--kubelet-dir": "/" + "k" * 100}, 1, "choose a shorter --kubelet-dir"),
    "no-sysfs": ({"--sysfs": "/nonexistent"}, 1, "/nonexistent is not a sysfs tree"),
    "sysfs-is-a-file": ({"--sysfs": "/dev/null"}, 1, "name one with --sysfs"),
    "unknown-source-of-uevents": ({"--uevents": "smoke"}, 1, "'smoke' is not a source of uevents"),
    "no-directory-for-uevents": ({"--uevents": "unix:/nonexistent/s"}, 1, "cannot listen for uevents"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_option_of_the_node_daemon_is_one_sentence(options, capsys, case):
    changes, status, expected = CASES[case]
    assert main.main(["node", *words(options | changes)]) == status
    assert expected in one_sentence(capsys.readouterr().err)


def test_all_wrong_settings_are_listed_at_once(options, capsys):
    wrong = {"--node-name": "", "--cdi-dir": "cdi", "--visible-timeout": "-1"}
    assert main.main(["node", *words(options | wrong)]) == 2
    first, *listed = capsys.readouterr().err.splitlines()
    assert first == "error: 3 settings are wrong:"
    assert [any(option in line for line in listed) for option in wrong] == [True] * 3


@pytest.mark.parametrize("verb", ["node", "discover", "discover -o json", "discover --watch"])
def test_a_sysfs_tree_that_cannot_be_listed_is_one_sentence(options, capsys, tmp_path, verb):
    broken = tmp_path / "broken"
    (broken / "bus" / "pci").mkdir(parents=True)
    (broken / "bus" / "pci" / "devices").write_text("not a directory")
    name, *flags = verb.split()
    chosen = options if name == "node" else {"--uevents": options["--uevents"]}
    assert main.main([name, *flags, *words(chosen | {"--sysfs": broken})]) == 1
    complaint = one_sentence(capsys.readouterr().err.replace("Watching for changes; Ctrl-C ends.\n", ""))
    assert f"cannot list {broken}/bus/pci/devices" in complaint


@pytest.mark.parametrize("flags", [[], ["-o", "json"], ["--watch"]])
def test_discover_without_a_sysfs_tree_is_one_sentence(capsys, tmp_path, flags, root_logger):
    uevents = f"--uevents=unix:{tmp_path / 'uevents'}"
    assert main.main(["discover", *flags, uevents, "--sysfs", str(tmp_path / "none")]) == 1
    captured = capsys.readouterr()
    assert "is not a sysfs tree" in one_sentence(captured.err)
    assert captured.out == ""


@pytest.mark.parametrize("source", ["smoke", "unix:", "unix:/nonexistent/s", "unix:/" + "x" * 200])
def test_discover_with_a_wrong_source_of_uevents_is_one_sentence(options, capsys, source):
    sysfs_tree = options["--sysfs"]
    assert main.main(["discover", "--watch", f"--uevents={source}", f"--sysfs={sysfs_tree}"]) == 1
    one_sentence(capsys.readouterr().err)


class Node:
    """A `drawbar node` process and what it has printed so far."""

    def __init__(self, process, socket_path):
        self.process = process
        self.socket = socket_path
        self.lines = []

    async def until(self, holds):
        """Read the daemon's log until a line holds; return the line."""
        async with asyncio.timeout(120):
            while line := (await self.process.stderr.readline()).decode():
                self.lines.append(line)
                if holds(json.loads(line) if line.startswith("{") else {"message": line}):
                    return line
        raise AssertionError(f"ended without saying it: {self.lines}")

    async def ready(self):
        await self.until(lambda fields: fields["message"] == "node daemon is ready")

    async def wait_for_exit(self):
        async with asyncio.timeout(120):
            self.lines.append((await self.process.stderr.read()).decode())
            return await self.process.wait()


@contextlib.asynccontextmanager
async def starting(options):
    command = [sys.executable, "-m", "drawbar.driver.main", "node", "--log-format=json", *words(options)]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    where = Path(options["--kubelet-dir"]) / "plugins_registry" / "drawbar.dev-reg.sock"
    try:
        yield Node(process, where)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def cluster(options, user="admin"):
    """Yield the administrator's client of an API server; the node daemon calls the server as `user`."""
    async with apiserver.serving() as server:
        server.kubeconfig(Path(options["--kubeconfig"]), user)
        admin = config.from_kubeconfig(server.kubeconfig(Path(options["--sysfs"]).parent / "admin"))
        async with client.connecting(admin) as api:
            await api.create(kinds.CUSTOM_RESOURCE, yaml.safe_load(CRD.read_text()), into=dict)
            yield api


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_the_daemon_with_status_0_and_leaves_no_socket(options, number):
    async with cluster(options), starting(options) as node:
        await node.ready()
        assert node.socket.is_socket()
        node.process.send_signal(number)
        assert await node.wait_for_exit() == 0
        assert not node.socket.exists()
        assert not (node.socket.parents[2] / "uevents").exists()
        assert "Traceback" not in "".join(node.lines)


async def test_the_daemon_takes_no_huge_pages(options):
    async with cluster(options), starting(options) as node:
        await node.ready()
        status = await asyncio.to_thread(Path(f"/proc/{node.process.pid}/status").read_text)
        assert dict(line.split(":", 1) for line in status.splitlines())["THP_enabled"].strip() == "0"


async def test_a_second_daemon_with_the_same_sockets_is_refused_and_the_first_lives_on(options):
    async with cluster(options), starting(options) as first:
        await first.ready()
        async with starting(options | {"--uevents": options["--uevents"] + "2"}) as second:
            assert await second.wait_for_exit() == 1
            assert "POD_UID" in one_sentence(second.lines[-1])
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as kubelet:
            kubelet.connect(str(first.socket))


OBSTACLES = {
    "record-of-a-newer-version": (
        "k/plugins/drawbar.dev/claims/u1.json",
        '{"version": 99, "crc32": 0, "data": ""}',
        "upgrade Drawbar",
    ),
    "file-where-the-registry-is": ("k/plugins_registry", "", "plugins_registry: it is not a directory"),
    "file-where-the-plugins-are": ("k/plugins", "", "mount"),
    "kubelet-directory-is-a-file": ("k", "", "mount"),
}


@pytest.mark.parametrize("case", OBSTACLES)
async def test_files_that_are_in_the_way_are_one_sentence(options, tmp_path, case):
    name, content, expected = OBSTACLES[case]
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(content)
    async with cluster(options), starting(options) as node:
        assert await node.wait_for_exit() == 1
        complaint = node.lines[-1].partition("error: ")[2]
    assert expected in complaint
    assert "Traceback" not in "".join(node.lines)
    assert (tmp_path / name).read_text() == content


async def test_a_damaged_record_does_not_stop_the_daemon(options, tmp_path):
    file = tmp_path / "k" / "plugins" / "drawbar.dev" / "claims" / "u1.json"
    file.parent.mkdir(parents=True)
    file.write_text("{")
    async with cluster(options), starting(options) as node:
        await node.ready()
    (aside,) = file.parent.glob(f"{file.name}.corrupt-*")
    assert aside.read_text() == "{"
    assert any("moved aside" in line for line in node.lines)


async def test_a_missing_permission_is_logged_once_until_it_is_granted(options):
    async with cluster(options, "powerless") as api, starting(options) as node:
        await node.until(lambda fields: " 403 " in fields["message"])
        assert not node.socket.exists()
        binding = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "x"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "powerless"}],
        }
        kind = kinds.Kind(
            group=RBAC,
            version="v1",
            kind="ClusterRoleBinding",
            plural="clusterrolebindings",
            namespaced=False,
        )
        await api.create(kind, binding, into=dict)
        await node.ready()
    # With blanks, for a time or a port may have these digits.
    assert sum(" 403 " in line for line in node.lines) == 1


async def test_an_api_server_that_does_not_answer_is_waited_for(options):
    async with starting(options) as node:
        await node.until(lambda fields: "got no answer" in fields["message"])
        node.process.send_signal(signal.SIGTERM)
        assert await node.wait_for_exit() == 0
