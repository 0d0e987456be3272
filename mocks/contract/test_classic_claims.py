"""Claims that a driver's controller allocates (KEP-3063): the spec, the allocation, consumers and deallocation."""

import pytest

from contract.negotiation import FINALIZER, consumers, refuses

ALLOCATED = "`allocation` must be set when `deallocationRequested` is set"


async def test_the_kinds_of_the_time_are_listed(driver):
    world = driver.world
    resources = (await world.api.get(f"/apis/resource.k8s.io/{driver.version}")).body["resources"]
    listed = {resource["name"]: (resource["kind"], resource["namespaced"]) for resource in resources}
    own = {
        name: kind for name, kind in world.kinds.items() if kind.api_version.startswith("resource.k8s.io/")
    }
    expected = {name: (kind.kind, kind.namespaced) for name, kind in own.items()}
    for name in ("resourceclaims", "podschedulingcontexts"):
        expected[f"{name}/status"] = expected[name]
    assert expected.items() <= listed.items()
    assert (await world.api.get("/apis/resource.k8s.io/v1")).code == 404


async def test_the_schema_knows_contexts(driver):
    path = f"/openapi/v3/apis/resource.k8s.io/{driver.version}"
    schemas = (await driver.world.api.get(path)).body["components"]["schemas"]
    prefix = f"io.k8s.api.resource.{driver.version}"
    assert set(schemas[f"{prefix}.PodSchedulingContextSpec"]["properties"]) == {
        "potentialNodes",
        "selectedNode",
    }
    assert "deallocationRequested" in schemas[f"{prefix}.ResourceClaimStatus"]["properties"]


@pytest.mark.needs("classic v1alpha2")
async def test_a_claim_waits_for_its_pod_unless_it_says_otherwise(driver):
    assert (await (await driver.claim()).current())["spec"]["allocationMode"] == "WaitForFirstConsumer"
    at_once = await driver.claim(allocationMode="Immediate")
    assert (await at_once.current())["spec"]["allocationMode"] == "Immediate"


@pytest.mark.needs("classic v1alpha2")
async def test_there_is_no_third_allocation_mode(driver):
    body = driver.world.body("resourceclaims", driver.world.name(), spec=driver.spec(allocationMode="Later"))
    refuses(await driver.world.post("resourceclaims", body), "spec.allocationMode", "FieldValueNotSupported")


@pytest.mark.needs("classic v1alpha2")
async def test_a_claim_names_a_class(driver):
    body = driver.world.body("resourceclaims", driver.world.name(), spec=driver.spec(resourceClassName=""))
    refuses(await driver.world.post("resourceclaims", body), "spec.resourceClassName", "FieldValueInvalid")


@pytest.mark.needs("classic v1alpha2")
@pytest.mark.parametrize("missing", ["kind", "name"])
async def test_parameters_are_named_by_kind_and_name(driver, missing):
    reference = {"apiGroup": "contract.drawbar.dev", "kind": "Parameters", "name": "p"}
    kept = await driver.claim(parametersRef=reference)
    assert (await kept.current())["spec"]["parametersRef"] == reference
    less = {key: value for key, value in reference.items() if key != missing}
    body = driver.world.body("resourceclaims", driver.world.name(), spec=driver.spec(parametersRef=less))
    refuses(
        await driver.world.post("resourceclaims", body), f"spec.parametersRef.{missing}", "FieldValueRequired"
    )


@pytest.mark.needs("classic v1alpha3")
async def test_a_request_without_more_words_is_for_one_device(driver):
    (request,) = (await (await driver.claim()).current())["spec"]["devices"]["requests"]
    assert (request["allocationMode"], request["count"]) == ("ExactCount", 1)


@pytest.mark.needs("classic v1alpha3")
async def test_a_claim_names_its_controller_as_drivers_are_named(driver):
    assert (await (await driver.claim()).current())["spec"]["controller"] == driver.name
    body = driver.world.body("resourceclaims", driver.world.name(), spec=driver.spec(controller="a b"))
    refuses(await driver.world.post("resourceclaims", body), "spec.controller", "FieldValueInvalid")


async def test_the_spec_of_a_claim_never_changes(driver):
    claim = await driver.claim()
    change = {"resourceClassName": "other"} if driver.by_class else {"controller": "other.drawbar.dev"}
    refuses(await driver.world.api.merge(claim.path, {"spec": change}), "spec", "FieldValueInvalid")


async def test_a_template_gives_the_same_defaults_and_never_changes(driver):
    made = await driver.world.make("resourceclaimtemplates", spec={"spec": driver.spec()})
    inner = made["spec"]["spec"]
    if driver.by_class:
        assert inner["allocationMode"] == "WaitForFirstConsumer"
    else:
        assert inner["devices"]["requests"][0]["count"] == 1
    path = driver.world.path("resourceclaimtemplates", made["metadata"]["name"])
    change = {"spec": {"metadata": {"labels": {"a": "b"}}}}
    refuses(await driver.world.api.merge(path, change), "spec", "FieldValueInvalid")


async def test_a_new_claim_has_no_status_and_the_main_resource_does_not_change_it(driver):
    world = driver.world
    made = await world.make("resourceclaims", spec=driver.spec(), status=driver.make_allocated_status())
    assert not made.get("status")
    path = world.path("resourceclaims", made["metadata"]["name"])
    assert not (await world.api.merge(path, {"status": driver.make_allocated_status()})).body.get("status")


async def test_a_status_changes_no_finalizer(driver):
    claim = await driver.claim()
    change = {"metadata": {"finalizers": [FINALIZER]}, "status": driver.make_allocated_status()}
    reply = await driver.world.api.merge(claim.status_path, change)
    assert (reply.code, reply.body["metadata"].get("finalizers")) == (200, None)


async def test_allocation_and_consumer_come_in_one_write(driver):
    claim = await driver.claim()
    written = await claim.allocate("n1", reserved=consumers(1))
    assert written["metadata"]["finalizers"] == [FINALIZER]
    status = written["status"]
    assert (status["allocation"], status["reservedFor"]) == (driver.allocation("n1"), consumers(1))


@pytest.mark.needs("classic v1alpha2")
async def test_an_allocation_says_whose_it_is(driver):
    claim = await driver.claim()
    reply = await claim.status(allocation=driver.allocation())
    refuses(reply, "status.driverName", "FieldValueRequired")


@pytest.mark.needs("classic v1alpha2")
async def test_a_driver_can_say_that_it_is_at_work_before_it_has_allocated(driver):
    claim = await driver.claim()
    assert (await claim.status(driverName=driver.name)).body["status"] == {"driverName": driver.name}


async def test_an_allocation_may_say_nothing(driver):
    claim = await driver.claim()
    status = {"allocation": {}} | ({"driverName": driver.name} if driver.by_class else {})
    assert (await claim.status(**status)).code == 200


@pytest.mark.needs("classic v1alpha2")
async def test_a_handle_holds_16_kibibytes(driver):
    handle = {"driverName": driver.name, "data": "x" * 16 * 1024}
    claim = await driver.claim()
    big = {**handle, "data": handle["data"] + "x"}
    reply = await claim.status(**driver.make_allocated_status(resourceHandles=[big]))
    refuses(reply, "status.allocation.resourceHandles[0].data", "FieldValueTooLong")
    assert (await claim.status(**driver.make_allocated_status(resourceHandles=[handle]))).code == 200


@pytest.mark.needs("classic v1alpha2")
async def test_an_allocation_has_32_handles_each_of_a_driver(driver):
    claim = await driver.claim()
    handles = [{"driverName": driver.name, "data": str(number)} for number in range(33)]
    reply = await claim.status(**driver.make_allocated_status(resourceHandles=handles))
    refuses(reply, "status.allocation.resourceHandles", "FieldValueTooLong")
    reply = await claim.status(**driver.make_allocated_status(resourceHandles=[{"data": "x"}]))
    refuses(reply, "status.allocation.resourceHandles[0].driverName", "FieldValueRequired")
    assert (await claim.status(**driver.make_allocated_status(resourceHandles=handles[:32]))).code == 200


@pytest.mark.needs("classic v1alpha3")
async def test_a_result_is_for_a_request_of_the_claim_and_complete(driver):
    claim = await driver.claim()
    (result,) = driver.allocation()["devices"]["results"]
    path = "status.allocation.devices.results[0]"
    other = {"results": [{**result, "request": "two"}]}
    refuses(
        await claim.status(**driver.make_allocated_status(devices=other)),
        f"{path}.request",
        "FieldValueInvalid",
    )
    # An empty driver is missing, and also no name; the causes are by field, and the last one stays.
    for key, reason in (("driver", "FieldValueInvalid"), ("pool", "FieldValueRequired")):
        less = {"results": [{name: value for name, value in result.items() if name != key}]}
        refuses(await claim.status(**driver.make_allocated_status(devices=less)), f"{path}.{key}", reason)


async def test_the_nodes_of_an_allocation_are_a_node_selector(driver):
    claim = await driver.claim()
    key = "availableOnNodes" if driver.by_class else "nodeSelector"
    reply = await claim.status(**driver.make_allocated_status(**{key: {"nodeSelectorTerms": []}}))
    refuses(reply, f"status.allocation.{key}.nodeSelectorTerms", "FieldValueRequired")


async def test_an_allocation_never_changes(driver):
    claim = await driver.claim()
    await claim.allocate("n1")
    refuses(
        await claim.status(**driver.make_allocated_status("n2")), "status.allocation", "FieldValueInvalid"
    )


async def test_only_an_allocated_claim_is_reserved(driver):
    claim = await driver.claim()
    reply = await claim.status(reservedFor=consumers(1))
    refuses(reply, "status.reservedFor", "FieldValueForbidden")


async def test_a_claim_is_reserved_for_32_consumers(driver):
    claim = await driver.claim()
    await claim.allocate()
    assert (await claim.status(reservedFor=consumers(32))).code == 200
    refuses(await claim.status(reservedFor=consumers(33)), "status.reservedFor", "FieldValueTooLong")


@pytest.mark.needs("classic v1alpha2")
async def test_a_claim_that_is_not_shareable_is_reserved_once(driver):
    claim = await driver.claim()
    assert (await claim.status(**driver.make_allocated_status(shareable=False))).code == 200
    refuses(await claim.status(reservedFor=consumers(2)), "status.reservedFor", "FieldValueForbidden")
    assert (await claim.status(reservedFor=consumers(1))).code == 200


async def test_a_consumer_is_named_once_and_in_full(driver):
    claim = await driver.claim()
    await claim.allocate()
    reply = await claim.status(reservedFor=consumers(1) * 2)
    refuses(reply, "status.reservedFor[1].uid", "FieldValueDuplicate")
    for missing in ("resource", "name", "uid"):
        entry = {key: value for key, value in consumers(1)[0].items() if key != missing}
        reply = await claim.status(reservedFor=[entry])
        refuses(reply, f"status.reservedFor[0].{missing}", "FieldValueRequired")


async def test_a_reserved_claim_is_not_deallocated(driver):
    claim = await driver.claim()
    await claim.allocate(reserved=consumers(1))
    reply = await claim.status(allocation=None)
    refuses(reply, "status.reservedFor", "FieldValueForbidden")


async def test_deallocation_is_asked_for_only_when_nobody_uses_the_claim(driver):
    claim = await driver.claim()
    await claim.allocate(reserved=consumers(1))
    reply = await claim.status(deallocationRequested=True)
    refuses(reply, "status.deallocationRequested", "FieldValueForbidden")
    both = await claim.status(deallocationRequested=True, reservedFor=None)
    assert (both.code, both.body["status"]["deallocationRequested"]) == (200, True)
    assert both.body["status"]["allocation"] == driver.allocation()


async def test_deallocation_of_nothing_cannot_be_asked_for(driver):
    claim = await driver.claim()
    reply = await claim.status(deallocationRequested=True)
    refuses(reply, "status", "FieldValueForbidden")
    assert ALLOCATED in reply.message


async def test_a_request_to_deallocate_stands_until_the_allocation_is_gone(driver):
    claim = await driver.claim()
    await claim.allocate()
    await claim.status(deallocationRequested=True)
    reply = await claim.status(deallocationRequested=None)
    refuses(reply, "status.deallocationRequested", "FieldValueForbidden")
    refuses(await claim.status(allocation=None), "status", "FieldValueForbidden")
    await claim.deallocate()
    assert not (await claim.current()).get("status")


async def test_a_claim_that_is_asked_back_gets_no_new_consumer(driver):
    claim = await driver.claim()
    await claim.allocate()
    await claim.status(deallocationRequested=True)
    refuses(await claim.status(reservedFor=consumers(1)), "status.reservedFor", "FieldValueForbidden")


async def test_a_claim_that_is_being_deleted_loses_consumers_and_gets_none(driver):
    claim = await driver.claim()
    await claim.allocate(reserved=consumers(2))
    assert (await driver.world.api.delete(claim.path)).code == 200
    assert (await claim.status(reservedFor=consumers(1))).code == 200
    refuses(await claim.status(reservedFor=consumers(2)), "status.reservedFor", "FieldValueForbidden")


async def test_a_driver_lets_a_deleted_claim_go_with_its_finalizer(driver):
    claim = await driver.claim()
    await claim.allocate()
    await driver.world.api.delete(claim.path)
    assert (await claim.current())["metadata"]["deletionTimestamp"]
    await claim.deallocate()
    await driver.world.wait_until_gone("resourceclaims", claim.name)


@pytest.mark.needs("classic v1alpha2")
async def test_a_class_is_for_one_driver_and_some_nodes(driver):
    world = driver.world
    selector = {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
    }
    reference = {"kind": "Parameters", "name": "p", "namespace": "default"}
    made = await world.make(
        "resourceclasses", driverName=driver.name, parametersRef=reference, suitableNodes=selector
    )
    assert (made["parametersRef"], made["suitableNodes"]) == (reference, selector)
    for change, field, reason in (
        ({"driverName": ""}, "driverName", "FieldValueRequired"),
        (
            {"suitableNodes": {"nodeSelectorTerms": []}},
            "suitableNodes.nodeSelectorTerms",
            "FieldValueRequired",
        ),
        ({"parametersRef": {"kind": "", "name": "p"}}, "parametersRef.kind", "FieldValueRequired"),
    ):
        reply = await world.api.merge(world.path("resourceclasses", made["metadata"]["name"]), change)
        refuses(reply, field, reason)


@pytest.mark.needs("classic v1alpha3")
async def test_a_class_says_which_nodes_suit_it(driver):
    selector = {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
    }
    made = await driver.world.make("deviceclasses", spec={"suitableNodes": selector})
    assert made["spec"]["suitableNodes"] == selector
    body = driver.world.body(
        "deviceclasses", driver.world.name(), spec={"suitableNodes": {"nodeSelectorTerms": []}}
    )
    # The real server leaves out "spec" when it says where.
    reply = await driver.world.post("deviceclasses", body)
    refuses(reply, "suitableNodes.nodeSelectorTerms", "FieldValueRequired")
