"""Slices of the simulated fabric: what the conformance suite cannot cause."""

import pytest

from drawbar.fabric import contract, errors
from drawbar.mocks.fabric import SimulatedFabric, configuration

CREATE = contract.OperationKind.CREATE_SLICE


def make_configuration(faults=b"[]"):
    return configuration.parse(
        b"""{"hosts": [{"id": "h1"}], "faults": %s, "enclosures": [{"id": "e", "devices": [
            {"id": "m1", "class": "cxl-memory", "serial": "S1", "memoryBytes": 4096, "sliceStepBytes": 1024}]}]}"""
        % faults
    )


def request(number=1, **changes):
    return contract.CreateSliceRequest(
        **({"request_id": f"r{number}", "device_id": "m1", "memory_bytes": 1024, "mark": "us"} | changes)
    )


async def slices(fabric):
    return {device.id: device for device in (await fabric.devices()).devices if device.slice_of is not None}


async def test_a_slice_outlives_a_restart_that_forgets_operations_and_is_never_made_twice(tmp_path):
    state = tmp_path / "state"
    async with SimulatedFabric.running(make_configuration(), state=state) as fabric:
        made = (await fabric.create_slice(request())).device
        await fabric.attach(contract.AttachRequest(request_id="a", device_id=made.id, host_id="h1"))
        await fabric.console.forget_operations()
    async with SimulatedFabric.running(make_configuration(), state=state) as fabric:
        with pytest.raises(errors.NotFound):
            await fabric.operation(request_id="r1")
        assert (await fabric.create_slice(request())).device.id == made.id
        (listed,) = (await slices(fabric)).values()
        assert listed.slice_of == contract.Slice(origin_id="m1", request_id="r1", mark="us")
        assert listed.connection.host_id == "h1"
        assert (await fabric.devices()).device("m1").carving.free_bytes == 3072


async def test_a_creation_whose_answer_is_lost_is_found_again():
    lost = b'[{"effect": "lose-reply", "method": "create-slice", "device": "m1"}]'
    async with SimulatedFabric.running(make_configuration(lost)) as fabric:
        with pytest.raises(errors.Unavailable) as raised:
            await fabric.create_slice(request())
        assert raised.value.side_effects_unknown
        again = await fabric.create_slice(request())
        assert list(await slices(fabric)) == [again.device.id]


@pytest.mark.parametrize(("happens", "made"), [(b"true", 1), (b"false", 0)])
async def test_a_creation_that_fails_is_an_operation_with_its_error(happens, made):
    failing = b'[{"effect": "fail", "method": "create-slice", "device": "m1", "happens": %s}]' % happens
    async with SimulatedFabric.running(make_configuration(failing)) as fabric:
        operation = await fabric.create_slice(request())
        assert (operation.kind, operation.succeeded) == (CREATE, False)
        assert len(await slices(fabric)) == made


async def test_the_id_of_a_deleted_slice_never_comes_again():
    async with SimulatedFabric.running(make_configuration()) as fabric:
        ids = set()
        for number in range(3):
            made = (await fabric.create_slice(request(number))).device
            deleted = await fabric.delete_slice(
                contract.DeleteSliceRequest(request_id=f"d{number}", device_id=made.id)
            )
            assert (deleted.succeeded, deleted.device) == (True, None)
            ids.add(made.id)
        assert len(ids) == 3
        assert (await fabric.devices()).device("m1").carving.free_bytes == 4096


async def test_impossible_memory_chunks_are_refused():
    async with SimulatedFabric.running(make_configuration()) as fabric:
        for wrong in ({"memory_bytes": 0}, {"request_id": ""}, {"memory_bytes": 1000}, {"mark": "x" * 200}):
            with pytest.raises(errors.InvalidArgument):
                await fabric.create_slice(request(**wrong))
        with pytest.raises(errors.InvalidArgument):
            await fabric.delete_slice(contract.DeleteSliceRequest(request_id="d", device_id="m1"))
