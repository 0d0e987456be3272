"""A share of a pool of memory at its adapter: one slice and one connection, whatever is lost on the way."""

import asyncio
import contextlib
import json

import pytest

from drawbar.driver.api import attachments
from drawbar.driver.controller import names
from drawbar.driver.controller.offers import holdings, memory_chunk
from drawbar.driver.controller.offers.realising import memory_chunk as chunks
from drawbar.fabric import contract, errors
from drawbar.mocks.fabric import SimulatedFabric, configuration, faults

MARK = "drawbar/c/fab"
ONE = "00000001-0000-4000-8000-000000000000"
NAME = names.share(ONE)
UID = "0f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0"
STEP = 1 << 28
ATTACH = contract.AttachRequest(request_id=f"{UID}-a1", device_id=NAME, host_id="h1", mark=MARK)
DETACH = contract.DetachRequest(request_id=f"{UID}-d1", device_id=NAME, host_id="h1", host_prepared=True)


def config(seconds):
    pool = {
        "id": "pool-0",
        "class": "cxl-memory",
        "memoryBytes": 4 * STEP,
        "sliceStepBytes": STEP,
        "isPool": True,
    }
    described = {
        "attachSeconds": seconds,
        "detachSeconds": seconds,
        "hosts": [{"id": "h1", "ports": 2}],
        "enclosures": [{"id": "enc", "devices": [pool]}],
    }
    return configuration.parse(json.dumps(described).encode())


class Bench:
    """An adapter with one attachment of a share, and what it reported."""

    def __init__(self, fabric):
        self.fabric = fabric
        share = attachments.Share(device="pool-0", device_id="pool-0", share_id=ONE, memory_bytes=STEP)
        self.held = holdings.Holdings.from_parts(
            [holdings.Holding(name=NAME, uid=UID, share=share, host_id="h1")]
        )
        self.reported, self.withdrawn = [], []
        self.adapter = self.make_adapter()

    def make_adapter(self):
        return chunks.MemoryChunks(
            self.fabric,
            MARK,
            held=self.held,
            report=self.reported.append,
            withdraw=self.withdrawn.append,
        )

    def set_holdings(self, *parts):
        """Give the adapter the holdings of the DeviceAttachments."""
        self.held = holdings.Holdings.from_parts(parts)
        self.adapter.update_holdings(self.held, arranges=False)

    async def list_devices(self):
        return {device.id: device for device in (await self.adapter.devices()).devices}

    async def list_slices(self):
        return [device for device in (await self.fabric.devices()).devices if device.slice_of is not None]

    async def wait_until_done(self, operation):
        """Ask for an operation until its end, and call again where it is known no more, as the controller does."""
        async with asyncio.timeout(120):
            while not operation.done:
                await asyncio.sleep(0.01)
                try:
                    operation = await self.adapter.operation(request_id=operation.request_id)
                except errors.NotFound:
                    operation = await self.adapter.attach(ATTACH)
        return operation


@pytest.fixture
def bench():
    @contextlib.asynccontextmanager
    async def running(seconds=0.0):
        async with SimulatedFabric.running(config(seconds)) as fabric:
            made = Bench(fabric)
            await made.adapter.devices()
            yield made

    return running


@pytest.mark.parametrize("seconds", [0.0, 0.05], ids=["at once", "with operations under way"])
async def test_an_attach_makes_the_slice_and_connects_it_and_a_detach_leaves_the_slice(bench, seconds):
    async with bench(seconds) as at:
        operation = await at.wait_until_done(await at.adapter.attach(ATTACH))
        assert (operation.request_id, operation.kind, operation.error) == (
            ATTACH.request_id,
            contract.OperationKind.ATTACH,
            None,
        )
        shown = await at.list_devices()
        assert shown.keys() == {"pool-0", NAME}
        assert shown[NAME].connection.host_id == "h1"
        assert shown[NAME].memory_bytes == STEP
        (slice_,) = await at.list_slices()
        assert slice_.slice_of.mark == MARK
        assert at.adapter.contents[NAME].id == slice_.id

        operation = await at.wait_until_done(await at.adapter.detach(DETACH))
        assert (operation.kind, operation.error) == (contract.OperationKind.DETACH, None)
        assert (await at.list_devices())[NAME].connection is None
        at.set_holdings()
        assert (await at.list_devices()).keys() == {"pool-0", slice_.id}, "an orphan is shown by itself"
        assert NAME in at.withdrawn


@pytest.mark.parametrize("when", ["create-slice", "attach"])
async def test_an_answer_that_is_lost_makes_no_second_slice(bench, when):
    async with bench() as at:
        at.fabric.console.add_fault(faults.LoseReply(method=contract.OperationKind(when), times=1))
        with contextlib.suppress(errors.FabricError):
            await at.adapter.attach(ATTACH)
        # Another process, which has the attachment alone.
        at.adapter = at.make_adapter()
        await at.adapter.devices()
        operation = await at.wait_until_done(await at.adapter.attach(ATTACH))
        assert operation.error is None
        assert len(await at.list_slices()) == 1
        assert (await at.list_devices())[NAME].connection.host_id == "h1"


async def test_a_slice_that_cannot_be_made_is_an_attach_that_failed_and_the_next_attempt_has_another_id(
    bench,
):
    async with bench() as at:
        at.fabric.console.add_fault(
            faults.Fail(method=contract.OperationKind.CREATE_SLICE, message="no decoder", times=1)
        )
        operation = await at.wait_until_done(await at.adapter.attach(ATTACH))
        assert operation.kind is contract.OperationKind.ATTACH
        assert "no decoder" in operation.error.message
        again = contract.AttachRequest(request_id=f"{UID}-a2", device_id=NAME, host_id="h1", mark=MARK)
        assert (await at.wait_until_done(await at.adapter.attach(again))).error is None


async def test_more_than_is_left_is_refused_as_no_capacity(bench):
    async with bench() as at:
        (holding,) = at.held.parts.values()
        share = attachments.Share(device="pool-0", device_id="pool-0", share_id=ONE, memory_bytes=8 * STEP)
        at.set_holdings(holdings.Holding(name=NAME, uid=UID, share=share, host_id=holding.host_id))
        with pytest.raises(errors.ResourceExhausted) as refused:
            await at.adapter.attach(ATTACH)
        assert refused.value.reason == errors.Reason.NO_CAPACITY


async def test_an_operation_on_a_memory_chunk_belongs_to_its_share(bench):
    async with bench() as at:
        await at.wait_until_done(await at.adapter.attach(ATTACH))
        await at.wait_until_done(await at.adapter.detach(DETACH))
        (made,) = await at.list_slices()
        at.fabric.console.add_fault(faults.Stick(method=contract.OperationKind.DELETE_SLICE))
        request = contract.DeleteSliceRequest(
            request_id=memory_chunk.deletion_request(made.slice_of, 7), device_id=made.id
        )
        await at.fabric.delete_slice(request)
        in_flight = [operation for operation in await at.adapter.operations() if not operation.done]
        assert [(operation.request_id, operation.device.id) for operation in in_flight] == [
            (request.request_id, NAME)
        ]
        assert memory_chunk.parse_deleted_share(request.request_id) == NAME


async def test_a_detach_of_a_share_that_was_never_made_is_a_success(bench):
    async with bench() as at:
        assert (await at.adapter.detach(DETACH)).succeeded
        assert await at.list_slices() == []


async def test_a_slice_that_vanishes_is_reported_as_the_loss_of_its_share(bench):
    async with bench() as at:
        await at.wait_until_done(await at.adapter.attach(ATTACH))
        await at.list_devices()
        (slice_,) = await at.list_slices()
        at.reported.clear()
        await at.fabric.console.remove_device(slice_.id)
        assert (await at.list_devices()).keys() == {"pool-0"}
        assert [event.device_id for event in at.reported if isinstance(event, contract.DeviceGone)] == [NAME]


async def test_other_devices_pass_unchanged(bench):
    async with bench() as at:
        with pytest.raises(errors.FailedPrecondition) as refused:
            await at.adapter.attach(
                contract.AttachRequest(request_id="x-a1", device_id="pool-0", host_id="h1", mark=MARK)
            )
        assert refused.value.reason == errors.Reason.CARVED
