"""The node daemon against the API server double and a mocked sysfs tree."""

import asyncio

from tests.scenes import attachments as scenes
from tests.scenes import nodes

from drawbar.driver.api import attachments
from drawbar.driver.kube import kinds
from drawbar.driver.node import parts


def status(kind, wanted):
    return lambda conditions: conditions.get(kind, {}).get("status") == wanted


async def test_a_device_that_arrives_is_reported_prepared_and_released(tmp_path, until):
    async with nodes.serving(tmp_path) as node:
        claim = await node.allocate_claim()
        await node.attach(claim)
        await node.controller_says()
        await until(node.is_listening, bool)
        # A call that comes before the device waits for it.
        early = asyncio.Task(node.prepare(claim))
        address = await node.plug()
        assert not (await early).error
        await until(node.conditions, status("Visible", "True"))
        seen = (await node.attachment())["status"]
        assert (seen["node"]["pciAddress"], seen["phase"]) == (address, "Ready")
        current = await node.api.read(kinds.CLAIM, "c1", namespace="default", into=dict)
        (condition,) = current["status"]["devices"][0]["conditions"]
        assert (condition["type"], condition["status"]) == (f"{nodes.DRIVER}/visible", "True")

        async def events():
            listed = await node.list(kinds.EVENT)
            return sorted((event["regarding"]["kind"], event["type"], event["reason"]) for event in listed)

        ready = ("Normal", "DeviceReady")
        about = ("DeviceAttachment", "Pod", "ResourceClaim")
        await until(events, lambda value: value == [(kind, *ready) for kind in about])

        for _ in range(2):
            prepared = await node.prepare(claim)
            assert not prepared.error
            assert list(prepared.devices[0].request_names) == ["one"]
            assert len(list((tmp_path / "cdi").glob("*.json"))) == 1

        await node.detach()
        assert "Released" not in await node.conditions()
        for _ in range(2):
            assert not (await node.unprepare(claim)).error
        await until(node.conditions, status("Released", "True"))
        assert list((tmp_path / "cdi").glob("*.json")) == []


async def test_a_device_that_never_comes_fails_the_claim_once_the_controller_has_tainted_it(tmp_path, until):
    async with nodes.serving(tmp_path, visible_timeout_seconds=1.0) as node:
        await node.attach(await node.allocate_claim())
        await node.controller_says()

        async def devices():
            current = await node.api.read(kinds.CLAIM, "c1", namespace="default", into=dict)
            return current["status"].get("devices", [])

        await until(node.conditions, status("Visible", "False"))
        assert await devices() == [], "the device is not tainted yet"
        await node.controller_says(error={"reason": "DeviceNotFound", "message": "tainted now"})
        (device,) = await until(devices, bool)
        (condition,) = device["conditions"]
        assert condition["type"] == f"{nodes.DRIVER}/node-failed"
        assert condition["reason"] == "DeviceNotFound"
        assert "SN0001" in condition["message"]


def test_attachments_that_wait_for_their_device_come_first():
    ready = scenes.attachment(attachments.VISIBLE, name="ready")
    leaving = scenes.attachment(attachments.VISIBLE, name="leaving", deleting=True)
    arriving = scenes.attachment(attachments.ATTACHED, name="arriving")
    foreign = scenes.attachment(attachments.ATTACHED, name="foreign", driver="other.dev")
    own = parts.Own([ready, foreign, leaving, arriving], "drawbar.dev")
    assert own.names() == ("leaving", "arriving", "ready")
