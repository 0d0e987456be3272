"""A disk with its user's data on its way back: erased, tainted meanwhile, and kept where it cannot be erased."""

import asyncio
import threading

import pytest
from tests.driver.flows.lab import drawbar_fabric

from drawbar.driver.api import attachments
from drawbar.driver.kube import kinds
from drawbar.driver.node import errors
from drawbar.driver.node.classes import nvme
from drawbar.driver.node.local import selections
from drawbar.fabric import contract
from drawbar.mocks import sysfs


class Disks:
    """Erases disks once it is let; a mocked host's have nothing to erase themselves."""

    def __init__(self):
        self.let, self.error, self.erased = threading.Event(), None, []

    def eraser(self, host, card):
        def erase(report):
            report("sanitizing /dev/nvme0, 40 % done")
            assert self.let.wait(60)
            if self.error is not None:
                raise self.error
            self.erased.append(card.serial)

        return erase


@pytest.fixture
def disks(monkeypatch):
    made = Disks()
    monkeypatch.setattr(nvme.Nvme, "eraser", lambda _, host, card: made.eraser(host, card))
    yield made
    made.let.set()


async def read_release_report(cluster, device):
    """Return the node's report of the device's release, as reason and message; None before."""
    attachment = (await cluster.attachments()).get(device, {})
    report_text = attachment.get("status", {}).get("conditions", ())
    return next(
        ((part["reason"], part["message"]) for part in report_text if part["type"] == attachments.RELEASED),
        None,
    )


async def test_a_disk_is_erased_before_another_pod_gets_it(flow_lab, disks):
    async with flow_lab("1.36", devices=1) as cluster:
        await cluster.pod("first")
        _, (device,) = await cluster.wait_until_running("first")
        serial = (await cluster.attachments())[device]["spec"]["identity"]["serial"]
        await cluster.api.delete(kinds.POD, "first", namespace="default")
        await cluster.until(lambda: read_release_report(cluster, device), lambda value: value is not None)
        assert await read_release_report(cluster, device) == ("Cleaning", "sanitizing /dev/nvme0, 40 % done")
        await cluster.wait_for_taints(device, "cleaning=:NoSchedule")
        assert device in await cluster.list_connections()
        await cluster.pod("second")
        disks.let.set()
        _, devices = await cluster.wait_until_running("second")
        assert (devices, disks.erased) == ([device], [serial])


async def test_a_disk_that_cannot_be_erased_stays_until_an_administrator_lets_it_go(flow_lab, disks):
    disks.error = errors.NotCleaned("/dev/nvme0 is not erased, so no other user gets it: it is broken")
    disks.let.set()
    async with flow_lab("1.36", devices=1) as cluster:
        await cluster.pod("first")
        _, (device,) = await cluster.wait_until_running("first")
        await cluster.api.delete(kinds.POD, "first", namespace="default")
        await cluster.wait_for_taints(device, "not-cleaned=:NoSchedule")
        assert await read_release_report(cluster, device) == ("NotCleaned", str(disks.error))
        name = (await cluster.attachments())[device]["metadata"]["name"]
        await cluster.change(kinds.ATTACHMENT, name, spec={"clean": "reset"})
        await cluster.is_free(device)
        assert disks.erased == []


async def test_a_disk_that_left_a_silent_node_by_force_is_erased_by_the_next(flow_lab, disks, capsys):
    disks.let.set()
    async with flow_lab("1.36", devices=1) as cluster:
        await cluster.until(cluster.slices, bool)
        (device,) = (await cluster.fabric.devices()).devices

        async def unclean():
            fabric = await cluster.api.read(kinds.FABRIC, "fab", into=dict)
            return fabric["status"].get("unclean", [])

        assert await drawbar_fabric(cluster, "attach", device.id, "node-1") == 0
        await cluster.until(
            cluster.attachments, lambda value: value[device.id]["status"].get("phase") == "Ready"
        )
        assert "unclean" not in (await cluster.attachments())[device.id]["spec"]
        await cluster.stop("node-1")
        assert await drawbar_fabric(cluster, "detach", device.id, "--force") == 0
        assert (await unclean(), disks.erased) == ([device.id], [])
        await cluster.wait_for_event_about(f"fab.{device.id}", "LeftUnclean")

        cluster.start_node("node-1")
        await cluster.pod("next")
        await cluster.wait_until_running("next")
        assert (await cluster.attachments())[device.id]["spec"]["unclean"] is True
        assert disks.erased == [device.serial], "before its user has it"
        await cluster.api.delete(kinds.POD, "next", namespace="default")
        await cluster.is_free(device.id)
        assert (await unclean(), disks.erased) == ([], [device.serial] * 2)
        capsys.readouterr()


SSD = sysfs.MockDevice(device_class=contract.DeviceClass.NVME, vendor=0x1B36, device=0x10, serial="OWN1")
OWN_DISKS = {"local_pool": selections.Selection(classes=("nvme",), slots=("*",))}


async def local_taints(cluster):
    """Return the taint keys of the nodes' own devices, by the device's name."""
    listed = (await cluster.api.list_all(kinds.SLICE, into=dict)).items
    return {
        device["name"]: [taint["key"] for taint in device.get("taints", ())]
        for entry in listed
        if entry["spec"].get("nodeName")
        for device in entry["spec"].get("devices", ())
    }


async def test_a_disk_of_a_node_goes_to_the_next_pod_when_nothing_of_the_last_is_left(flow_lab, disks):
    async with flow_lab("1.36", devices=0, node=OWN_DISKS) as cluster:
        tree = cluster.trees["node-1"]
        # The node sees its host's processes, of which none uses the disk.
        processes = tree.root.parent / "proc"
        (processes / "self" / "ns").mkdir(parents=True)
        (processes / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
        await asyncio.to_thread(tree.attach, 1, SSD)
        await cluster.until(lambda: local_taints(cluster), lambda value: value == {"nvme-own1": []})
        await cluster.pod("first")
        assert await cluster.wait_until_running("first") == ("node-1", ["nvme-own1"])
        disks.error = errors.NotCleaned("the disk refuses a format: its freeze lock is set")
        await cluster.api.delete(kinds.POD, "first", namespace="default")
        await cluster.wait_until_gone("first")
        await cluster.until(lambda: local_taints(cluster), has_only_taint("cleaning"))
        await cluster.pod("second")
        await cluster.wait_for_event_about("second", "FailedScheduling")
        disks.let.set()
        await cluster.until(lambda: local_taints(cluster), has_only_taint("not-cleaned"))
        # It is so for the next daemon, too.
        disks.let.clear()
        disks.error = None
        await cluster.stop("node-1")
        cluster.start_node("node-1", **OWN_DISKS)
        await cluster.until(lambda: local_taints(cluster), has_only_taint("cleaning"))
        assert disks.erased == []
        disks.let.set()
        assert await cluster.wait_until_running("second") == ("node-1", ["nvme-own1"])
        assert disks.erased == ["OWN1"]
        assert await local_taints(cluster) == {"nvme-own1": []}


def has_only_taint(key):
    """Return a check whether the disk has that taint alone."""
    return lambda value: value == {"nvme-own1": [f"drawbar.dev/{key}"]}
