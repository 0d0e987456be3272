"""The programs of `simulation.enabled`, each a process with the token that the chart gives it, on a cluster of doubles."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest
from tests.scenes import waiting

from drawbar.driver.kube import client, kinds
from drawbar.fabric import contract
from drawbar.fabric.grpc.adapter import GrpcAdapter
from drawbar.mocks import cluster, sysfs
from drawbar.mocks.testing import worlds

LABEL = "drawbar.dev/simulation"


@pytest.fixture
def folder(monkeypatch):
    """Make clusters create their directories in a path shorter than tmp_path, for the sockets in them."""
    path = Path(tempfile.mkdtemp(prefix="d"))
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    yield path
    shutil.rmtree(path)


@contextlib.asynccontextmanager
async def program(log, *words):
    """Run one of our programs with its log; terminate it at the end of the block."""
    with log.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "drawbar.driver.main", *map(str, words)),
            stdout=asyncio.subprocess.PIPE,
            stderr=file,
            env={key: value for key, value in os.environ.items() if key != "KUBECONFIG"},
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            await process.communicate()


async def wait_until_ready(process, log):
    line = await process.stdout.readline()
    assert line, log.read_text()
    return json.loads(line)


@contextlib.asynccontextmanager
async def double(log, *words):
    async with program(log, "mock", *words) as process:
        await wait_until_ready(process, log)
        yield process


async def label(api, node):
    body = {"metadata": {"labels": {LABEL: "true"}}}
    await api.patch(kinds.NODE, node, body, content=client.Patch.MERGE, into=dict)


async def test_a_pod_gets_a_pretended_device_that_outlives_the_programs_and_may_be_pulled_out(folder):
    settings = cluster.Settings(nodes=("node-1", "node-2"), daemons=False, poll_seconds=0.2)
    async with cluster.Cluster.running(settings) as world, contextlib.AsyncExitStack() as stack:
        paths, home, api = world.paths, world.paths.directory, world.api
        node = paths.node("node-1")
        tree, socket = home / "h" / "sys", home / "h" / "uevents"
        tree.parent.mkdir()
        controller, daemon = paths.account("drawbar-controller"), paths.account("drawbar-node-node-1")
        fabric = (
            *("fabric", "--listen", f"unix:{home}/f.sock", "--control", f"unix:{home}/c.sock"),
            *("--devices", "nvme=2", "--nodes", f"{LABEL}=true", "--ports", 2, "--state", home / "s"),
            *("--kubeconfig", controller),
        )
        host = (
            *("host", "--node-name", "node-1", "--root", tree, "--uevents", socket, "--slots", 2),
            *("--ready", home / "ready", "--kubeconfig", daemon),
        )
        # No node has the label when the fabric starts.
        simulated = await stack.enter_async_context(double(folder / "fabric", *fabric))
        await label(api, "node-1")
        hardware = contextlib.AsyncExitStack()
        await hardware.enter_async_context(double(folder / "host", *host))
        stack.push_async_callback(hardware.aclose)
        assert (home / "ready").exists()
        await stack.enter_async_context(
            program(
                folder / "controller",
                *("controller", "--kubeconfig", controller, "--identity", "c", "--http-address", "off"),
            )
        )
        await stack.enter_async_context(
            program(
                folder / "node",
                *("node", "--node-name", "node-1", "--kubeconfig", daemon, "--http-address", "off"),
                *("--kubelet-dir", node.kubelet, "--cdi-dir", node.cdi),
                *("--sysfs", tree, "--uevents", f"unix:{socket}"),
            )
        )
        spec = {"adapter": "grpc", "endpoint": f"unix:{home}/f.sock"}
        user = worlds.World(api)
        await user.create(kinds.FABRIC, "simulated", spec=spec)
        request = {"name": "disk", "exactly": {"deviceClassName": "nvme.drawbar.dev"}}
        await user.pod_from_template("p", {"requests": [request]})

        async def phase():
            pod = await api.read(kinds.POD, "p", namespace="default", into=dict)
            return pod.get("status", {}).get("phase")

        await waiting.until(phase, lambda value: value == "Running")
        (file,) = node.cdi.glob("*.json")
        edits = json.loads(file.read_text())["devices"][0]["containerEdits"]
        assert {each["major"] for each in edits["deviceNodes"]} <= set(range(120, 128))
        assert "/dev/nvme0n1" in {each["path"] for each in edits["deviceNodes"]}

        # The fabric and the host end and start again, the fabric without its file, as in a new pod; nothing is unplugged.
        simulated.send_signal(signal.SIGKILL)
        await simulated.wait()
        (home / "s").unlink()
        await stack.enter_async_context(double(folder / "fabric", *fabric))
        await hardware.aclose()
        await hardware.enter_async_context(double(folder / "host", *host))
        (card,) = sysfs.SysfsTree.open(tree).list_attached_cards().values()
        (attachment,) = (await api.list_all(kinds.ATTACHMENT, into=dict)).items
        assert card.serial == attachment["spec"]["identity"]["serial"]
        where = contract.AdapterConfig(name="f", endpoint=f"unix:{home}/f.sock", timeout_seconds=10)
        async with await GrpcAdapter.connect(where) as adapter:
            device = (await adapter.devices()).device(attachment["spec"]["deviceID"])
        assert device.connection.host_id == "node-1"
        assert device.connection.port_id == attachment["status"]["connection"]["port"]

        # The card is pulled out: its node daemon reports that, and the pod is evicted.
        (slot,) = sysfs.SysfsTree.open(tree).list_attached_cards()
        async with program(folder / "pull", "mock", "host", "--root", tree, "--pull", slot) as process:
            assert await process.wait() == 0, (folder / "pull").read_text()

        async def pods():
            return (await api.list_all(kinds.POD, into=dict, namespace="default")).items

        await waiting.until(pods, lambda value: not value)

        async def list_leftovers():
            left = (await api.list_all(kinds.ATTACHMENT, into=dict)).items
            return sysfs.SysfsTree.open(tree).list_attached_cards() or left

        await waiting.until(list_leftovers, lambda value: not value)
        assert not list(node.cdi.glob("*.json"))

        # A further node gets the label while everything runs: the Fabric has another host.
        await label(api, "node-2")

        async def hosts():
            return (await api.read(kinds.FABRIC, "simulated", into=dict))["status"].get("hosts")

        await waiting.until(hosts, lambda value: value == 2)
