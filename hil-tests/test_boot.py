"""A guest, its agent, and what `drawbar discover` says of its hardware."""

import json
import signal
from pathlib import Path

import pytest
from lab import errors

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.short]


async def test_a_guest_runs_debians_kernel_with_a_native_slot_for_each_port(lab, guest):
    assert (await guest.output("uname", "-r")).strip() == lab.kit.kernel.release
    slots = await guest.names("/sys/bus/pci/slots")
    ports = guest.machine.ports
    assert slots == sorted([*(str(number) for number in range(1, ports + 1)), "101"])
    assert "cxl_core" in (await guest.read("/proc/modules")) or await guest.names("/sys/bus/cxl/devices")


async def test_files_and_programs_of_a_guest_are_at_hand(guest):
    await guest.make_folder("/tmp/lab/deep")
    await guest.write("/tmp/lab/deep/file", "content", mode=0o640)
    assert await guest.read("/tmp/lab/deep/file") == "content"
    assert await guest.names("/tmp/lab") == ["deep"]
    assert await guest.names("/tmp/lab/none") == []
    assert await guest.leads_to("/proc/self") is not None
    with pytest.raises(errors.GuestFailure, match="No such file"):
        await guest.read("/tmp/lab/none")
    assert not exists("/tmp/lab"), "the host's file system stays as it is"
    done = await guest.run("sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.status, done.output, done.errors) == (3, "out\n", "err\n")
    async with guest.process("cat") as process:
        await process.write(b"through\n")
        await process.says("through")
        await process.signal(signal.SIGTERM)
        assert (await process.wait()).status == -signal.SIGTERM


async def test_a_refusal_of_the_kernel_is_reported_with_its_errno(guest):
    with pytest.raises(errors.GuestFailure, match="Errno 19"):
        await guest.write("/sys/bus/pci/slots/1/power", "0")
    with pytest.raises(errors.GuestFailure, match="Errno 2"):
        await guest.write("/sys/bus/pci/drivers/nvme/nothing", "0")


async def test_a_guest_cannot_write_to_the_host(guest):
    done = await guest.run("touch", "/host")
    assert done.status == 0, "this is the guest's own memory"
    assert not exists("/host")


async def test_discover_shows_the_ports_of_a_guest(guest, drawbar):
    shown = json.loads(await guest.output(drawbar, "discover", "-o", "json", seconds=120))
    bridges = [function for function in shown["functions"] if function["deviceClass"] == "bridge"]
    assert {bridge["driver"] for bridge in bridges if bridge["secondaryBus"] is not None} == {"pcieport"}
    assert [slot["name"] for slot in shown["slots"]] == [*map(str, range(1, guest.machine.ports + 1)), "101"]
    assert all(not slot["present"] for slot in shown["slots"])


def exists(path):
    return Path(path).exists()
