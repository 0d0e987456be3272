"""Slices that hold taints and no devices: the form of the proposal (KEP-5055), which no release serves."""

import pytest

from contract import bodies

pytestmark = pytest.mark.needs("taint slices")

TAINT = {"key": "contract.drawbar.dev/broken", "effect": "NoSchedule"}


@pytest.fixture
async def post(world):
    """Return a function that posts a slice with taints."""

    async def send(taints, devices=None, **query):
        name = world.name("s")
        body = bodies.slice_of(name, driver=world.driver, devices=devices or [], taints=taints)
        if not devices:
            del body["spec"]["devices"]
        body["metadata"] = world.body("resourceslices", name)["metadata"]
        return await world.post("resourceslices", body, **query)

    return send


async def test_a_slice_of_taints_is_kept_and_each_taint_gets_its_time(post):
    reply = await post([{"device": "d1", "taint": TAINT}])
    (entry,) = reply.body["spec"]["taints"]
    assert entry["device"] == "d1"
    assert entry["taint"]["timeAdded"].endswith("Z")


async def test_a_taint_of_the_proposal_says_more(post):
    more = {"description": "port 3 is down", "data": {"port": 3}}
    reply = await post([{"device": "d1", "taint": {**TAINT, **more}}])
    taint = reply.body["spec"]["taints"][0]["taint"]
    assert {key: taint[key] for key in more} == more


async def test_a_slice_holds_devices_or_taints_and_never_both(post):
    reply = await post([{"device": "d1", "taint": TAINT}], devices=[bodies.device("d1")])
    assert (reply.code, reply.causes) == (422, {"spec": "FieldValueInvalid"})


async def test_a_slice_holds_32_taints(post):
    taints = [{"device": f"d{number}", "taint": TAINT} for number in range(33)]
    assert (await post(taints[:32])).code == 201
    reply = await post(taints)
    assert (reply.code, reply.causes) == (422, {"spec.taints": "FieldValueTooMany"})


async def test_a_taint_of_a_slice_names_its_device(post):
    reply = await post([{"taint": TAINT}])
    assert (reply.code, reply.causes) == (422, {"spec.taints[0].device": "FieldValueRequired"})


async def test_a_device_itself_has_no_taints_then(world, post):
    reply = await world.post(
        "resourceslices",
        bodies.slice_of(
            world.name("s"), driver=world.driver, devices=[{**bodies.device("d1"), "taints": [TAINT]}]
        ),
        dryRun="All",
    )
    assert "taints" not in reply.body["spec"]["devices"][0]
