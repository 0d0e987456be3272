"""Devices that this cluster attached and has no record of: found by their mark, and used or detached; others never."""

import dataclasses
import datetime

import pytest
from tests.scenes import attachmentplan as scenes
from tests.scenes.attachmentplan import NOW, attachment, demand

from drawbar.driver.api import attachments
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import marks, outcomes
from drawbar.driver.controller.attachments import actions, plan
from drawbar.driver.kube import kinds
from drawbar.fabric import contract
from drawbar.mocks.apiserver import faults
from drawbar.mocks.testing import worlds

NODE = "node-1"
CONTROLLER = "system:serviceaccount:drawbar:drawbar-controller"
OTHERS_MARK = "drawbar/00000000-0000-4000-8000-000000000000/fab"


# --- whose it is ---


@pytest.mark.parametrize(
    ("shown", "own", "recorded", "owner"),
    [
        ("drawbar/a/f", "drawbar/a/f", False, marks.Owner.OURS),
        ("drawbar/b/f", "drawbar/a/f", False, marks.Owner.OTHERS),
        ("drawbar/a/f2", "drawbar/a/f", True, marks.Owner.OTHERS),
        ("drawbar/a/f", None, True, marks.Owner.OTHERS),
        (None, "drawbar/a/f", False, marks.Owner.OTHERS),
        (None, "drawbar/a/f", True, marks.Owner.UNTOLD),
        (None, None, False, marks.Owner.UNTOLD),
    ],
)
def test_a_connection_is_ours_by_its_mark_alone(shown, own, recorded, owner):
    connection = contract.Connection(host_id="h", mark=shown)
    assert marks.owner(connection, own, recorded=recorded) is owner
    assert marks.owner(None, own, recorded=recorded) is marks.Owner.NONE


def test_a_mark_fits_the_wire_for_the_longest_fabric_name():
    mark = marks.mark("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", "f" * 63)
    assert len(mark) <= contract.STRING_BYTES
    assert marks.mark("", "f") is None


@pytest.mark.parametrize(
    ("seconds", "step"),
    [
        (0, actions.RequeueAfter(seconds=plan.ORPHAN_SECONDS)),
        (plan.ORPHAN_SECONDS - 1, actions.RequeueAfter(seconds=1)),
        (plan.ORPHAN_SECONDS, actions.ReleaseMemory()),
    ],
)
def test_an_orphaned_memory_chunk_is_released_after_a_delay(seconds, step):
    since = NOW - datetime.timedelta(seconds=seconds)
    slice_ = scenes.make_part_state(demand=None, owner=marks.Owner.NONE, orphaned_at=since)
    assert plan.plan(slice_, NOW) == (step,)


# --- what is done about it: see also test_attachment_plan.py ---


def make_orphan(**changes):
    fields = {"demand": None, "host_id": "h1", "node": "n1", "owner": marks.Owner.OURS}
    return scenes.make_part_state(**(fields | changes))


RESTORE = actions.Restore(node="n1", host_id="h1")
TABLE = {
    "no claim has it": ({}, [RESTORE]),
    "the claim that is reported as attached keeps it": (
        {"demand": demand(attach_reported=True)},
        [actions.Create(demand=demand(attach_reported=True))],
    ),
    "a claim without a report must not get it as its last user left it": ({"demand": demand()}, [RESTORE]),
    "a claim on another node": ({"demand": demand(node="n2", host_id="h2", attach_reported=True)}, [RESTORE]),
    "a claim that has failed": ({"demand": demand(attach_reported=True, failure_reported=True)}, [RESTORE]),
    "its host is no node": ({"node": None}, [actions.RequeueAfter(seconds=plan.UNMAPPED_SECONDS)]),
    "of another cluster": ({"owner": marks.Owner.OTHERS}, []),
    "of a cluster that cannot be determined": ({"owner": marks.Owner.UNTOLD}, []),
    "recorded, with the mark of another cluster: it is not ours to detach": (
        {
            "owner": marks.Owner.OTHERS,
            "attachment": attachment("Released", deleting=True),
            "attach": scenes.call("unknown"),
        },
        [actions.RemoveFinalizer()],
    ),
    "recorded, with the mark of another cluster, and perhaps on its way to us": (
        {"owner": marks.Owner.OTHERS, "attachment": attachment("Released", deleting=True)},
        [actions.QueryOperation(side=outcomes.Side.ATTACH)],
    ),
}


@pytest.mark.parametrize(("changes", "steps"), TABLE.values(), ids=TABLE.keys())
def test_the_next_steps_for_a_connection_without_a_record(changes, steps):
    assert list(plan.plan(make_orphan(**changes), NOW)) == steps


def test_another_clusters_connection_to_the_node_is_never_reported_as_attached():
    (refusal,) = plan.plan(make_orphan(owner=marks.Owner.OTHERS, demand=demand()), NOW)
    assert isinstance(refusal, actions.ReportFailed)
    assert refusal.failure.reason == reasons.DEVICE_IN_USE
    recorded = make_orphan(
        owner=marks.Owner.OTHERS,
        demand=demand(),
        attachment=attachment(),
        attach=scenes.call("succeeded"),
    )
    (failure,) = plan.plan(recorded, NOW)
    assert isinstance(failure, actions.RecordFailure)
    assert failure.failure.reason == reasons.DEVICE_IN_USE


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        (marks.Owner.OTHERS, "attached to host h1, and not by this cluster"),
        (marks.Owner.OURS, "attached to host h1, by this cluster, for an earlier allocation"),
    ],
)
def test_a_device_that_came_to_another_host_is_refused_with_words_that_say_by_whom(owner, words):
    elsewhere = demand(node="n2", host_id="h2")
    recorded = attachment(node_name="n2", host_id="h2")
    there = make_orphan(owner=owner, demand=elsewhere, attachment=recorded, attach=scenes.call("succeeded"))
    (failure,) = plan.plan(there, NOW)
    assert words in failure.failure.message


def test_refused_credentials_are_the_failure_at_the_deadline():
    failure = attachments.Failure(
        reason=reasons.FABRIC_CREDENTIALS_REFUSED, message="read only", retryable=True
    )
    late = make_orphan(
        owner=marks.Owner.NONE,
        host_id=None,
        demand=demand(seen_at=NOW - datetime.timedelta(seconds=60)),
        attachment=attachment(),
        attach=scenes.call("failed", failure=failure),
    )
    assert plan.plan(late, NOW) == (actions.RecordFailure(failure=failure),)
    assert reasons.FABRIC_CREDENTIALS_REFUSED in outcomes.NOT_THE_DEVICE


# --- the whole controller ---


async def in_use(cluster, until):
    """Have gpu-0 attached for a claim; return the uid of its attachment."""
    cluster.start(leader_election=False)
    await cluster.make_fabric()
    await cluster.wait_for_slices()
    await cluster.allocate("gpu-0")
    stored = await until(cluster.attachments, lambda value: "status" in value.get("fab.gpu-0", {}))
    # What happens to its record later depends on whether the status of the claim has it as attached.
    await cluster.wait_until_attached("gpu-0")
    return stored["fab.gpu-0"]["metadata"]["uid"]


async def taints(cluster):
    return {
        device["name"]: [taint["key"] for taint in device["taints"]]
        for published in await cluster.slices()
        for device in published["devices"]
        if "taints" in device
    }


async def returns(cluster):
    """Return the Events of devices that were taken back: UID of the object, type, and what becomes of them."""
    return [
        (event["regarding"]["uid"], event["type"], event["note"].partition("; ")[2])
        for event in (await cluster.api.list_all(kinds.EVENT, into=dict)).items
        if event["reason"] == "DeviceTakenBack"
        and event["note"].startswith("gpu-0 of fabric fab was connected to host host-node-1")
    ]


def connection(cluster, device="gpu-0"):
    return cluster.fabric._world.device(device).connection


async def test_a_claim_keeps_its_device_when_the_record_of_it_is_removed_by_force(controller_world, until):
    async with controller_world() as cluster:
        uid = await in_use(cluster, until)
        assert connection(cluster).mark.endswith("/fab")
        await worlds.vanish(cluster.api, "fab.gpu-0")

        def back(value):
            attachment = value.get("fab.gpu-0", {})
            return attachment.get("metadata", {}).get("uid", uid) != uid and "status" in attachment

        restored = (await until(cluster.attachments, back))["fab.gpu-0"]
        assert restored["spec"]["claim"]["name"] == "c1"
        assert restored["metadata"]["finalizers"] == ["drawbar.dev/detach"]
        reported = await until(lambda: returns(cluster), bool)
        assert reported == [(restored["metadata"]["uid"], "Normal", "claim default/c1 keeps it")]
        assert cluster.calls("detach") == []
        await cluster.deallocate()
        await cluster.release_attachments("fab.gpu-0")
        assert connection(cluster) is None


@pytest.mark.parametrize("reply", ["comes", "is lost, and the controller dies"])
async def test_a_device_unknown_to_a_restored_backup_is_detached_and_freed(controller_world, until, reply):
    async with controller_world() as cluster:
        await in_use(cluster, until)
        await cluster.stop()
        await cluster.deallocate()
        await worlds.vanish(cluster.api, "fab.gpu-0")
        if reply != "comes":
            lost = faults.Disconnect(after=True)
            select = faults.Selection(user=CONTROLLER, resource="deviceattachments", verb="create")
            cluster.server.faults.add(
                faults.Fault(effect=lost, select=select, when=faults.Occasions(times=1))
            )
        cluster.start(leader_election=False)
        await until(cluster.attachments, bool)
        if reply != "comes":
            await cluster.stop()
            cluster.start(leader_election=False)
        stored = await cluster.wait_until_deleting("fab.gpu-0")
        assert "claim" not in stored["fab.gpu-0"]["spec"]
        if reply == "comes":
            ((uid, kind, outcome),) = await until(lambda: returns(cluster), bool)
            assert (uid, kind) == (stored["fab.gpu-0"]["metadata"]["uid"], "Normal")
            assert outcome == "it is detached once its node has released it"
        assert stored["fab.gpu-0"]["metadata"]["labels"] == {"drawbar.dev/node": NODE}
        assert cluster.calls("detach") == [], "its node has not let go of it"
        await cluster.release_attachments("fab.gpu-0")
        assert connection(cluster) is None
        assert cluster.calls("detach") == ["gpu-0"]

        async def is_free():
            return not await taints(cluster)

        await until(is_free, bool)


async def test_a_device_on_a_host_without_a_node_is_reported_and_kept(controller_world, until):
    async with controller_world() as cluster:
        await in_use(cluster, until)
        await cluster.stop()
        await cluster.deallocate()
        await worlds.vanish(cluster.api, "fab.gpu-0")
        await cluster.api.delete(kinds.NODE, NODE)
        cluster.start(leader_election=False)
        words = "device gpu-0 was attached by this cluster to host host-node-1"
        condition = await until(
            lambda: cluster.fabric_condition("Degraded"), lambda value: words in value.get("message", "")
        )
        assert condition["status"] == "True"
        assert await cluster.attachments() == {}
        assert cluster.calls("detach") == []


@pytest.mark.parametrize("mark", [OTHERS_MARK, None])
async def test_another_clusters_device_is_shown_and_never_touched(controller_world, until, mark):
    async with controller_world() as cluster:
        await cluster.fabric.console.foreign_attach("gpu-0", "host-node-1", mark=mark)
        before = connection(cluster)
        cluster.start(leader_election=False)
        await cluster.make_fabric()
        await until(lambda: taints(cluster), lambda value: value == {"gpu-0": ["drawbar.dev/in-use"]})
        # A claim that was given it all the same, on the very node that has it.
        await cluster.allocate("gpu-0")
        device_conditions = await until(cluster.device_conditions, bool)
        assert device_conditions["gpu-0"] == {"attach-failed": "DeviceInUse"}
        assert await cluster.attachments() == {}
        assert connection(cluster) == before


@pytest.mark.parametrize("moment", ["before the claim has the device", "while the device is attached"])
async def test_a_late_report_of_a_connection_that_is_over_fails_no_claim(controller_world, until, moment):
    async with controller_world(attachSeconds=0.5) as cluster:
        controller = await cluster.controller()
        await cluster.make_fabric()
        await cluster.wait_for_slices()
        session = controller._cluster.sessions.get("fab")

        def report():
            over = contract.Connection(host_id="host-node-2", mark=OTHERS_MARK)
            session.inventory.learn(dataclasses.replace(session.device("gpu-0"), connection=over))

        if moment == "before the claim has the device":
            report()
            await cluster.allocate("gpu-0")
        else:
            await cluster.allocate("gpu-0")
            await until(cluster.attachments, bool)
            report()
        await cluster.wait_until_attached("gpu-0")
        assert (await cluster.device_conditions())["gpu-0"] == {"attached": "Attached"}


async def test_unrecorded_connections_without_marks_are_shown_and_left_alone(controller_world, until):
    async with controller_world(keepsMarks=False) as cluster:
        await in_use(cluster, until)
        await cluster.stop()
        await cluster.deallocate()
        await worlds.vanish(cluster.api, "fab.gpu-0")
        cluster.start(leader_election=False)
        await until(lambda: taints(cluster), lambda value: value == {"gpu-0": ["drawbar.dev/in-use"]})
        assert await cluster.attachments() == {}
        assert connection(cluster).host_id == "host-node-1"
        assert cluster.calls("detach") == []
