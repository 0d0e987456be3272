"""A fabric manager that forgets a connection, or whose other client moves a device, and one that refuses for a while."""

import asyncio

import pytest

from drawbar.driver.kube import kinds
from drawbar.fabric import errors
from drawbar.mocks.fabric import faults

FORGOTTEN = "the fabric manager no longer shows this connection"


async def read_attached(storm):
    """Return status, reason and message of the condition `Attached` of the one attachment."""
    (attachment,) = await storm.attachments()
    conditions = attachment.get("status", {}).get("conditions", ())
    (reported,) = [entry for entry in conditions if entry["type"] == "Attached"]
    return reported["status"], reported["reason"], reported["message"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_forgotten_device_unseen_by_nodes_is_attached_again(in_storm, restarts):
    async def steps(storm):
        await storm.allocate("d0", "n1")
        await asyncio.sleep(5)
        assert (await read_attached(storm))[:2] == ("True", "Attached")
        await storm.surprise("d0")
        if restarts:
            await storm.kill_controller()
            storm.start_controller()
        await asyncio.sleep(5)
        assert storm.connections() == {}, "one listing proves nothing"
        await asyncio.sleep(30)
        assert storm.connections() == {"d0": "h-n1"}
        assert (await read_attached(storm))[:2] == ("True", "Attached")
        await storm.nodes_do_their_duty()
        await asyncio.sleep(5)
        assert len(await storm.attachments()) == 1

    in_storm(steps)


# An attach takes 1 s: the connection is lost a moment after it is there, or in the very moment.
@pytest.mark.parametrize("pause", [0.9, 1])
def test_a_device_that_is_forgotten_again_and_again_fails_its_claim_with_that_sentence(in_storm, pause):
    async def steps(storm):
        await storm.allocate("d0", "n1")
        message = ""
        for _ in range(120):
            await asyncio.sleep(pause)
            if storm.connections():
                await storm.surprise("d0")
            for claim in await storm.claims():
                for reported in claim.get("status", {}).get("devices", ()):
                    for condition in reported["conditions"]:
                        if condition["type"].endswith("attach-failed") and condition["status"] == "True":
                            message = condition["message"]
        assert message.startswith(FORGOTTEN), message
        assert "3 times after it was attached again" in message

    in_storm(steps)


def test_a_forgotten_device_that_its_node_has_seen_is_reported_and_left_alone(in_storm):
    async def steps(storm):
        await storm.use("d0")
        await storm.surprise("d0")
        await asyncio.sleep(40)
        status, reason, message = await read_attached(storm)
        assert (status, reason) == ("True", "ConnectionNotShown")
        assert message.startswith(FORGOTTEN)
        assert storm.connections() == {}, "nothing is attached under a pod"
        degraded = await storm.condition("Degraded")
        assert degraded["reason"] == "ConnectionsNotShown"
        assert "no longer shows the connection of 1 attached device (d0)" in degraded["message"]
        events = [event["reason"] for event in await storm.list(kinds.EVENT)]
        assert events.count("ConnectionNotShown") <= 1
        # An administrator connects it again where it was.
        await storm.somebody_else_attaches("d0", "n1", None)
        await asyncio.sleep(40)
        assert (await read_attached(storm))[:2] == ("True", "Attached")
        assert (await storm.condition("Degraded"))["status"] == "False"

    in_storm(steps)


def test_a_device_that_another_client_moved_is_never_attached(in_storm):
    async def steps(storm):
        await storm.allocate("d0", "n1")
        await asyncio.sleep(5)
        await storm.surprise("d0")
        await storm.somebody_else_attaches("d0", "n2", None)
        await asyncio.sleep(60)
        assert storm.connections() == {"d0": "h-n2"}
        (attachment,) = await storm.attachments()
        error = attachment["status"]["error"]
        assert error["reason"] == "DeviceInUse"
        assert "at host h-n2, not at host h-n1" in error["message"]

    in_storm(steps)


def test_a_refusal_stands_on_the_attachment_from_the_first_on(in_storm):
    async def steps(storm):
        refusal = faults.Refuse(
            method="attach",
            code=errors.Code.UNAVAILABLE,
            reason="SERVICE_BUSY",
            message="the zone is locked",
            times=100,
        )
        storm.fabric.console.add_fault(refusal)
        await storm.allocate("d0", "n1")
        await asyncio.sleep(0.5)
        status, reason, message = await read_attached(storm)
        assert (status, reason) == ("False", "FabricBusy")
        assert "the zone is locked; tried again in at most 60 s" in message
        await asyncio.sleep(40)
        storm.fabric.console.clear_faults()
        await asyncio.sleep(60)

    in_storm(steps)
