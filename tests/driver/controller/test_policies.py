"""What a Fabric allows on one node, and how the scheduler is kept from asking for more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver.api import fabrics, slices
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import names, policies
from drawbar.driver.controller.pools import devices
from drawbar.fabric import contract

A_AT_MOST_2 = fabrics.ModelRule(model="A", max_per_node=2)
A_NOT_WITH_B = fabrics.ModelRule(model="A", not_with=("B",))
NONE_OF_A = fabrics.ModelRule(model="A", max_per_node=0)


@pytest.mark.parametrize(
    ("rules", "model", "on_node", "reason"),
    [
        ([], "A", {"A": 9}, None),
        ([A_AT_MOST_2], "A", {"A": 1}, None),
        ([A_AT_MOST_2], "A", {"A": 2}, reasons.NODE_LIMIT_REACHED),
        ([A_AT_MOST_2], "B", {"A": 2}, None),
        ([NONE_OF_A], "A", {}, reasons.NODE_LIMIT_REACHED),
        ([A_NOT_WITH_B], "A", {"B": 1}, reasons.MODELS_CONFLICT),
        ([A_NOT_WITH_B], "B", {"A": 1}, reasons.MODELS_CONFLICT),
        ([A_NOT_WITH_B], "A", {"A": 3}, None),
        ([A_NOT_WITH_B], "C", {"A": 1, "B": 1}, None),
    ],
)
def test_a_node_can_get_devices_unless_a_rule_forbids_them(rules, model, on_node, reason):
    failure = policies.forbids(rules, model, on_node, "n1")
    assert (failure.reason if failure else None) == reason
    if failure:
        assert "node n1" in failure.message


def test_a_node_is_closed_to_models_at_their_limit():
    rules = (A_AT_MOST_2, A_NOT_WITH_B)
    by_node = {"full": {"A": 2}, "mixed": {"B": 1}, "free": {"C": 5}}
    assert policies.find_closed_models(rules, by_node) == {"full": {"A", "B"}, "mixed": {"A"}}


def test_the_least_number_of_a_model_stays():
    rule = fabrics.ModelRule(model="A", min_per_node=1)
    assert policies.stays([rule], "A", {"A": 1})
    assert not policies.stays([rule], "A", {"A": 2})
    assert not policies.stays([rule], "B", {"B": 1})


@given(st.text(max_size=80), st.text(max_size=80))
def test_a_pool_carries_the_label_of_the_nodes_that_are_closed_to_its_model(enclosure, model):
    pool = names.pool("f", enclosure, model)
    expected = names.make_closed_label("f", model) if model else None
    assert names.list_closed_labels(pool) == ((expected,) if expected else ())
    if expected:
        assert len(expected.partition("/")[2]) <= 63


def device(name, model):
    return contract.Device(id=name, device_class=contract.DeviceClass.GPU, enclosure="e", model=model)


def make_slice(pool, *devices):
    membership = slices.Pool(name=pool, generation=1, resource_slice_count=1)
    spec = slices.SliceSpec(
        driver="d", pool=membership, devices=tuple(slices.Device(name=name) for name in devices)
    )
    return slices.ResourceSlice(metadata=None, spec=spec)


def test_a_new_rule_moves_the_devices_of_its_model_unless_a_claim_has_them():
    listed = (device("a", "A"), device("b", "A"), device("c", "C"))
    slices = (make_slice("f/e", "a", "b", "c"),)
    rules = devices.Rules(restricted={"A"}, held={"b"})
    assert devices.homes("f", {each.id: each for each in listed}, slices, rules) == {
        "a": "f/e/model.a-" + _hash("A"),
        "b": "f/e",
        "c": "f/e",
    }


def _hash(model):
    return names.pool("f", "e", model).rpartition("-")[2]


DISKS = {
    "enclosures": [
        {
            "id": "enc-1",
            "devices": [
                {"id": f"disk-{number}", "class": "nvme", "model": "M1", "serial": f"SN{number}"}
                for number in range(3)
            ],
        }
    ]
}


async def test_a_claim_that_breaks_a_rule_fails_before_anything_is_attached_and_the_node_is_closed(
    controller_world, until
):
    async with controller_world(**DISKS) as cluster:
        cluster.start()
        await cluster.make_fabric(policy={"models": [{"model": "M1", "maxPerNode": 1}]})
        (spec,) = await cluster.wait_for_slices()
        pool, label = spec["pool"]["name"], names.make_closed_label("fab", "M1")
        (term,) = spec["nodeSelector"]["nodeSelectorTerms"]
        assert {"key": label, "operator": "DoesNotExist"} in term["matchExpressions"]

        await cluster.allocate("disk-0", name="c0", pod="c0", pool=pool)
        await cluster.wait_until_attached("disk-0", "c0")
        closed = await until(lambda: cluster.labels("node-1"), lambda value: label in value)
        assert closed[label] == "true"
        assert label not in await cluster.labels("node-2")

        # The scheduler may not have seen the label yet.
        await cluster.allocate("disk-1", name="c1", pod="c1", pool=pool)
        device_conditions = await until(
            lambda: cluster.device_conditions("c1"), lambda value: value.get("disk-1")
        )
        assert device_conditions["disk-1"] == {"attach-failed": reasons.NODE_LIMIT_REACHED}
        assert cluster.calls("attach") == ["disk-0"]
        assert "fab.disk-1" not in await cluster.attachments()
        assert not any(device.get("taints") for device in (await cluster.slices())[0]["devices"])

        await cluster.deallocate("c0")
        await cluster.wait_until_deleting("fab.disk-0")
        await cluster.node_says("fab.disk-0", "Released")
        await until(lambda: cluster.labels("node-1"), lambda value: label not in value)


async def test_claims_that_come_at_the_same_moment_do_not_pass_a_rule_together(controller_world, until):
    async with controller_world(**DISKS) as cluster:
        cluster.start()
        await cluster.make_fabric(policy={"models": [{"model": "M1", "maxPerNode": 1}]})
        (spec,) = await cluster.wait_for_slices()
        claims = [f"c{number}" for number in range(3)]
        for number, claim in enumerate(claims):
            await cluster.allocate(f"disk-{number}", name=claim, pod=claim, pool=spec["pool"]["name"])
        outcomes = [
            next(iter(await until(lambda name=claim: outcome(cluster, name), bool))) for claim in claims
        ]
        assert sorted(outcomes) == ["attach-failed", "attach-failed", "attached"]


async def outcome(cluster, claim):
    return next(iter((await cluster.device_conditions(claim)).values()), {})
