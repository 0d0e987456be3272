"""ResourceClaims, templates and classes: the spec, and the rules of the status."""

from typing import Any

import pytest

from contract import bodies
from contract.api import Json, Reply

pytestmark = pytest.mark.needs("v1")

POOL = "pool"


def refuses(reply: Reply, field: str, reason: str) -> None:
    """Check that the refusal complains of this field, or of something in it, for this reason."""
    assert (reply.code, reply.reason) == (422, "Invalid"), reply.body
    reasons = [
        why
        for where, why in reply.causes.items()
        if where == field or where.startswith((f"{field}.", f"{field}["))
    ]
    assert reason in reasons, reply.causes


async def post(world, *requests: Json, **devices: Any) -> Reply:
    spec = {"devices": {"requests": list(requests), **devices}}
    return await world.post("resourceclaims", world.body("resourceclaims", world.name(), spec=spec))


async def test_a_request_without_more_words_is_for_exactly_one_device(world):
    reply = await post(world, {"name": "one", "exactly": {"deviceClassName": "x"}})
    assert reply.body["spec"]["devices"]["requests"] == [
        {"name": "one", "exactly": {"deviceClassName": "x", "allocationMode": "ExactCount", "count": 1}}
    ]


async def test_the_spec_of_a_claim_never_changes(world):
    made = await world.make("resourceclaims", spec={})
    changed = {"spec": {"devices": {"requests": [bodies.request("one", "x")]}}}
    reply = await world.api.merge(world.path("resourceclaims", made["metadata"]["name"]), changed)
    refuses(reply, "spec", "FieldValueInvalid")


async def test_a_request_needs_a_class(world):
    where = "spec.devices.requests[0].exactly.deviceClassName"
    refuses(await post(world, {"name": "one", "exactly": {"count": 1}}), where, "FieldValueRequired")


async def test_a_request_is_exact_or_has_alternatives(world):
    refuses(await post(world, {"name": "one"}), "spec.devices.requests[0]", "FieldValueRequired")
    both = {**bodies.request("one", "x"), "firstAvailable": [{"name": "a", "deviceClassName": "x"}]}
    refuses(await post(world, both), "spec.devices.requests[0]", "FieldValueInvalid")


async def test_requests_have_different_names_that_are_dns_labels(world):
    twice = [bodies.request("one", "x"), bodies.request("one", "x")]
    refuses(await post(world, *twice), "spec.devices.requests[1]", "FieldValueDuplicate")
    refuses(
        await post(world, bodies.request("One", "x")), "spec.devices.requests[0].name", "FieldValueInvalid"
    )


async def test_a_claim_has_32_requests(world):
    requests = [bodies.request(f"r{number}", "x") for number in range(33)]
    assert (await post(world, *requests[:32])).code == 201
    refuses(await post(world, *requests), "spec.devices.requests", "FieldValueTooMany")


async def test_a_request_has_eight_alternatives(world):
    choices = [{"name": f"a{number}", "deviceClassName": "x"} for number in range(9)]
    assert (await post(world, {"name": "one", "firstAvailable": choices[:8]})).code == 201
    reply = await post(world, {"name": "one", "firstAvailable": choices})
    refuses(reply, "spec.devices.requests[0].firstAvailable", "FieldValueTooMany")


@pytest.mark.parametrize("count", [0, -1])
async def test_an_exact_count_is_positive(world, count):
    exactly = {"deviceClassName": "x", "allocationMode": "ExactCount", "count": count}
    reply = await post(world, {"name": "one", "exactly": exactly})
    if count == 0:
        # Without a count it is one device.
        assert reply.body["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    else:
        refuses(reply, "spec.devices.requests[0].exactly.count", "FieldValueInvalid")


async def test_a_claim_without_requests_has_null_in_their_place(world):
    reply = await world.post("resourceclaims", world.body("resourceclaims", world.name(), spec={}))
    assert (reply.code, reply.body["spec"]) == (201, {"devices": {"requests": None}})


async def test_all_devices_have_no_count(world):
    reply = await post(world, bodies.request("one", "x", allocationMode="All", count=2))
    refuses(reply, "spec.devices.requests[0].exactly.count", "FieldValueInvalid")
    assert (await post(world, bodies.request("one", "x", allocationMode="All"))).code == 201


async def test_there_is_no_other_allocation_mode(world):
    reply = await post(world, bodies.request("one", "x", allocationMode="Some"))
    refuses(reply, "spec.devices.requests[0].exactly.allocationMode", "FieldValueNotSupported")


async def test_a_selector_must_compile(world):
    for expression in ("device.", "device.driver", "nothing == 1"):
        reply = await post(world, bodies.request("one", "x", selectors=[{"cel": {"expression": expression}}]))
        refuses(reply, "spec.devices.requests[0].exactly.selectors[0].cel.expression", "FieldValueInvalid")


async def test_a_selector_may_look_at_driver_attributes_and_capacity(world):
    expression = (
        'device.driver == "a.dev" && device.attributes["a.dev"].model == "x" && '
        'device.capacity["a.dev"].memory.compareTo(quantity("1Gi")) >= 0'
    )
    assert (
        await post(world, bodies.request("one", "x", selectors=[{"cel": {"expression": expression}}]))
    ).code == 201


async def test_a_constraint_speaks_of_requests_that_there_are(world):
    constraint = {"requests": ["other"], "matchAttribute": "a.dev/model"}
    reply = await post(world, bodies.request("one", "x"), constraints=[constraint])
    refuses(reply, "spec.devices.constraints[0].requests[0]", "FieldValueInvalid")
    good = {"requests": ["one"], "matchAttribute": "a.dev/model"}
    assert (await post(world, bodies.request("one", "x"), constraints=[good])).code == 201


async def test_a_constraint_names_an_attribute_with_its_domain(world):
    reply = await post(world, bodies.request("one", "x"), constraints=[{"matchAttribute": "model"}])
    assert reply.code == 422
    assert any(field.startswith("spec.devices.constraints[0].matchAttribute") for field in reply.causes)


async def test_opaque_configuration_is_an_object_for_a_driver(world):
    def config(**opaque: Any) -> Json:
        return {"requests": ["one"], "opaque": opaque}

    good = config(driver="a.dev", parameters={"any": ["thing"]})
    reply = await post(world, bodies.request("one", "x"), config=[good])
    assert (reply.code, reply.body["spec"]["devices"]["config"]) == (201, [good])
    for bad, field in (
        (config(driver="A b", parameters={}), "driver"),
        (config(driver="a.dev"), "parameters"),
        (config(driver="a.dev", parameters="text"), "parameters"),
    ):
        reply = await post(world, bodies.request("one", "x"), config=[bad])
        assert reply.code == 422
        assert any(where.startswith(f"spec.devices.config[0].opaque.{field}") for where in reply.causes)


async def test_administrators_access_is_for_namespaces_that_are_labelled_for_it(world):
    request = bodies.request("one", "x", adminAccess=True)
    reply = await post(world, request)
    refuses(reply, "spec.devices.requests[0]", "FieldValueForbidden")
    home = (
        await world.make("namespaces", metadata={"labels": {"resource.kubernetes.io/admin-access": "true"}})
    )["metadata"]
    body = world.body(
        "resourceclaims",
        world.name(),
        metadata={"namespace": home["name"]},
        spec={"devices": {"requests": [request]}},
    )
    reply = await world.eventually(
        lambda: world.post("resourceclaims", body), lambda reply: reply.code == 201
    )
    assert reply.body["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] is True


async def test_a_template_is_checked_like_a_claim_and_never_changes(world):
    spec = {"spec": {"devices": {"requests": [{"name": "one", "exactly": {"count": 1}}]}}}
    reply = await world.post(
        "resourceclaimtemplates", world.body("resourceclaimtemplates", world.name(), spec=spec)
    )
    refuses(reply, "spec.spec.devices.requests[0].exactly.deviceClassName", "FieldValueRequired")
    made = await world.make("resourceclaimtemplates", spec={"spec": {}})
    path = world.path("resourceclaimtemplates", made["metadata"]["name"])
    changed = await world.api.merge(path, {"spec": {"metadata": {"labels": {"a": "b"}}}})
    refuses(changed, "spec", "FieldValueInvalid")


async def test_the_selector_of_a_class_must_compile(world):
    spec = {"selectors": [{"cel": {"expression": "device."}}]}
    reply = await world.post("deviceclasses", world.body("deviceclasses", world.name(), spec=spec))
    refuses(reply, "spec.selectors[0].cel.expression", "FieldValueInvalid")


class Allocated:
    """A claim with an allocation of two devices, d1 and d2."""

    def __init__(self, world, name: str):
        self.world = world
        self.path = world.path("resourceclaims", name)
        self.status_path = world.path("resourceclaims", name, "status")

    def device(self, *conditions: Json, name: str = "d1", **fields: Any) -> Json:
        return bodies.device_status(self.world.driver, POOL, name, *conditions, **fields)

    async def status(self, **status: Any) -> Reply:
        return await self.world.api.merge(self.status_path, {"status": status})

    async def devices(self, *devices: Json) -> Reply:
        return await self.status(devices=list(devices))

    async def current(self) -> Json:
        return (await self.world.api.get(self.path)).body


@pytest.fixture
async def claim(world):
    made = await world.make("resourceclaims", spec={"devices": {"requests": [bodies.request("one", "x")]}})
    allocated = Allocated(world, made["metadata"]["name"])
    results = [bodies.result(world.driver, POOL, name) for name in ("d1", "d2")]
    reply = await allocated.status(allocation={"devices": {"results": results}})
    assert reply.code == 200, reply.body
    return allocated


async def test_a_devices_status_without_conditions_has_null_in_their_place(claim):
    reply = await claim.devices(claim.device())
    assert reply.code == 200, reply.body
    assert [device["conditions"] for device in reply.body["status"]["devices"]] == [None]


async def test_a_devices_status_is_of_an_allocated_device(claim):
    assert (await claim.devices(claim.device())).code == 200
    refuses(await claim.devices(claim.device(name="d3")), "status.devices[0]", "FieldValueInvalid")


async def test_a_device_has_one_status(claim):
    refuses(await claim.devices(claim.device(), claim.device()), "status.devices[1]", "FieldValueDuplicate")


async def test_a_device_has_eight_conditions(claim):
    conditions = [bodies.condition(f"c{number}") for number in range(9)]
    assert (await claim.devices(claim.device(*conditions[:8]))).code == 200
    refuses(
        await claim.devices(claim.device(*conditions)), "status.devices[0].conditions", "FieldValueTooMany"
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"type": ""}, "FieldValueInvalid"),
        ({"type": "a b"}, "FieldValueInvalid"),
        ({"status": "Maybe"}, "FieldValueNotSupported"),
        ({"reason": ""}, "FieldValueRequired"),
        ({"reason": "has space"}, "FieldValueInvalid"),
        ({"reason": "1st"}, "FieldValueInvalid"),
        ({"lastTransitionTime": None}, "FieldValueRequired"),
        ({"message": "x" * 32_769}, "FieldValueTooLong"),
    ],
)
async def test_a_condition_is_complete(claim, change, reason):
    reply = await claim.devices(claim.device({**bodies.condition("a"), **change}))
    refuses(reply, f"status.devices[0].conditions[0].{next(iter(change))}", reason)


async def test_an_apply_rewrites_opaque_parameters_of_an_immutable_allocation(world):
    """Any apply to any part; a patch leaves all other fields as they were written."""
    unsorted = {"opaque": {"driver": "a.dev", "parameters": {"kind": "K", "apiVersion": "v1"}}}
    made = await world.make("resourceclaims", spec={"devices": {"requests": [bodies.request("one", "x")]}})
    allocation = {
        "results": [bodies.result("a.dev", "p", "d")],
        "config": [{"source": "FromClass", **unsorted}],
    }
    name = made["metadata"]["name"]
    path = world.path("resourceclaims", name, "status")
    # As the scheduler writes it: a patch would put the keys in order.
    allocated = await world.api.put(path, {**made, "status": {"allocation": {"devices": allocation}}})
    assert allocated.code == 200, allocated.body
    devices = [bodies.device_status("a.dev", "p", "d", bodies.condition("a"))]
    head = {key: made[key] for key in ("apiVersion", "kind")} | {"metadata": {"name": name}}
    applied = await world.api.apply(path, {**head, "status": {"devices": devices}}, force=True)
    refuses(applied, "status.allocation", "FieldValueInvalid")
    operation = {"op": "add", "path": "/status/devices", "value": devices}
    assert (await world.api.json_patch(path, operation)).code == 200


async def test_a_condition_may_have_a_long_message_and_a_reason_with_marks(claim):
    good = bodies.condition(
        "a.dev/b", "Unknown", reason="Port_1,Down:x", message="x" * 32_768, observedGeneration=3
    )
    assert (await claim.devices(claim.device(good))).code == 200


async def test_two_conditions_have_different_types(claim):
    twice = claim.device(bodies.condition("a"), bodies.condition("a", "False"))
    refuses(await claim.devices(twice), "status.devices[0].conditions[1].type", "FieldValueDuplicate")


async def test_a_time_is_a_time(claim):
    bad = claim.device(bodies.condition("a", lastTransitionTime="yesterday"))
    current = await claim.current()
    replaced = {**current, "status": {**current["status"], "devices": [bad]}}
    assert (await claim.world.api.put(claim.status_path, replaced)).code == 400
    patched = await claim.devices(bad)
    assert (patched.code, list(patched.causes)) == (422, ["patch"])


async def test_the_data_of_a_device_is_an_object_of_ten_kibibytes(claim):
    assert (await claim.devices(claim.device(data={"a": "x" * 10_000}))).code == 200
    refuses(
        await claim.devices(claim.device(data={"a": "x" * 10_240})),
        "status.devices[0].data",
        "FieldValueTooLong",
    )
    refuses(await claim.devices(claim.device(data="text")), "status.devices[0].data", "FieldValueInvalid")


@pytest.mark.parametrize(
    ("network", "field"),
    [
        ({"ips": ["10.0.0.1"]}, "ips[0]"),
        ({"ips": ["010.0.0.1/8"]}, "ips[0]"),
        ({"ips": [f"10.0.0.{number}/24" for number in range(17)]}, "ips"),
        ({"interfaceName": "x" * 257}, "interfaceName"),
        ({"hardwareAddress": "x" * 129}, "hardwareAddress"),
    ],
)
async def test_network_data_is_checked(claim, network, field):
    reply = await claim.devices(claim.device(networkData=network))
    assert reply.code == 422
    assert any(where.startswith(f"status.devices[0].networkData.{field}") for where in reply.causes)


async def test_network_data_is_stored(claim):
    network = {
        "interfaceName": "eth7",
        "ips": ["10.0.0.1/24", "2001:db8::1/64"],
        "hardwareAddress": "02:00:00:00:00:01",
    }
    reply = await claim.devices(claim.device(networkData=network))
    assert (reply.code, reply.body["status"]["devices"][0]["networkData"]) == (200, network)


async def test_an_allocation_never_changes(claim):
    other = {"devices": {"results": [bodies.result(claim.world.driver, POOL, "d9")]}}
    refuses(await claim.status(allocation=other), "status.allocation", "FieldValueInvalid")


async def test_taking_the_allocation_away_takes_the_devices_status_along(claim):
    await claim.devices(claim.device(bodies.condition("a")))
    current = await claim.current()
    status = {"devices": current["status"]["devices"]}
    reply = await claim.world.api.put(claim.status_path, {**current, "status": status})
    assert (reply.code, reply.body.get("status")) in ((200, {}), (200, None))


async def test_after_a_new_allocation_no_old_condition_counts(claim):
    await claim.devices(claim.device(bodies.condition(bodies.ATTACHED)))
    allocation = (await claim.current())["status"]["allocation"]
    assert (await claim.status(allocation=None)).code == 200
    reply = await claim.status(allocation=allocation)
    assert (reply.code, "devices" in reply.body["status"]) == (200, False)


def consumers(number: int) -> list[Json]:
    # No pods: a cluster's claim controller takes away those that do not exist.
    kind = {"apiGroup": "example.com", "resource": "things"}
    return [{**kind, "name": f"p{index}", "uid": f"u{index}"} for index in range(number)]


async def test_only_an_allocated_claim_is_reserved(world):
    made = await world.make("resourceclaims", spec={})
    reply = await Allocated(world, made["metadata"]["name"]).status(reservedFor=consumers(1))
    refuses(reply, "status.reservedFor", "FieldValueForbidden")


async def test_a_reserved_claim_is_not_deallocated(claim):
    assert (await claim.status(reservedFor=consumers(1))).code == 200
    refuses(await claim.status(allocation=None), "status.reservedFor", "FieldValueForbidden")


async def test_a_claim_is_reserved_for_256_consumers(claim):
    assert (await claim.status(reservedFor=consumers(256))).code == 200
    refuses(await claim.status(reservedFor=consumers(257)), "status.reservedFor", "FieldValueTooMany")


async def test_a_consumer_is_named_once_and_in_full(claim):
    refuses(await claim.status(reservedFor=consumers(1) * 2), "status.reservedFor[1]", "FieldValueDuplicate")
    for missing in ("resource", "name", "uid"):
        entry = {key: value for key, value in consumers(1)[0].items() if key != missing}
        refuses(
            await claim.status(reservedFor=[entry]), f"status.reservedFor[0].{missing}", "FieldValueRequired"
        )


async def test_a_claim_that_is_being_deleted_gets_no_new_consumer(claim):
    await claim.world.api.merge(claim.path, {"metadata": {"finalizers": ["contract.drawbar.dev/hold"]}})
    assert (await claim.world.api.delete(claim.path)).code == 200
    refuses(await claim.status(reservedFor=consumers(1)), "status.reservedFor", "FieldValueForbidden")


async def test_a_status_changes_nothing_but_the_status(claim):
    metadata = {"labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["a.dev/b"]}
    before = await claim.current()
    reply = await claim.world.api.merge(
        claim.status_path, {"metadata": metadata, "status": {"devices": [claim.device()]}}
    )
    assert reply.code == 200
    for key in metadata:
        assert reply.body["metadata"].get(key) == before["metadata"].get(key)


async def test_the_main_resource_does_not_change_the_status(claim):
    reply = await claim.world.api.merge(claim.path, {"status": {"devices": [claim.device()]}})
    assert (reply.code, "devices" in reply.body["status"]) == (200, False)


async def test_a_result_is_complete(world):
    made = await world.make("resourceclaims", spec={"devices": {"requests": [bodies.request("one", "x")]}})
    for missing in ("driver", "pool", "device"):
        result = {
            key: value for key, value in bodies.result(world.driver, POOL, "d1").items() if key != missing
        }
        reply = await Allocated(world, made["metadata"]["name"]).status(
            allocation={"devices": {"results": [result]}}
        )
        assert reply.code == 422
        assert any(
            where.startswith(f"status.allocation.devices.results[0].{missing}") for where in reply.causes
        )


async def test_a_result_is_for_a_request_of_the_claim(world):
    made = await world.make("resourceclaims", spec={"devices": {"requests": [bodies.request("other", "x")]}})
    allocation = {"devices": {"results": [bodies.result(world.driver, POOL, "d1")]}}
    reply = await Allocated(world, made["metadata"]["name"]).status(allocation=allocation)
    refuses(reply, "status.allocation.devices.results[0].request", "FieldValueInvalid")


async def test_binding_conditions_of_an_allocation_are_kept_if_the_gate_is_on(world):
    made = await world.make("resourceclaims", spec={"devices": {"requests": [bodies.request("one", "x")]}})
    binding = {key: value for key, value in bodies.BINDING.items() if key != "bindsToNode"}
    allocation = {
        "devices": {"results": [bodies.result(world.driver, POOL, "d1", **binding)]},
        "nodeSelector": bodies.node_selector("n"),
        "allocationTimestamp": bodies.EPOCH,
    }
    reply = await Allocated(world, made["metadata"]["name"]).status(allocation=allocation)
    kept = reply.body["status"]["allocation"]
    on = world.can.keeps("bindingConditions")
    assert set(binding) <= set(kept["devices"]["results"][0]) or not on
    assert bool(set(binding) & set(kept["devices"]["results"][0])) is on
    assert ("allocationTimestamp" in kept) is on
    assert kept["nodeSelector"] == allocation["nodeSelector"]
