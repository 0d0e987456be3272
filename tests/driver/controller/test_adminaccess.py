"""Claims that look at a device where it is."""

import pytest
from tests.scenes import attachments as scenes
from tests.scenes import claims as claim_scenes

from drawbar.driver.api import attachments, claims, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import adminaccess, names
from drawbar.driver.kube import client, kinds

DRIVER = "drawbar.dev"
NOW = "2026-01-02T00:00:00Z"
SEEN = tuple(meta.Condition(type=kind, status="True") for kind in (attachments.ATTACHED, attachments.VISIBLE))


def claim(*devices, reported=()):
    return claim_scenes.make_allocated_claim(*devices, reported=reported, version="7", admin_access=True)


def attachment(device, *conditions, node="n1", deleting=False):
    fields = {"fabric": "f", "device": device, "pool": "f/e", "node_name": node}
    return scenes.attachment(*conditions, deleting=deleting, **fields)


def read_conditions(body):
    return {
        entry["device"]: {
            condition["type"].removeprefix(f"{DRIVER}/"): condition["reason"]
            for condition in entry["conditions"]
        }
        for entry in body["status"]["devices"]
    }


NEVER = {"attach-failed": reasons.ADMIN_ACCESS_NEVER_ATTACHES}
HERE = {"attached": "Attached", "visible": "DeviceReady"}


@pytest.mark.parametrize(
    ("attached", "expected"),
    [
        ({}, NEVER),
        ({"a": attachment("a", *SEEN)}, HERE),
        ({"a": attachment("a", *SEEN, node="n2")}, NEVER),
        ({"a": attachment("a", *SEEN, deleting=True)}, NEVER),
        ({"a": attachment("a", SEEN[0])}, None),
    ],
    ids=["attached nowhere", "in use here", "in use elsewhere", "on its way out", "not ready yet"],
)
def test_the_claim_shows_whether_its_device_is_where_it_is(attached, expected):
    asked = claim("a")
    keyed = {names.DeviceKey(fabric="f", device=device): record for device, record in attached.items()}
    body = adminaccess.build_apply(asked, DRIVER, keyed, NOW)
    assert (read_conditions(body) if body else None) == ({"a": expected} if expected else None)


def test_one_device_that_is_elsewhere_fails_all_since_the_scheduler_stops_at_the_first():
    key = names.DeviceKey(fabric="f", device="a")
    body = adminaccess.build_apply(claim("a", "b"), DRIVER, {key: attachment("a", *SEEN)}, NOW)
    assert read_conditions(body) == {"a": NEVER, "b": NEVER}


def test_an_existing_report_is_not_repeated():
    key = names.DeviceKey(fabric="f", device="a")
    by_key = {key: attachment("a", *SEEN)}
    (entry,) = adminaccess.build_apply(claim("a"), DRIVER, by_key, NOW)["status"]["devices"]
    conditions = tuple(
        meta.Condition(
            type=condition["type"],
            status=condition["status"],
            reason=condition["reason"],
            message=condition["message"],
            last_transition_time=condition["lastTransitionTime"],
        )
        for condition in entry["conditions"]
    )
    before = claims.AllocatedDevice(driver=DRIVER, pool="f/e", device="a", conditions=conditions)
    assert (
        adminaccess.build_apply(claim("a", reported=(before,)), DRIVER, by_key, "2026-01-03T00:00:00Z")
        is None
    )


async def test_an_observer_gets_the_device_of_another_claim_and_nothing_is_attached_for_it(
    served_world, until
):
    async with served_world() as cluster:
        label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
        await cluster.api.patch(
            kinds.NAMESPACE, "default", label, content=client.Patch.MERGE, into=dict, manager="admin"
        )
        await cluster.allocate("gpu-0", name="user")
        await cluster.allocate("gpu-0", name="observer", pod="p2", adminAccess=True)
        await cluster.wait_until_attached("gpu-0", "user")
        await cluster.node_says("fab.gpu-0", attachments.VISIBLE)
        reported = await until(
            lambda: cluster.device_conditions("observer"), lambda value: value.get("gpu-0")
        )
        assert reported["gpu-0"] == HERE
        await cluster.allocate("disk-0", name="lost", pod="p3", adminAccess=True)
        reported = await until(lambda: cluster.device_conditions("lost"), lambda value: value.get("disk-0"))
        assert reported["disk-0"] == NEVER
        assert cluster.calls("attach") == ["gpu-0"]
