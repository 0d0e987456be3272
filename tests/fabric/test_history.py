import pytest

from drawbar.fabric import contract
from drawbar.fabric.history import History

DEVICES = tuple(contract.Device(id=name, device_class=contract.DeviceClass.NVME) for name in ("d1", "d2"))
HOSTS = tuple(contract.Host(id=name, name=name) for name in ("h1", "h2"))


async def events_after(history, version, count):
    """Return that many events after the bookmark that a watch begins with."""
    watch = history.follow(version)
    try:
        assert await anext(watch) == contract.Bookmark(version=version)
        return [await anext(watch) for _ in range(count)]
    finally:
        await watch.aclose()


async def test_a_device_that_goes_is_reported_gone():
    history = History()
    history.publish(DEVICES, HOSTS)
    version = history.version
    history.publish(DEVICES[:1], HOSTS)
    assert await events_after(history, version, 1) == [
        contract.DeviceGone(version=history.version, device_id="d2")
    ]
    assert list(history.devices) == ["d1"]


async def test_a_device_in_doubt_is_not_reported_gone_and_watchers_list_again():
    history = History()
    history.publish(DEVICES, HOSTS)
    for listed, unread in ((DEVICES, {"/a"}), (DEVICES[:1], {"/a"}), (DEVICES[:1], set())):
        version = history.version
        history.publish(listed, HOSTS, unread=unread)
        assert [event async for event in history.follow(version)] == [contract.Resync()]
    version = history.version
    history.publish(DEVICES[:1], HOSTS)
    assert history.version == version


async def test_a_host_that_goes_sends_watchers_to_list_again():
    history = History()
    history.publish(DEVICES, HOSTS)
    version = history.version
    history.publish(DEVICES, HOSTS[:1])
    assert [event async for event in history.follow(version)] == [contract.Resync()]
    assert history.hosts == HOSTS[:1]


async def test_an_unchanged_listing_causes_no_event():
    history = History()
    history.publish(DEVICES, HOSTS)
    version = history.version
    history.publish(DEVICES, HOSTS)
    assert history.version == version


@pytest.mark.parametrize(
    "text",
    ["", "-", "other-1", "{life}-", "{life}-x", "{life}--1", "{life}-99", "{life}-²", "{life}-" + "1" * 5000],
)
async def test_a_version_that_is_not_of_this_life_is_answered_with_a_resync(text):
    history = History()
    life = history.version.partition("-")[0]
    assert [event async for event in history.follow(text.format(life=life))] == [contract.Resync()]


async def test_a_version_is_followed_while_all_events_after_it_are_remembered():
    history = History(remembered=2)
    versions = [history.version]
    for number in range(3):
        history.publish((), (contract.Host(id="h", name=str(number)),))
        versions.append(history.version)
    assert [event async for event in history.follow(versions[0])] == [contract.Resync()]
    assert [event.host.name for event in await events_after(history, versions[1], 2)] == ["1", "2"]
