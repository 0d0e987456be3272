"""Two machines at one fabric: a device goes from one to the other."""

import pytest
import pytest_asyncio
from lab import machine, plane, waiting, worker

pytestmark = pytest.mark.asyncio(loop_scope="session")

OTHER = machine.Machine(name="worker-2", ports=2, memory_mib=1536)
MARK = "written on worker-1"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def other(lab, node):
    """Yield another node of the same cluster."""
    async with (
        lab.guest(OTHER) as guest,
        worker.working(guest, node.cluster, folder=lab.folder, logs=lab.logs) as made,
    ):
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pool(lab, node, other):
    async with plane.giving_out(node, lab.folder, other_nodes=[other], disks=1) as made:
        yield made


async def test_a_disk_moves_to_another_node_without_its_data(pool, node, other):
    await pool.pod("pod-here", node=node.name)
    pod = await pool.cluster.running_pod("pod-here")
    script = f"printf '{MARK}\\n' | dd of=/dev/nvme0n1 conv=notrunc,fsync status=none"
    done = await node.run_in_container(pod, "sh", "-c", script)
    assert done.status == 0, done.errors
    assert await other.guest.names("/sys/class/nvme") == []
    # The second pod waits for the disk that the first one has.
    await pool.pod("pod-there", node=other.name)
    await node.cluster.end_pod("pod-here")
    pod = await pool.cluster.running_pod("pod-there")
    assert pod["spec"]["nodeName"] == other.name
    assert await node.guest.names("/sys/class/nvme") == []
    done = await other.run_in_container(pod, "head", "-c", "4096", "/dev/nvme0n1")
    assert set(done.output) == {"\0"}
    await other.cluster.end_pod("pod-there")
    await waiting.until(pool.attachments, lambda attachments: not attachments)
    assert await other.slot("1") == ("0", "0")
