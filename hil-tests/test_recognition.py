"""Accelerators that are all alike and show no identifier, at a fabric that names no slots: each is known by its arrival alone.

The memory of each begins with its name, so the tests see whether a node took one for another.
"""

import sys

import pytest
import pytest_asyncio
from lab import handover, plane, waiting

pytestmark = pytest.mark.asyncio(loop_scope="session")

DEVICES = "/sys/bus/pci/devices"
GIVE_UP_SECONDS = 120.0
"""The node gives a device up 60 s after the attach."""
# Run on the node: what the card's memory begins with.
READS = """
import mmap, sys
with open(sys.argv[1], "r+b") as file, mmap.mmap(file.fileno(), 4096) as memory:
    print(memory.readline().decode(), end="")
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pool(lab, node):
    async with plane.giving_out(node, lab.folder, disks=0, twins=2, names_slots=False) as made:
        yield made


async def content(node, address):
    await node.guest.write(f"{DEVICES}/{address}/enable", "1\n")
    return await node.guest.output(sys.executable, "-c", READS, f"{DEVICES}/{address}/resource2")


async def cards(node):
    """Return the addresses of the accelerators that the kernel shows."""
    names = await node.guest.names(DEVICES)
    models = {name: await node.guest.read(f"{DEVICES}/{name}/device") for name in names}
    return sorted(name for name, model in models.items() if model.strip() == "0x1110")


async def wait_for_reports(pool, *pods):
    """Wait until all pods run, and return each attached device's report of its node."""
    for pod in pods:
        await pool.cluster.running_pod(pod, seconds=120)
    attached = await pool.attachments()
    return {name: attachment["status"]["node"] for name, attachment in attached.items()}


async def end(pool, node, *pods):
    for pod in pods:
        await node.cluster.end_pod(pod)
    await waiting.until(pool.attachments, lambda attachments: not attachments)
    assert await cards(node) == []


async def test_twins_that_are_attached_one_after_the_other_are_each_known_by_arrival(pool, node):
    await pool.pod("first", device_class="accelerator")
    before = await wait_for_reports(pool, "first")
    await pool.pod("second", device_class="accelerator")
    reports = await wait_for_reports(pool, "first", "second")
    assert sorted(reports) == ["twin-0", "twin-1"]
    for name, report in reports.items():
        assert report["recognisedBy"]["kind"] == "sole-arrival"
        assert await content(node, report["pciAddress"]) == f"{name}\n"
    ((name, report),) = before.items()
    assert reports[name]["pciAddress"] == report["pciAddress"]
    await end(pool, node, "first", "second")


async def test_twins_that_are_asked_for_at_once_are_attached_one_after_the_other(pool, node):
    for pod in ("third", "fourth"):
        await pool.pod(pod, device_class="accelerator")

    async def reasons():
        attached = (await pool.attachments()).values()
        conditions = (
            each for attachment in attached for each in attachment.get("status", {}).get("conditions", ())
        )
        return {condition["reason"] for condition in conditions}

    await waiting.until(reasons, lambda shown: "AttachQueued" in shown)
    assert len(await cards(node)) <= 1
    reports = await wait_for_reports(pool, "third", "fourth")
    assert sorted(reports) == ["twin-0", "twin-1"]
    for name, report in reports.items():
        assert report["recognisedBy"]["kind"] == "sole-arrival"
        assert await content(node, report["pciAddress"]) == f"{name}\n"
    await end(pool, node, "third", "fourth")


async def test_twins_that_arrive_at_once_are_not_recognised(node):
    twins = {f"port-{number}": await node.chassis.accelerator(f"alike-{number}") for number in (1, 2)}
    lent = [await handover.intend_attachment(node, card, port) for port, card in twins.items()]
    for each in lent:
        await waiting.until(
            lambda each=each: node.cluster.attachment(each.device),
            lambda attachment: attachment.get("status", {}).get("baseline"),
        )
    for each in lent:
        await handover.connect(node, each)
    for each in lent:
        reported = await waiting.until(
            lambda each=each: node.cluster.condition(each.device, "Visible"),
            seconds=GIVE_UP_SECONDS,
        )
        assert (reported["status"], reported["reason"]) == ("False", "DeviceNotRecognised")
        assert "0000:01:00.0" in reported["message"]
        assert "0000:02:00.0" in reported["message"]
        assert "recognisedBy" not in (await node.cluster.attachment(each.device))["status"].get("node", {})
    assert await cards(node) == ["0000:01:00.0", "0000:02:00.0"]
    for each in lent:
        await handover.ask_back(node, each)
        await node.cluster.wait_until_released(each.device)
        await node.chassis.pull(each.card)
        await node.cluster.end_release(each.device)
    assert await cards(node) == []
