"""Operations over a fabric in memory that is read back."""

import asyncio
import dataclasses
from contextlib import asynccontextmanager

import pytest

from drawbar.fabric import contract, errors, judgement, works
from drawbar.fabric.history import History

HOSTS = (contract.Host(id="h1", name="h1"), contract.Host(id="h2", name="h2"))
ATTACH = contract.AttachRequest(request_id="r1", device_id="d1", host_id="h1")
DETACH = contract.DetachRequest(request_id="r2", device_id="d1", host_id="h1", host_prepared=True)

POOL = contract.Device(
    id="pool",
    device_class=contract.DeviceClass.CXL_MEMORY,
    memory_bytes=8,
    carving=contract.Carving(free_bytes=8, step_bytes=2, is_pool=True),
)
CREATE = contract.CreateSliceRequest(request_id="c1", device_id="pool", memory_bytes=4, mark="m")


class Memory:
    """`works.Backend` with one device; a change waits for `gate`, and may fail before or after its effect."""

    def __init__(self):
        self.history = History()
        self.pending = {}
        self.connection = None
        self.slices = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.error = None
        self.is_effective = True
        self.blind = None
        self.changes = 0

    @asynccontextmanager
    async def looking(self):
        if self.blind is not None:
            raise self.blind
        self.publish()
        yield

    def publish(self):
        device = contract.Device(
            id="d1", device_class=contract.DeviceClass.NVME, model="M", connection=self.connection
        )
        free = POOL.carving.free_bytes - sum(made.memory_bytes for made in self.slices.values())
        pool = dataclasses.replace(POOL, carving=dataclasses.replace(POOL.carving, free_bytes=free))
        self.history.publish((device, pool, *self.slices.values()), HOSTS)

    def judge(self, request):
        devices, hosts = self.history.devices, {host.id: host for host in self.history.hosts}
        match request:
            case contract.DetachRequest():
                return judgement.detach(request, devices, hosts, busy=self.pending.keys())
            case contract.CreateSliceRequest():
                return judgement.create_slice(request, devices, busy=self.pending.keys())
            case contract.DeleteSliceRequest():
                return judgement.delete_slice(request, devices, busy=self.pending.keys())
        return judgement.attach(
            request, devices, hosts, busy=self.pending.keys(), choose_port=judgement.free_port
        )

    async def carry_out(self, request, begun, report):
        report(50, None)
        await self.gate.wait()
        self.changes += 1
        if self.is_effective:
            self._change(request)
        if self.error is not None:
            raise self.error

    def _change(self, request):
        match request:
            case contract.AttachRequest(host_id=host_id, request_id=request_id, mark=mark):
                self.connection = contract.Connection(host_id=host_id, request_id=request_id, mark=mark)
            case contract.DetachRequest():
                self.connection = None
            case contract.CreateSliceRequest(request_id=request_id, memory_bytes=memory_bytes, mark=mark):
                made = contract.Slice(origin_id="pool", request_id=request_id, mark=mark)
                slice_id = f"slice-{self.changes}"
                self.slices[slice_id] = dataclasses.replace(
                    POOL, id=slice_id, memory_bytes=memory_bytes, slice_of=made, carving=None
                )
            case contract.DeleteSliceRequest(device_id=device_id):
                self.slices.pop(device_id)


@pytest.fixture
async def memory():
    return Memory()


@pytest.fixture
async def operations(memory):
    async with asyncio.TaskGroup() as tasks:
        begun = works.Works(memory, tasks, prefix="memory")
        yield begun
        begun.stop()


async def test_the_same_request_twice_is_one_operation(memory, operations):
    first = await operations.begin(ATTACH, patience_seconds=30)
    assert first.succeeded
    assert await operations.begin(ATTACH, patience_seconds=30) == first
    assert memory.changes == 1
    with pytest.raises(errors.AlreadyExists):
        await operations.begin(dataclasses.replace(ATTACH, host_id="h2"), patience_seconds=30)


async def test_an_operation_in_flight_shows_its_progress_and_refuses_another(memory, operations):
    memory.gate.clear()
    operation = await operations.begin(ATTACH, patience_seconds=0.01)
    assert (operation.done, operation.percent) == (False, 50)
    with pytest.raises(errors.Aborted) as caught:
        await operations.begin(dataclasses.replace(ATTACH, request_id="r9"), patience_seconds=30)
    assert caught.value.reason == errors.Reason.OPERATION_PENDING
    memory.gate.set()
    assert (await operations.begin(ATTACH, patience_seconds=30)).succeeded
    assert memory.pending == {}


@pytest.mark.parametrize(
    ("error", "is_effective", "succeeded"),
    [
        (None, True, True),
        (None, False, False),
        (errors.Unavailable("no answer"), True, True),
        (errors.Unavailable("no answer"), False, False),
    ],
    ids=["done", "accepted, not shown", "lost answer, done", "refused"],
)
async def test_the_listing_of_the_fabric_overrides_its_answer(
    memory, operations, error, is_effective, succeeded
):
    memory.error, memory.is_effective = error, is_effective
    operation = await operations.begin(ATTACH, patience_seconds=30)
    assert (operation.succeeded, operation.side_effects_unknown) == (succeeded, False)


@pytest.mark.parametrize(("looks", "succeeded"), [(1, True), (3, True), (4, False)])
async def test_an_effect_that_the_manager_shows_late_is_waited_for(
    memory, operations, monkeypatch, looks, succeeded
):
    monkeypatch.setattr(works, "LOOK_AGAIN_SECONDS", (0.0, 0.0, 0.0))
    looking, left = memory.looking, [looks]

    @asynccontextmanager
    async def late():
        async with looking():
            if memory.changes and left[0]:
                left[0] -= 1
                assert memory.pending, "a device is not free while its attach is not known to have ended"
                if not left[0]:
                    memory._change(ATTACH)
            yield

    memory.looking, memory.is_effective = late, False
    operation = await operations.begin(ATTACH, patience_seconds=30)
    assert (operation.succeeded, memory.changes, memory.pending) == (succeeded, 1, {})


async def test_an_end_that_cannot_be_read_is_unknown(memory, operations):
    memory.gate.clear()
    await operations.begin(ATTACH, patience_seconds=0.01)
    memory.blind = errors.Unavailable("gone")
    memory.gate.set()
    operation = await operations.begin(ATTACH, patience_seconds=30)
    assert operation.done
    assert operation.side_effects_unknown


@pytest.mark.parametrize("request_", [ATTACH, CREATE], ids=["attach", "create"])
async def test_after_the_stop_no_operation_begins(memory, operations, request_):
    operations.stop()
    with pytest.raises(errors.Unavailable):
        await operations.begin(request_, patience_seconds=30)
    assert (memory.changes, memory.pending, operations.all()) == (0, {}, ())


async def test_a_request_whose_reading_is_overtaken_by_the_stop_begins_nothing(memory, operations):
    reads, looking = asyncio.Event(), memory.looking
    goes_on = asyncio.Event()

    @asynccontextmanager
    async def slowly():
        reads.set()
        await goes_on.wait()
        async with looking():
            yield

    memory.looking = slowly

    async def ask():
        with pytest.raises(errors.Unavailable):
            await operations.begin(ATTACH, patience_seconds=30)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ask())
        await reads.wait()
        operations.stop()
        goes_on.set()
    assert (memory.changes, memory.pending) == (0, {})


async def test_a_stop_ends_running_operations_and_keeps_finished_ones(memory, operations):
    finished = await operations.begin(CREATE, patience_seconds=30)
    memory.gate.clear()
    assert not (await operations.begin(ATTACH, patience_seconds=0.01)).done
    operations.stop()
    assert not (await operations.begin(ATTACH, patience_seconds=30)).done
    assert memory.changes == 1
    assert await operations.begin(CREATE, patience_seconds=30) == finished


async def test_the_attach_of_an_earlier_life_is_adopted_while_its_connection_stands(memory, operations):
    memory.connection = contract.Connection(host_id="h1", request_id="r1")
    assert (await operations.find(request_id="r1")).succeeded
    with pytest.raises(errors.AlreadyExists):
        await operations.begin(dataclasses.replace(ATTACH, host_id="h2"), patience_seconds=30)
    assert (await operations.begin(ATTACH, patience_seconds=30)).succeeded
    assert memory.changes == 0
    assert (await operations.begin(DETACH, patience_seconds=30)).succeeded
    assert memory.connection is None
    with pytest.raises(errors.NotFound):
        await operations.find(request_id="never")
    with pytest.raises(errors.InvalidArgument):
        await operations.find()


@pytest.mark.parametrize(("shows_requests", "is_refused"), [(False, False), (True, True)])
def test_a_connection_without_a_request_is_another_clients_where_requests_are_shown(
    shows_requests, is_refused
):
    device = contract.Device(
        id="d1", device_class=contract.DeviceClass.NVME, connection=contract.Connection(host_id="h1")
    )
    error = judgement.verify(ATTACH, device, None, shows_requests=shows_requests)
    assert (error is not None) == is_refused


LOST = errors.Unavailable("no answer", side_effects_unknown=True)
DELETE = contract.DeleteSliceRequest(request_id="r4", device_id="d1")


@pytest.mark.parametrize(
    ("request_", "error", "is_whole", "is_unknown"),
    [
        (ATTACH, None, True, False),
        (ATTACH, None, False, True),
        (ATTACH, LOST, False, True),
        (CREATE, None, False, True),
        (DETACH, None, False, None),
        (DETACH, LOST, True, None),
        (DETACH, LOST, False, True),
        (DETACH, errors.FailedPrecondition("no"), False, False),
        (DELETE, LOST, True, None),
        (DELETE, LOST, False, True),
    ],
)
def test_a_device_that_a_sick_part_may_hide_is_not_gone(request_, error, is_whole, is_unknown):
    """`is_unknown` is None if the operation succeeded."""
    ended = judgement.verify(request_, None, error, is_whole=is_whole)
    assert (None if ended is None else ended.side_effects_unknown) is is_unknown


SLICES = {
    "made": (CREATE, None, True, True),
    "accepted, not shown": (CREATE, None, False, False),
    "lost answer, made": (CREATE, errors.Unavailable("no answer"), True, True),
    "refused": (CREATE, errors.Unavailable("no answer"), False, False),
}


@pytest.mark.parametrize(("request_", "error", "is_effective", "succeeded"), SLICES.values(), ids=SLICES)
async def test_a_slice_is_made_where_the_fabric_shows_its_request(
    memory, operations, request_, error, is_effective, succeeded
):
    memory.error, memory.is_effective = error, is_effective
    operation = await operations.begin(request_, patience_seconds=30)
    assert operation.succeeded == succeeded
    assert [made.id for made in memory.slices.values()] == ([operation.device.id] if succeeded else [])
    assert operation.mark == "m"
    memory.error, memory.is_effective = error, is_effective
    assert await operations.begin(request_, patience_seconds=30) == operation
    assert memory.changes == 1


async def test_the_creation_of_an_earlier_life_is_adopted_while_its_slice_is_there(memory, operations):
    memory._change(CREATE)
    operation = await operations.find(request_id="c1")
    assert (operation.kind, operation.device.id, operation.mark) == ("create-slice", "slice-0", "m")
    with pytest.raises(errors.AlreadyExists):
        await operations.begin(dataclasses.replace(CREATE, memory_bytes=2), patience_seconds=30)
    assert (await operations.begin(CREATE, patience_seconds=30)).device.id == "slice-0"
    assert memory.changes == 0


async def test_a_slice_is_deleted_once_and_a_failed_deletion_is_shown(memory, operations):
    memory._change(CREATE)
    delete = contract.DeleteSliceRequest(request_id="x1", device_id="slice-0")
    memory.is_effective = False
    failed = await operations.begin(delete, patience_seconds=30)
    assert "still there" in failed.error.message
    memory.is_effective = True
    done = await operations.begin(dataclasses.replace(delete, request_id="x2"), patience_seconds=30)
    assert (done.succeeded, done.device, done.mark) == (True, None, None)
    assert (
        await operations.begin(dataclasses.replace(delete, request_id="x3"), patience_seconds=30)
    ).succeeded
    assert memory.changes == 2


async def test_a_pool_has_one_creation_at_a_time(memory, operations):
    memory.gate.clear()
    await operations.begin(CREATE, patience_seconds=0.01)
    with pytest.raises(errors.Aborted) as caught:
        await operations.begin(dataclasses.replace(CREATE, request_id="c2"), patience_seconds=30)
    assert caught.value.reason == errors.Reason.OPERATION_PENDING
    memory.gate.set()
    assert (await operations.begin(CREATE, patience_seconds=30)).succeeded
