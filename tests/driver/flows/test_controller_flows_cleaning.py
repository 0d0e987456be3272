"""A disk with its user's data on its way back: erased, tainted meanwhile, and kept where it cannot be erased."""

import threading

import pytest

from drawbar.driver.api import attachments
from drawbar.driver.kube import kinds
from drawbar.driver.node import errors
from drawbar.driver.node.classes import nvme


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


async def released(cluster, device):
    """What its node reports of the device's release, as reason and message; None before."""
    attachment = (await cluster.attachments()).get(device, {})
    said = attachment.get("status", {}).get("conditions", ())
    return next(
        ((part["reason"], part["message"]) for part in said if part["type"] == attachments.RELEASED), None
    )


async def test_a_disk_is_erased_before_another_pod_gets_it(flow_lab, disks):
    async with flow_lab("1.36", devices=1) as cluster:
        await cluster.pod("first")
        _, (device,) = await cluster.running("first")
        serial = (await cluster.attachments())[device]["spec"]["identity"]["serial"]
        await cluster.api.delete(kinds.POD, "first", namespace="default")
        await cluster.until(lambda: released(cluster, device), lambda value: value is not None)
        assert await released(cluster, device) == ("Cleaning", "sanitizing /dev/nvme0, 40 % done")
        await cluster.tainted(device, "cleaning=:NoSchedule")
        assert device in await cluster.connected()
        await cluster.pod("second")
        disks.let.set()
        _, given = await cluster.running("second")
        assert (given, disks.erased) == ([device], [serial])


async def test_a_disk_that_cannot_be_erased_stays_until_an_administrator_lets_it_go(flow_lab, disks):
    disks.error = errors.NotCleaned("/dev/nvme0 is not erased, so no other user gets it: it is broken")
    disks.let.set()
    async with flow_lab("1.36", devices=1) as cluster:
        await cluster.pod("first")
        _, (device,) = await cluster.running("first")
        await cluster.api.delete(kinds.POD, "first", namespace="default")
        await cluster.tainted(device, "not-cleaned=:NoSchedule")
        assert await released(cluster, device) == ("NotCleaned", str(disks.error))
        name = (await cluster.attachments())[device]["metadata"]["name"]
        await cluster.change(kinds.ATTACHMENT, name, spec={"clean": "reset"})
        await cluster.is_free(device)
        assert disks.erased == []
