"""A manager that lists or streams more than its Fabric allows: it is Degraded, and keeps what it had; in virtual time."""

import asyncio
import contextlib
import itertools

import msgspec
import pytest
from tests.scenes import sessions
from tests.scenes.pools import NOW

from drawbar.driver.api import fabrics
from drawbar.driver.controller.fabrics import connection, status
from drawbar.fabric import budget, contract, errors
from drawbar.mocks.testing import virtualtime

LIMITS = fabrics.Limits(devices=10, hosts=4, watch_events_per_second=16)
WINDOW = int(16 * budget.WINDOW_SECONDS)
FABRIC = msgspec.structs.replace(
    sessions.FABRIC,
    spec=msgspec.structs.replace(sessions.FABRIC.spec, policy=fabrics.Policy(limits=LIMITS)),
)


def device(number, health=contract.Health.OK):
    return contract.Device(id=f"d{number}", device_class=contract.DeviceClass.GPU, health=health)


def devices(number):
    return tuple(map(device, range(number)))


def host(number, ports=1):
    listed = tuple(contract.Port(id=str(port), state=contract.PortState.FREE) for port in range(ports))
    return contract.Host(id=f"h{number}", name=f"h{number}", ports=listed)


class Manager(sessions.Manager):
    """Counts its watches; `stream` makes what each of them yields first."""

    def __init__(self):
        super().__init__()
        self.devices_now, self.hosts_now = devices(3), (host(1),)
        self.stream, self.watched = tuple, []

    async def _yield_events(self):
        self.watched.append(asyncio.get_running_loop().time())
        for event in self.stream():
            yield event
            await asyncio.sleep(0)
        while True:
            yield await self.events.get()


@contextlib.asynccontextmanager
async def running(manager=None):
    """Yield a session that has listed three devices, and its manager."""
    manager = manager or Manager()
    async with sessions.running(manager, fabric=FABRIC) as opened:
        yield opened, manager


def read_degraded(opened):
    """Return the reason and the message of the condition."""
    view = msgspec.structs.replace(opened.view, troubles=tuple(opened.troubles.values()))
    wanted = status.status(FABRIC, view, dropped_fields=(), attached=0, now=NOW)
    (condition,) = [entry for entry in wanted.conditions if entry.type == fabrics.DEGRADED]
    return condition.reason, condition.message


def resync(manager):
    manager.events.put_nowait(contract.Resync())


@virtualtime.in_virtual_time
async def test_a_listing_beyond_the_limit_changes_nothing_and_is_tried_again_ever_more_rarely():
    async with running() as (opened, manager):
        manager.devices_now = devices(11)
        resync(manager)
        await asyncio.sleep(3600)
        assert opened.devices == devices(3)
        assert opened.connection.connected
        reason, message = read_degraded(opened)
        assert reason == "LimitExceeded"
        assert "lists 11 devices or more, and at most 10 are read" in message
        assert "raise spec.policy.limits.devices of the Fabric (kubectl edit fabric f)" in message
        pauses = [later - earlier for earlier, later in itertools.pairwise(manager.listed[2:])]
        assert pauses[0] <= connection.LIMIT_PAUSE_FIRST_SECONDS * 2
        assert max(pauses) > connection.LIMIT_PAUSE_MAX_SECONDS / 2
        assert len(manager.listed) < 30
        assert opened.manager.exceeded == len(manager.listed) - 1


@virtualtime.in_virtual_time
async def test_a_manager_that_is_mended_is_taken_over_again():
    async with running() as (opened, manager):
        manager.devices_now = devices(11)
        resync(manager)
        await asyncio.sleep(60)
        manager.devices_now = devices(10)
        await asyncio.sleep(connection.LIMIT_PAUSE_MAX_SECONDS)
        assert opened.devices == devices(10)
        assert read_degraded(opened)[0] == "Healthy"


@pytest.mark.parametrize(
    "hosts_now", [tuple(map(host, range(5))), (host(1, ports=4 * budget.PORTS_PER_HOST + 1),)]
)
@virtualtime.in_virtual_time
async def test_too_many_hosts_or_ports_are_a_listing_beyond_the_limit(hosts_now):
    async with running() as (opened, manager):
        manager.hosts_now = hosts_now
        resync(manager)
        await asyncio.sleep(60)
        assert opened.hosts == (host(1),)
        assert read_degraded(opened)[0] == "LimitExceeded"


@virtualtime.in_virtual_time
async def test_a_watch_of_ever_new_devices_ends_at_the_limit_and_loses_none_of_the_known():
    async with running() as (opened, manager):
        manager.stream = lambda: (
            contract.DeviceChanged(version=str(number), device=device(number)) for number in itertools.count()
        )
        resync(manager)
        await asyncio.sleep(10)
        assert len(opened.inventory.devices) <= 10
        assert [opened.device(name) for name in ("d0", "d1", "d2")] == list(devices(3))
        assert read_degraded(opened)[0] == "LimitExceeded"
        assert "11 devices" in read_degraded(opened)[1]
        # What the listings lack is given up in the ordinary way, and the watch is tried again ever more rarely.
        await asyncio.sleep(3600)
        assert len(manager.watched) < 30
        assert [opened.device(name) for name in ("d0", "d1", "d2")] == list(devices(3))


@virtualtime.in_virtual_time
async def test_a_watch_of_ever_new_hosts_ends_at_the_limit():
    async with running() as (opened, manager):
        manager.stream = lambda: (
            contract.HostChanged(version=str(number), host=host(number)) for number in itertools.count()
        )
        resync(manager)
        await asyncio.sleep(60)
        assert len(opened.hosts) <= 4
        assert host(1) in opened.hosts
        assert "5 hosts" in read_degraded(opened)[1]


def flap(times=None):
    numbers = itertools.count() if times is None else range(times)
    healths = (contract.Health.CRITICAL, contract.Health.OK)
    return (
        contract.DeviceChanged(version=str(number), device=device(0, healths[number % 2]))
        for number in numbers
    )


@virtualtime.in_virtual_time
async def test_a_flood_costs_the_watch_which_is_opened_again_ever_more_rarely_and_the_fabric_is_listed_meanwhile():
    async with running() as (opened, manager):
        manager.stream = flap
        resync(manager)
        await asyncio.sleep(1)
        assert "streams more than 16 events a second for 20 s" in read_degraded(opened)[1]
        assert opened.connection.connected
        listings, watches = len(manager.listed), len(manager.watched)
        await asyncio.sleep(3600)
        assert len(manager.watched) - watches < 30
        assert len(manager.listed) - listings > 0.8 * 3600 / connection.LIST_EVERY_SECONDS
        pauses = [later - earlier for earlier, later in itertools.pairwise(manager.watched)]
        assert max(pauses) > connection.LIMIT_PAUSE_MAX_SECONDS / 2
        manager.devices_now = devices(4)
        await asyncio.sleep(2 * connection.LIST_EVERY_SECONDS)
        assert opened.device("d3") is not None


@virtualtime.in_virtual_time
async def test_the_flood_is_over_once_a_watch_has_done_its_work_for_a_minute():
    async with running() as (opened, manager):
        manager.stream = flap
        resync(manager)
        await asyncio.sleep(1)
        manager.stream = tuple
        await asyncio.sleep(60)
        assert read_degraded(opened)[0] == "LimitExceeded"
        manager.events.put_nowait(contract.Bookmark(version="1"))
        await asyncio.sleep(30)
        manager.events.put_nowait(contract.Bookmark(version="1"))
        await asyncio.sleep(1)
        assert read_degraded(opened)[0] == "Healthy"


@virtualtime.in_virtual_time
async def test_a_change_of_every_device_at_once_is_no_flood():
    async with running() as (opened, manager):
        manager.stream = lambda: flap(WINDOW - 10)
        resync(manager)
        await asyncio.sleep(60)
        assert read_degraded(opened)[0] == "Healthy"
        assert len(manager.watched) == 2


@virtualtime.in_virtual_time
async def test_a_flood_beside_the_watch_is_reported_by_a_bookmark():
    async with running() as (opened, manager):
        manager.events.put_nowait(contract.Bookmark(version="1", exceeded="the events are too many"))
        await asyncio.sleep(1)
        assert read_degraded(opened) == ("LimitExceeded", "the events are too many")
        manager.events.put_nowait(contract.Bookmark(version="1"))
        await asyncio.sleep(1)
        assert read_degraded(opened)[0] == "Healthy"


@virtualtime.in_virtual_time
async def test_new_devices_wait_until_the_replaced_ones_are_dropped():
    async with running() as (opened, manager):
        manager.devices_now = devices(10)
        resync(manager)
        await asyncio.sleep(1)
        renamed = tuple(device(number) for number in range(100, 110))
        manager.devices_now = renamed
        resync(manager)
        await asyncio.sleep(1)
        assert opened.devices == devices(10)
        assert "10 new devices have to wait" in read_degraded(opened)[1]
        await asyncio.sleep(60)
        assert opened.devices == renamed
        assert read_degraded(opened)[0] == "Healthy"


@virtualtime.in_virtual_time
async def test_a_connection_that_fails_by_a_limit_is_reported_by_both_conditions():
    class Large(Manager):
        async def connect(self, config):
            assert config.limits == LIMITS.budget
            raise errors.Unavailable("too much", reason=errors.Reason.LIMIT_EXCEEDED)

    async with running(Large()) as (opened, _):
        assert (opened.connection.connected, opened.connection.reason) == (False, "LimitExceeded")
        assert read_degraded(opened) == ("LimitExceeded", "too much")
