"""ResourceClaims and ResourceSlices: rules, gates, apply and the extra permissions of a status."""

from typing import Any

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
STATUS = f"{CLAIMS}/c1/status"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


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
