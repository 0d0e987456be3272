"""The qemu adapter on doubles of QEMU: the contract, and every accident that was measured on the real one."""

import asyncio
import socket

import pytest

from drawbar.fabric import conformance, contract, errors
from drawbar.fabric.qemu.adapter import QemuAdapter
from drawbar.mocks.qemu import Guest


@pytest.mark.parametrize("guest", [Guest.ABSENT, Guest.PROMPT])
@pytest.mark.parametrize("device_id", ["nvme-1", "edu-1", "mem-1"])
async def test_the_adapter_keeps_the_contract(qemu_lab, guest, device_id):
    for machine in qemu_lab.machines.values():
        machine.guest, machine.release_seconds = guest, 0.02
    adapter = await qemu_lab.connect()
    report = await conformance.check(adapter, device_id=device_id, check_seconds=30)
    assert [(outcome.name, outcome.detail) for outcome in report.failed] == []
    assert [
        outcome.name
        for outcome in report.skipped
        if not {"slices", "reachability"} & {*outcome.detail.split()}
    ] == ["cancelling a finished operation changes nothing"]


async def test_a_device_goes_to_the_machines_that_have_a_port_of_its_kind(qemu_lab):
    qemu_lab.machines["vm2"].ports = {"rp1": "pcie-root-port"}
    adapter = await qemu_lab.connect()
    devices = {device.id: device for device in (await adapter.devices()).devices}
    hosts = await adapter.hosts()
    reached = {
        name: [host.id for host in hosts if host.reaches(devices[name])] for name in ("nvme-1", "mem-1")
    }
    assert reached == {"nvme-1": ["vm1", "vm2"], "mem-1": ["vm1"]}
    request = contract.AttachRequest(request_id="r", device_id="mem-1", host_id="vm2")
    with pytest.raises(errors.FailedPrecondition) as caught:
        await adapter.attach(request)
    assert caught.value.reason == errors.Reason.INCOMPATIBLE


async def test_a_detach_removes_all_objects_from_qemu(qemu_lab, calls, eventually):
    adapter = await qemu_lab.connect()
    await calls.attach_and_wait(adapter, "nvme-1", mark="m")
    machine = qemu_lab.machines["vm1"]
    assert (set(machine.objects), len(machine.nodes)) == ({"drawbar.nvme-1.note"}, 1)
    operation = await adapter.detach(calls.detach("nvme-1"))
    assert operation.succeeded
    await eventually(lambda: not machine.objects and not machine.nodes)


async def test_an_adapter_that_comes_later_knows_who_attached_what(qemu_lab, calls):
    first = await qemu_lab.connect()
    begun = await first.attach(calls.attach("nvme-1", mark="cluster-a"))
    await first.close()
    second = await qemu_lab.connect()
    adopted = await calls.connection(second, "nvme-1")
    assert (adopted.host_id, adopted.request_id, adopted.mark) == ("vm1", "r1", "cluster-a")
    assert (await second.operation(request_id="r1")).id == begun.id
    assert (await second.operation(operation_id=begun.id)).succeeded
    assert (await second.attach(calls.attach("nvme-1", mark="cluster-a"))).id == begun.id
    with pytest.raises(errors.AlreadyExists):
        await second.attach(calls.attach("edu-1"))
    assert qemu_lab.list_added_devices() == ["drawbar.nvme-1"]


async def test_a_detach_that_an_earlier_adapter_began_is_taken_up(qemu_lab, calls):
    machine = qemu_lab.machines["vm1"]
    machine.guest, machine.release_seconds = Guest.PROMPT, 3.0
    first = await qemu_lab.connect()
    await first.attach(calls.attach("edu-1"))
    assert not (await first.detach(calls.detach("edu-1"))).done
    await first.close()
    second = await qemu_lab.connect()
    assert (await calls.connection(second, "edu-1")).host_id == "vm1"
    operation = await calls.wait_until_done(
        second, await second.detach(calls.detach("edu-1", request_id="d2"))
    )
    assert operation.succeeded


async def test_two_devices_at_once_get_two_ports(qemu_lab, calls):
    adapter = await qemu_lab.connect()
    operations = await asyncio.gather(
        adapter.attach(calls.attach("edu-1", request_id="r1")),
        adapter.attach(calls.attach("edu-2", request_id="r2")),
    )
    assert all(operation.succeeded for operation in operations)
    ports = {(await calls.connection(adapter, name)).port_id for name in ("edu-1", "edu-2")}
    assert ports == {"rp1", "rp2"}
    with pytest.raises(errors.ResourceExhausted) as caught:
        await calls.attach_and_wait(adapter, "nvme-1", request_id="r3")
    assert (caught.value.reason, caught.value.host_id) == ("NO_FREE_PORT", "vm1")


async def test_a_port_that_somebody_else_filled_a_moment_ago_is_not_used(qemu_lab, calls):
    adapter = await qemu_lab.connect()
    machine = qemu_lab.machines["vm1"]
    # Between the judgement and the act, through another socket.
    execute, commands = machine.execute, []

    def meddle_and_execute(command, arguments):
        if command == "query-uuid":
            commands.append(command)
            if len(commands) == 2:
                execute("device_add", {"driver": "edu", "id": "stranger", "bus": "rp1"})
        return execute(command, arguments)

    machine.execute = meddle_and_execute
    operation = await calls.attach_and_wait(adapter, "edu-1")
    assert operation.error.code is errors.Code.ABORTED
    assert operation.error.retryable
    assert (await calls.attach_and_wait(adapter, "edu-1", request_id="r2")).succeeded
    assert (await calls.connection(adapter, "edu-1")).port_id == "rp2"


async def test_a_busy_guest_is_asked_again(qemu_lab, calls):
    machine = qemu_lab.machines["vm1"]
    adapter = await qemu_lab.connect()
    await calls.attach_and_wait(adapter, "edu-1")
    machine.busy = 2
    assert (await calls.wait_until_done(adapter, await adapter.detach(calls.detach("edu-1")))).succeeded


async def test_an_error_reply_is_no_proof_that_nothing_happened(qemu_lab, calls):
    adapter = await qemu_lab.connect()
    stumble = qemu_lab.stumbles["vm1"]
    stumble.command, stumble.does, stumble.answer = "device_add", True, "Something went wrong"
    assert (await calls.attach_and_wait(adapter, "edu-1")).succeeded
    stumble.command, stumble.answer = "device_del", "Hot-unplug failed: guest is busy"
    assert (await calls.wait_until_done(adapter, await adapter.detach(calls.detach("edu-1")))).succeeded


@pytest.mark.parametrize("does", [True, False])
async def test_a_connection_that_breaks_in_an_attach_is_looked_at_again(qemu_lab, calls, does):
    adapter = await qemu_lab.connect()
    stumble = qemu_lab.stumbles["vm1"]
    stumble.command, stumble.does = "device_add", does
    operation = await calls.attach_and_wait(adapter, "edu-1")
    assert operation.succeeded is does
    assert (await calls.connection(adapter, "edu-1") is not None) is does
    if not does:
        assert operation.error.code is errors.Code.UNAVAILABLE
        assert (await calls.attach_and_wait(adapter, "edu-1", request_id="r2")).succeeded


async def test_a_file_that_another_program_writes_to_is_told_and_the_node_it_cost_is_no_hindrance(
    qemu_lab, calls
):
    adapter = await qemu_lab.connect()
    writers = qemu_lab.machines["vm1"].files.writers
    writers["/pool/nvme-1.img"] = None
    operation = await calls.attach_and_wait(adapter, "nvme-1")
    assert (operation.error.code, operation.error.reason) == (errors.Code.FAILED_PRECONDITION, "IN_USE")
    writers.clear()
    assert (await calls.attach_and_wait(adapter, "nvme-1", request_id="r2")).succeeded


async def test_cxl_memory_comes_back_although_qemu_never_lets_go_of_it(qemu_lab, calls, eventually):
    adapter = await qemu_lab.connect()
    for number in range(3):
        assert (await calls.attach_and_wait(adapter, "mem-1", request_id=f"a{number}")).succeeded
        assert (await calls.connection(adapter, "mem-1")).port_id == "crp1"
        assert (
            await calls.wait_until_done(
                adapter, await adapter.detach(calls.detach("mem-1", request_id=f"d{number}"))
            )
        ).succeeded


async def test_a_guest_that_refuses_fails_the_detach(qemu_lab, calls):
    qemu_lab.machines["vm1"].guest = Guest.REFUSING
    adapter = await qemu_lab.connect()
    await calls.attach_and_wait(adapter, "edu-1")
    operation = await calls.wait_until_done(adapter, await adapter.detach(calls.detach("edu-1")))
    assert operation.error.reason == "GUEST_REFUSED"
    # Its earlier output is no answer to the next request.
    qemu_lab.machines["vm1"].guest, qemu_lab.machines["vm1"].release_seconds = Guest.PROMPT, 0.2
    assert (
        await calls.wait_until_done(adapter, await adapter.detach(calls.detach("edu-1", request_id="d2")))
    ).succeeded


async def test_a_guest_that_never_answers_ends_the_detach_with_effects_unknown(qemu_lab, calls):
    qemu_lab.machines["vm1"].guest, qemu_lab.detach_seconds = Guest.SILENT, 0.2
    adapter = await qemu_lab.connect()
    await calls.attach_and_wait(adapter, "edu-1")
    operation = await calls.wait_until_done(adapter, await adapter.detach(calls.detach("edu-1")))
    assert (operation.error.code, operation.error.reason) == (errors.Code.DEADLINE_EXCEEDED, "GUEST_SILENT")
    assert operation.side_effects_unknown
    assert (await calls.connection(adapter, "edu-1")).host_id == "vm1"


async def test_a_device_that_the_guest_powered_off_itself_is_free_and_its_remains_go(
    qemu_lab, calls, eventually
):
    adapter = await qemu_lab.connect()
    await calls.attach_and_wait(adapter, "nvme-1")
    machine = qemu_lab.machines["vm1"]
    version = (await adapter.devices()).version
    async with adapter.watch(version) as events:
        machine.power_off("drawbar.nvme-1")
        async for event in events:
            if isinstance(event, contract.DeviceChanged) and event.device.connection is None:
                break
    await eventually(lambda: not machine.objects and not machine.nodes)
    assert (await adapter.detach(calls.detach("nvme-1"))).succeeded


async def test_a_device_that_is_not_of_the_pool_makes_its_port_used(qemu_lab, calls):
    qemu_lab.machines["vm1"].execute("device_add", {"driver": "edu", "id": "stranger", "bus": "rp1"})
    adapter = await qemu_lab.connect()
    (host, _) = await adapter.hosts()
    states = {port.id: (port.state, port.device_id) for port in host.ports}
    assert states["rp1"] == (contract.PortState.USED, None)
    assert states["rp2"] == (contract.PortState.FREE, None)
    assert "uplink" not in states
    await calls.attach_and_wait(adapter, "edu-1")
    assert (await calls.connection(adapter, "edu-1")).port_id == "rp2"


async def test_a_model_that_this_qemu_does_not_have_is_told(qemu_lab, calls):
    qemu_lab.machines["vm1"].unknown = frozenset({"edu"})
    adapter = await qemu_lab.connect()
    error = (await calls.attach_and_wait(adapter, "edu-1")).error
    assert error.reason == "INCOMPATIBLE"
    assert "edu" in error.vendor["desc"]


async def test_a_machine_that_stops_has_no_devices_and_its_ports_are_at_fault(qemu_lab, calls):
    adapter = await qemu_lab.connect()
    await calls.attach_and_wait(adapter, "edu-1")
    await qemu_lab.stop("vm1")
    assert await calls.connection(adapter, "edu-1") is None
    host = next(host for host in await adapter.hosts() if host.id == "vm1")
    assert {port.state for port in host.ports} == {contract.PortState.FAULT}
    assert len(host.ports) == 3
    with pytest.raises(errors.Unavailable, match="does not run"):
        await calls.attach_and_wait(adapter, "edu-2", request_id="r2")
    assert (await calls.attach_and_wait(adapter, "edu-1", "vm2", request_id="r3")).succeeded


async def test_a_machine_that_comes_back_is_used_again(qemu_lab, calls):
    adapter = await qemu_lab.connect()
    await qemu_lab.stop("vm1")
    await adapter.devices()
    await qemu_lab.start("vm1")
    assert (await calls.attach_and_wait(adapter, "edu-1")).succeeded


async def test_a_socket_that_nobody_listens_on_is_a_stopped_machine(qemu_lab):
    await qemu_lab.stop("vm1")
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(qemu_lab.socket("vm1")))
    adapter = await qemu_lab.connect()
    assert [host.id for host in await adapter.hosts()] == ["vm1", "vm2"]


async def test_without_any_machine_there_is_no_fabric(qemu_lab):
    for name in ("vm1", "vm2"):
        await qemu_lab.stop(name)
    with pytest.raises(errors.Unavailable, match="no virtual machine"):
        await qemu_lab.connect()


async def test_a_second_adapter_on_the_same_sockets_waits_in_vain(qemu_lab):
    await qemu_lab.connect()
    config = qemu_lab.config()
    impatient = contract.AdapterConfig(name="lab", endpoint=config.endpoint, timeout_seconds=0.4)
    with pytest.raises(errors.Unavailable, match="another client"):
        await QemuAdapter.connect(impatient)


async def test_a_machine_that_falls_silent_makes_the_fabric_unknown(qemu_lab):
    config = qemu_lab.config()
    quick = contract.AdapterConfig(name="lab", endpoint=config.endpoint, timeout_seconds=2)
    async with await QemuAdapter.connect(quick) as adapter:
        version = (await adapter.devices()).version
        async with adapter.watch(version) as events:
            qemu_lab.stumbles["vm2"].command, qemu_lab.stumbles["vm2"].hangs = "query-uuid", True
            with pytest.raises(errors.Unavailable, match="vm2"):
                await adapter.devices()
            with pytest.raises(errors.Unavailable):
                async for _ in events:
                    pass
        assert len((await adapter.devices()).devices) == 4


async def test_a_watch_sees_devices_plugged_by_others(qemu_lab, monkeypatch):
    monkeypatch.setattr("drawbar.fabric.qemu.adapter.LOOK_EVERY_SECONDS", 0.02)
    adapter = await qemu_lab.connect()
    async with adapter.watch((await adapter.devices()).version) as events:
        qemu_lab.machines["vm2"].execute("device_add", {"driver": "edu", "id": "drawbar.edu-1", "bus": "rp2"})
        async for event in events:
            if isinstance(event, contract.DeviceChanged):
                break
    assert (event.device.id, event.device.connection.host_id) == ("edu-1", "vm2")
    assert event.device.connection.mark is None


async def test_a_closed_adapter_says_so(qemu_lab, calls):
    adapter = await qemu_lab.connect()
    await adapter.close()
    await adapter.close()
    with pytest.raises(errors.Unavailable, match="closed"):
        await adapter.devices()
    with pytest.raises(errors.Unavailable, match="closed"):
        await calls.attach_and_wait(adapter, "edu-1")
