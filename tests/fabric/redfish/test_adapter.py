import pytest
from tests.scenes import waiting

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish.adapter import RedfishAdapter
from drawbar.mocks.redfish import Fault, FaultKind, paths

TASK = f"{paths.TASKS}/1"


@pytest.fixture
async def slow(redfish_lab):
    """Serve a service whose next change is a task that does not end by itself."""
    service = await redfish_lab.serve()
    service.faults.add(Fault(kind=FaultKind.SLOW_TASK))
    return service


async def _wait_until_done(adapter, operation):
    return await waiting.until(
        lambda: adapter.operation(operation_id=operation.id), lambda operation: operation.done
    )


async def test_a_change_that_takes_too_long_fails_with_unknown_effects(redfish_lab, slow, impatient):
    adapter = await redfish_lab.connect(slow, parameters={"taskSeconds": "1"})
    operation = await _wait_until_done(adapter, await adapter.attach(redfish_lab.attach("PCIe.gpu-1")))
    assert operation.error.code is errors.Code.DEADLINE_EXCEEDED
    assert operation.side_effects_unknown


async def test_the_port_of_an_attach_in_flight_is_in_use(redfish_lab, slow, impatient):
    adapter = await redfish_lab.connect(slow, parameters={"ports": "1"})
    assert not (await adapter.attach(redfish_lab.attach("PCIe.gpu-1"))).done
    ports = {host.id: [port.state for port in host.ports] for host in await adapter.hosts()}
    assert ports == {"h1": [contract.PortState.USED], "h2": [contract.PortState.FREE]}
    with pytest.raises(errors.ResourceExhausted):
        await adapter.attach(redfish_lab.attach("PCIe.gpu-2"))


async def test_changes_of_a_host_are_made_one_after_the_other(redfish_lab, slow, impatient):
    adapter = await redfish_lab.connect(slow)
    first = await adapter.attach(redfish_lab.attach("PCIe.gpu-1"))
    second = await adapter.attach(redfish_lab.attach("PCIe.gpu-2"))
    assert slow.requests.count(("POST", paths.ZONES)) == 1
    slow.end_slow_tasks()
    assert (await _wait_until_done(adapter, first)).succeeded
    assert (await _wait_until_done(adapter, second)).succeeded


@pytest.mark.parametrize("path", [TASK, paths.ZONES], ids=["the task", "the zones"])
async def test_a_device_of_a_task_that_cannot_be_followed_is_free_again(redfish_lab, slow, path, impatient):
    former = await redfish_lab.connect(slow)
    await former.attach(redfish_lab.attach("PCIe.gpu-1"))
    await former.close()
    if path == TASK:
        slow.faults.add(Fault(kind=FaultKind.FORBIDDEN, methods=("GET",), path=path, times=None))
    adapter = await redfish_lab.connect(slow)
    if path != TASK:
        slow.faults.add(Fault(kind=FaultKind.BUSY, methods=("GET",), path=path, times=1))
    await slow.wait_until_settled()

    async def try_attach():
        try:
            return await adapter.attach(redfish_lab.attach("PCIe.gpu-1"))
        except (errors.Aborted, errors.Unavailable):
            return None

    await waiting.eventually(try_attach)
    assert slow.connections()["gpu-1"] == ["h1"]


async def test_a_device_of_two_tasks_is_busy_until_both_have_ended(redfish_lab):
    service = await redfish_lab.serve(zones="port", product="H3")
    ends = [{"@odata.id": paths.endpoint(name)} for name in ("h1", "gpu-1")]
    body = {"Links": {"Endpoints": ends}}
    for _ in range(2):
        service._begin_task("PATCH", f"{paths.ZONES}/h1", body, FaultKind.SLOW_TASK)
    adapter = await redfish_lab.connect(service)
    await waiting.eventually(lambda: len(service._slow) == 2)
    service._slow.pop().set()
    await waiting.eventually(lambda: len(adapter._service._foreign) == 1)
    with pytest.raises(errors.Aborted):
        await adapter.attach(redfish_lab.attach("PCIe.gpu-1"))
    await service.wait_until_settled()
    await waiting.eventually(lambda: not adapter._service.pending)


async def test_an_unusable_device_is_logged_once(redfish_lab, caplog):
    service = await redfish_lab.serve(method="composition")
    status = service.tree[paths.block("gpu-1")]["CompositionStatus"]
    service.tree.update(paths.block("gpu-1"), CompositionStatus=status | {"Reserved": True})
    adapter = await redfish_lab.connect(service)
    for _ in range(2):
        assert {device.id for device in (await adapter.devices()).devices} == {"gpu-2", "disk-1"}
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1


async def test_an_adapter_remembers_its_operations_and_cannot_cancel_them(redfish_lab):
    adapter = await redfish_lab.connect(await redfish_lab.serve())
    operation = await adapter.attach(redfish_lab.attach("PCIe.gpu-1"))
    assert await adapter.operations() == (operation,)
    with pytest.raises(errors.Unimplemented):
        await adapter.cancel(operation.id)


async def test_a_closed_adapter_is_unavailable(redfish_lab):
    adapter = await redfish_lab.connect(await redfish_lab.serve())
    await adapter.close()
    await adapter.close()
    for call in (adapter.devices(), adapter.hosts(), adapter.operations(), adapter.capabilities()):
        with pytest.raises(errors.Unavailable):
            await call


async def test_a_listing_of_many_slow_answers_ends_at_the_deadline(redfish_lab):
    service = await redfish_lab.serve(expand=False)
    adapter = await redfish_lab.connect(service, timeout_seconds=2)
    # The first listing is the reading of `connect`.
    await adapter.devices()
    service.faults.add(Fault(kind=FaultKind.STALL, methods=("GET",), path="/Endpoints", times=None))
    with pytest.raises(errors.DeadlineExceeded):
        await adapter.devices()


async def test_a_stream_of_events_that_ends_is_opened_again(redfish_lab):
    service = await redfish_lab.serve()
    await redfish_lab.connect(service)
    await waiting.eventually(lambda: service.followers)
    service.end_streams()
    await waiting.eventually(lambda: not service.followers)
    await waiting.eventually(lambda: service.followers)


async def test_a_device_that_is_removed_during_its_detach_is_a_success(redfish_lab, slow):
    slow.faults.clear()
    adapter = await redfish_lab.connect(slow)
    await adapter.attach(redfish_lab.attach("PCIe.gpu-1"))
    slow.faults.add(Fault(kind=FaultKind.SLOW_TASK))
    operation = await adapter.detach(redfish_lab.detach("PCIe.gpu-1"))
    slow.tree.remove(paths.endpoint("gpu-1"))
    await adapter.devices()
    slow.end_slow_tasks()
    assert (await _wait_until_done(adapter, operation)).succeeded


def test_a_configuration_is_judged_without_a_service():
    RedfishAdapter.validate(contract.AdapterConfig(name="f", endpoint="https://manager.example"))
    with pytest.raises(errors.InvalidConfiguration):
        RedfishAdapter.validate(contract.AdapterConfig(name="f", endpoint="manager"))
