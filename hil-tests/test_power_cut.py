"""A machine that loses its power and is switched on again."""

import pytest
from lab import chassis, machine, waiting

pytestmark = pytest.mark.asyncio(loop_scope="session")

KEPT = "/var/lib/kubelet/kept"


async def test_a_machine_keeps_its_disk_and_its_cards_over_a_power_cut(lab):
    made = machine.Machine(name="worker-cut", ports=2, memory_mib=512)
    async with lab.guest(made) as first:
        plugs = chassis.Chassis(first, lab.folder)
        disk = await plugs.disk("disk-p")
        note = {"qom-type": "authz-simple", "id": f"{disk.name}.note", "identity": '{"mark": "ours"}'}
        await first.monitor.ask("object-add", note)
        await plugs.plug(disk, "port-2")
        await waiting.until(lambda: first.names("/sys/class/nvme"))
        await first.write(KEPT, "kept")
        await first.output("sync")
        there = await chassis.build_disk_arguments(first)
        await first.cut_power()
    async with lab.guest(made, plugged=there) as second:
        assert second.boot_id != first.boot_id
        assert await second.read(KEPT) == "kept"
        await waiting.until(lambda: second.names("/sys/class/nvme"))
        assert await second.output("head", "-n", "1", "/dev/nvme0n1") == "this is disk-p\n"
        assert await chassis.build_disk_arguments(second) == there, (
            "the same disk and the same note in the same port"
        )
