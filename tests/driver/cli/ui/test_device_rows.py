"""The rows that are kept current object by object are those of the tree of the whole cluster."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drawbar.driver.api import attachments, claims, fabrics, slices, taintrules
from drawbar.driver.cli.status import building, observed
from drawbar.driver.cli.ui import device_rows

DRIVERS = st.sampled_from(["drawbar.dev", "drawbar.dev", "other.dev"])
POOLS = st.sampled_from(["rack-1/a", "rack-1/b", "node-1"])
NAMES = st.sampled_from(["x", "y", "z"])


def as_slice(name, driver, pool, generation, devices):
    text = {"fabric": {"string": "rack-1"}} if "/" in pool else {}
    return msgspec.convert(
        {
            "metadata": {"name": name},
            "spec": {
                "driver": driver,
                "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1},
                "allNodes": True,
                "devices": [{"name": device, "attributes": text} for device in devices],
            },
        },
        slices.ResourceSlice,
    )


def as_attachment(name, driver, pool, device, phase):
    spec = {"fabric": "rack-1", "deviceID": device, "driver": driver, "pool": pool, "device": device}
    spec |= {"nodeName": "node-1", "hostID": "host-1", "identity": {"deviceClass": "gpu"}}
    return msgspec.convert(
        {
            "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": spec,
            "status": {"phase": phase},
        },
        attachments.DeviceAttachment,
    )


def as_fabric(name, attach_timeout):
    policy = {"attachTimeoutSeconds": attach_timeout}
    spec = {"adapter": "grpc", "endpoint": "unix:/x", "policy": policy}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, fabrics.Fabric)


def as_claim(name, results):
    listed = [
        {"request": "r", "driver": driver, "pool": pool, "device": device} for driver, pool, device in results
    ]
    allocation = {"allocation": {"devices": {"results": listed}}} if listed else {}
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "n"}, "status": allocation}, claims.ResourceClaim
    )


OBJECTS = st.one_of(
    st.builds(as_slice, NAMES, DRIVERS, POOLS, st.integers(1, 2), st.lists(NAMES, unique=True)),
    st.builds(
        as_attachment, NAMES, DRIVERS, POOLS, NAMES, st.sampled_from(["Pending", "Attached", "Failed"])
    ),
    st.builds(as_fabric, st.sampled_from(["rack-1", "rack-2"]), st.sampled_from([60, 90])),
    st.builds(as_claim, NAMES, st.lists(st.tuples(DRIVERS, POOLS, NAMES), max_size=3)),
)


@settings(max_examples=200)
@given(st.lists(st.tuples(OBJECTS, st.booleans(), st.booleans()), max_size=20))
def test_after_any_changes_the_rows_are_those_of_the_whole_tree(steps):
    shown = device_rows.Rows("drawbar.dev")
    objects = {}
    for item, is_deleted, is_looked_at in steps:
        key = (type(item), item.metadata.name)
        old = objects.pop(key, None)
        if not is_deleted:
            objects[key] = item
        shown.change(old, objects.get(key))
        if is_looked_at:
            shown.current()
    parts = tuple(objects.values())
    cluster = observed.Cluster(
        driver="drawbar.dev",
        fabrics=tuple(part for part in parts if isinstance(part, fabrics.Fabric)),
        slices=tuple(part for part in parts if isinstance(part, slices.ResourceSlice)),
        attachments=tuple(part for part in parts if isinstance(part, attachments.DeviceAttachment)),
        claims=tuple(part for part in parts if isinstance(part, claims.ResourceClaim)),
    )
    whole = {row.key: row for row in device_rows.from_tree(building.build(cluster))}
    assert {key: without_order(row) for key, row in shown.current().items()} == {
        key: without_order(row) for key, row in whole.items()
    }
    unallocated = {claim.metadata.name for claim in cluster.claims if claim.status.allocation is None}
    assert {claim.name for claim in shown.list_pending()} == unallocated


def without_order(row):
    """Return the row with the claims of a device that has several by name: claims come in any order."""
    ordered = tuple(sorted(row.device.claims, key=lambda claim: claim.name))
    return msgspec.structs.replace(row, device=msgspec.structs.replace(row.device, claims=ordered, node=""))


def test_a_change_of_one_pool_leaves_the_rows_of_the_others_as_they_are():
    shown = device_rows.Rows("drawbar.dev")
    shown.change(None, as_slice("x", "drawbar.dev", "rack-1/a", 1, ["x", "y"]))
    shown.change(None, as_slice("y", "drawbar.dev", "rack-1/b", 1, ["z"]))
    before = shown.current()
    shown.change(None, as_attachment("z", "drawbar.dev", "rack-1/a", "x", "Pending"))
    after = shown.current()
    assert [key for key in after if after[key] is not before[key]] == ["rack-1/a x"]


def test_the_rows_are_in_the_order_that_the_browser_keeps():
    shown = device_rows.Rows("drawbar.dev")
    for pool in ("rack-1/b-10", "rack-1/b-9", "rack-1/a"):
        shown.change(None, as_slice(pool[-3:], "drawbar.dev", pool, 1, ["gpu-10", "gpu-9"]))
    assert list(shown.current()) == [
        f"rack-1/{enclosure} gpu-{number}" for enclosure in ("a", "b-9", "b-10") for number in (9, 10)
    ]


def as_rule(name, effect="NoSchedule", **selector):
    spec = {"deviceSelector": selector, "taint": {"key": "psu", "effect": effect}}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, taintrules.DeviceTaintRule)


def list_tainted_keys(shown):
    return sorted(key for key, row in shown.current().items() if row.device.taints)


@pytest.mark.parametrize(
    ("selector", "devices"),
    [
        ({}, ["rack-1/a x", "rack-1/a y", "rack-1/b z"]),
        ({"pool": "rack-1/a"}, ["rack-1/a x", "rack-1/a y"]),
        ({"driver": "drawbar.dev", "pool": "rack-1/a", "device": "y"}, ["rack-1/a y"]),
        ({"device": "z"}, ["rack-1/b z"]),
        ({"driver": "other.dev"}, []),
        ({"pool": "rack-9"}, []),
    ],
)
def test_a_taint_rule_taints_the_devices_it_selects_until_it_is_gone(selector, devices):
    shown = device_rows.Rows("drawbar.dev")
    shown.change(None, as_slice("x", "drawbar.dev", "rack-1/a", 1, ["x", "y"]))
    rule = as_rule("psu", **selector)
    shown.change(None, rule)
    shown.change(None, as_slice("y", "drawbar.dev", "rack-1/b", 1, ["z"]))
    assert list_tainted_keys(shown) == devices
    shown.change(rule, None)
    assert list_tainted_keys(shown) == []


def test_a_taint_rule_that_selects_another_pool_moves_its_taint():
    shown = device_rows.Rows("drawbar.dev")
    shown.change(None, as_slice("x", "drawbar.dev", "rack-1/a", 1, ["x"]))
    shown.change(None, as_slice("y", "drawbar.dev", "rack-1/b", 1, ["y"]))
    before, after = as_rule("psu", pool="rack-1/a"), as_rule("psu", pool="rack-1/b")
    shown.change(None, before)
    assert list_tainted_keys(shown) == ["rack-1/a x"]
    shown.change(before, after)
    assert list_tainted_keys(shown) == ["rack-1/b y"]
