"""The whole way: a pod asks, the controller attaches through QEMU, the node's kernel sees it, the pod reads it."""

import pytest
import pytest_asyncio
from lab import plane, waiting

from drawbar.driver.kube import kinds

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pool(lab, node):
    async with plane.giving_out(node, lab.folder) as made:
        yield made


async def device_of(pool):
    """Wait until one device is attached; return its name and its attachment."""
    attached = await waiting.until(pool.attachments, lambda value: len(value) == 1)
    return next(iter(attached.items()))


async def no_attachment(pool):
    await waiting.until(pool.attachments, lambda value: not value)


async def test_a_pod_gets_a_disk_from_the_qemu_fabric_and_gives_it_back(pool, node):
    await pool.pod("one")
    pod = await node.cluster.running_pod("one")
    name, attachment = await device_of(pool)
    done = await node.run_in_container(pod, "head", "-n", "1", "/dev/nvme0n1")
    assert done.output == f"pooled disk {name.rpartition('-')[2]}\n"
    assert attachment["status"]["node"]["kernelDriver"] == "nvme"
    await node.cluster.end_pod("one")
    await no_attachment(pool)
    slot = attachment["status"]["node"]["slot"]
    assert await node.slot(slot) == ("0", "0")
    assert await node.guest.names("/sys/class/nvme") == []


async def test_a_disk_that_is_pulled_is_tainted_until_its_claim_is_released(pool, node):
    await pool.pod("two")
    await node.cluster.running_pod("two")
    name, _attachment = await device_of(pool)
    there = await node.guest.monitor.ask("qom-list", {"path": "/machine/peripheral"})
    (pulled,) = [entry["name"] for entry in there if name in entry["name"]]
    await node.guest.monitor.ask("device_del", {"id": pulled})
    taints = await waiting.until(lambda: pool.taints(name))
    assert any(taint.endswith(":NoExecute") for taint in taints), taints
    # The eviction double ends the pod, and with the claim's release the device is whole again.
    await waiting.until(lambda: node.cluster.read(kinds.POD, "two"), lambda pod: pod is None)
    await no_attachment(pool)
    await waiting.until(lambda: pool.taints(name), lambda taints: not taints)
