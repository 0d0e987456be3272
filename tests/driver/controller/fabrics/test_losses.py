"""A device that the fabric manager no longer lists is lost when its node agrees, or after three listings."""

import asyncio

import pytest
from tests.scenes import sessions
from tests.scenes.sessions import Listener

from drawbar.driver.controller.fabrics import inventory, losses
from drawbar.driver.controller.offers import holdings
from drawbar.fabric import contract
from drawbar.mocks.testing import virtualtime

SHOWS, LOST, SILENT = holdings.NodeReport.SHOWS, holdings.NodeReport.LOST, holdings.NodeReport.SILENT


@pytest.mark.parametrize(
    ("report", "sudden", "lost_at"),
    [
        pytest.param(None, False, 0, id="not-attached"),
        pytest.param(None, True, 20, id="not-attached-and-the-listing-is-doubtful"),
        pytest.param(LOST, True, 0, id="its-node-agrees"),
        pytest.param(SILENT, False, 20, id="its-node-reports-nothing"),
        pytest.param(SHOWS, False, None, id="its-node-shows-it"),
    ],
)
def test_when_a_device_is_lost(report, sudden, lost_at):
    missing, lost = {}, []
    for now in range(0, 100, 5):
        reports = {} if report is None else {"d": report}
        judged = losses.judge(["d"], missing=missing, reports=reports, now=now, sudden=sudden and now == 0)
        if judged.lost:
            lost.append(now)
            break
        missing = judged.missing
    assert lost == ([] if lost_at is None else [lost_at])


@pytest.mark.parametrize("report", [None, LOST, SILENT, SHOWS])
def test_a_listing_with_a_part_that_cannot_be_read_takes_nothing_away(report):
    reports = {} if report is None else {"d": report}
    missing = {}
    for now in range(0, 100, 10):
        judged = losses.judge(["d"], missing=missing, reports=reports, now=now, partial=True)
        assert (judged.lost, set(judged.missing)) == ((), {"d"})
        assert not judged.missing["d"].undecided, "a part that stays sick is no reason to list every 10 s"
        missing = judged.missing
    judged = losses.judge(["d"], missing=missing, reports=reports, now=100)
    assert bool(judged.lost) is (report is LOST)


@pytest.mark.parametrize(("absent", "sudden"), [(0, False), (2, False), (3, True), (8, True)])
def test_more_than_a_quarter_at_once_makes_a_listing_doubtful(absent, sudden):
    names = [f"d{number}" for number in range(absent)]
    assert losses.is_sudden(names, {}, 8) is sudden
    assert not losses.is_sudden(names, names, 8), "what was missing before is no news"


def test_few_of_many_devices_are_named():
    sentence = losses.trouble([f"d{number}" for number in range(9)], 10)
    assert sentence.startswith(
        "the fabric manager does not list 9 of 10 devices any more (d0, d1, d2, d3, d4, …)"
    )
    assert losses.trouble([], 10) == ""


class Manager(sessions.Manager):
    """A fabric of so many devices and two hosts."""

    def __init__(self, count=4):
        super().__init__()
        self.devices_now = tuple(
            contract.Device(id=f"d{number}", device_class=contract.DeviceClass.GPU) for number in range(count)
        )
        self.hosts_now = tuple(contract.Host(id=f"h{number}", name=f"n{number}") for number in range(2))


def make_attached_holdings(**reports):
    """Return the holdings of devices with these reports of their nodes."""
    return holdings.Holdings.from_parts(
        holdings.Holding(name=name, uid=name, host_id="h0", report=report) for name, report in reports.items()
    )


def make_published_holdings(*names):
    """Return the holdings of a cluster that publishes these devices."""
    return holdings.Holdings(published={"slice": frozenset(names)})


class Recording(Listener):
    """Keeps what was reported of devices."""

    def __init__(self):
        self.gone, self.troubles = [], 0

    def device_changed(self, fabric, old, new):
        if new is None:
            self.gone.append(old.id)

    def troubles_changed(self, fabric):
        self.troubles += 1


@virtualtime.in_virtual_time
async def test_one_empty_listing_takes_nothing_away_and_is_reported_until_the_next():
    manager, listener = Manager(), Recording()
    async with sessions.running(manager, listener) as opened:
        whole, manager.devices_now = manager.devices_now, ()
        manager.events.put_nowait(contract.Resync())
        await asyncio.sleep(5)
        assert opened.devices == whole
        assert opened.view.missing
        assert "does not list 4 of 4 devices" in opened.troubles[inventory.MISSING]
        manager.devices_now = whole
        await asyncio.sleep(10)
        assert not opened.missing
        assert inventory.MISSING not in opened.troubles
        assert listener.gone == []
        listed = len(manager.listed)
        await asyncio.sleep(3600)
        assert len(manager.listed) == listed, (
            "a watched fabric in which nothing is missing is not listed again"
        )


@virtualtime.in_virtual_time
async def test_a_missing_device_keeps_its_count_while_a_part_is_unreadable():
    manager, listener = Manager(), Recording()
    async with sessions.running(manager, listener) as opened:
        devices, hosts = manager.devices_now, manager.hosts_now
        manager.devices_now, manager.hosts_now = devices[1:], hosts[1:]
        manager.unread_now = ("/Chassis/c cannot be read",)
        manager.events.put_nowait(contract.Resync())
        listed = len(manager.listed)
        await asyncio.sleep(600)
        assert (opened.devices, ids(opened), listener.gone) == (devices, ["h1", "h0"], [])
        assert "/Chassis/c cannot be read" in opened.troubles[inventory.UNREAD]
        assert len(manager.listed) - listed < 13
        manager.unread_now = ()
        manager.events.put_nowait(contract.Resync())
        await asyncio.sleep(61)
        assert inventory.UNREAD not in opened.troubles
        assert listener.gone == ["d0"]


@virtualtime.in_virtual_time
async def test_a_device_missing_in_three_listings_is_lost_unless_its_node_shows_it():
    manager, listener = Manager(), Recording()
    async with sessions.running(manager, listener) as opened:
        opened.update_holdings(make_attached_holdings(d0=SHOWS, d1=SILENT))
        manager.devices_now = manager.devices_now[2:]
        manager.events.put_nowait(contract.Resync())
        await asyncio.sleep(19)
        assert (listener.gone, opened.missing) == ([], {"d0", "d1"})
        await asyncio.sleep(2)
        assert (listener.gone, opened.missing) == (["d1"], {"d0"})
        await asyncio.sleep(600)
        assert (listener.gone, opened.missing) == (["d1"], {"d0"})
        assert len(manager.listed) < 16, "what its node shows is listed again once a minute"
        opened.update_holdings(make_attached_holdings(d0=LOST))
        assert (listener.gone, opened.missing) == (["d1", "d0"], frozenset())


@virtualtime.in_virtual_time
async def test_an_event_takes_a_device_that_no_claim_has_at_once_and_no_other():
    manager, listener = Manager(), Recording()
    async with sessions.running(manager, listener) as opened:
        opened.update_holdings(make_attached_holdings(d0=SILENT))
        manager.devices_now = manager.devices_now[2:]
        for name in ("d0", "d1"):
            manager.events.put_nowait(contract.DeviceGone(version="9", device_id=name))
        await asyncio.sleep(1)
        assert (listener.gone, opened.missing) == (["d1"], {"d0"})
        await asyncio.sleep(25)
        assert (listener.gone, opened.missing) == (["d1", "d0"], frozenset())


@virtualtime.in_virtual_time
async def test_the_first_listing_takes_no_attached_device_away_either():
    manager, held = Manager(count=0), make_attached_holdings(d0=SHOWS, d1=SILENT)
    async with sessions.running(manager, held=held) as opened:
        assert opened.missing == {"d0", "d1"}
        await asyncio.sleep(25)
        assert opened.missing == {"d0"}
        assert opened.devices == ()


@pytest.mark.parametrize(("count", "missing"), [(0, 8), (4, 4), (6, 0)], ids=["none", "half", "most"])
@virtualtime.in_virtual_time
async def test_the_first_listing_is_compared_with_the_published_devices(count, missing):
    names = [f"d{number}" for number in range(8)]
    async with sessions.running(Manager(count=count), held=make_published_holdings(*names)) as opened:
        assert opened.missing == set(names[count:] if missing else ())
        assert opened.view.missing is bool(missing)
        await asyncio.sleep(25)
        assert opened.missing == frozenset()
        assert opened.troubles == {}


@virtualtime.in_virtual_time
async def test_a_published_device_in_the_second_listing_was_never_missing():
    manager, listener = Manager(count=0), Recording()
    async with sessions.running(manager, listener, held=make_published_holdings("d0", "d1")) as opened:
        manager.devices_now = Manager(count=2).devices_now
        await asyncio.sleep(12)
        assert [device.id for device in opened.devices] == ["d0", "d1"]
        assert (opened.missing, listener.gone) == (frozenset(), [])


def ids(opened):
    return [host.id for host in opened.hosts]


@pytest.mark.parametrize("left", [0, 1], ids=["none", "half"])
@virtualtime.in_virtual_time
async def test_hosts_missing_in_one_listing_stay_until_two_more_agree(left):
    manager = Manager()
    async with sessions.running(manager, Recording()) as opened:
        manager.hosts_now = manager.hosts_now[:left]
        manager.events.put_nowait(contract.Resync())
        await asyncio.sleep(19)
        assert sorted(ids(opened)) == ["h0", "h1"]
        assert "of 2 hosts any more" in opened.troubles[inventory.MISSING_HOSTS]
        await asyncio.sleep(2)
        assert ids(opened) == ["h0", "h1"][:left]
        assert opened.troubles == {}


@pytest.mark.parametrize("how", ["listed", "told"])
@virtualtime.in_virtual_time
async def test_a_host_that_comes_back_was_never_away(how):
    manager = Manager()
    async with sessions.running(manager, Recording()) as opened:
        whole, manager.hosts_now = manager.hosts_now, ()
        manager.events.put_nowait(contract.Resync())
        await asyncio.sleep(1)
        manager.hosts_now = whole
        if how == "told":
            for host in whole:
                manager.events.put_nowait(contract.HostChanged(version="9", host=host))
            await asyncio.sleep(1)
            assert opened.troubles == {}
        await asyncio.sleep(25)
        assert sorted(ids(opened)) == ["h0", "h1"]
        assert opened.troubles == {}


@virtualtime.in_virtual_time
async def test_one_host_of_many_that_is_taken_out_goes_at_once():
    manager = Manager()
    manager.hosts_now = tuple(contract.Host(id=f"h{number}", name=f"n{number}") for number in range(8))
    async with sessions.running(manager, Recording()) as opened:
        manager.hosts_now = manager.hosts_now[:7]
        manager.events.put_nowait(contract.Resync())
        await asyncio.sleep(1)
        assert len(opened.hosts) == 7


@pytest.mark.parametrize("used", ["attached", "published"])
@virtualtime.in_virtual_time
async def test_a_first_listing_without_a_host_is_not_taken_over_where_devices_were_in_use(used):
    manager, held = (
        Manager(),
        make_attached_holdings(d0=SHOWS) if used == "attached" else make_published_holdings("d0"),
    )
    manager.hosts_now = ()
    async with sessions.running(manager, held=held) as opened:
        assert (opened.has_listing, opened.hosts, opened.connection.connected) == (False, (), True)
        assert opened.troubles == {inventory.MISSING_HOSTS: inventory.NO_HOSTS}
        manager.hosts_now = Manager().hosts_now
        await asyncio.sleep(11)
        assert (opened.has_listing, sorted(ids(opened)), opened.troubles) == (True, ["h0", "h1"], {})


@virtualtime.in_virtual_time
async def test_a_fabric_without_hosts_is_accepted_at_once_if_nothing_was_in_use_and_after_three_listings_else():
    manager = Manager()
    manager.hosts_now = ()
    async with sessions.running(manager) as opened:
        assert opened.has_listing
    async with sessions.running(manager, held=make_published_holdings("d0")) as opened:
        await asyncio.sleep(25)
        assert (opened.has_listing, opened.hosts, opened.troubles) == (True, (), {})
