"""Requests that got nothing: what is prepared for them, and what a start makes of it."""

import json

from drawbar.driver.node import errors

FIRST = "11111111-1111-4111-8111-111111111111"
SECOND = "22222222-2222-4222-8222-222222222222"


async def prepare_with_nothing(world, device="none", shares=(FIRST, SECOND)):
    """Prepare a claim with d1 for one request and nothing for two alternatives of others."""
    results = [world.result("d1", request="other")]
    for share in shares:
        more = {"shareID": share} if share else {}
        results.append(world.result(device, request="disk/fast", pool="n", **more))
    name = await world.claim(results=results)
    world.attached = [world.attachment("d1", name.uid)]
    answered = await world.preparer.prepare(name)
    return name, answered


def environment(world, uid):
    file = json.loads((world.cdi_dir / f"drawbar.dev-{uid}.json").read_text())
    return {device["name"]: device["containerEdits"] for device in file["devices"]}


async def test_the_container_gets_one_variable_for_the_request_and_nothing_else(world):
    name, answered = await prepare_with_nothing(world)
    assert [(device.device, device.requests, device.cdi_id, device.share_id) for device in answered] == [
        ("d1", ("other",), f"drawbar.dev/device={name.uid}-d1", None),
        ("none", ("disk",), f"drawbar.dev/device={name.uid}-none.disk", FIRST),
        ("none", ("disk",), f"drawbar.dev/device={name.uid}-none.disk", SECOND),
    ]
    assert environment(world, name.uid)[f"{name.uid}-none.disk"] == {"env": ["DRAWBAR_DISK=none"]}


async def test_a_null_device_holds_up_no_claim_and_unprepare_leaves_nothing(world):
    name, _ = await prepare_with_nothing(world)
    results = [world.result("none", request="disk/fast", pool="n", shareID=FIRST)]
    other = await world.claim("c2", results)
    await world.preparer.prepare(other)
    for claim in (name, other):
        await world.preparer.unprepare(claim)
    assert (world.cdi(), world.list_recorded_uids()) == ({}, [])


async def test_a_copy_is_one_claims_alone(world):
    name, _ = await prepare_with_nothing(world, device="none-3", shares=(None,))
    assert world.preparer.holders.find("n", "none-3") == name.uid
    other = await world.claim("c2", [world.result("none-3", request="disk/fast", pool="n")])
    try:
        await world.preparer.prepare(other)
    except errors.PrepareError as error:
        refused = str(error)
    assert refused == (
        "device n/none-3 is still in use by claim default/c1 on this node; trying again; if no pod has that claim, the kubelet "
        "has lost it: restart the node"
    )


async def test_after_a_restart_and_a_reboot_the_container_gets_the_same(world):
    name, _ = await prepare_with_nothing(world)
    before = environment(world, name.uid)
    await world.restart_preparer()
    assert environment(world, name.uid) == before
    await world.reboot()
    await world.prepare_again(name)
    assert environment(world, name.uid) == before


async def test_without_a_record_the_claim_itself_explains_the_files(world):
    name, answered = await prepare_with_nothing(world)
    before = environment(world, name.uid)
    world.lose_record()
    await world.restart_preparer()
    assert world.state(name.uid) == "unexplained"
    await world.settle()
    assert world.state(name.uid) == "completed"
    devices = world.preparer.store.claims[name.uid].devices
    assert {(device.pool, device.device) for device in devices} == {("p", "d1"), ("n", "none")}
    await world.restart_preparer()
    assert environment(world, name.uid) == before
    assert await world.preparer.prepare(name) == answered


async def test_a_fabrics_device_that_is_called_none_is_a_device(world):
    name = await world.claim(results=[world.result("none", pool="p")])
    try:
        await world.preparer.prepare(name)
    except errors.DeviceLate as error:
        refused = str(error)
    assert refused == "device p/none is not attached to this node for this claim yet; trying again"
