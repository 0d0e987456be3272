"""Devices of a fabric manager instead of the electrician: the simulated fabric, behind its own adapter, and this machine."""

import dataclasses
import io
import json
import os
import sys
from pathlib import Path

import pytest
from field import configuration, fabric_devices, node, preflight, session
from lab import errors, waiting

CHECKOUT = Path(__file__).parents[1]
HERE = configuration.Node(name="here", host="node-1", command=("sh", "-c"), checkout=str(CHECKOUT))
FABRIC = {
    "hosts": [{"id": "node-1", "ports": 1}],
    "enclosures": [
        {
            "id": "e",
            "devices": [
                {"id": name, "class": "nvme", "serial": f"S-{name}"} for name in ("d1", "d2", "foreign")
            ],
        }
    ],
    "attachFails": [{"device": "d2", "times": 1}],
}
pytestmark = [pytest.mark.short, pytest.mark.drawbar(fabric=FABRIC)]


@pytest.fixture
def site(drawbar_fabric):
    return configuration.Site(
        fabric=configuration.Fabric(adapter="grpc", endpoint=drawbar_fabric.endpoint),
        node=HERE,
        devices=tuple(configuration.Device(id=name, device_class="nvme") for name in ("d1", "d2")),
    )


async def test_a_listed_device_is_attached_and_detached_and_a_failure_is_told(site):
    async with session.fabric(site) as adapter:
        inventory = await adapter.devices()
        assert preflight.judge(site, await adapter.capabilities(), await adapter.hosts(), inventory) == ()
        assigned = fabric_devices.Assigned()
        plugs = fabric_devices.FabricDevices(adapter, site, inventory, assigned)
        assigned.fill(site.devices)
        first, second = await plugs.disk("a"), await plugs.disk("b")
        assert (first.name, first.serial, second.serial) == ("a", "S-d1", "S-d2")
        await plugs.plug(first, "port-1")
        assert await plugs.list_attached_devices() == ("d1",)
        problems = preflight.judge(
            site, await adapter.capabilities(), await adapter.hosts(), await adapter.devices()
        )
        assert [problem.partition(":")[0] for problem in problems] == [
            "the host node-1 has no free port",
            "d1 is attached to node-1",
        ]
        with pytest.raises(errors.LabError, match="the attach of d2 was refused"):
            await plugs.plug(second, "port-2")
        await plugs.out(first)
        assert await plugs.list_attached_devices() == ()
        with pytest.raises(errors.LabError, match="the attach of d2 failed"):
            await plugs.plug(second, "port-2")


async def test_a_fabric_that_is_slower_than_the_file_allows_is_told(site):
    async with session.fabric(site) as adapter:
        assigned = fabric_devices.Assigned()
        hurried = dataclasses.replace(site, attach_seconds=0.000001)
        assigned.fill(site.devices)
        plugs = fabric_devices.FabricDevices(adapter, hurried, await adapter.devices(), assigned)
        with pytest.raises(errors.LabError, match="the attach of d1 took more than"):
            await plugs.plug(await plugs.disk("a"), "port-1")


async def test_a_node_is_its_files_and_programs_by_a_command_with_a_shell(tmp_path):
    about = dataclasses.replace(HERE, checkout=str(CHECKOUT))
    async with node.connecting(about, tmp_path / "agent.log") as reached:
        assert reached.boot_id == (await reached.read("/proc/sys/kernel/random/boot_id")).strip()
        await reached.make_folder(str(tmp_path / "there"))
        await reached.write(str(tmp_path / "there/file"), "content")
        assert (await reached.output("cat", str(tmp_path / "there/file"))) == "content"
        done = await reached.run(*reached.module("lab.container"))
        assert done.status != 0, "there is no pod"
        async with reached.process(
            sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"
        ) as left:
            await left.says("up")
            assert lives(left.pid)

    async def has_ended():
        return not lives(left.pid)

    # With the agent ends what it started, and no process is left to wait for that.
    await waiting.until(has_ended)


def lives(pid):
    return Path(f"/proc/{pid}/exe").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="a node must be reached as root, and here that is this machine")
async def test_without_a_yes_nothing_is_touched(drawbar_fabric, tmp_path, monkeypatch, capsys):
    path = tmp_path / "site.yaml"
    site = {
        "fabric": {"adapter": "grpc", "endpoint": drawbar_fabric.endpoint},
        "node": {"name": "here", "host": "node-1", "command": ["sh", "-c"], "checkout": str(CHECKOUT)},
        "devices": [{"id": "d1", "class": "nvme"}],
    }
    path.write_text(json.dumps(site))
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert await session.run(path, yes=False) == session.NOT_RUN
    output, reported = capsys.readouterr()
    assert "not confirmed with yes" in reported
    assert "d1 (nvme, unknown model, serial S-d1): attached and detached by" in output
    assert "foreign" not in output
    left_out = output.partition("are left out:")[2]
    assert "test_node_nvme.py::test_two_disks" in left_out
    assert "test_node_nvme.py::test_a_disk_that_is_mounted" in left_out, "nothing may be overwritten"
    assert drawbar_fabric.journal() == []
