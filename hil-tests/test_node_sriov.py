"""Virtual functions on a real kernel: QEMU's NVMe controller has some, with a driver and a device file each."""

import signal

import pytest
from lab import errors, handover, waiting

pytestmark = pytest.mark.asyncio(loop_scope="session")

FUNCTIONS = 2
DEVICES = "/sys/bus/pci/devices"
OWN, FIRST = "0000:02:00.0", "0000:02:00.1"


async def functions(node):
    return [name for name in await node.guest.names(DEVICES) if name.startswith("0000:02:")]


async def test_a_device_is_released_only_after_its_virtual_function_is_free(node):
    lent = await handover.attach_device(
        node, node.chassis.controller("disk-v", functions=FUNCTIONS), "port-2"
    )
    await node.guest.write(f"{DEVICES}/{OWN}/sriov_numvfs", f"{FUNCTIONS}\n")
    assert await functions(node) == [OWN, FIRST, "0000:02:00.2"]
    with pytest.raises(errors.GuestFailure, match="Errno 16"):
        await node.guest.write(f"{DEVICES}/{OWN}/sriov_numvfs", "1\n")
    await node.guest.output(*node.guest.module("lab.functions", "/dev/nvme0", str(FUNCTIONS)))
    await node.guest.write("/sys/bus/pci/drivers_probe", f"{FIRST}\n")
    await waiting.until(lambda: node.guest.names(f"{DEVICES}/{FIRST}/nvme/nvme1"))
    async with node.guest.process("sh", "-c", "exec 3< /dev/nvme1; echo open; sleep 600") as user:
        await user.says("open")
        await handover.ask_back(node, lent)
        reported = await handover.wait_for_refusal(node, lent, saying="/dev/nvme1")
        assert f"held by pid {user.pid}" in reported["message"]
        assert (await node.guest.read(f"{DEVICES}/{OWN}/sriov_numvfs")).strip() == str(FUNCTIONS)
        await user.signal(signal.SIGKILL)
        await user.wait()
    await handover.take_back(node, lent)
    assert await functions(node) == []
    assert await node.slot("2") == ("0", "0")
