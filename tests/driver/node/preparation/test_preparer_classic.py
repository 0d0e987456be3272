"""Prepare on clusters whose allocations are made by a controller: the handle, or the claim in whatever version there is."""

import asyncio
import json

import pytest

from drawbar.driver.api import claims
from drawbar.driver.catalogue import reasons
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.node import claim_versions, errors
from drawbar.driver.node.plugin import servicers

DRIVER = "drawbar.dev"


class Deaf:
    """A reader that must not be asked."""

    modern = False

    async def read(self, name, namespace):
        raise AssertionError(name)


class Lost:
    """A reader that no claim is known to."""

    modern = False

    async def read(self, name, namespace):
        raise kube_errors.NotFound(f"no claim {namespace}/{name}")


def make_claim_name(uid="u1", handle=None, **more):
    return servicers.ClaimName(namespace="default", name="c1", uid=uid, handle=handle, **more)


def environment(world, uid):
    (device,) = json.loads((world.cdi_dir / f"{DRIVER}-{uid}.json").read_text())["devices"]
    return device["name"], device["containerEdits"]["env"]


# --- the handle ---


async def test_with_a_handle_no_claim_is_read_and_a_repeat_answers_the_same(world, classic):
    world.reader = Deaf()
    await world.restart_preparer()
    world.attached = [world.attachment("d1", "u1"), world.attachment("d2", "u1")]
    data = classic("v1alpha2").data("d1", "d2")
    first = await world.preparer.prepare(make_claim_name(handle=data))
    assert [(device.device, device.cdi_id) for device in first] == [
        (name, f"{DRIVER}/device=u1-{name}") for name in ("d1", "d2")
    ]
    before = world.cdi()
    assert await world.preparer.prepare(make_claim_name(handle=data)) == first
    assert (world.cdi(), world.list_recorded_uids()) == (before, ["u1"])
    await world.preparer.unprepare(make_claim_name())
    await world.preparer.unprepare(make_claim_name())
    assert (world.cdi(), world.list_recorded_uids()) == ({}, [])


BROKEN = [
    pytest.param("", "it is empty", id="empty"),
    pytest.param("no JSON", "'no JSON' is not JSON", id="no JSON"),
    pytest.param("[" * 16000, "its JSON is nested too deeply", id="nested"),
    pytest.param(
        '{"kind": "AllocationHandle"}', "is no AllocationHandle of drawbar.dev/v1alpha1", id="version"
    ),
    pytest.param("null", "is no AllocationHandle", id="null"),
    pytest.param(
        '{"apiVersion": "drawbar.dev/v1alpha1", "kind": "AllocationHandle", "devices": [{"pool": 7}]}',
        "cannot be read",
        id="fields",
    ),
    pytest.param(
        '"' + "é" * 8192 + '"', "it has 16386 bytes, and an allocation has room for 16384", id="long"
    ),
]


@pytest.mark.parametrize(("data", "why"), BROKEN)
def test_a_handle_that_is_none_is_refused_in_one_clear_sentence(data, why):
    with pytest.raises(errors.PrepareError) as refused:
        claim_versions.decode(data, "claim default/c1")
    sentence = str(refused.value)
    assert refused.value.reason == reasons.RESOURCE_HANDLE_WRONG
    assert sentence.startswith("the resource handle of claim default/c1 cannot be used: ")
    assert why in sentence
    assert "delete the pod" in sentence
    assert "\n" not in sentence
    assert len(sentence) < 500


async def test_a_claim_with_a_malformed_handle_gets_an_event_and_nothing_is_prepared(world):
    world.attached = [world.attachment("d1", "u1")]
    with pytest.raises(errors.PrepareError, match="the resource handle of claim default/c1 cannot be used"):
        await world.preparer.prepare(make_claim_name(handle="no JSON"))
    assert (world.cdi(), world.list_recorded_uids()) == ({}, [])
    assert world.recorder.reasons == [reasons.RESOURCE_HANDLE_WRONG]


async def test_a_handle_for_another_node_is_refused_and_one_for_any_node_is_not(world, classic):
    world.attached = [world.attachment("d1", "u1")]
    with pytest.raises(errors.PrepareError, match="it is for node other, and this is n"):
        await world.preparer.prepare(make_claim_name(handle=classic("v1alpha2").data("d1", node="other")))
    assert await world.preparer.prepare(make_claim_name(handle=classic("v1alpha2").data("d1", node="")))


async def test_a_claim_that_neither_an_attachment_nor_the_api_server_knows_is_gone(world, classic):
    world.reader = Lost()
    await world.restart_preparer(waits=world.LONG)
    with pytest.raises(errors.PrepareError, match="does not exist any more") as refused:
        await world.preparer.prepare(make_claim_name(handle=classic("v1alpha2").data("d1")))
    assert refused.value.reason == reasons.CLAIM_GONE


@pytest.mark.parametrize("seconds", [2.2, -60.0], ids=["soon", "it waited elsewhere"])
async def test_an_impatient_kubelet_gets_the_error_of_a_late_device_in_time(world, classic, seconds):
    world.attached = [world.attachment("d1", "u1")]
    await world.unplug("d1")
    await world.restart_preparer(waits=world.LONG)
    by = asyncio.get_running_loop().time() + seconds
    asked = make_claim_name(handle=classic("v1alpha2").data("d1"), answer_by=by)
    # Without a word on its deadline it would be waited for much longer.
    async with asyncio.timeout(world.LONG.late_device_seconds / 2):
        with pytest.raises(errors.DeviceLate, match="is not visible on this node yet"):
            await world.preparer.prepare(asked)


async def test_a_claim_without_a_device_gets_an_event_and_shares_that_with_others(world, classic):
    data = classic("v1alpha2").data(without=("claim",))
    for number in range(2):
        # It has no attachment, so the API server is asked whether there is such a claim.
        claim = await world.claim(f"c{number}")
        asked = servicers.ClaimName(namespace="default", name=claim.name, uid=claim.uid, handle=data)
        (prepared,) = await world.preparer.prepare(asked)
        assert prepared.cdi_id == f"{DRIVER}/device={claim.uid}-none.claim"
        assert environment(world, claim.uid) == (f"{claim.uid}-none.claim", ["DRAWBAR_CLAIM=none"])
    assert len(world.list_recorded_uids()) == 2


# --- the claim, in the version that there is ---


async def test_a_claim_of_1_31_is_read_and_its_handle_is_no_parameter(world_of, classic):
    async with world_of("1.31-classic") as world:
        api = classic("v1alpha3")
        claim = await api.claim(world.api)
        with pytest.raises(errors.PrepareError, match="is not allocated"):
            await world.preparer.prepare(claim)
        await api.say(world.api, "c1", api.allocation("d1"))
        world.attached = [world.attachment("d1", claim.uid)]
        (prepared,) = await world.preparer.prepare(claim)
        assert (prepared.device, prepared.requests) == ("d1", ("disk",))
        other = servicers.ClaimName(namespace="default", name="c1", uid="another")
        with pytest.raises(errors.PrepareError, match="was replaced") as refused:
            await world.preparer.prepare(other)
        assert refused.value.reason == reasons.CLAIM_GONE


async def test_parameters_of_class_and_claim_of_1_31_are_applied(world_of, classic):
    def configure(source, **content):
        head = {"apiVersion": "drawbar.dev/v1alpha1", "kind": "DeviceParameters"}
        opaque = claims.OpaqueConfiguration(driver=DRIVER, parameters=head | content)
        return claims.AllocatedConfiguration(source=source, requests=("disk",), opaque=opaque)

    config = (
        configure("FromClass", environment={"MODE": "fast"}, claimVariables=["DEPTH"]),
        configure("FromClaim", environment={"DEPTH": "4"}),
    )
    async with world_of("1.31-classic") as world:
        api = classic("v1alpha3")
        claim = await api.claim(world.api, status=api.allocation("d1", config=config))
        world.attached = [world.make_full_attachment("d1", claim.uid)]
        await world.preparer.prepare(claim)
        assert {"MODE=fast", "DEPTH=4"} <= set(environment(world, claim.uid)[1])


async def test_requests_of_1_31_without_a_device_are_reported_beside_devices_and_claims_share_that(
    world_of, classic
):
    async with world_of("1.31-classic") as world:
        api = classic("v1alpha3")
        allocation = api.allocation("d1", without=("other",))
        both = await api.claim(world.api, "c1", allocation, requests=("disk", "other"))
        # It counts one device, since the other request was still open when it was made.
        world.attached = [world.make_full_attachment("d1", both.uid)]
        prepared = await world.preparer.prepare(both)
        assert [device.cdi_id for device in prepared] == [
            f"{DRIVER}/device={both.uid}-d1",
            f"{DRIVER}/device={both.uid}-none.other",
        ]
        for name in ("c2", "c3"):
            without = await api.claim(world.api, name, api.allocation(without=("disk",)))
            (nothing,) = await world.preparer.prepare(without)
            assert environment(world, without.uid) == (f"{without.uid}-none.disk", ["DRAWBAR_DISK=none"])
            assert nothing.requests == ("disk",)


async def test_a_claim_of_1_30_is_unknown_until_it_is_there_and_late_until_it_is_attached(world_of, classic):
    async with world_of("1.30-classic") as world:
        api = classic("v1alpha2")
        data = api.data("d1")
        with pytest.raises(errors.PrepareError) as refused:
            await world.preparer.prepare(make_claim_name(handle=data))
        assert refused.value.reason == reasons.CLAIM_GONE
        claim = await api.claim(world.api, status=api.allocation("d1"))
        asked = servicers.ClaimName(namespace="default", name="c1", uid=claim.uid, handle=data)
        with pytest.raises(errors.DeviceLate, match="is not attached to this node for this claim yet"):
            await world.preparer.prepare(asked)
        world.attached = [world.attachment("d1", claim.uid)]
        assert await world.preparer.prepare(asked)


@pytest.mark.parametrize(("profile", "version"), [("1.30-classic", "v1alpha2"), ("1.31-classic", "v1alpha3")])
async def test_a_claim_recorded_only_by_a_cdi_file_is_restored(world_of, classic, profile, version):
    async with world_of(profile) as world:
        api = classic(version)
        claim = await api.claim(world.api, status=api.allocation("d1"))
        world.attached = [world.attachment("d1", claim.uid)]
        asked = servicers.ClaimName(
            namespace="default",
            name="c1",
            uid=claim.uid,
            handle=api.data("d1") if version == "v1alpha2" else None,
        )
        await world.preparer.prepare(asked)
        world.lose_record()
        world.attached = []
        await world.restart_preparer()
        assert world.state(claim.uid) == "unexplained"
        await world.settle()
        held = world.claims()[claim.uid]
        assert (held["name"], held["state"], held["devices"][0]["pool"]) == ("c1", "completed", "p")
        assert world.preparer.unsettled == ()
