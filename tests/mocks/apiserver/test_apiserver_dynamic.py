"""The rules of resource.k8s.io, with the field paths of the real errors."""

from typing import Any

import pytest
from tests.mocks.apiserver.bodies import POLICY, TAINT, claim, device, fields, make_shared_device

BASE = "/apis/resource.k8s.io/v1"
SLICES = f"{BASE}/resourceslices"
CLAIMS = f"{BASE}/namespaces/default/resourceclaims"
CLASSES = f"{BASE}/deviceclasses"
TEMPLATES = f"{BASE}/namespaces/default/resourceclaimtemplates"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (
            {"devices": [device(bindingConditions=["x", "x"], bindingFailureConditions=["y"])]},
            "spec.devices[0].bindingConditions[1]",
        ),
        ({"devices": [device(taints=[{**TAINT, "value": "a b"}])]}, "spec.devices[0].taints[0].value"),
        ({"devices": [device(taints=[{"key": "k"}])]}, "spec.devices[0].taints[0].effect"),
        ({"devices": [device(attributes={"a/b/c": {"int": 1}})]}, "spec.devices[0].attributes"),
        ({"devices": [device(attributes={"x" * 33: {"int": 1}})]}, "spec.devices[0].attributes"),
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
        (
            {"devices": [device(capacity={"memory": {"value": "1Gi", "requestPolicy": POLICY}})]},
            "spec.devices[0].capacity[memory].requestPolicy",
        ),
        (
            {"devices": [make_shared_device(validValues=["1Gi"])]},
            "spec.devices[0].capacity[memory].requestPolicy",
        ),
        (
            {"devices": [make_shared_device(default=None)]},
            "spec.devices[0].capacity[memory].requestPolicy.default",
        ),
        (
            {"devices": [make_shared_device(default="100Gi")]},
            "spec.devices[0].capacity[memory].requestPolicy.validRange.default",
        ),
        (
            {"devices": [make_shared_device(validRange={"min": "1Gi", "max": "90Gi"})]},
            "spec.devices[0].capacity[memory].requestPolicy.validRange.max",
        ),
        (
            {"devices": [make_shared_device(validRange={"min": "1Gi", "step": "0"})]},
            "spec.devices[0].capacity[memory].requestPolicy.validRange.step",
        ),
        (
            {"devices": [make_shared_device(validRange=None, validValues=["2Gi", "1Gi"])]},
            "spec.devices[0].capacity[memory].requestPolicy.validValues[1]",
        ),
    ],
)
async def test_a_slice_that_breaks_a_rule_is_told_where(
    api: Any, make_slice: Any, spec: Any, field: str
) -> None:
    assert field in fields(await api.post(SLICES, make_slice(**spec)))


@pytest.mark.parametrize(
    "spec",
    [
        {"devices": [make_shared_device()]},
        {"devices": [make_shared_device(validRange=None, validValues=["1Gi", "2Gi"])]},
        {"devices": [device(taints=[{**TAINT, "effect": effect} for effect in ("None", "NoExecute")])]},
        {"devices": [device(attributes={"a.dev/v": {"version": "1.2.3-rc.1+build"}})]},
    ],
)
async def test_slices_with_every_feature_are_taken(api: Any, make_slice: Any, spec: Any) -> None:
    made = await api.post(SLICES, make_slice(**spec))
    assert made.code == 201, made.body


async def test_taints_that_stood_in_a_device_before_are_not_checked_again(api: Any, make_slice: Any) -> None:
    await api.post(SLICES, make_slice())
    storage_key = ("resource.k8s.io", "resourceslices")
    old = api.server.store.collection(storage_key).items["", "s1"]
    odd = {"key": "a b", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
    api.server.store.put(storage_key, {**old, "spec": {**old["spec"], "devices": [device(taints=[odd])]}})
    kept = await api.merge(f"{SLICES}/s1", {"spec": {"pool": {"generation": 2}}})
    assert kept.code == 200, kept.body


async def test_capitals_in_a_driver_name_are_warned_of(api: Any, make_slice: Any) -> None:
    import json

    data = json.dumps(make_slice(driver="GPU.dev"))
    headers = {**api.headers, "Content-Type": "application/json"}
    async with api.session.post(api.server.url + SLICES, data=data, headers=headers) as response:
        assert response.status == 201
        assert "driver names should be lowercase" in response.headers["Warning"]


def make_claim_spec(**devices: Any) -> dict[str, Any]:
    requests = [{"name": "dev", "exactly": {"deviceClassName": "gpu"}}]
    return {"devices": {"requests": requests} | devices}


OPAQUE = {"opaque": {"driver": "a.dev", "parameters": {"x": 1}}}
REQUEST = "spec.devices.requests[0].exactly"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (claim(deviceClassName="Gpu!"), f"{REQUEST}.deviceClassName"),
        (claim(selectors=[{}]), f"{REQUEST}.selectors[0].cel"),
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
        (
            claim(make_claim_spec(constraints=[{"requests": ["other"]}])),
            "spec.devices.constraints[0].requests[0]",
        ),
        (claim(make_claim_spec(constraints=[{}])), "spec.devices.constraints[0]"),
        (
            claim(make_claim_spec(constraints=[{"matchAttribute": "x"}])),
            "spec.devices.constraints[0].matchAttribute",
        ),
        (claim(make_claim_spec(config=[{}])), "spec.devices.config[0].opaque"),
        (
            claim(make_claim_spec(config=[{"opaque": {"driver": "a.dev"}}])),
            "spec.devices.config[0].opaque.parameters",
        ),
        (
            claim(
                make_claim_spec(config=[{"opaque": {"driver": "a.dev", "parameters": {"x": "y" * 10_240}}}])
            ),
            "spec.devices.config[0].opaque.parameters",
        ),
        (claim(make_claim_spec(config=[OPAQUE] * 33)), "spec.devices.config"),
        (
            claim(make_claim_spec(config=[{**OPAQUE, "requests": ["dev/x"]}])),
            "spec.devices.config[0].requests[0]",
        ),
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


async def test_deallocation_needs_the_binding_permission_alone(
    api: Any, allocate: Any, make_device_status: Any
) -> None:
    await allocate("slot-1")
    await api.apply(f"{CLAIMS}/c1/status", make_device_status("drawbar.dev/attached"))
    resources = ["resourceclaims/status", "resourceclaims/binding"]
    await api.allow(
        "scheduler", {"apiGroups": ["resource.k8s.io"], "resources": resources, "verbs": ["patch"]}
    )
    scheduler = api.acting_as("scheduler")
    kept = await scheduler.merge(f"{CLAIMS}/c1/status", {"status": {"devices": None}})
    assert 'resource="resourceclaims/driver"' in kept.body["message"]
    freed = await scheduler.merge(f"{CLAIMS}/c1/status", {"status": {"allocation": None, "devices": None}})
    assert (freed.code, freed.body.get("status")) == (200, {})
