"""`drawbar mock cluster` as a command: the ready line, what is in it, and that nothing is left."""

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from drawbar.driver import main
from drawbar.driver.kube import client, config, kinds
from drawbar.mocks.cluster import cluster


@pytest.fixture
def folder():
    """Create a directory for temporary files of the command, shorter than tmp_path, for the sockets in it."""
    path = Path(tempfile.mkdtemp(prefix="d"))
    yield path
    shutil.rmtree(path)


@asynccontextmanager
async def command(folder, *arguments):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "drawbar.driver.main", "mock", "cluster", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def wait_until_ready(process):
    async with asyncio.timeout(120):
        line = await process.stdout.readline()
    if not line:
        raise AssertionError(await process.stderr.read())
    return json.loads(line)


async def end_process(process, number):
    process.send_signal(number)
    async with asyncio.timeout(120):
        return await process.wait()


def look_at_files(reported):
    assert all(Path(file).stat().st_mode & 0o777 == 0o600 for file in reported["kubeconfigs"].values())
    for node in reported["nodes"].values():
        assert Path(node["registry"]).is_dir()
        assert Path(node["sysfs"], "bus/pci/devices").is_dir()
    assert Path(reported["fabric"]["endpoint"].removeprefix("unix:")).is_socket()


def read_configuration(reported):
    return json.loads(Path(reported["fabric"]["configuration"]).read_text())


def runs(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_the_ready_line_says_where_all_is_and_sigint_ends_all(folder):
    kubeconfigs = folder / "mine"
    account = "default:my-driver:node-2"
    arguments = ("--nodes=2", f"--kubeconfig-dir={kubeconfigs}", f"--service-account={account}")
    async with command(folder, *arguments) as process:
        reported = await wait_until_ready(process)
        assert reported["ready"] is True
        assert Path(reported["kubeconfig"]) == kubeconfigs / "admin.kubeconfig"
        assert reported["kubeconfigs"]["my-driver-node-2"].startswith(str(kubeconfigs))
        async with client.connecting(config.load(reported["kubeconfig"])) as api:
            nodes = await api.list_all(kinds.NODE, into=dict)
        assert (
            [node["metadata"]["name"] for node in nodes.items]
            == list(reported["nodes"])
            == ["node-1", "node-2"]
        )
        look_at_files(reported)
        assert set(reported["pids"]) == {"apiserver", "fabric", "scheduler", "kubelet"}
        assert all(runs(pid) for pid in reported["pids"].values())
        assert await end_process(process, signal.SIGINT) == 0
    assert not any(runs(pid) for pid in reported["pids"].values())
    assert list(folder.iterdir()) == []


async def test_with_daemons_our_driver_publishes_the_pool_of_the_file_and_sigterm_ends_all(folder):
    device = {"id": "d1", "class": "nvme", "serial": "S1", "pciVendor": "0x144d", "pciDevice": "0xa824"}
    fabric = folder / "fabric.json"
    fabric.write_text(json.dumps({"enclosures": [{"id": "box", "devices": [device]}], "attachSeconds": 0.1}))
    async with command(folder, "--daemons", f"--fabric={fabric}") as process:
        reported = await wait_until_ready(process)
        assert {"controller", "node-1"} <= reported["pids"].keys()
        async with client.connecting(config.load(reported["kubeconfig"])) as api:
            slices = await api.list_all(kinds.SLICE, into=dict)
        assert [published["spec"]["pool"]["name"] for published in slices.items] == [f"{cluster.FABRIC}/box"]
        assert read_configuration(reported)["attachSeconds"] == 0.1
        assert await end_process(process, signal.SIGTERM) == 0
    assert not any(runs(pid) for pid in reported["pids"].values())
    assert list(folder.iterdir()) == [fabric]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--nodes=0",), "a cluster of doubles has 1 to 16 nodes, not 0"),
        (("--fabric=/none.json",), "/none.json cannot be read"),
        (("--service-account=x",), "service account 'x' is not NAMESPACE:NAME"),
        (("--poll-seconds=0",), "the scheduler cannot look every 0.0 seconds"),
        (("--profile=0.1",), "invalid choice: '0.1'"),
        (("--kubeconfig-dir=/dev/null/x",), "cannot be put into /dev/null/x"),
        (("--fabric=hosts.json",), "leave hosts out"),
    ],
)
def test_contradictory_options_are_one_sentence(folder, monkeypatch, capsys, arguments, words):
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    (folder / "hosts.json").write_text(json.dumps({"hosts": [{"id": "h1"}]}))
    monkeypatch.chdir(folder)
    try:
        status = main.main(["mock", "cluster", *arguments])
    except SystemExit as refused:
        status = refused.code
    output, complaints = capsys.readouterr()
    assert (status not in (0, None), output) == (True, "")
    assert words in complaints
    assert "Traceback" not in complaints
