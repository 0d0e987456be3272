"""ResourceSlices: limits, immutable fields, defaults, and the fields that a server without the gate drops."""

from typing import Any

import pytest

from contract import bodies
from contract.api import Json, Reply

pytestmark = pytest.mark.needs("v1")

EARLY = "2026-01-01T00:00:00Z"
TAINT = {"key": "contract.drawbar.dev/broken", "value": "yes", "effect": "NoSchedule"}


class Slices:
    """Slices of this test's driver."""

    def __init__(self, world):
        self.world = world

    def body(self, *devices: Json, **spec: Any) -> Json:
        name = self.world.name("s")
        whole = bodies.slice_of(
            name, driver=spec.pop("driver", self.world.driver), devices=devices or None, **spec
        )
        return {**whole, "metadata": {**self.world.body("resourceslices", name)["metadata"]}}

    async def post(self, *devices: Json, **spec: Any) -> Reply:
        return await self.world.post("resourceslices", self.body(*devices, **spec))

    async def post_device(self, **fields: Any) -> Reply:
        """Post a slice of one device with these fields."""
        return await self.post({**bodies.device("d1"), **fields})

    async def make(self, *devices: Json, **spec: Any) -> Json:
        reply = await self.post(*devices, **spec)
        assert reply.code == 201, reply.body
        return reply.body

    async def put(self, item: Json, **spec: Any) -> Reply:
        path = self.world.path("resourceslices", item["metadata"]["name"])
        return await self.world.api.put(path, {**item, "spec": {**item["spec"], **spec}})


@pytest.fixture
def slices(world):
    return Slices(world)


def refuses(reply: Reply, field: str, reason: str) -> None:
    """Check that the refusal complains of this field, or of something in it, for this reason."""
    assert (reply.code, reply.reason) == (422, "Invalid"), reply.body
    reasons = [
        why
        for where, why in reply.causes.items()
        if where == field or where.startswith((f"{field}.", f"{field}["))
    ]
    assert reason in reasons, reply.causes


def many(number: int, **fields: Any) -> list[Json]:
    return [{"name": f"d{index}", **fields} for index in range(number)]


async def test_a_slice_is_stored_as_it_was_sent(slices):
    made = await slices.make()
    assert made["spec"]["devices"] == [{"name": "d1", "attributes": {"model": {"string": "H100"}}}]
    assert made["metadata"]["generation"] == 1


async def test_a_slice_without_devices_says_so_by_null_or_by_nothing(slices):
    whole = slices.body()
    reply = await slices.world.post("resourceslices", {**whole, "spec": {**whole["spec"], "devices": []}})
    assert reply.code == 201, reply.body
    assert reply.body["spec"].get("devices", "absent") == (None if slices.world.can.minor < 36 else "absent")


async def test_a_slice_holds_128_devices_and_no_more(slices):
    assert (await slices.post(*many(128))).code == 201
    refuses(await slices.post(*many(129)), "spec.devices", "FieldValueTooMany")


@pytest.mark.needs("taints")
async def test_a_single_taint_halves_the_number_of_devices(slices):
    tainted = {"name": "bad", "taints": [TAINT]}
    assert (await slices.post(*many(63), tainted)).code == 201
    refuses(await slices.post(*many(64), tainted), "spec.devices", "FieldValueTooMany")


async def test_a_device_has_32_attributes_and_capacities_together(slices):
    attributes = {f"a{number}": {"int": number} for number in range(30)}
    capacity = {f"c{number}": {"value": "1Gi"} for number in range(3)}
    assert (await slices.post_device(attributes=attributes, capacity={"c0": {"value": "1Gi"}})).code == 201
    refuses(
        await slices.post_device(attributes=attributes, capacity=capacity),
        "spec.devices[0]",
        "FieldValueInvalid",
    )


@pytest.mark.parametrize("kind", ["string", "version"])
async def test_the_text_of_an_attribute_has_64_characters(slices, kind):
    tail = "x" * (64 - len("1.0.0-"))
    assert (await slices.post_device(attributes={"a": {kind: f"1.0.0-{tail}"}})).code == 201
    refuses(
        await slices.post_device(attributes={"a": {kind: f"1.0.0-{tail}x"}}),
        "spec.devices[0].attributes[a]",
        "FieldValueTooLong",
    )


@pytest.mark.parametrize("version", ["1", "1.2", "v1.2.3", "01.2.3", "1.2.3-"])
async def test_a_version_is_semantic(slices, version):
    reply = await slices.post_device(attributes={"a": {"version": version}})
    refuses(reply, "spec.devices[0].attributes[a].version", "FieldValueInvalid")


@pytest.mark.parametrize(
    "value", [{"int": -5}, {"bool": False}, {"string": ""}, {"version": "1.2.3-rc.1+build"}]
)
async def test_an_attribute_is_a_number_a_truth_a_text_or_a_version(slices, value):
    made = await slices.make({"name": "d1", "attributes": {"a": value}})
    assert made["spec"]["devices"][0]["attributes"]["a"] == value


async def test_an_attribute_has_exactly_one_value(slices):
    none = await slices.post_device(attributes={"a": {}})
    assert none.code == 422
    # Required in older releases, invalid since validation is declarative.
    assert none.causes["spec.devices[0].attributes[a]"] in ("FieldValueRequired", "FieldValueInvalid")
    both = {"a": {"int": 1, "bool": True}}
    refuses(await slices.post_device(attributes=both), "spec.devices[0].attributes[a]", "FieldValueInvalid")


@pytest.mark.parametrize("name", ["a", "_a1", "example.com/model", f"{'d' * 63}/{'i' * 32}"])
async def test_an_attribute_may_be_named_with_a_domain(slices, name):
    assert (await slices.post_device(attributes={name: {"int": 1}})).code == 201


@pytest.mark.parametrize("name", ["a-b", "1a", "a b", "/a", "a/", "i" * 33, f"{'d' * 64}/a"])
async def test_an_attributes_name_is_an_identifier_after_a_domain(slices, name):
    reply = await slices.post_device(attributes={name: {"int": 1}})
    assert reply.code == 422
    assert any(field.startswith("spec.devices[0].attributes") for field in reply.causes)


async def test_a_capacity_is_a_quantity(slices):
    made = await slices.make({"name": "d1", "capacity": {"memory": {"value": "80Gi"}}})
    assert made["spec"]["devices"][0]["capacity"]["memory"]["value"] == "80Gi"
    assert (await slices.post_device(capacity={"memory": {"value": "lots"}})).code in (400, 422)


@pytest.mark.parametrize("name", ["D1", "d_1", "-d", "d" * 64, "d.1", ""])
async def test_a_devices_name_is_a_dns_label(slices, name):
    reply = await slices.post({"name": name})
    assert reply.code == 422
    assert "spec.devices[0].name" in reply.causes


async def test_two_devices_of_a_slice_have_different_names(slices):
    refuses(await slices.post({"name": "d"}, {"name": "d"}), "spec.devices[1]", "FieldValueDuplicate")


@pytest.mark.parametrize("driver", ["", "-a.dev", "under_score.dev", f"{'d' * 60}.dev"])
async def test_a_driver_is_a_short_dns_subdomain(slices, driver):
    reply = await slices.post(driver=driver)
    assert reply.code == 422
    assert "spec.driver" in reply.causes


@pytest.mark.parametrize("pool", ["rack/chassis-1", "a.b/c.d", "x" * 253])
async def test_a_pools_name_may_have_several_parts(slices, pool):
    assert (await slices.post(pool={"name": pool, "generation": 1, "resourceSliceCount": 1})).code == 201


@pytest.mark.parametrize("pool", ["", "/a", "a/", "a//b", "A", "a b", "x" * 254])
async def test_a_pools_name_is_of_dns_subdomains(slices, pool):
    reply = await slices.post(pool={"name": pool, "generation": 1, "resourceSliceCount": 1})
    assert reply.code == 422
    assert any(field.startswith("spec.pool.name") for field in reply.causes)


async def test_a_pool_has_at_least_one_slice(slices):
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 0}
    refuses(await slices.post(pool=pool), "spec.pool.resourceSliceCount", "FieldValueInvalid")


async def test_a_pools_generation_is_not_negative(slices):
    pool = {"name": "p", "generation": -1, "resourceSliceCount": 1}
    refuses(await slices.post(pool=pool), "spec.pool.generation", "FieldValueInvalid")


async def test_an_empty_slice_is_a_pool_too(slices):
    reply = await slices.world.post(
        "resourceslices", {**slices.body(), "spec": {**slices.body()["spec"], "devices": []}}
    )
    assert reply.code == 201


SELECTOR = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}


async def test_a_slice_says_in_exactly_one_way_which_nodes_it_is_for(slices):
    refuses(await slices.post(nodeSelector=None), "spec", "FieldValueRequired")
    refuses(await slices.post(nodeName="n"), "spec", "FieldValueInvalid")
    refuses(await slices.post(allNodes=True), "spec", "FieldValueInvalid")
    for spec in ({"nodeName": "n"}, {"allNodes": True}):
        assert (await slices.post(nodeSelector=None, **spec)).code == 201


@pytest.mark.parametrize("terms", [[], SELECTOR["nodeSelectorTerms"] * 2])
async def test_a_node_selector_has_exactly_one_term(slices, terms):
    reply = await slices.post(nodeSelector={"nodeSelectorTerms": terms})
    assert reply.code == 422
    assert any(field.startswith("spec.nodeSelector.nodeSelectorTerms") for field in reply.causes)


@pytest.mark.parametrize(
    ("operator", "values"), [("Maybe", ["x"]), ("In", []), ("Exists", ["x"]), ("Gt", ["x", "y"])]
)
async def test_a_node_selector_has_valid_requirements(slices, operator, values):
    expressions = [{"key": "a", "operator": operator, "values": values}]
    selector = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    reply = await slices.post(nodeSelector=selector)
    assert reply.code == 422
    where = "spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0]"
    assert any(field.startswith(where) for field in reply.causes)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"driver": "other.drawbar.dev"}, "spec.driver"),
        ({"pool": {"name": "other", "generation": 1, "resourceSliceCount": 1}}, "spec.pool.name"),
        ({"nodeName": "other"}, "spec.nodeName"),
    ],
)
async def test_driver_pool_and_node_never_change(slices, changed, field):
    made = await slices.make(nodeSelector=None, nodeName="n")
    refuses(await slices.put(made, **changed), field, "FieldValueInvalid")


async def test_devices_and_the_generation_of_the_pool_may_change(slices):
    made = await slices.make()
    pool = {**made["spec"]["pool"], "generation": 2}
    reply = await slices.put(made, pool=pool, devices=[{"name": "other"}])
    assert (reply.code, reply.body["metadata"]["generation"]) == (200, 2)
    assert reply.body["spec"]["devices"] == [{"name": "other"}]


@pytest.mark.needs("taints")
async def test_a_taint_gets_the_time_at_which_it_was_added(slices):
    made = await slices.make({"name": "d1", "taints": [TAINT]})
    (taint,) = made["spec"]["devices"][0]["taints"]
    assert taint["timeAdded"].endswith("Z")
    assert {key: taint[key] for key in TAINT} == TAINT


@pytest.mark.needs("taints")
async def test_the_time_of_a_taint_stays_if_it_is_sent_along_and_starts_again_if_not(slices):
    made = await slices.make({"name": "d1", "taints": [{**TAINT, "timeAdded": EARLY}]})
    (device,) = made["spec"]["devices"]
    assert device["taints"][0]["timeAdded"] == EARLY
    same = await slices.put(made, devices=[{**device, "attributes": {"a": {"int": 1}}}])
    assert same.body["spec"]["devices"][0]["taints"][0]["timeAdded"] == EARLY
    bare = await slices.put(same.body, devices=[{"name": "d1", "taints": [TAINT]}])
    assert bare.body["spec"]["devices"][0]["taints"][0]["timeAdded"] > EARLY


@pytest.mark.needs("taints")
async def test_a_device_has_16_taints(slices):
    taints = [{**TAINT, "key": f"k{number}"} for number in range(17)]
    assert (await slices.post_device(taints=taints[:16])).code == 201
    refuses(await slices.post_device(taints=taints), "spec.devices[0].taints", "FieldValueTooMany")


@pytest.mark.needs("taints")
@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute", "None"])
async def test_a_taint_has_one_of_three_effects_of_which_the_last_came_with_1_35(slices, effect):
    reply = await slices.post_device(taints=[{**TAINT, "effect": effect}])
    if effect == "None" and slices.world.can.minor < 35:
        refuses(reply, "spec.devices[0].taints[0].effect", "FieldValueNotSupported")
    else:
        assert reply.code == 201


@pytest.mark.needs("taints")
@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"effect": ""}, "effect", "FieldValueRequired"),
        ({"effect": "PreferNoSchedule"}, "effect", "FieldValueNotSupported"),
        ({"key": "a b"}, "key", "FieldValueInvalid"),
        ({"value": "a b"}, "value", "FieldValueInvalid"),
        ({"value": "x" * 64}, "value", "FieldValueInvalid"),
    ],
)
async def test_a_taint_is_a_label_with_an_effect(slices, change, field, reason):
    reply = await slices.post_device(taints=[{**TAINT, **change}])
    refuses(reply, f"spec.devices[0].taints[0].{field}", reason)


@pytest.mark.needs("taints")
async def test_a_taint_needs_a_key(slices):
    reply = await slices.post_device(taints=[{"effect": "NoSchedule"}])
    assert reply.code == 422
    assert any(field.startswith("spec.devices[0].taints[0].key") for field in reply.causes)


@pytest.mark.needs("bindingConditions")
async def test_binding_conditions_are_stored(slices):
    made = await slices.make({"name": "d1", **bodies.BINDING})
    assert made["spec"]["devices"][0] == {"name": "d1", **bodies.BINDING}


@pytest.mark.needs("bindingConditions")
@pytest.mark.parametrize("field", ["bindingConditions", "bindingFailureConditions"])
async def test_a_device_has_four_conditions_of_each_kind(slices, field):
    names = [f"contract.drawbar.dev/c{number}" for number in range(5)]
    assert (await slices.post_device(**{**bodies.BINDING, field: names[:4]})).code == 201
    refuses(
        await slices.post_device(**{**bodies.BINDING, field: names}),
        f"spec.devices[0].{field}",
        "FieldValueTooMany",
    )


@pytest.mark.needs("bindingConditions")
@pytest.mark.parametrize("missing", ["bindingConditions", "bindingFailureConditions"])
async def test_binding_conditions_and_failure_conditions_need_each_other(slices, missing):
    conditions = {key: value for key, value in bodies.BINDING.items() if key != missing}
    refuses(await slices.post_device(**conditions), f"spec.devices[0].{missing}", "FieldValueInvalid")


@pytest.mark.needs("bindingConditions")
async def test_a_condition_is_not_both_success_and_failure(slices):
    both = {"bindingConditions": ["a.dev/x"], "bindingFailureConditions": ["a.dev/x"]}
    refuses(await slices.post_device(**both), "spec.devices[0].bindingFailureConditions", "FieldValueInvalid")


@pytest.mark.needs("bindingConditions")
@pytest.mark.parametrize("field", ["bindingConditions", "bindingFailureConditions"])
async def test_the_name_of_a_condition_is_a_label_name(slices, field):
    reply = await slices.post_device(**{**bodies.BINDING, field: ["not a name"]})
    refuses(reply, f"spec.devices[0].{field}[0]", "FieldValueInvalid")


@pytest.mark.needs("no bindingConditions")
async def test_without_the_gate_binding_conditions_vanish_in_silence(slices):
    reply = await slices.post_device(**bodies.BINDING)
    assert (reply.code, "Warning" in reply.headers) == (201, False)
    assert not set(bodies.BINDING) & set(reply.body["spec"]["devices"][0])


@pytest.mark.needs("no taints")
async def test_without_the_gate_taints_vanish_in_silence(slices):
    reply = await slices.post_device(taints=[TAINT])
    assert (reply.code, "Warning" in reply.headers) == (201, False)
    assert "taints" not in reply.body["spec"]["devices"][0]


@pytest.mark.needs("no allowMultipleAllocations")
async def test_without_the_gate_several_allocations_of_a_device_vanish_in_silence(slices):
    reply = await slices.post_device(allowMultipleAllocations=True)
    assert (reply.code, "Warning" in reply.headers) == (201, False)
    assert "allowMultipleAllocations" not in reply.body["spec"]["devices"][0]


@pytest.mark.needs("no bindingConditions")
async def test_without_the_gate_an_update_drops_the_same_fields(slices):
    made = await slices.make()
    reply = await slices.put(made, devices=[{"name": "d1", **bodies.BINDING}])
    assert (reply.code, reply.body["spec"]["devices"]) == (200, [{"name": "d1"}])


async def test_a_dry_run_shows_which_fields_are_kept_and_stores_nothing(slices):
    body = slices.body({"name": "d1", **bodies.BINDING})
    reply = await slices.world.post("resourceslices", body, dryRun="All")
    kept = set(reply.body["spec"]["devices"][0]) & set(bodies.BINDING)
    assert (reply.code, bool(kept)) == (201, slices.world.can.keeps("bindingConditions"))
    path = slices.world.path("resourceslices", body["metadata"]["name"])
    assert (await slices.world.api.get(path)).code == 404


async def test_several_devices_may_be_too_wrong_to_list_but_all_of_few_are(slices):
    reply = await slices.post({"name": "A"}, {"name": "B"})
    assert {"spec.devices[0].name", "spec.devices[1].name"} <= reply.causes.keys()
