"""Prepare and Unprepare on real files, with claims from the API server double."""

import asyncio

import pytest
from tests.scenes import waiting

from drawbar.driver.kube import client, sessions
from drawbar.driver.node import errors
from drawbar.driver.node.plugin import servicers

DRIVER = "drawbar.dev"


async def test_a_prepared_claim_has_its_cdi_file_and_its_record(world):
    name = await world.prepare_claim()
    assert world.cdi() == {f"{DRIVER}-{name.uid}.json": [f"{name.uid}-d1"]}
    assert world.list_recorded_uids() == [name.uid]
    assert world.preparer.holders.find("p", "d1") == name.uid
    assert world.preparer.holders.list_devices() == {("p", "d1")}


async def test_a_second_prepare_gives_the_same_and_writes_the_cdi_file_again(world):
    name = await world.prepare_claim()
    first = await world.preparer.prepare(name)
    (file,) = (world.folder / "cdi").glob("*.json")
    content = file.read_bytes()
    file.unlink()
    assert await world.preparer.prepare(name) == first
    assert file.read_bytes() == content


async def test_the_kubelet_gets_the_request_and_not_its_alternative(world):
    name = await world.claim(
        results=(world.result("d1", request="disk/fast"), world.result("d2", request="other"))
    )
    world.attached = [world.attachment("d1", name.uid), world.attachment("d2", name.uid)]
    prepared = await world.preparer.prepare(name)
    assert [(device.device, device.requests, device.cdi_id) for device in prepared] == [
        ("d1", ("disk",), f"{DRIVER}/device={name.uid}-d1"),
        ("d2", ("other",), f"{DRIVER}/device={name.uid}-d2"),
    ]


async def test_devices_of_other_drivers_are_not_ours_to_prepare(world):
    name = await world.claim(results=(world.result("d1", driver="other.dev"),))
    assert await world.preparer.prepare(name) == ()
    assert world.cdi() == {}
    assert world.list_recorded_uids() == []


async def expect_refusal(world, name):
    with pytest.raises(errors.PrepareError) as error:
        await world.preparer.prepare(name)
    assert "\n" not in str(error.value)
    assert world.cdi() == {}
    assert world.list_recorded_uids() == []
    return str(error.value)


async def test_a_claim_that_is_gone_is_reported(world):
    name = servicers.ClaimName(namespace="default", name="none", uid="u")
    assert "default/none does not exist any more" in await expect_refusal(world, name)


async def test_a_replaced_claim_is_reported_with_a_remedy(world):
    name = await world.claim()
    old = servicers.ClaimName(namespace="default", name="c1", uid="old")
    assert "replaced by another claim of that name; delete the pod" in await expect_refusal(world, old)
    assert name.uid != old.uid


async def test_a_claim_that_is_not_allocated_is_reported(world):
    assert "is not allocated" in await expect_refusal(world, await world.claim(results=()))


async def test_a_claim_that_may_not_be_read_is_reported(world, tmp_path):
    name = await world.claim()
    unauthorized = sessions.Connection(
        server=world.api.server, tls=None, authorization=lambda: "Bearer no", origin="test"
    )
    async with client.connecting(unauthorized) as api:
        world.ask(api)
        await world.restart_preparer()
        assert "cannot read claim default/c1" in await expect_refusal(world, name)


@pytest.mark.parametrize(
    ("attached", "words"),
    [
        pytest.param([], "not attached to this node for this claim", id="not-attached"),
        pytest.param([("d1", "another", {})], "not attached to this node for this claim", id="for-another"),
        pytest.param([("d1", "", {})], "not attached to this node for this claim", id="idle"),
        pytest.param([("d1", None, {"deleting": True})], "is being detached", id="going"),
    ],
)
async def test_a_device_that_is_not_attached_for_the_claim_is_reported(world, attached, words):
    name = await world.claim()
    world.attached = [
        world.attachment(device, name.uid if uid is None else uid, **more) for device, uid, more in attached
    ]
    assert words in await expect_refusal(world, name)


@pytest.mark.parametrize(
    ("visible", "words"),
    [
        pytest.param(None, "is not visible on this node yet", id="not-here-yet"),
        pytest.param(True, "is not visible on this node yet", id="just-gone"),
        pytest.param(False, "cannot be used on this node: it fell out", id="lost"),
    ],
)
async def test_a_device_that_is_not_here_is_reported(world, visible, words):
    name = await world.claim()
    world.tree.detach(1)
    await world.arrivals.read()
    world.attached = [world.attachment("d1", name.uid, visible=visible)]
    message = await expect_refusal(world, name)
    assert words in message
    assert "p/d1" in message


async def test_a_claim_of_which_one_device_is_missing_is_not_prepared_in_part(world):
    name = await world.claim(results=(world.result("d1"), world.result("d2")))
    world.attached = [world.attachment("d1", name.uid)]
    assert "p/d2" in await expect_refusal(world, name)


async def test_a_device_that_another_claim_still_uses_is_refused_until_that_is_unprepared(world):
    first = await world.prepare_claim()
    second = await world.claim("c2")
    world.attached = [world.attachment("d1", second.uid)]
    with pytest.raises(errors.PrepareError, match="still in use by claim default/c1"):
        await world.preparer.prepare(second)
    assert world.list_recorded_uids() == [first.uid]
    await world.preparer.unprepare(first)
    await world.preparer.prepare(second)
    assert world.list_recorded_uids() == [second.uid]


async def test_of_two_claims_for_one_device_at_once_only_one_gets_it(world):
    names = [await world.claim("c1"), await world.claim("c2")]
    world.attached = [world.attachment("d1", name.uid) for name in names]
    done = await asyncio.gather(*(world.preparer.prepare(name) for name in names), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in done) == ["PrepareError", "tuple"]
    assert len(world.list_recorded_uids()) == len(world.cdi()) == 1


async def test_an_unprepared_claim_leaves_nothing_and_reports_freed_devices(world):
    name = await world.prepare_claim()
    for _ in range(2):
        await world.preparer.unprepare(name)
    assert (world.cdi(), world.list_recorded_uids(), world.released) == ({}, [], [("p", "d1")])
    assert world.preparer.holders.find("p", "d1") is None
    assert world.preparer.holders.list_devices() == frozenset()


async def test_an_unknown_claim_is_unprepared_with_success(world):
    await world.preparer.unprepare(servicers.ClaimName(namespace="ns", name="never", uid="never"))
    assert world.released == []


async def test_a_claim_that_came_back_with_another_device_lets_the_first_go(world):
    name = await world.prepare_claim()
    await world.allocate("c1", ())
    await world.allocate("c1", (world.result("d2"),))
    world.attached = [world.attachment("d1", deleting=True), world.attachment("d2", name.uid)]
    await world.preparer.prepare(name)
    assert world.released == [("p", "d1")]
    assert world.preparer.holders.find("p", "d1") is None


async def test_an_unwritable_cdi_directory_is_reported_and_a_later_call_succeeds(world):
    """The record is written before the file, so the device stays reserved for the claim meanwhile."""
    name = await world.claim()
    world.attached = [world.attachment("d1", name.uid)]
    (world.folder / "cdi").write_text("in the way")
    with pytest.raises(errors.PrepareError, match="CDI"):
        await world.preparer.prepare(name)
    assert world.state(name.uid) == "started"
    assert world.preparer.holders.find("p", "d1") == name.uid
    (world.folder / "cdi").unlink()
    await world.preparer.prepare(name)
    assert world.cdi() == {f"{DRIVER}-{name.uid}.json": [f"{name.uid}-d1"]}


async def test_a_record_that_cannot_be_written_fails_the_call_and_a_later_one_succeeds(world):
    name = await world.claim()
    world.attached = [world.attachment("d1", name.uid)]
    in_the_way = world.folder / "claims" / f".{name.uid}.json.tmp"
    in_the_way.mkdir(parents=True)
    with pytest.raises(errors.CheckpointError, match="with room on it"):
        await world.preparer.prepare(name)
    assert world.preparer.holders.find("p", "d1") is None
    assert world.cdi() == {}
    in_the_way.rmdir()
    await world.preparer.prepare(name)
    assert world.list_recorded_uids() == [name.uid]


async def test_a_cdi_file_that_cannot_be_removed_fails_the_call_and_the_claim_keeps_its_device(world):
    name = await world.prepare_claim()
    (file,) = (world.folder / "cdi").iterdir()
    file.unlink()
    file.mkdir()
    with pytest.raises(errors.PrepareError, match="cannot remove"):
        await world.preparer.unprepare(name)
    assert world.preparer.holders.find("p", "d1") == name.uid
    file.rmdir()
    await world.preparer.unprepare(name)
    assert (world.list_recorded_uids(), world.released) == ([], [("p", "d1")])


# --- without asking the API server ---


@pytest.fixture
async def offline(world):
    """Return the world with an instance whose API server never answers."""
    nowhere = sessions.Connection(
        server="http://127.0.0.1:9", tls=None, authorization=lambda: "Bearer x", origin="test"
    )
    async with client.connecting(nowhere) as api:
        world.ask(api)
        await world.restart_preparer()
        yield world


async def test_complete_attachments_spare_the_api_server(offline):
    name = servicers.ClaimName(namespace="default", name="c1", uid="u1")
    offline.attached = [
        offline.make_full_attachment("d1", "u1", devices=2),
        offline.make_full_attachment("d2", "u1", devices=2),
    ]
    prepared = await offline.preparer.prepare(name)
    assert [(device.device, device.requests) for device in prepared] == [("d1", ("disk",)), ("d2", ("disk",))]


async def test_a_uid_that_leads_out_of_the_cdi_directory_writes_and_removes_nothing(offline):
    uid = "x/../../pwn"
    outside = offline.folder / "pwn.json"
    (offline.folder / "cdi" / f"{DRIVER}-x").mkdir(parents=True)
    name = servicers.ClaimName(namespace="default", name="c1", uid=uid)
    offline.attached = [offline.make_full_attachment("d1", uid)]
    with pytest.raises(errors.PrepareError, match="no CDI file can be named after"):
        await offline.preparer.prepare(name)
    assert (outside.exists(), offline.list_recorded_uids()) == (False, [])
    outside.write_text("{}")
    with pytest.raises(errors.PrepareError, match="no CDI file can be named after"):
        await offline.preparer.unprepare(name)
    assert outside.exists()


@pytest.mark.parametrize(
    "attached",
    [
        pytest.param([("d1", {"devices": 2})], id="one-is-missing"),
        pytest.param([("d1", {}), ("d2", {})], id="more-than-the-claim-has"),
        pytest.param([("d1", {"requests": ()})], id="no-requests"),
        pytest.param([("d1", {"deleting": True})], id="going"),
        pytest.param([("d1", {"at": None})], id="no-allocation"),
        pytest.param(
            [("d1", {"devices": 2}), ("d2", {"devices": 2, "at": "2026-01-02T00:00:00Z"})],
            id="of-two-allocations",
        ),
    ],
)
async def test_incomplete_attachments_make_the_claim_be_read(offline, attached):
    name = servicers.ClaimName(namespace="default", name="c1", uid="u1")
    offline.attached = [
        offline.attachment(device, "u1", **{"requests": ("disk",), "devices": 1} | more)
        for device, more in attached
    ]
    with pytest.raises(errors.PrepareError, match="cannot read claim default/c1"):
        await offline.preparer.prepare(name)
    assert offline.list_recorded_uids() == []


async def test_a_device_that_has_just_gone_is_not_handed_out_although_no_event_came_yet(world):
    name = await world.claim()
    world.attached = [world.make_full_attachment("d1", name.uid)]
    await asyncio.to_thread(world.tree.detach, 1)
    assert "device p/d1 has just gone" in await expect_refusal(world, name)


# --- devices that several may use ---


async def test_a_share_is_handed_through_and_holds_no_claim_off(world):
    names = [
        await world.claim(f"c{number}", results=(world.result("d1", shareID=world.share(number)),))
        for number in range(2)
    ]
    world.attached = world.shares(names)
    shares = [(await world.preparer.prepare(name))[0].share_id for name in names]
    assert shares == [world.share(0), world.share(1)]
    assert world.preparer.holders.list_devices() == {("p", "share-0"), ("p", "share-1")}
    assert world.preparer.holders.find("p", "d1") is None
    assert len(world.cdi()) == 2


async def test_a_share_that_is_not_carved_yet_does_not_get_the_whole_device(world):
    name = await world.claim(results=(world.result("d1", shareID=world.share(0)),))
    world.attached = [world.attachment("d1")]
    assert "not attached to this node for this claim" in await expect_refusal(world, name)


async def test_admin_access_gets_a_device_that_a_claim_has_and_holds_nothing(world):
    await world.allow_admin_access()
    name = await world.prepare_claim()
    admin = await world.claim("c2", results=(world.result("d1", adminAccess=True),))
    (prepared,) = await world.preparer.prepare(admin)
    assert prepared.cdi_id == f"{DRIVER}/device={admin.uid}-d1"
    assert world.preparer.holders.find("p", "d1") == name.uid
    await world.preparer.unprepare(name)
    assert world.preparer.holders.find("p", "d1") is None
    await world.preparer.unprepare(admin)
    assert world.cdi() == {}


# --- the node's own devices ---


async def test_a_device_of_the_nodes_own_pool_needs_no_attachment(world):
    world.local.cards["n", "own"] = next(card for card in world.arrivals.cards if card.first.serial)
    name = await world.claim(results=(world.result("own", pool="n"),))
    (prepared,) = await world.preparer.prepare(name)
    assert (prepared.pool, prepared.device) == ("n", "own")
    assert world.preparer.holders.find("n", "own") == name.uid
    assert world.cdi() == {f"{DRIVER}-{name.uid}.json": [f"{name.uid}-own"]}


async def test_a_virtual_function_of_a_detaching_card_is_refused(world):
    world.local.cards["n", "own"] = next(card for card in world.arrivals.cards if card.first.serial)
    world.local.lenders["n", "own"] = world.attachment("d1", deleting=True)
    name = await world.claim(results=(world.result("own", pool="n"),))
    assert "virtual function of d1, which is being detached from this node" in await expect_refusal(
        world, name
    )
    assert world.cdi() == {}


async def test_a_device_of_the_nodes_own_pool_has_its_holder_before_it_is_recorded(world):
    world.local.cards["n", "own"] = next(card for card in world.arrivals.cards if card.first.serial)
    name = await world.claim(results=(world.result("own", pool="n"),))
    preparer = world.preparer
    with world.locking():
        preparing = asyncio.Task(preparer.prepare(name))
        await waiting.eventually(lambda: preparer.holders.find("n", "own"))
        assert preparer.holders.list_devices() == {("n", "own")}
        assert world.list_recorded_uids() == []
    await preparing
    assert preparer.holders.find("n", "own") == name.uid


async def test_a_device_of_the_nodes_own_pool_that_is_gone_is_reported(world):
    name = await world.claim(results=(world.result("own", pool="n"),))
    assert "device n/own of this node is not there" in await expect_refusal(world, name)
