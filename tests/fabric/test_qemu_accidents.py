"""The qemu adapter when an outcome cannot be determined, or another client was quicker."""

import asyncio
import dataclasses

import pytest

from drawbar.fabric import contract, errors
from drawbar.fabric.history import History
from drawbar.fabric.qemu import pool
from drawbar.fabric.qemu.adapter import QemuAdapter
from drawbar.mocks.qemu import Guest


def run_after(machine, command, then):
    """Do something after the next command of that name."""
    execute = machine.execute

    def execute_and_meddle(name, arguments):
        answer = execute(name, arguments)
        if name == command:
            machine.execute = execute
            then()
        return answer

    machine.execute = execute_and_meddle


async def test_an_attach_after_which_qemu_is_silent_says_that_nobody_knows(qemu_lab, calls):
    quick = dataclasses.replace(qemu_lab.config(), timeout_seconds=2)
    stumble, machine = qemu_lab.stumbles["vm1"], qemu_lab.machines["vm1"]

    def fall_silent():
        stumble.command, stumble.hangs = "query-uuid", True

    async with await QemuAdapter.connect(quick) as adapter:
        stumble.command, stumble.does, stumble.answer = "device_add", True, "perhaps"
        run_after(machine, "device_add", fall_silent)
        operation = await calls.attach_and_wait(adapter, "edu-1")
        assert operation.error is not None
        assert operation.side_effects_unknown
        # It did happen, and whoever looks sees it.
        assert (await calls.connection(adapter, "edu-1")).request_id == "r1"
        assert (await calls.attach_and_wait(adapter, "edu-1", request_id="r2")).succeeded


async def test_a_detach_goes_on_when_qemu_was_silent_for_a_while(qemu_lab, calls):
    quick = dataclasses.replace(qemu_lab.config(), timeout_seconds=1)
    stumble, machine = qemu_lab.stumbles["vm1"], qemu_lab.machines["vm1"]
    machine.guest, machine.release_seconds = Guest.PROMPT, 0.3
    async with await QemuAdapter.connect(quick) as adapter:
        await calls.attach_and_wait(adapter, "edu-1")
        operation = await adapter.detach(calls.detach("edu-1"))
        stumble.command, stumble.hangs = "query-uuid", True
        while not operation.done:
            await asyncio.sleep(0.05)
            (operation,) = [each for each in await adapter.operations() if each.id == operation.id]
        assert operation.succeeded


async def test_a_device_that_somebody_plugged_in_under_our_id_a_moment_before_counts_as_attached(
    qemu_lab, calls
):
    machine = qemu_lab.machines["vm1"]
    adapter = await qemu_lab.connect()
    device = {"driver": "edu", "id": "drawbar.edu-1", "bus": "rp2"}
    # After the last look, with the note already there, through another socket.
    run_after(machine, "object-add", lambda: machine.execute("device_add", device))
    operation = await calls.attach_and_wait(adapter, "edu-1")
    assert operation.error is None
    assert (await calls.connection(adapter, "edu-1")).port_id == "rp2"
    assert machine.added == ["drawbar.edu-1"]


@pytest.mark.parametrize("by_the_guest", [False, True])
async def test_a_disk_goes_to_another_host_only_when_its_file_is_closed(qemu_lab, calls, by_the_guest):
    machine = qemu_lab.machines["vm1"]
    machine.closing_seconds = 0.2
    adapter = await qemu_lab.connect()
    await calls.attach_and_wait(adapter, "nvme-1")
    if by_the_guest:
        machine.power_off("drawbar.nvme-1")
    else:
        assert (await calls.wait_until_done(adapter, await adapter.detach(calls.detach("nvme-1")))).succeeded
        assert not machine.nodes
    assert (await calls.attach_and_wait(adapter, "nvme-1", "vm2", request_id="r2")).error is None


async def test_a_request_id_that_made_a_connection_is_good_for_no_detach(qemu_lab, calls):
    first = await qemu_lab.connect()
    await first.attach(calls.attach("edu-1"))
    await first.close()
    second = await qemu_lab.connect()
    with pytest.raises(errors.AlreadyExists):
        await second.detach(calls.detach("edu-1", request_id="r1"))
    assert await calls.connection(second, "edu-1") is not None


async def test_the_uuid_of_a_machine_and_the_slot_of_a_device_are_listed(qemu_lab, calls):
    machine = qemu_lab.machines["vm1"]
    machine.uuid = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
    adapter = await qemu_lab.connect()
    await calls.attach_and_wait(adapter, "edu-1")
    (host, other) = await adapter.hosts()
    assert host.identifiers == {"hostname": "vm1", "system-uuid": machine.uuid}
    assert other.identifiers == {"hostname": "vm2"}
    assert (await calls.connection(adapter, "edu-1")).slot_hint == "1"


async def test_only_the_ports_that_are_named_are_used(qemu_lab):
    hosts = [{"id": "vm1", "qmp": str(qemu_lab.socket("vm1")), "ports": ["rp2", "nowhere"]}]
    adapter = await qemu_lab.connect(hosts=hosts)
    (host,) = await adapter.hosts()
    assert [port.id for port in host.ports] == ["rp2"]


async def test_one_question_asks_for_one_id(qemu_lab):
    adapter = await qemu_lab.connect()
    for ids in ({}, {"operation_id": "a", "request_id": "b"}):
        with pytest.raises(errors.InvalidArgument):
            await adapter.operation(**ids)
    with pytest.raises(errors.Unimplemented):
        await adapter.cancel("a")


async def test_a_watcher_that_is_too_slow_lists_again():
    history = History(remembered=2)
    edu = pool.device(pool.Edu(id="edu-1"))
    history.publish((edu,), ())
    version = history.version
    events = history.follow(version)
    assert isinstance(await anext(events), contract.Bookmark)
    for number in range(3):
        connection = contract.Connection(host_id=f"vm{number}")
        history.publish((dataclasses.replace(edu, connection=connection),), ())
    assert isinstance(await anext(events), contract.Resync)
    with pytest.raises(StopAsyncIteration):
        await anext(events)
    assert history.watchers == 0


async def test_nothing_new_is_told_when_nothing_changed_and_silence_is_broken_by_bookmarks():
    history = History()
    edu = pool.device(pool.Edu(id="edu-1"))
    history.publish((edu,), ())
    version, etag = history.version, history.devices["edu-1"].etag
    history.publish((edu,), ())
    assert (history.version, history.devices["edu-1"].etag) == (version, etag)
    events = history.follow(version, bookmark_seconds=0.01)
    assert [await anext(events), await anext(events)] == [contract.Bookmark(version=version)] * 2
    await events.aclose()
