"""What a start makes of what the last instance left: restart, reboot, a lost or corrupt record, two instances."""

import asyncio

import pytest
from tests.scenes import readers

from drawbar.driver.kube import client, sessions
from drawbar.driver.node import errors
from drawbar.driver.node.plugin import servicers
from drawbar.driver.node.preparation import sweeping

DRIVER = "drawbar.dev"


async def test_after_a_restart_nothing_is_lost_and_a_claim_with_its_file_is_completed(world):
    name = await world.prepare_claim()
    before = world.cdi()
    assert world.state(name.uid) == "started"
    await world.restart_preparer()
    assert (world.cdi(), world.state(name.uid)) == (before, "completed")
    assert world.preparer.holders.find("p", "d1") == name.uid


async def test_after_a_restart_that_changes_nothing_nothing_is_written(world):
    await world.prepare_claim()
    await world.restart_preparer()
    before = world.list_record_files()
    await world.restart_preparer()
    assert world.list_record_files() == before


async def test_a_completed_claim_gets_its_file_again_at_the_start(world):
    await world.prepare_claim()
    before = world.cdi()
    await world.restart_preparer()
    world.forget_cdi()
    await world.restart_preparer()
    assert world.cdi() == before


async def test_a_claim_that_was_never_prepared_to_its_end_keeps_its_device_without_a_file(world):
    name = await world.prepare_claim()
    world.forget_cdi()
    await world.restart_preparer()
    assert (world.state(name.uid), world.cdi()) == ("started", {})
    assert world.preparer.holders.find("p", "d1") == name.uid
    await world.preparer.prepare(name)
    assert world.cdi() == {f"{DRIVER}-{name.uid}.json": [f"{name.uid}-d1"]}


@pytest.mark.parametrize("kept", [False, True], ids=["volatile", "kept-over-the-reboot"])
async def test_after_a_reboot_claims_are_started_again_and_have_no_file_before_the_next_prepare(world, kept):
    name = await world.prepare_claim()
    await world.restart_preparer()
    before = world.cdi()
    await (world.restart_preparer("boot-2") if kept else world.reboot())
    await world.restart_preparer("boot-2")
    assert world.cdi() == {}
    claim = world.claims()[name.uid]
    assert (claim["bootID"], claim["state"]) == ("boot-2", "started")
    assert world.preparer.holders.find("p", "d1") == name.uid
    await world.prepare_again(name)
    assert world.cdi() == before


@pytest.mark.parametrize("gone", ["device", "attachment"])
async def test_after_a_reboot_without_the_device_the_claim_can_still_be_unprepared(world, gone):
    name = await world.prepare_claim()
    if gone == "device":
        await world.unplug("d1")
    else:
        world.attached = []
    await world.reboot()
    assert world.cdi() == {}
    assert world.preparer.holders.find("p", "d1") == name.uid
    await world.preparer.unprepare(name)
    assert (world.list_recorded_uids(), world.released) == ([], [("p", "d1")])


async def test_a_device_replacing_a_prepared_one_gets_no_file(world):
    first, second = (card for card in world.arrivals.cards if card.first.serial)
    world.local.cards["n", "own"] = first
    name = await world.claim(results=(world.result("own", pool="n"),))
    await world.preparer.prepare(name)
    world.local.cards["n", "own"] = second
    await world.restart_preparer()
    world.forget_cdi()
    await world.restart_preparer()
    assert world.cdi() == {}
    assert world.preparer.holders.find("n", "own") == name.uid


async def test_a_file_that_no_claim_stands_behind_is_removed_and_those_of_others_stay(world):
    name = await world.prepare_claim()
    for file in (f"{DRIVER}-stray.json", "other.dev-x.json"):
        (world.folder / "cdi" / file).write_text('{"devices": []}')
    await world.restart_preparer()
    assert sorted(world.cdi()) == sorted([f"{DRIVER}-{name.uid}.json", "other.dev-x.json"])


# --- without a record ---


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda raw: raw.strip()[:-10], id="torn"),
        pytest.param(lambda raw: raw.replace(b"drawbar.dev", b"drawbar.dex"), id="flipped-bytes"),
        pytest.param(lambda raw: b"", id="empty"),
        pytest.param(lambda raw: b"\xff\xfe", id="not-json"),
        pytest.param(lambda raw: b'{"version":1,"crc32":2745614147,"claim":{}}', id="no-claim"),
    ],
)
async def test_a_damaged_record_is_set_aside_and_made_again_and_other_claims_keep_theirs(
    world, damage, caplog
):
    name, other = await world.prepare_claim(), await world.claim("c2", results=(world.result("d2"),))
    world.attached.append(world.make_full_attachment("d2", other.uid))
    await world.preparer.prepare(other)
    await world.restart_preparer()
    before, files = world.cdi(), world.list_record_files()
    broken = damage(world.record(name.uid).read_bytes())
    world.record(name.uid).write_bytes(broken)
    await world.restart_preparer()
    assert world.preparer.holders.find("p", "d1") == name.uid
    assert (world.cdi(), world.list_recorded_uids()) == (before, sorted([name.uid, other.uid]))
    (aside,) = (world.folder / "claims").glob("*.corrupt-*")
    assert aside.read_bytes() == broken
    assert aside.name.startswith(f"{name.uid}.json.")
    (reports,) = [record.getMessage() for record in caplog.records if "damaged" in record.getMessage()]
    assert str(world.record(name.uid)) in reports
    assert world.list_record_files()[f"{other.uid}.json"] == files[f"{other.uid}.json"]
    await world.preparer.unprepare(name)
    assert (list(world.cdi()), world.released) == ([f"{DRIVER}-{other.uid}.json"], [("p", "d1")])


async def test_a_record_that_was_set_aside_before_a_crash_is_still_made_again(world):
    name = await world.prepare_claim()
    world.record(name.uid).rename(world.folder / "claims" / f"{name.uid}.json.corrupt-1")
    await world.restart_preparer()
    assert world.preparer.holders.find("p", "d1") == name.uid
    assert world.list_recorded_uids() == [name.uid]


async def test_a_lost_record_is_found_again(world):
    name = await world.prepare_claim()
    before = world.cdi()
    world.lose_record()
    await world.restart_preparer()
    assert world.preparer.holders.find("p", "d1") == name.uid
    assert (world.cdi(), world.list_recorded_uids()) == (before, [name.uid])


async def test_a_record_that_was_removed_by_hand_takes_the_cdi_file_with_it_at_the_next_start(world):
    name = await world.prepare_claim()
    world.record(name.uid).unlink()
    await world.restart_preparer()
    assert (world.cdi(), world.list_recorded_uids()) == ({}, [])
    assert world.preparer.holders.find("p", "d1") is None


async def test_a_lost_checkpoint_does_not_lose_a_device_that_is_being_detached(world):
    """The device's release must not be reported while a container may still use the device."""
    name = await world.prepare_claim()
    world.lose_record()
    world.attached = [world.attachment("d1", name.uid, deleting=True)]
    await world.restart_preparer()
    assert world.preparer.holders.find("p", "d1") == name.uid


async def make_unexplained_claim(world):
    """Return a claim that has only its CDI file left here."""
    name = await world.prepare_claim()
    world.lose_record()
    world.attached = []
    await world.restart_preparer()
    assert world.state(name.uid) == "unexplained"
    return name


async def test_a_device_of_unknown_ownership_is_refused_in_every_pool(world):
    name = await make_unexplained_claim(world)
    for pool in ("p", "q"):
        assert world.preparer.holders.find(pool, "d1") == name.uid
    other = await world.claim("c2")
    world.attached = [world.make_full_attachment("d1", other.uid)]
    with pytest.raises(errors.PrepareError, match="may still use it"):
        await world.preparer.prepare(other)
    assert list(world.cdi()) == [f"{DRIVER}-{name.uid}.json"]


async def test_the_claim_itself_explains_its_device(world):
    name = await make_unexplained_claim(world)
    await world.settle()
    assert world.state(name.uid) == "completed"
    assert world.preparer.holders.find("p", "d1") == name.uid
    assert world.preparer.holders.find("q", "d1") is None
    (held,) = world.claims()[name.uid]["devices"]
    assert (held["pool"], held["requests"]) == ("p", ["disk"])
    assert world.preparer.unsettled == ()


async def test_the_file_of_a_claim_that_is_gone_goes_and_its_device_is_free(world):
    name = await make_unexplained_claim(world)
    await world.remove()
    await world.settle()
    assert (world.cdi(), world.list_recorded_uids()) == ({}, [])
    assert world.preparer.holders.find("p", "d1") is None
    assert name.uid not in world.cdi()


async def test_an_unexplained_claim_that_the_kubelet_names_is_prepared_and_unprepared_as_ever(world):
    name = await make_unexplained_claim(world)
    world.attached = [world.make_full_attachment("d1", name.uid)]
    await world.preparer.prepare(name)
    assert world.preparer.holders.find("q", "d1") is None
    await world.preparer.unprepare(name)
    assert (world.cdi(), world.list_recorded_uids()) == ({}, [])


class Meanwhile:
    """Reads claims, and something happens before the answer is there."""

    def __init__(self, reader, happens):
        self._reader = reader
        self._happens = happens

    async def all_names(self):
        return await self._reader.all_names()

    async def read(self, name, namespace):
        claim = await self._reader.read(name, namespace)
        await self._happens()
        return claim


@pytest.mark.parametrize("call", ["unprepare", "prepare"])
async def test_an_unexplained_claim_that_the_kubelet_settles_while_it_is_read_is_left_alone(world, call):
    name = await make_unexplained_claim(world)
    world.attached = [world.make_full_attachment("d1", name.uid)]
    settled = []

    async def kubelet():
        await getattr(world.preparer, call)(name)
        settled.append(world.list_record_files())

    async with asyncio.timeout(120):
        await sweeping.Sweeper(world.preparer, world.finder(), Meanwhile(world.reader, kubelet)).run()
    assert [world.list_record_files()] == settled
    assert world.list_recorded_uids() == ([name.uid] if call == "prepare" else [])


async def test_without_the_api_server_a_device_of_unknown_ownership_stays_refused(world):
    name = await make_unexplained_claim(world)
    nowhere = sessions.Connection(
        server="http://127.0.0.1:9", tls=None, authorization=lambda: "Bearer x", origin="test"
    )
    async with client.connecting(nowhere) as api:
        reader = readers.make_modern_reader(api, driver=DRIVER, node_name="n")
        task = asyncio.Task(sweeping.Sweeper(world.preparer, world.finder(), reader).run())
        await asyncio.sleep(0.1)
        assert not task.done(), "it tries again"
        task.cancel()
        await asyncio.wait([task])
    assert world.preparer.holders.find("p", "d1") == name.uid
    async with asyncio.timeout(120):
        await sweeping.Sweeper(world.preparer, world.finder(), world.reader).run()
    assert world.state(name.uid) == "completed"


async def test_a_reboot_releases_a_device_of_unknown_ownership(world):
    await make_unexplained_claim(world)
    await world.reboot()
    assert world.list_recorded_uids() == []


# --- what was never finished ---


async def never_finished(world):
    name = await world.prepare_claim()
    world.forget_cdi()
    await world.restart_preparer()
    return name


async def test_a_claim_that_the_kubelet_has_lost_keeps_its_device_until_the_node_is_restarted(world):
    lost = await world.prepare_claim()
    await world.remove()
    await world.restart_preparer()
    await world.settle()
    other = await world.claim("c2", [world.result("d1")])
    world.attached = [world.make_full_attachment("d1", other.uid)]
    with pytest.raises(errors.PrepareError, match="the kubelet has lost it: restart the node"):
        await world.preparer.prepare(other)
    assert world.list_recorded_uids() == [lost.uid]
    await world.reboot()
    await world.settle()
    await world.prepare_again(other)
    assert world.list_recorded_uids() == [other.uid]


@pytest.mark.parametrize("end", ["gone", "deallocated", "replaced"])
async def test_an_unfinished_claim_is_released_once_it_is_over(world, end):
    name = await never_finished(world)
    await world.settle()
    assert world.list_recorded_uids() == [name.uid], "the kubelet may still ask"
    if end == "deallocated":
        await world.allocate("c1", ())
    else:
        await world.remove()
    if end == "replaced":
        await world.claim()
    await world.settle()
    assert (world.list_recorded_uids(), world.released) == ([], [("p", "d1")])


async def test_a_claim_finished_meanwhile_is_never_released(world):
    name = await never_finished(world)
    await world.preparer.prepare(name)
    await world.remove()
    await world.settle()
    assert world.preparer.holders.find("p", "d1") == name.uid
    assert list(world.cdi()) == [f"{DRIVER}-{name.uid}.json"]


async def test_a_completed_claim_is_never_released_without_the_kubelet(world):
    name = await world.prepare_claim()
    await world.restart_preparer()
    await world.remove()
    await world.settle()
    assert world.list_recorded_uids() == [name.uid]


# --- two instances ---


async def test_one_instance_unprepares_claims_of_the_other(world):
    old = world.preparer
    new = await world.restart_preparer()
    name = await world.claim()
    world.attached = [world.make_full_attachment("d1", name.uid)]
    await old.prepare(name)
    assert new.holders.find("p", "d1") == name.uid
    await new.unprepare(name)
    assert old.holders.find("p", "d1") is None
    assert (world.cdi(), world.list_recorded_uids()) == ({}, [])


async def test_a_device_that_one_instance_handed_out_the_other_does_not(world):
    old = world.preparer
    new = await world.restart_preparer()
    names = [await world.claim("c1"), await world.claim("c2")]
    world.attached = [world.make_full_attachment("d1", name.uid) for name in names]
    outcomes = await asyncio.gather(old.prepare(names[0]), new.prepare(names[1]), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["PrepareError", "tuple"]
    assert len(world.cdi()) == len(world.list_recorded_uids()) == 1


async def test_two_instances_at_once_lose_none_of_each_others_claims(world):
    both = [world.preparer, await world.restart_preparer()]
    results = [world.result("d1", shareID=world.share(number)) for number in range(20)]
    names = [await world.claim(f"c{number}", results=(result,)) for number, result in enumerate(results)]
    world.attached = world.shares(names)
    await asyncio.gather(*(both[number % 2].prepare(name) for number, name in enumerate(names)))
    assert world.list_recorded_uids() == sorted(name.uid for name in names)
    await asyncio.gather(*(both[number % 3 % 2].unprepare(name) for number, name in enumerate(names)))
    assert (world.list_recorded_uids(), world.cdi()) == ([], {})


@pytest.mark.parametrize("damage", [b"{", None], ids=["corrupt", "gone"])
async def test_a_record_that_breaks_while_running_is_written_again(world, damage):
    first = await world.prepare_claim()
    if damage is None:
        world.lose_record()
    else:
        world.record(first.uid).write_bytes(damage)
    assert world.preparer.holders.find("p", "d1") == first.uid
    second = await world.claim("c2", results=(world.result("d2"),))
    world.attached.append(world.make_full_attachment("d2", second.uid))
    await world.preparer.prepare(second)
    assert world.list_recorded_uids() == sorted([first.uid, second.uid])


async def test_while_a_newer_drawbar_has_the_record_nothing_is_prepared(world):
    name = servicers.ClaimName(namespace="default", name="c1", uid="u1")
    world.attached = [world.make_full_attachment("d1", "u1")]
    file = world.record("u2")
    file.parent.mkdir(exist_ok=True)
    newer = b'{"version": 99, "crc32": 0, "data": "{}"}'
    file.write_bytes(newer)
    with pytest.raises(errors.CheckpointError, match="upgrade Drawbar"):
        await world.preparer.prepare(name)
    assert file.read_bytes() == newer
    assert world.cdi() == {}
    with pytest.raises(errors.CheckpointError, match="upgrade Drawbar"):
        await world.restart_preparer()
    assert file.read_bytes() == newer
