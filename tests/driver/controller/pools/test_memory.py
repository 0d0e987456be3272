"""A pool of memory as it is published: of how much claims may take shares."""

import pytest
from tests.scenes import attachments as scenes
from tests.scenes import pools
from tests.scenes.pools import NOW

from drawbar.driver.api import attachments
from drawbar.driver.controller import change_kinds, names
from drawbar.driver.controller.pools import causes, desired, fabric_state
from drawbar.driver.slices import encoding
from drawbar.fabric import contract

GIB = 1 << 30


def pool(free, *, step=GIB, is_pool=True, **changes):
    return contract.Device(
        id="pool-0",
        device_class=contract.DeviceClass.CXL_MEMORY,
        memory_bytes=8 * GIB,
        carving=contract.Carving(free_bytes=free, step_bytes=step, is_pool=is_pool),
        **changes,
    )


def publish_devices(*devices, made=0, shares=True, **changes):
    facts = pools.make_fabric_state(*devices, made={"pool-0": made}, shares=shares, **changes)
    return [device for action in desired.plan(facts, NOW) for device in action.slice.spec.devices]


def test_a_pool_is_offered_by_capacity_in_a_class_of_its_own():
    (device,) = publish_devices(pool(8 * GIB))
    assert device.allow_multiple_allocations is True
    assert device.attributes["class"].string == "cxl-memory-pool"
    memory = device.capacity["memory"]
    assert (memory.value, memory.request_policy.default) == ("8Gi", "1Gi")
    allowed = memory.request_policy.valid_range
    assert (allowed.min, allowed.max, allowed.step) == ("1Gi", None, "1Gi")
    assert device.binds_to_node is True
    assert device.binding_conditions


@pytest.mark.parametrize(
    ("free", "made", "value"),
    [
        (5 * GIB, 3 * GIB, "8Gi"),
        (5 * GIB, 0, "5Gi"),
        (5 * GIB + 17, 0, "5Gi"),
        (0, 2 * GIB, "2Gi"),
        (8 * GIB, 2 * GIB, "8Gi"),
    ],
    ids=[
        "ours counts",
        "that of others does not",
        "whole steps",
        "all of it is ours",
        "never more than it has",
    ],
)
def test_shares_of_own_claims_count_as_offered(free, made, value):
    (device,) = publish_devices(pool(free), made=made)
    assert device.capacity["memory"].value == value


def test_the_last_step_is_a_range_of_one_value():
    (device,) = publish_devices(pool(GIB))
    allowed = device.capacity["memory"].request_policy.valid_range
    assert (allowed.min, allowed.max, allowed.step) == ("1Gi", "1Gi", None)


@pytest.mark.parametrize(
    ("device", "changes"),
    [
        (pool(GIB - 1), {}),
        (pool(8 * GIB), {"shares": False}),
        (pool(8 * GIB), {"shares": False, "ours": ["pool-0"]}),
    ],
    ids=["no room", "the API server has no shares", "nor had it when shares were given"],
)
def test_a_pool_of_which_nothing_can_be_taken_is_not_offered_and_never_as_a_whole(device, changes):
    assert publish_devices(device, **changes) == []


def test_a_slice_that_a_cluster_has_made_is_not_offered_by_itself():
    made = {"device_class": contract.DeviceClass.CXL_MEMORY, "memory_bytes": GIB}
    marked = contract.Device(id="s1", slice_of=contract.Slice(origin_id="pool-0", mark="drawbar/x/y"), **made)
    by_hand = contract.Device(id="s2", slice_of=contract.Slice(origin_id="pool-0"), **made)
    assert [device.name for device in publish_devices(marked, by_hand)] == ["s2"]


def test_a_share_that_could_not_be_attached_taints_its_pool_and_an_ill_one_does_not():
    share = attachments.Share(device="pool-0", device_id="pool-0", share_id="x", memory_bytes=GIB)
    failed = scenes.attachment(
        device="share-x", share=share, error=attachments.Failure(reason="FabricError", message="no")
    )
    ill = scenes.attachment(device="share-y", share=share, node=attachments.NodeReport(health="Unhealthy"))
    facts = pools.make_fabric_state(pool(8 * GIB)).facts
    kept = encoding.Kept(dropped=(), form=encoding.Encoding.PER_DEVICE, shares=True)

    def find_causes(attachment):
        return fabric_state.observe("drawbar.dev", facts, [attachment], (), kept, date=pools.NOW).reported

    assert [type(cause) for cause in find_causes(failed)["pool-0"]] == [causes.AttachFailed]
    assert "pool-0" not in find_causes(ill)


def test_a_share_that_its_node_cannot_use_counts_against_its_host_and_taints_no_pool():
    share = attachments.Share(device="pool-0", device_id="pool-0", share_id="x", memory_bytes=GIB)
    described = {"device": "share-x", "share": share}
    attached = scenes.attachment(attachments.ATTACHED, **described)
    error = attachments.Failure(reason="DriverNotBound", message="no")
    failed = scenes.attachment(attachments.ATTACHED, attachments.VISIBLE, error=error, **described)
    kept = encoding.Kept(dropped=(), form=encoding.Encoding.PER_DEVICE, shares=True)
    facts = pools.make_fabric_state(pool(8 * GIB)).facts
    state = fabric_state.observe("drawbar.dev", facts, [failed], (), kept, date=pools.NOW)
    key = names.DeviceKey(fabric="fab", device="share-x")
    change = change_kinds.AttachmentChange(old=attached, new=failed, key=key)
    assert "pool-0" not in state.reported
    assert (change.fails, change.works) == (True, False)
