"""The qemu adapter on QEMU itself, as far as is possible without a guest."""

import os

import pytest

from drawbar.fabric import conformance
from drawbar.fabric.qemu import qmp


@pytest.mark.parametrize("device_id", ["nvme-1", "mem-1"])
async def test_the_adapter_keeps_the_contract_on_qemu(real_qemu, device_id):
    async with await real_qemu.connect() as adapter:
        report = await conformance.check(adapter, device_id=device_id, check_seconds=20)
    assert [(outcome.name, outcome.detail) for outcome in report.failed] == []
    assert (
        len(
            [
                outcome
                for outcome in report.skipped
                if not {"slices", "reachability"} & {*outcome.detail.split()}
            ]
        )
        == 1
    )


async def test_every_model_of_the_pool_is_known_to_qemu(real_qemu, calls):
    async with await real_qemu.connect() as adapter:
        for device in (await adapter.devices()).devices:
            operation = await calls.attach_and_wait(adapter, device.id, request_id=f"a-{device.id}")
            assert operation.error is None
            request = calls.detach(device.id, request_id=f"d-{device.id}")
            assert (await calls.wait_until_done(adapter, await adapter.detach(request))).succeeded


async def test_the_error_sentences_of_qemu_have_the_expected_meaning(real_qemu, eventually):
    disk = real_qemu.folder / "locked.img"
    disk.touch()
    os.truncate(disk, 1 << 20)

    async with real_qemu.open_monitor(0) as client, real_qemu.open_monitor(1) as neighbour:

        async def find_meaning(command, where=client, **arguments):
            qmp_arguments = {name.replace("_", "-"): value for name, value in arguments.items()}
            try:
                await where.execute(command, qmp_arguments)
            except qmp.Rejected as error:
                return qmp.find_meaning(error)
            return None

        note = {"qom_type": "authz-simple", "id": "n", "identity": "x"}
        node = {"driver": "raw", "node_name": "n", "file": {"driver": "file", "filename": str(disk)}}
        nvme = {"driver": "nvme", "id": "n", "bus": "port-1", "serial": "S", "drive": "n"}

        assert await find_meaning("device_add", driver="edu", id="e", bus="nowhere") is qmp.Meaning.NO_PORT
        assert await find_meaning("device_add", driver="nothing", id="e") is qmp.Meaning.UNSUPPORTED
        edu = {"driver": "edu", "id": "e", "bus": "port-2"}
        assert await find_meaning("device_add", **edu, colour=1) is qmp.Meaning.UNSUPPORTED
        assert await find_meaning("device_add", **edu) is None
        assert await find_meaning("device_add", **edu | {"bus": "port-1"}) is qmp.Meaning.DUPLICATE
        assert await find_meaning("device_del", id="e") is None
        assert await find_meaning("device_del", id="e") is qmp.Meaning.GONE
        assert await find_meaning("object-add", **note) is None
        assert await find_meaning("object-add", **note) is qmp.Meaning.DUPLICATE
        assert await find_meaning("object-del", id="n") is None
        assert await find_meaning("object-del", id="n") is qmp.Meaning.GONE
        for where in (client, neighbour):
            assert await find_meaning("blockdev-add", where, **node) is None
        assert await find_meaning("blockdev-add", **node) is qmp.Meaning.DUPLICATE
        assert await find_meaning("device_add", **nvme) is None
        assert await find_meaning("device_add", neighbour, **nvme) is qmp.Meaning.LOCKED
        assert await find_meaning("blockdev-del", node_name="n") is qmp.Meaning.HELD
        assert await find_meaning("device_del", id="n") is None

        async def is_gone():
            return await find_meaning("blockdev-del", node_name="n") is qmp.Meaning.GONE

        # A moment passes before QEMU lets go of the file.
        await eventually(is_gone)
