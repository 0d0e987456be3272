"""Operations over a fabric in memory that is read back."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from drawbar.fabric import contract, errors, judgement, works
from drawbar.fabric.history import History

HOSTS = (contract.Host(id="h1", name="h1"), contract.Host(id="h2", name="h2"))
ATTACH = contract.AttachRequest(request_id="r1", device_id="d1", host_id="h1")
DETACH = contract.DetachRequest(request_id="r2", device_id="d1", host_id="h1", host_prepared=True)


class Memory:
    """`works.Backend` with one device; a change waits for `gate`, and may fail before or after its effect."""

    def __init__(self):
        self.history = History()
        self.pending = {}
        self.connection = None
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
        self.history.publish((device,), HOSTS)

    def judge(self, request):
        devices, hosts = self.history.devices, {host.id: host for host in self.history.hosts}
        if isinstance(request, contract.DetachRequest):
            return judgement.detach(request, devices, hosts, busy=self.pending.keys())
        return judgement.attach(
            request, devices, hosts, busy=self.pending.keys(), choose_port=judgement.free_port
        )

    async def attach(self, request, device_id, port_id, report):
        report(50, None)
        await self._change(
            contract.Connection(host_id=request.host_id, request_id=request.request_id, mark=request.mark)
        )

    async def detach(self, request, device_id, report):
        await self._change(None)

    async def _change(self, connection):
        await self.gate.wait()
        self.changes += 1
        if self.is_effective:
            self.connection = connection
        if self.error is not None:
            raise self.error


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
        await operations.begin(replace(ATTACH, host_id="h2"), patience_seconds=30)


async def test_an_operation_in_flight_shows_its_progress_and_refuses_another(memory, operations):
    memory.gate.clear()
    operation = await operations.begin(ATTACH, patience_seconds=0.01)
    assert (operation.done, operation.percent) == (False, 50)
    with pytest.raises(errors.Aborted) as caught:
        await operations.begin(replace(ATTACH, request_id="r9"), patience_seconds=30)
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
async def test_what_the_fabric_shows_counts_more_than_its_answer(
    memory, operations, error, is_effective, succeeded
):
    memory.error, memory.is_effective = error, is_effective
    operation = await operations.begin(ATTACH, patience_seconds=30)
    assert (operation.succeeded, operation.side_effects_unknown) == (succeeded, False)


async def test_an_end_that_cannot_be_read_is_unknown(memory, operations):
    memory.gate.clear()
    await operations.begin(ATTACH, patience_seconds=0.01)
    memory.blind = errors.Unavailable("gone")
    memory.gate.set()
    operation = await operations.begin(ATTACH, patience_seconds=30)
    assert operation.done
    assert operation.side_effects_unknown


async def test_the_attach_of_an_earlier_life_is_adopted_while_its_connection_stands(memory, operations):
    memory.connection = contract.Connection(host_id="h1", request_id="r1")
    assert (await operations.find(request_id="r1")).succeeded
    with pytest.raises(errors.AlreadyExists):
        await operations.begin(replace(ATTACH, host_id="h2"), patience_seconds=30)
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
    error = judgement.verified(ATTACH, device, None, shows_requests=shows_requests)
    assert (error is not None) == is_refused
