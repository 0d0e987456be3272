"""The rules of resource.k8s.io, with the field paths of the real errors, and what each profile keeps."""

from typing import Any

import pytest

BASE = "/apis/resource.k8s.io/v1"
SLICES = f"{BASE}/resourceslices"
CLAIMS = f"{BASE}/namespaces/default/resourceclaims"
CLASSES = f"{BASE}/deviceclasses"
TEMPLATES = f"{BASE}/namespaces/default/resourceclaimtemplates"
RULES = f"{BASE}/devicetaintrules"
TAINT = {"key": "a.dev/b", "effect": "NoSchedule"}
COUNTERS = {"memory": {"value": "80Gi"}}
POLICY = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "40Gi", "step": "1Gi"}}


def fields(reply: Any) -> list[str]:
    assert reply.code == 422, reply.body
    return [cause["field"] for cause in reply.body["details"]["causes"]]


def device(**more: Any) -> dict[str, Any]:
    return {"name": "a", **more}


def shared(**policy: Any) -> dict[str, Any]:
    capacity = {"memory": {"value": "80Gi", "requestPolicy": POLICY | policy}}
    return device(allowMultipleAllocations=True, capacity=capacity)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"devices": [device(bindingFailureConditions=["x"])]}, "spec.devices[0].bindingConditions"),
        ({"devices": [device(bindingConditions=["x"])]}, "spec.devices[0].bindingFailureConditions"),
        (
            {"devices": [device(bindingConditions=["x", "x"], bindingFailureConditions=["y"])]},
            "spec.devices[0].bindingConditions[1]",
        ),
        (
            {"devices": [device(bindingConditions=["x y"], bindingFailureConditions=["y"])]},
            "spec.devices[0].bindingConditions[0]",
        ),
        (
            {"devices": [device(bindingConditions=["x"], bindingFailureConditions=list("abcde"))]},
            "spec.devices[0].bindingFailureConditions",
        ),
        ({"devices": [device(taints=[{**TAINT, "key": ""}])]}, "spec.devices[0].taints[0].key"),
        ({"devices": [device(taints=[{**TAINT, "value": "a b"}])]}, "spec.devices[0].taints[0].value"),
        ({"devices": [device(taints=[{"key": "k"}])]}, "spec.devices[0].taints[0].effect"),
        ({"devices": [device(attributes={"m": {}})]}, "spec.devices[0].attributes[m]"),
        ({"devices": [device(attributes={"m": {"version": "1"}})]}, "spec.devices[0].attributes[m].version"),
        ({"devices": [device(attributes={"a/b/c": {"int": 1}})]}, "spec.devices[0].attributes"),
        ({"devices": [device(attributes={"x" * 33: {"int": 1}})]}, "spec.devices[0].attributes"),
        ({"devices": [device(nodeName="n")]}, "spec.devices[0]"),
        ({"allNodes": None, "perDeviceNodeSelection": True}, "spec.devices[0]"),
        ({"allNodes": False}, "spec.allNodes"),
        ({"allNodes": None, "nodeName": ""}, "spec.nodeName"),
        (
            {"allNodes": None, "nodeSelector": {"nodeSelectorTerms": []}},
            "spec.nodeSelector.nodeSelectorTerms",
        ),
        (
            {
                "allNodes": None,
                "nodeSelector": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Near"}]}]
                },
            },
            "spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].operator",
        ),
        (
            {
                "allNodes": None,
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "spec.x", "operator": "In", "values": ["a"]}]}
                    ]
                },
            },
            "spec.nodeSelector.nodeSelectorTerms[0].matchFields[0].key",
        ),
        ({"sharedCounters": [{"name": "s", "counters": COUNTERS}]}, "spec"),
        ({"devices": None, "sharedCounters": [{"name": "s"}]}, "spec.sharedCounters[0].counters"),
        (
            {"devices": None, "sharedCounters": [{"name": f"s{n}", "counters": COUNTERS} for n in range(9)]},
            "spec.sharedCounters",
        ),
        (
            {"devices": [device(consumesCounters=[{"counterSet": "s", "counters": {}}])]},
            "spec.devices[0].consumesCounters[0].counters",
        ),
        (
            {"devices": [device(consumesCounters=[{"counterSet": "s", "counters": COUNTERS}] * 2)]},
            "spec.devices[0].consumesCounters[1]",
        ),
        ({"devices": [{"name": f"d{n}", "consumesCounters": []} for n in range(129)]}, "spec.devices"),
        (
            {
                "devices": [
                    {"name": f"d{n}", "consumesCounters": [{"counterSet": "s", "counters": COUNTERS}]}
                    for n in range(65)
                ]
            },
            "spec.devices",
        ),
        (
            {"devices": [device(capacity={"memory": {"value": "1Gi", "requestPolicy": POLICY}})]},
            "spec.devices[0].capacity[memory].requestPolicy",
        ),
        (
            {"devices": [shared(validValues=["1Gi"])]},
            "spec.devices[0].capacity[memory].requestPolicy",
        ),
        (
            {"devices": [shared(default=None)]},
            "spec.devices[0].capacity[memory].requestPolicy.default",
        ),
        (
            {"devices": [shared(default="100Gi")]},
            "spec.devices[0].capacity[memory].requestPolicy.validRange.default",
        ),
        (
            {"devices": [shared(validRange={"min": "1Gi", "max": "90Gi"})]},
            "spec.devices[0].capacity[memory].requestPolicy.validRange.max",
        ),
        (
            {"devices": [shared(validRange={"min": "1Gi", "step": "0"})]},
            "spec.devices[0].capacity[memory].requestPolicy.validRange.step",
        ),
        (
            {"devices": [shared(validRange=None, validValues=["2Gi", "1Gi"])]},
            "spec.devices[0].capacity[memory].requestPolicy.validValues[1]",
        ),
        ({"pool": {"name": "a//b", "generation": 1, "resourceSliceCount": 1}}, "spec.pool.name"),
        ({"pool": {"name": "a", "generation": -1, "resourceSliceCount": 1}}, "spec.pool.generation"),
        ({"driver": "x" * 64}, "spec.driver"),
    ],
)
async def test_a_slice_that_breaks_a_rule_is_told_where(
    api: Any, make_slice: Any, spec: Any, field: str
) -> None:
    assert field in fields(await api.post(SLICES, make_slice(**spec)))


@pytest.mark.parametrize(
    "spec",
    [
        {"devices": [shared()]},
        {"devices": [shared(validRange=None, validValues=["1Gi", "2Gi"])]},
        {"devices": None, "sharedCounters": [{"name": "s", "counters": COUNTERS}]},
        {"allNodes": None, "perDeviceNodeSelection": True, "devices": [device(nodeName="n")]},
        {"devices": [device(taints=[{**TAINT, "effect": effect} for effect in ("None", "NoExecute")])]},
        {"devices": [device(attributes={"a.dev/v": {"version": "1.2.3-rc.1+build"}})]},
    ],
)
async def test_slices_with_every_feature_are_taken(api: Any, make_slice: Any, spec: Any) -> None:
    made = await api.post(SLICES, make_slice(**spec))
    assert made.code == 201, made.body


async def test_taints_that_stood_in_a_device_before_are_not_checked_again(api: Any, make_slice: Any) -> None:
    await api.post(SLICES, make_slice())
    place = ("resource.k8s.io", "resourceslices")
    old = api.server.store.collection(place).items["", "s1"]
    odd = {"key": "a b", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
    api.server.store.put(place, {**old, "spec": {**old["spec"], "devices": [device(taints=[odd])]}})
    kept = await api.merge(f"{SLICES}/s1", {"spec": {"pool": {"generation": 2}}})
    assert kept.code == 200, kept.body


async def test_capitals_in_a_driver_name_are_warned_of(api: Any, make_slice: Any) -> None:
    import json

    data = json.dumps(make_slice(driver="GPU.dev"))
    headers = {**api.headers, "Content-Type": "application/json"}
    async with api.session.post(api.server.url + SLICES, data=data, headers=headers) as response:
        assert response.status == 201
        assert "driver names should be lowercase" in response.headers["Warning"]


def claim(spec: Any = None, **request: Any) -> dict[str, Any]:
    exactly = {"deviceClassName": "gpu", **request}
    default = {"devices": {"requests": [{"name": "dev", "exactly": exactly}]}}
    return {"metadata": {"name": "c1"}, "spec": spec if spec is not None else default}


def many(**devices: Any) -> dict[str, Any]:
    requests = [{"name": "dev", "exactly": {"deviceClassName": "gpu"}}]
    return {"devices": {"requests": requests} | devices}


OPAQUE = {"opaque": {"driver": "a.dev", "parameters": {"x": 1}}}
REQUEST = "spec.devices.requests[0].exactly"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (claim(deviceClassName=""), f"{REQUEST}.deviceClassName"),
        (claim(deviceClassName="Gpu!"), f"{REQUEST}.deviceClassName"),
        (claim(count=-1), f"{REQUEST}.count"),
        (claim(allocationMode="All", count=1), f"{REQUEST}.count"),
        (claim(allocationMode="Some"), f"{REQUEST}.allocationMode"),
        (claim(selectors=[{}]), f"{REQUEST}.selectors[0].cel"),
        (claim(selectors=[{"cel": {"expression": "device."}}]), f"{REQUEST}.selectors[0].cel.expression"),
        (claim(selectors=[{"cel": {"expression": "node == 1"}}]), f"{REQUEST}.selectors[0].cel.expression"),
        (
            claim(selectors=[{"cel": {"expression": "device.driver"}}]),
            f"{REQUEST}.selectors[0].cel.expression",
        ),
        (claim(selectors=[{"cel": {"expression": "true"}}] * 33), f"{REQUEST}.selectors"),
        (claim(tolerations=[{"operator": "Exists", "value": "x"}]), f"{REQUEST}.tolerations[0].value"),
        (claim(tolerations=[{"operator": "Like"}]), f"{REQUEST}.tolerations[0].operator"),
        (claim(tolerations=[{"key": "k", "effect": "Never"}]), f"{REQUEST}.tolerations[0].effect"),
        (claim(tolerations=[{"key": "k"}] * 17), f"{REQUEST}.tolerations"),
        (claim(adminAccess=True), "spec.devices.requests[0].adminAccess"),
        (claim({"devices": {"requests": [{"name": "dev"}]}}), "spec.devices.requests[0]"),
        (
            claim({"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "g"}}] * 2}}),
            "spec.devices.requests[1]",
        ),
        (
            claim({"devices": {"requests": [{"name": "a", "firstAvailable": [{"name": "x"}]}]}}),
            "spec.devices.requests[0].firstAvailable[0].deviceClassName",
        ),
        (
            claim(
                {
                    "devices": {
                        "requests": [
                            {
                                "name": "a",
                                "firstAvailable": [
                                    {"name": f"x{n}", "deviceClassName": "g"} for n in range(9)
                                ],
                            }
                        ]
                    }
                }
            ),
            "spec.devices.requests[0].firstAvailable",
        ),
        (claim(many(constraints=[{"requests": ["other"]}])), "spec.devices.constraints[0].requests[0]"),
        (claim(many(constraints=[{}])), "spec.devices.constraints[0]"),
        (claim(many(constraints=[{"matchAttribute": "x"}])), "spec.devices.constraints[0].matchAttribute"),
        (claim(many(config=[{}])), "spec.devices.config[0].opaque"),
        (claim(many(config=[{"opaque": {"driver": "a.dev"}}])), "spec.devices.config[0].opaque.parameters"),
        (
            claim(many(config=[{"opaque": {"driver": "a.dev", "parameters": {"x": "y" * 10_240}}}])),
            "spec.devices.config[0].opaque.parameters",
        ),
        (claim(many(config=[OPAQUE] * 33)), "spec.devices.config"),
        (claim(many(config=[{**OPAQUE, "requests": ["dev/x"]}])), "spec.devices.config[0].requests[0]"),
    ],
)
async def test_a_claim_that_breaks_a_rule_is_told_where(api: Any, body: Any, field: str) -> None:
    assert field in fields(await api.post(CLAIMS, body))


async def test_a_request_gets_its_defaults(api: Any) -> None:
    made = await api.post(CLAIMS, claim(tolerations=[{"key": "k"}]))
    exactly = made.body["spec"]["devices"]["requests"][0]["exactly"]
    assert (exactly["allocationMode"], exactly["count"]) == ("ExactCount", 1)
    assert exactly["tolerations"] == [{"key": "k", "operator": "Equal"}]
    again = await api.put(f"{CLAIMS}/c1", claim(tolerations=[{"key": "k"}]))
    assert (again.code, again.version) == (200, made.version)


async def test_administrative_access_needs_a_marked_namespace(api: Any) -> None:
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    await api.merge("/api/v1/namespaces/default", label)
    assert (await api.post(CLAIMS, claim(adminAccess=True))).code == 201


async def test_a_template_is_checked_like_a_claim_and_never_changes(api: Any) -> None:
    body = {"metadata": {"name": "t"}, "spec": {"spec": claim(deviceClassName="")["spec"]}}
    refused = await api.post(TEMPLATES, body)
    assert "spec.spec.devices.requests[0].exactly.deviceClassName" in fields(refused)
    body["spec"]["spec"] = claim()["spec"]
    assert (await api.post(TEMPLATES, body)).code == 201
    changed = await api.merge(f"{TEMPLATES}/t", {"spec": {"metadata": {"labels": {"a": "b"}}}})
    assert fields(changed) == ["spec"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"selectors": [{"cel": {"expression": "("}}]}, "spec.selectors[0].cel.expression"),
        ({"config": [{}]}, "spec.config[0].opaque"),
        ({"extendedResourceName": "gpu"}, "spec.extendedResourceName"),
        ({"extendedResourceName": "kubernetes.io/gpu"}, "spec.extendedResourceName"),
    ],
)
async def test_a_class_that_breaks_a_rule_is_told_where(api: Any, spec: Any, field: str) -> None:
    assert field in fields(await api.post(CLASSES, {"metadata": {"name": "x"}, "spec": spec}))
    body = {"metadata": {"name": "y"}, "spec": {"extendedResourceName": "example.com/gpu"}}
    assert (await api.post(CLASSES, body)).code == 201


DEVICE = {"driver": "drawbar.dev", "pool": "chassis-1", "device": "slot-1"}


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ({"devices": [{**DEVICE, "device": "other"}]}, "status.devices[0]"),
        ({"devices": [DEVICE, DEVICE]}, "status.devices[1]"),
        ({"devices": [{**DEVICE, "shareID": "X"}]}, "status.devices[0].shareID"),
        ({"devices": [{**DEVICE, "data": ["x"]}]}, "status.devices[0].data"),
        ({"devices": [{**DEVICE, "data": {"x": "y" * 10_240}}]}, "status.devices[0].data"),
        (
            {"devices": [{**DEVICE, "networkData": {"interfaceName": "x" * 257}}]},
            "status.devices[0].networkData.interfaceName",
        ),
        (
            {"devices": [{**DEVICE, "networkData": {"ips": ["10.0.0.1"]}}]},
            "status.devices[0].networkData.ips[0]",
        ),
        (
            {"devices": [{**DEVICE, "conditions": [{"type": f"t{n}"} for n in range(9)]}]},
            "status.devices[0].conditions",
        ),
        ({"reservedFor": [{"resource": "pods", "name": "p"}]}, "status.reservedFor[0].uid"),
        (
            {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}] * 2},
            "status.reservedFor[1]",
        ),
        (
            {"reservedFor": [{"resource": "pods", "name": "p", "uid": f"{n}"} for n in range(257)]},
            "status.reservedFor",
        ),
    ],
)
async def test_a_status_that_breaks_a_rule_is_told_where(
    api: Any, allocate: Any, status: Any, field: str
) -> None:
    await allocate("slot-1")
    assert field in fields(await api.merge(f"{CLAIMS}/c1/status", {"status": status}))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"request": "other"}, "status.allocation.devices.results[0].request"),
        ({"bindingFailureConditions": []}, "status.allocation.devices.results[0].bindingFailureConditions"),
        ({"pool": ""}, "status.allocation.devices.results[0].pool"),
        ({"shareID": "nope"}, "status.allocation.devices.results[0].shareID"),
    ],
)
async def test_an_allocation_that_breaks_a_rule_is_told_where(
    api: Any, make_allocation: Any, change: Any, field: str
) -> None:
    await api.post(CLAIMS, claim())
    allocation = make_allocation("slot-1")
    allocation["devices"]["results"][0] |= change
    assert field in fields(await api.merge(f"{CLAIMS}/c1/status", {"status": {"allocation": allocation}}))


async def test_a_claim_that_is_being_deleted_takes_no_new_users(api: Any, allocate: Any) -> None:
    await allocate("slot-1")
    await api.merge(f"{CLAIMS}/c1", {"metadata": {"finalizers": ["drawbar.dev/x"]}})
    await api.delete(f"{CLAIMS}/c1")
    user = {"resource": "pods", "name": "p", "uid": "u"}
    refused = await api.merge(f"{CLAIMS}/c1/status", {"status": {"reservedFor": [user]}})
    assert fields(refused) == ["status.reservedFor"]


async def test_deallocation_needs_the_binding_permission_alone(
    api: Any, allocate: Any, make_device_status: Any
) -> None:
    await allocate("slot-1")
    await api.apply(f"{CLAIMS}/c1/status", make_device_status("drawbar.dev/attached"))
    roles = "/apis/rbac.authorization.k8s.io/v1"
    rules = [
        {
            "apiGroups": ["resource.k8s.io"],
            "resources": ["resourceclaims/status", "resourceclaims/binding"],
            "verbs": ["patch"],
        }
    ]
    await api.post(f"{roles}/clusterroles", {"metadata": {"name": "s"}, "rules": rules})
    subjects = [{"kind": "User", "name": "scheduler"}]
    reference = {"kind": "ClusterRole", "name": "s"}
    await api.post(
        f"{roles}/clusterrolebindings",
        {"metadata": {"name": "s"}, "roleRef": reference, "subjects": subjects},
    )
    scheduler = api.acting_as("scheduler")
    kept = await scheduler.merge(f"{CLAIMS}/c1/status", {"status": {"devices": None}})
    assert 'resource="resourceclaims/driver"' in kept.body["message"]
    freed = await scheduler.merge(f"{CLAIMS}/c1/status", {"status": {"allocation": None, "devices": None}})
    assert (freed.code, freed.body.get("status")) == (200, {})


async def test_gates_drop_what_they_guard_unless_it_is_in_use(start: Any, make_slice: Any) -> None:
    api = await start(profile="1.34")
    body = make_slice(devices=[shared() | {"taints": [TAINT], "attributes": {"m": {"int": 1}}}])
    made = await api.post(SLICES, body)
    assert made.body["spec"]["devices"] == [
        {"name": "a", "capacity": {"memory": {"value": "80Gi"}}, "attributes": {"m": {"int": 1}}}
    ]
    request = {"deviceClassName": "g", "tolerations": [{"key": "k"}], "capacity": {"requests": {"m": "1"}}}
    claimed = await api.post(CLAIMS, claim(**request))
    exactly = claimed.body["spec"]["devices"]["requests"][0]["exactly"]
    assert set(exactly) == {"deviceClassName", "allocationMode", "count"}


async def test_list_attributes_exist_since_1_36_behind_their_gate(start: Any, make_slice: Any) -> None:
    body = make_slice(devices=[device(attributes={"m": {"ints": [1, 2]}})])
    dropped = await (await start(profile="1.36")).post(SLICES, body)
    assert fields(dropped) == ["spec.devices[0].attributes[m]"]
    on = await start(profile="1.36", gates={"DRAListTypeAttributes": True})
    assert (await on.post(SLICES, body)).code == 201
    over = make_slice(devices=[device(attributes={"m": {"ints": list(range(49))}})])
    over["metadata"]["name"] = "s2"
    assert fields(await on.post(SLICES, over)) == ["spec.devices[0]"]


async def test_node_operations_are_skipped_as_a_pair_in_1_37(start: Any, make_slice: Any) -> None:
    api = await start(profile="1.37", gates={"DRAOptionalNodeOperations": True})
    refused = await api.post(SLICES, make_slice(skipNodeOperations=["NodePrepareResources"]))
    assert fields(refused) == ["spec.skipNodeOperations"]
    both = ["NodePrepareResources", "NodeUnprepareResources"]
    assert (await api.post(SLICES, make_slice(skipNodeOperations=both))).code == 201
    plain = await start(profile="1.37")
    dropped = await plain.post(SLICES, make_slice(skipNodeOperations=both))
    assert "skipNodeOperations" not in dropped.body["spec"]


async def test_the_pool_can_be_selected_since_1_37(start: Any, make_slice: Any) -> None:
    for profile, code in (("1.36", 400), ("1.37", 200)):
        api = await start(profile=profile)
        assert (await api.get(SLICES, fieldSelector="spec.pool.name=chassis-1")).code == code


def rule(**spec: Any) -> dict[str, Any]:
    default = {"deviceSelector": {"driver": "drawbar.dev"}, "taint": TAINT}
    return {"metadata": {"name": "r"}, "spec": default | spec}


async def test_device_taint_rules_are_served_where_their_release_serves_them(start: Any) -> None:
    found = {}
    for profile, gates in (
        ("1.34", {}),
        ("1.34", {"DRADeviceTaints": True}),
        ("1.36", {}),
        ("1.36", {"DRADeviceTaintRules": True}),
        ("1.37", {}),
    ):
        api = await start(profile=profile, gates=gates)
        paths = {v: f"/apis/resource.k8s.io/{v}/devicetaintrules" for v in ("v1", "v1beta2", "v1alpha3")}
        found[profile, bool(gates)] = [v for v, path in paths.items() if (await api.get(path)).code == 200]
    assert found == {
        ("1.34", False): [],
        ("1.34", True): ["v1alpha3"],
        ("1.36", False): [],
        ("1.36", True): ["v1beta2", "v1alpha3"],
        ("1.37", False): ["v1"],
    }


@pytest.fixture
async def newest(start: Any) -> Any:
    return await start(profile="1.37")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"taint": {"key": "k"}}, "spec.taint.effect"),
        ({"taint": {"effect": "NoSchedule"}}, "spec.taint.key"),
        ({"deviceSelector": {"driver": "Not valid"}}, "spec.deviceSelector.driver"),
        ({"deviceSelector": {"pool": ""}}, "spec.deviceSelector.pool"),
        ({"deviceSelector": {"device": "Slot_1"}}, "spec.deviceSelector.device"),
    ],
)
async def test_a_taint_rule_that_breaks_a_rule_is_told_where(newest: Any, spec: Any, field: str) -> None:
    assert field in fields(await newest.post(RULES, rule(**spec)))


async def test_a_taint_rule_tells_when_its_effect_was_added(newest: Any) -> None:
    old = {**TAINT, "timeAdded": "2020-01-01T00:00:00Z"}
    made = await newest.post(RULES, rule(taint=old))
    assert (made.body["metadata"]["generation"], made.body["spec"]["taint"]) == (1, old)
    kept = await newest.merge(f"{RULES}/r", {"spec": {"taint": {"value": "x"}}})
    assert kept.body["spec"]["taint"]["timeAdded"] == "2020-01-01T00:00:00Z"
    other = await newest.merge(f"{RULES}/r", {"spec": {"taint": {"effect": "NoExecute"}}})
    assert other.body["spec"]["taint"]["timeAdded"] > "2026"
    assert other.body["metadata"]["generation"] == 3


async def test_a_taint_rule_is_not_overwritten_blindly(newest: Any) -> None:
    await newest.post(RULES, rule())
    refused = await newest.put(f"{RULES}/r", rule(taint={**TAINT, "effect": "None"}))
    assert fields(refused) == ["metadata.resourceVersion"]
    assert "must be specified for an update" in refused.body["message"]


async def test_the_status_of_a_taint_rule_holds_conditions_of_several_managers(newest: Any) -> None:
    await newest.post(RULES, rule() | {"status": {"conditions": [{"type": "ignored"}]}})
    for kind in ("EvictionInProgress", "Other"):
        condition = {
            "type": kind,
            "status": "True",
            "reason": "PodsPendingEviction",
            "message": "1 pod",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceTaintRule",
            "metadata": {"name": "r"},
            "status": {"conditions": [condition]},
        }
        assert (await newest.apply(f"{RULES}/r/status", body, manager=kind)).code == 200
    held = (await newest.get(f"{RULES}/r")).body["status"]["conditions"]
    assert [condition["type"] for condition in held] == ["EvictionInProgress", "Other"]
    bad = await newest.merge(f"{RULES}/r/status", {"status": {"conditions": [{"type": "X", "status": "Y"}]}})
    assert "status.conditions[0].status" in fields(bad)
    many = [
        {
            "type": f"t{number}",
            "status": "True",
            "reason": "R",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for number in range(9)
    ]
    over = await newest.merge(f"{RULES}/r/status", {"status": {"conditions": many}})
    assert fields(over) == ["status.conditions"]


@pytest.fixture
async def proposal(start: Any) -> Any:
    return await start(profile="kep-5055")


def slice_taints(*taints: Any) -> dict[str, Any]:
    return {"devices": None, "taints": list(taints)}


async def test_the_proposal_keeps_taints_in_slices_of_their_own(proposal: Any, make_slice: Any) -> None:
    more = {"description": "lane lost", "data": {"lane": 3}, "evictionsPerSecond": 5}
    entry = {"device": "slot-1", "taint": {**TAINT, **more}}
    made = await proposal.post(SLICES, make_slice(**slice_taints(entry)))
    assert made.code == 201, made.body
    stored = made.body["spec"]["taints"][0]["taint"]
    assert stored | TAINT | more == stored
    assert stored["timeAdded"].endswith("Z")
    empty = make_slice(**slice_taints())
    empty["metadata"]["name"] = "s2"
    assert (await proposal.post(SLICES, empty)).code == 201


async def test_the_proposal_knows_no_taints_in_devices(proposal: Any, make_slice: Any) -> None:
    made = await proposal.post(SLICES, make_slice(devices=[device(taints=[TAINT])]))
    assert "taints" not in made.body["spec"]["devices"][0]
    schemas = (await proposal.get("/openapi/v3/apis/resource.k8s.io/v1")).body["components"]["schemas"]
    spec = schemas["io.k8s.api.resource.v1.ResourceSliceSpec"]["properties"]
    assert "taints" in spec
    assert "taints" not in schemas["io.k8s.api.resource.v1.Device"]["properties"]


async def test_other_releases_drop_taint_slices_in_silence(api: Any, make_slice: Any) -> None:
    made = await api.post(SLICES, make_slice(**slice_taints({"device": "a", "taint": TAINT})))
    assert (made.code, "taints" in made.body["spec"]) == (201, False)


ENTRY = {"device": "slot-1", "taint": TAINT}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"taints": [ENTRY]}, "spec"),
        (slice_taints(*[ENTRY] * 33), "spec.taints"),
        (slice_taints({"device": "", "taint": TAINT}), "spec.taints[0].device"),
        (slice_taints({"device": "a", "taint": {"key": "k"}}), "spec.taints[0].taint.effect"),
        (
            slice_taints({"device": "a", "taint": {**TAINT, "description": "x" * 1025}}),
            "spec.taints[0].taint.description",
        ),
        (
            slice_taints({"device": "a", "taint": {**TAINT, "data": {"x": "y" * 10_240}}}),
            "spec.taints[0].taint.data",
        ),
        (slice_taints({"device": "a", "taint": {**TAINT, "data": "text"}}), "spec.taints[0].taint.data"),
        (
            slice_taints({"device": "a", "taint": {**TAINT, "evictionsPerSecond": 0}}),
            "spec.taints[0].taint.evictionsPerSecond",
        ),
    ],
)
async def test_a_taint_slice_that_breaks_a_rule_is_told_where(
    proposal: Any, make_slice: Any, spec: Any, field: str
) -> None:
    assert field in fields(await proposal.post(SLICES, make_slice(**spec)))


async def test_the_proposals_gate_drops_its_taints(start: Any, make_slice: Any) -> None:
    api = await start(profile="kep-5055", gates={"DRADeviceTaints": False})
    made = await api.post(SLICES, make_slice(**slice_taints(ENTRY)))
    assert "taints" not in made.body["spec"]
