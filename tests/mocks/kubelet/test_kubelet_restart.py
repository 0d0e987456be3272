"""What a kubelet forgets and remembers: restarts, reboots, the state file, and a killed process."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import zlib

import pytest

from drawbar.driver import main
from drawbar.driver.kube import kinds
from drawbar.mocks.kubelet import errors

EMPTY = '{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","Entries":null}'


async def test_a_restarted_kubelet_does_not_call_prepare_for_a_pod_whose_sandbox_stands(world):
    async with world.kubelets() as kubelets, world.plugin() as plugin:
        await plugin.wait_for_registration()
        await world.pod("p1", "c1")
        await world.runs()
        await kubelets.restart("node-a")
        await plugin.wait_for_registration()
        await world.pod("p2", "c2")
        await world.runs("p2")
        await world.delete(kinds.POD, "p1")
        await world.wait_until_pod_gone()
    assert plugin.calls == [("prepare", ["c1"]), ("prepare", ["c2"]), ("unprepare", ["c1"])]


async def test_after_a_restart_the_next_sandbox_is_prepared_again(world):
    async with world.kubelets() as kubelets, world.plugin() as plugin:
        await plugin.wait_for_registration()
        pod = await world.pod("p1", "c1")
        await world.runs()
        await plugin.next_call()
        node = await kubelets.restart("node-a")
        await plugin.wait_for_registration()
        node.kill_sandbox(pod["metadata"]["uid"])
        assert await plugin.next_call() == ("prepare", ["c1"])
        assert kubelets["node-a"] is node


async def test_without_a_restart_a_new_sandbox_needs_no_call(world):
    async with world.kubelet() as node, world.plugin() as plugin:
        await plugin.wait_for_registration()
        pod = await world.pod("p1", "c1")
        await world.runs()
        (world.directory / "cdi" / "claim.json").unlink()
        node.kill_sandbox(pod["metadata"]["uid"])
        await world.event("Failed", "unresolvable")
        world.write_cdi()
        await world.wait_for_containers(node, pod)
    assert plugin.prepares == [["c1"]]


async def test_after_a_restart_a_container_is_made_in_the_old_sandbox_without_a_call(world):
    (world.directory / "cdi" / "claim.json").unlink()
    async with world.kubelets() as kubelets, world.plugin() as plugin:
        await plugin.wait_for_registration()
        await world.pod("p1", "c1")
        await world.event("Failed", "unresolvable")
        await kubelets.stop("node-a")
        world.write_cdi()
        await kubelets.start("node-a")
        await world.runs()
    assert plugin.prepares == [["c1"]]


async def test_a_rebooted_node_has_a_new_boot_id_and_prepares_its_pods_again(world):
    def write_again(claims):
        world.write_cdi()
        return world.all_prepared(claims)

    async with world.kubelets() as kubelets, world.plugin(write_again) as plugin:
        await plugin.wait_for_registration()
        await world.pod("p1", "c1")
        await world.runs()
        await plugin.next_call()
        before = await world.api.read(kinds.NODE, "node-a", into=dict)
        await kubelets.stop("node-a")
        (world.directory / "boot_id").unlink()
        await kubelets.start("node-a")
        assert await plugin.next_call() == ("prepare", ["c1"])
        after = await world.api.read(kinds.NODE, "node-a", into=dict)
    assert before["status"]["nodeInfo"]["bootID"] != after["status"]["nodeInfo"]["bootID"]
    assert plugin.prepares == [["c1"], ["c1"]]


async def test_a_second_prepare_adds_its_devices_to_those_of_the_first(world):
    async with world.kubelets() as kubelets, world.plugin() as plugin:
        await plugin.wait_for_registration()
        pod = await world.pod("p1", "c1")
        await world.runs()
        await plugin.next_call()
        node = await kubelets.restart("node-a")
        await plugin.wait_for_registration()
        node.kill_sandbox(pod["metadata"]["uid"])
        await world.wait_for_containers(node, pod)
    (entry,) = world.state()
    devices = entry["DriverState"]["drawbar.dev"]["Devices"]
    assert [device["DeviceName"] for device in devices] == ["slot-1", "slot-1"]
    assert world.runtime_spec(pod)["process"]["env"] == ["DRAWBAR=1", "DEVICE=slot-1"]


async def test_the_state_file_is_the_real_kubelets(world):
    async with world.kubelet(), world.plugin() as plugin:
        await plugin.wait_for_registration()
        pod = await world.pod("p1", "c1")
        await world.runs()
    content = json.loads((world.directory / "dra_manager_state").read_text())
    assert content["Checksum"] == zlib.crc32(content["Data"].encode())
    data = json.loads(content["Data"])
    claim = await world.api.read(kinds.CLAIM, "c1", into=dict, namespace="default")
    assert (data["kind"], data["apiVersion"]) == ("DRACheckpoint", "checkpoint.dra.kubelet.k8s.io/v1")
    assert data["Entries"] == [
        {
            "ClaimUID": claim["metadata"]["uid"],
            "ClaimName": "c1",
            "Namespace": "default",
            "PodUIDs": {pod["metadata"]["uid"]: {}},
            "DriverState": {
                "drawbar.dev": {
                    "Devices": [
                        {
                            "PoolName": "chassis-1",
                            "DeviceName": "slot-1",
                            "ShareID": None,
                            "RequestNames": ["one"],
                            "CDIDeviceIDs": ["drawbar.dev/claim=slot-1"],
                        }
                    ]
                }
            },
        }
    ]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(json.dumps({"Data": EMPTY, "Checksum": 7}), id="checksum"),
        pytest.param('{"Data":"{', id="cut-off"),
        pytest.param("", id="empty"),
    ],
)
async def test_a_corrupt_state_file_keeps_the_kubelet_from_starting(world, content):
    (world.directory / "dra_manager_state").write_text(content)
    with pytest.raises(errors.StateError, match="drain node and remove DRA state file"):
        async with world.kubelet():
            raise AssertionError


async def test_a_kubelet_that_cannot_be_started_again_leaves_the_others_running(world):
    async with world.kubelets() as kubelets:
        await kubelets.stop("node-a")
        (world.directory / "dra_manager_state").write_text("{}")
        with pytest.raises(errors.StateError):
            await kubelets.start("node-a")
        assert list(kubelets) == []
        (world.directory / "dra_manager_state").unlink()
        await kubelets.start("node-a")
        assert list(kubelets) == ["node-a"]


async def test_a_state_file_that_says_null_is_an_empty_one(world):
    stored = {"Data": EMPTY, "Checksum": zlib.crc32(EMPTY.encode())}
    (world.directory / "dra_manager_state").write_text(json.dumps(stored))
    async with world.kubelet() as node:
        assert node.plugins.drivers() == []


class Process:
    """`drawbar mock kubelet` as a process."""

    def __init__(self, world, *options):
        self.command = [sys.executable, "-m", "drawbar.driver.main", "mock", "kubelet"]
        self.command += [
            "--kubeconfig",
            str(world.kubeconfig),
            "--node",
            f"node-a={world.directory}",
            *options,
        ]

    async def __aenter__(self):
        self.child = await asyncio.create_subprocess_exec(
            *self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)
        )
        return self

    async def wait_until_ready(self):
        async with asyncio.timeout(120):
            return json.loads(await self.child.stdout.readline())

    async def kill(self):
        self.child.send_signal(signal.SIGKILL)
        await self.child.communicate()

    async def __aexit__(self, *error):
        if self.child.returncode is None:
            await self.kill()


async def test_a_killed_kubelet_is_as_one_that_was_restarted(world):
    times = ["--time", "reconcile=0.05", "--time", "retry_first=0.05"]
    async with world.plugin() as plugin:
        async with Process(world, *times) as process:
            assert await process.wait_until_ready() == {"ready": True, "nodes": ["node-a"]}
            await plugin.wait_for_registration()
            pod = await world.pod("p1", "c1")
            await world.runs()
            await plugin.next_call()
            await process.kill()
        async with world.kubelet() as node:
            await plugin.wait_for_registration()
            node.kill_sandbox(pod["metadata"]["uid"])
            assert await plugin.next_call() == ("prepare", ["c1"])
            await world.delete(kinds.POD, "p1")
            await world.wait_until_pod_gone()
    assert plugin.unprepares == [["c1"]]


@pytest.mark.parametrize(
    ("option", "words"),
    [
        pytest.param("wiping", "is not NAME=VALUE", id="no-value"),
        pytest.param("coffee=1", "there is no time 'coffee'; there are watch, reconcile, ", id="unknown"),
        pytest.param("wiping=soon", "could not convert", id="no-number"),
        pytest.param("wiping=-1", "wiping cannot be negative", id="negative"),
    ],
)
def test_a_wrong_time_is_one_sentence(tmp_path, capsys, option, words):
    arguments = ["--kubeconfig", "none", "--node", f"node-a={tmp_path}", "--time", option]
    assert main.main(["mock", "kubelet", *arguments]) == 2
    complaints = capsys.readouterr().err
    assert words in complaints
    assert complaints.count("\n") == 1


async def test_a_corrupt_state_file_is_one_sentence(world):
    (world.directory / "dra_manager_state").write_text("{")
    async with Process(world) as process, asyncio.timeout(120):
        _, reported = await process.child.communicate()
    assert process.child.returncode == 1
    assert "drain node and remove DRA state file" in reported.decode()
    assert reported.decode().count("\n") == 1
