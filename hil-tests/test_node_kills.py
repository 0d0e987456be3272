"""A node daemon that is killed, without a chance to tidy up, at every stage of a device's time on its node.

It is killed when the kernel, a file or the attachment shows that the stage is reached; then another one goes on.
"""

import contextlib
import signal

import pytest
import pytest_asyncio
from lab import daemons as litters
from lab import handover, waiting, worker

from drawbar.mocks.apiserver import faults

pytestmark = pytest.mark.asyncio(loop_scope="session")

FLAGS = ("--release-next", "1")
"""A second between two steps of a release, so that there is a moment between them."""
FUNCTION = "0000:01:00.0"
DEVICE = f"/sys/bus/pci/devices/{FUNCTION}"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def litter(node, lab):
    async with litters.raising(node, lab.logs / "forkserver.log") as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def daemon(litter):
    """Return the daemon of the node, started if it does not run."""
    if litter.pid is None:
        await litter.start(*FLAGS)
    return litter


@contextlib.asynccontextmanager
async def holding(node, *command):
    """Run a program that has the disk open while the context lasts."""
    async with node.guest.process(
        *command, "sh", "-c", "exec 3< /dev/nvme0n1; echo open; sleep 600"
    ) as process:
        await process.says("open")
        yield
        await process.signal(signal.SIGKILL)
        await process.wait()


async def lend(node, name):
    return await handover.attach_device(node, await node.chassis.disk(name), "port-1")


async def release(node, lent):
    await handover.give_back(node, lent)
    assert await node.slot("1") == ("0", "0")


async def test_killed_before_the_attach_it_finds_the_disk_that_came_meanwhile(node, daemon):
    lent = await handover.intend_attachment(node, await node.chassis.disk("killed-a"), "port-1")
    assert await daemon.end() == -signal.SIGKILL
    await handover.connect(node, lent)
    await daemon.start(*FLAGS)
    await node.cluster.visible(lent.device)
    await release(node, lent)


async def test_killed_while_it_powers_a_slot_the_device_becomes_visible(node, daemon):
    lent = await handover.intend_attachment(node, await node.chassis.memory("killed-b"), "cxl-1")
    async with daemon.killing("waits", "pciehp_sysfs_enable_slot"):
        await handover.connect(node, lent)
    await daemon.start(*FLAGS)
    await node.cluster.visible(lent.device)
    assert await node.slot("101") == ("1", "1")
    await handover.give_back(node, lent)
    assert await node.slot("101") == ("0", "0")


async def test_killed_while_a_driver_is_bound_the_disk_becomes_visible(node, daemon):
    lent = await handover.intend_attachment(node, await node.chassis.disk("killed-c"), "port-1")
    # So that it is the daemon that asks for the driver.
    await node.guest.write("/sys/bus/pci/drivers_autoprobe", "0\n")
    try:
        async with daemon.killing("event", "add", "nvme0"):
            await handover.connect(node, lent)
    finally:
        await node.guest.write("/sys/bus/pci/drivers_autoprobe", "1\n")
    await daemon.start(*FLAGS)
    assert (await node.cluster.visible(lent.device))["kernelDriver"] == "nvme"
    await release(node, lent)


async def test_a_restarted_daemon_does_not_report_a_visible_disk_again(node, daemon):
    lent = await lend(node, "killed-d")
    before = await node.cluster.condition(lent.device, "Visible")
    await daemon.end()
    await daemon.start(*FLAGS)
    assert await node.cluster.condition(lent.device, "Visible") == before
    await release(node, lent)


async def test_a_disk_pulled_while_the_daemon_is_down_is_reported_lost(node, daemon):
    lent = await lend(node, "killed-e")
    await daemon.end()
    await node.chassis.pull(lent.card)
    await daemon.start(*FLAGS)
    lost = await waiting.until(
        lambda: node.cluster.condition(lent.device, "Visible"),
        lambda condition: condition["status"] == "False",
    )
    assert lost["reason"] == "DeviceLost"
    await release(node, lent)


async def test_killed_while_it_prepares_a_claim_the_pod_has_its_disk(node, daemon):
    lent = await lend(node, "killed-f")
    async with daemon.killing("file", "/run/cdi"):
        await node.cluster.pod("pod-kf", lent.name, node=node.name)
    await daemon.start(*FLAGS)
    pod = await node.cluster.running_pod("pod-kf")
    done = await node.run_in_container(pod, "head", "-n", "1", "/dev/nvme0n1")
    assert done.output == f"this is {lent.name}\n"
    await node.cluster.end_pod("pod-kf")
    # A draft that no process finished is hidden from runtimes, and goes when it is old.
    left = await node.cdi_files()
    assert [name for name in left if not name.startswith(".")] == []
    for name in left:
        await node.guest.output("rm", f"/run/cdi/{name}")
    await release(node, lent)


async def test_killed_while_a_container_uses_a_disk_it_is_released_after_its_users(node, daemon):
    lent = await lend(node, "killed-g")
    await node.cluster.pod("pod-kg", lent.name, node=node.name)
    pod = await node.cluster.running_pod("pod-kg")
    spec = f"{worker.KUBELET}/pods/{pod['metadata']['uid']}/config.json"
    async with holding(node, *node.guest.module("lab.container", spec, "--")):
        await daemon.end()
        await node.cluster.begin_release(lent.device)
        await daemon.start(*FLAGS)
        await handover.wait_for_refusal(node, lent, saying="the kubelet has the device prepared")
        await node.cluster.end_pod("pod-kg")
        await handover.wait_for_refusal(node, lent, saying="held by pid")
        assert await node.guest.leads_to(f"{DEVICE}/driver") is not None
    await node.cluster.deallocate(lent.name)
    await handover.take_back(node, lent)
    assert await node.slot("1") == ("0", "0")


async def test_killed_while_it_waits_for_users_it_sees_that_they_are_gone(node, daemon):
    lent = await lend(node, "killed-h")
    async with holding(node):
        await handover.ask_back(node, lent)
        await handover.wait_for_refusal(node, lent, saying="held by pid")
        await daemon.end()
    await daemon.start(*FLAGS)
    await handover.take_back(node, lent)
    assert await node.slot("1") == ("0", "0")


async def test_killed_after_the_driver_was_unbound_it_knows_the_disk_without_a_serial_number(node, daemon):
    lent = await lend(node, "killed-i")
    async with daemon.killing("event", "unbind", FUNCTION):
        await handover.ask_back(node, lent)
    assert await node.guest.leads_to(f"{DEVICE}/driver") is None
    assert FUNCTION in await node.guest.names("/sys/bus/pci/devices")
    await daemon.start(*FLAGS)
    await handover.take_back(node, lent)
    assert await node.slot("1") == ("0", "0")


async def test_killed_after_the_function_was_removed_it_switches_the_slot_off(node, daemon):
    lent = await lend(node, "killed-j")
    async with daemon.killing("event", "remove", FUNCTION):
        await handover.ask_back(node, lent)
    assert FUNCTION not in await node.guest.names("/sys/bus/pci/devices")
    assert await node.slot("1") == ("1", "1")
    await daemon.start(*FLAGS)
    await handover.take_back(node, lent)
    assert await node.slot("1") == ("0", "0")


async def test_killed_while_the_slot_is_switched_off_the_device_is_released(node, daemon):
    lent = await lend(node, "killed-k")
    async with daemon.killing("waits", "pciehp_sysfs_disable_slot"):
        await handover.ask_back(node, lent)
    await daemon.start(*FLAGS)
    await handover.take_back(node, lent)
    assert await node.slot("1") == ("0", "0")


async def test_the_next_daemon_reports_the_release_of_a_killed_one(node, daemon):
    lent = await lend(node, "killed-l")
    reported = node.cluster.server.faults.add(
        faults.Fault(
            select=faults.Selection(
                user="*:drawbar-node", verb="patch", resource="deviceattachments", name=lent.device.attachment
            ),
            effect=faults.Refusal(code=503),
        )
    )

    async def slot():
        return await node.slot("1")

    async def refusals():
        return reported.struck

    await handover.ask_back(node, lent)
    await waiting.until(slot, lambda state: state == ("0", "0"))
    before = reported.struck
    await waiting.until(refusals, lambda count: count > before)
    await daemon.end()
    reported.lift()
    await daemon.start(*FLAGS)
    await handover.take_back(node, lent)
