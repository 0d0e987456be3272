"""ResourceClaims and ResourceSlices: rules, gates, apply and the extra permissions of a status."""

from typing import Any

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
STATUS = f"{CLAIMS}/c1/status"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


async def test_an_apply_that_changes_nothing_keeps_the_version(
    api: Any, allocate: Any, make_device_status: Any
) -> None:
    await allocate("slot-1")
    first = await api.apply(STATUS, make_device_status("drawbar.dev/attached"))
    again = await api.apply(STATUS, make_device_status("drawbar.dev/attached"))
    assert again.body == first.body


async def test_deallocation_clears_the_device_status(
    api: Any, allocate: Any, make_device_status: Any
) -> None:
    await allocate("slot-1")
    await api.apply(STATUS, make_device_status("drawbar.dev/attached"))
    freed = await api.merge(STATUS, {"status": {"allocation": None}})
    assert freed.body["status"] == {}
    assert all("f:devices" not in str(m["fieldsV1"]) for m in freed.body["metadata"]["managedFields"])


async def test_the_extra_permissions_are_not_asked_for_in_1_34(
    start: Any, make_allocation: Any, make_device_status: Any
) -> None:
    api = await start(profile="1.34")
    request = {"name": "dev", "exactly": {"deviceClassName": "gpu"}}
    await api.post(CLAIMS, {"metadata": {"name": "c1"}, "spec": {"devices": {"requests": [request]}}})
    right = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"], "verbs": ["patch"]}
    await api.allow("drawbar:controller", right)
    client = api.acting_as("drawbar:controller")
    allocated = await client.merge(STATUS, {"status": {"allocation": make_allocation("slot-1")}})
    assert "bindingConditions" not in allocated.body["status"]["allocation"]["devices"]["results"][0]
    assert (await client.apply(STATUS, make_device_status("drawbar.dev/attached"))).code == 200


BOUND: dict[str, Any] = {
    "name": "slot-1",
    "bindsToNode": True,
    "bindingConditions": ["drawbar.dev/attached"],
    "bindingFailureConditions": ["drawbar.dev/attach-failed"],
    "taints": [{"key": "drawbar.dev/x", "effect": "NoSchedule"}],
}


async def test_gated_fields_are_dropped_in_silence_in_1_34(start: Any, make_slice: Any) -> None:
    api = await start(profile="1.34")
    made = await api.post(SLICES, make_slice(devices=[BOUND]), dryRun="All")
    assert made.code == 201
    assert made.body["spec"]["devices"] == [{"name": "slot-1"}]
    document = await api.get("/openapi/v3/apis/resource.k8s.io/v1")
    assert "bindsToNode" in str(document.body)


async def test_gates_can_be_switched_on(start: Any, make_slice: Any) -> None:
    api = await start(profile="1.34", gates={"DRADeviceBindingConditions": True})
    made = await api.post(SLICES, make_slice(devices=[BOUND]))
    assert set(made.body["spec"]["devices"][0]) == set(BOUND) - {"taints"}
