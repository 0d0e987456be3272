"""ResourceClaims and ResourceSlices: rules, gates, apply and the extra permissions of a status."""

from typing import Any

import pytest

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
STATUS = f"{CLAIMS}/c1/status"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
ROLES = "/apis/rbac.authorization.k8s.io/v1"


async def test_two_managers_set_two_conditions_of_one_device(
    api: Any, allocate: Any, make_device_status: Any
) -> None:
    await allocate("slot-1")
    await api.apply(STATUS, make_device_status("drawbar.dev/attached"), manager="controller")
    done = await api.apply(STATUS, make_device_status("drawbar.dev/visible"), manager="node")
    (entry,) = done.body["status"]["devices"]
    assert {c["type"] for c in entry["conditions"]} == {"drawbar.dev/attached", "drawbar.dev/visible"}
    assert "allocation" in done.body["status"]
    owners = {
        (m["manager"], m["operation"], m.get("subresource")) for m in done.body["metadata"]["managedFields"]
    }
    assert {("controller", "Apply", "status"), ("node", "Apply", "status")} <= owners


async def test_a_foreign_condition_conflicts_unless_forced(
    api: Any, allocate: Any, make_device_status: Any
) -> None:
    await allocate("slot-1")
    await api.apply(STATUS, make_device_status("drawbar.dev/attached"), manager="controller")
    other = make_device_status("drawbar.dev/attached", status="False")
    refused = await api.apply(STATUS, other, manager="node")
    forced = await api.apply(STATUS, other, manager="node", force="true")
    assert (refused.code, refused.body["details"]["causes"][0]["reason"]) == (409, "FieldManagerConflict")
    assert forced.body["status"]["devices"][0]["conditions"][0]["status"] == "False"


async def test_uid_and_version_in_an_applied_object_are_preconditions(
    api: Any, allocate: Any, make_device_status: Any
) -> None:
    claim = (await allocate("slot-1")).body["metadata"]
    wrong = await api.apply(STATUS, make_device_status("drawbar.dev/attached", uid="other"))
    stale = await api.apply(STATUS, make_device_status("drawbar.dev/attached", resourceVersion="1"))
    right = await api.apply(
        STATUS,
        make_device_status(
            "drawbar.dev/attached", uid=claim["uid"], resourceVersion=claim["resourceVersion"]
        ),
    )
    assert wrong.code == 422
    assert 'metadata.uid: Invalid value: "other": field is immutable' in wrong.body["message"]
    assert (stale.code, stale.body["reason"]) == (409, "Conflict")
    assert right.code == 200


async def test_an_apply_to_an_absent_claims_status_is_404(api: Any, make_device_status: Any) -> None:
    assert (await api.apply(STATUS, make_device_status("drawbar.dev/attached"))).code == 404


async def test_an_apply_that_changes_nothing_keeps_the_version(
    api: Any, allocate: Any, make_device_status: Any
) -> None:
    await allocate("slot-1")
    first = await api.apply(STATUS, make_device_status("drawbar.dev/attached"))
    again = await api.apply(STATUS, make_device_status("drawbar.dev/attached"))
    assert again.body == first.body


async def test_a_device_status_must_name_an_allocated_device(
    api: Any, allocate: Any, make_device_status: Any
) -> None:
    await allocate("slot-1")
    refused = await api.apply(STATUS, make_device_status("drawbar.dev/attached", device="slot-2"))
    assert refused.code == 422
    assert "must be an allocated device in the claim" in refused.body["message"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("reason", ""),
        ("reason", "no spaces"),
        ("lastTransitionTime", None),
        ("status", "yes"),
        ("type", "bad type"),
    ],
)
async def test_malformed_conditions_are_refused(
    api: Any, allocate: Any, make_device_status: Any, key: Any, value: Any
) -> None:
    await allocate("slot-1")
    body = make_device_status("drawbar.dev/attached")
    body["status"]["devices"][0]["conditions"][0][key] = value
    assert (await api.apply(STATUS, body)).code == 422


async def test_deallocation_clears_the_device_status(
    api: Any, allocate: Any, make_device_status: Any
) -> None:
    await allocate("slot-1")
    await api.apply(STATUS, make_device_status("drawbar.dev/attached"))
    freed = await api.merge(STATUS, {"status": {"allocation": None}})
    assert freed.body["status"] == {}
    assert all("f:devices" not in str(m["fieldsV1"]) for m in freed.body["metadata"]["managedFields"])


async def test_an_allocation_cannot_change_in_place(api: Any, allocate: Any, make_allocation: Any) -> None:
    await allocate("slot-1")
    refused = await api.merge(STATUS, {"status": {"allocation": make_allocation("slot-2")}})
    assert refused.code == 422


async def test_the_spec_of_a_claim_is_immutable(api: Any, allocate: Any) -> None:
    await allocate("slot-1")
    assert (await api.merge(f"{CLAIMS}/c1", {"spec": {"devices": {"requests": []}}})).code == 422


async def test_a_strategic_patch_removes_one_reservation(api: Any, allocate: Any) -> None:
    await allocate("slot-1")
    pods = [{"resource": "pods", "name": name, "uid": name} for name in ("p", "q")]
    await api.merge(STATUS, {"status": {"reservedFor": pods}})
    body = {"status": {"reservedFor": [{"$patch": "delete", "uid": "p"}]}}
    done = await api.send("PATCH", STATUS, body, kind="application/strategic-merge-patch+json")
    assert [pod["uid"] for pod in done.body["status"]["reservedFor"]] == ["q"]


async def grant(api: Any, account: str, *rules: dict[str, Any]) -> None:
    name = account.replace(":", "-")
    role = {"metadata": {"name": name}, "rules": list(rules)}
    namespace, _, plain = account.partition(":")
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": plain}
    binding = {
        "metadata": {"name": name},
        "roleRef": {"kind": "ClusterRole", "name": name},
        "subjects": [subject],
    }
    await api.post(f"{ROLES}/clusterroles", role)
    await api.post(f"{ROLES}/clusterrolebindings", binding)


def rule(resource: str, *verbs: str, name: str | None = None) -> dict[str, Any]:
    found = {"apiGroups": ["resource.k8s.io"], "resources": [resource], "verbs": list(verbs)}
    return found | ({"resourceNames": [name]} if name else {})


async def test_a_status_write_needs_the_driver_permission_since_1_36(
    api: Any, allocate: Any, make_device_status: Any
) -> None:
    await allocate("slot-1")
    await grant(api, "drawbar:controller", rule("resourceclaims/status", "patch"))
    client = api.acting_as("drawbar:controller")
    refused = await client.apply(STATUS, make_device_status("drawbar.dev/attached"))
    assert refused.code == 422
    text = 'status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:patch]" permission'
    assert text in refused.body["message"]
    extra = rule("resourceclaims/driver", "arbitrary-node:patch", name="drawbar.dev")
    await api.merge(
        f"{ROLES}/clusterroles/drawbar-controller", {"rules": [rule("resourceclaims/status", "patch"), extra]}
    )
    assert (await client.apply(STATUS, make_device_status("drawbar.dev/attached"))).code == 200


async def test_the_associated_node_permission_counts_on_the_claims_own_node_only(
    api: Any, allocate: Any, make_device_status: Any
) -> None:
    await allocate("slot-1", node="node-a")
    rules = (
        rule("resourceclaims/status", "patch"),
        rule("resourceclaims/driver", "associated-node:patch", name="drawbar.dev"),
    )
    await grant(api, "drawbar:node", *rules)
    body = make_device_status("drawbar.dev/visible")
    codes = [
        (await api.acting_as("drawbar:node", node=node).apply(STATUS, body)).code
        for node in (None, "node-b", "node-a")
    ]
    assert codes == [422, 422, 200]


async def test_an_allocation_needs_the_binding_permission(api: Any, allocate: Any) -> None:
    await allocate("slot-1")
    await grant(api, "drawbar:controller", rule("resourceclaims/status", "patch"))
    body = {"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}}
    refused = await api.acting_as("drawbar:controller").merge(STATUS, body)
    assert 'requires resource="resourceclaims/binding", verb="patch" permission' in refused.body["message"]


async def test_the_extra_permissions_are_not_asked_for_in_1_34(
    start: Any, make_allocation: Any, make_device_status: Any
) -> None:
    api = await start(profile="1.34")
    request = {"name": "dev", "exactly": {"deviceClassName": "gpu"}}
    await api.post(CLAIMS, {"metadata": {"name": "c1"}, "spec": {"devices": {"requests": [request]}}})
    await grant(api, "drawbar:controller", rule("resourceclaims/status", "patch"))
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


async def test_taints_get_the_time_they_were_added_and_keep_it(api: Any, make_slice: Any) -> None:
    made = await api.post(SLICES, make_slice(devices=[BOUND]))
    stamp = made.body["spec"]["devices"][0]["taints"][0]["timeAdded"]
    assert stamp.endswith("Z")
    kept = [{**BOUND, "taints": [{**BOUND["taints"][0], "timeAdded": "2020-01-01T00:00:00Z"}]}]
    again = await api.put(f"{SLICES}/s1", make_slice(devices=kept))
    assert again.body["spec"]["devices"][0]["taints"][0]["timeAdded"] == "2020-01-01T00:00:00Z"


def devices(count: int, **extra: object) -> list[dict[str, Any]]:
    return [{"name": f"d{number}", **extra} for number in range(count)]


TAINT = [{"key": "a.dev/b", "effect": "NoSchedule"}]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"devices": devices(129)}, "spec.devices"),
        ({"devices": devices(65, taints=TAINT)}, "spec.devices"),
        ({"devices": [{"name": "Bad_Name"}]}, "spec.devices[0].name"),
        ({"devices": [{"name": "a"}, {"name": "a"}]}, "spec.devices[1]"),
        (
            {"devices": [{"name": "a", "bindingConditions": ["x"]}]},
            "spec.devices[0].bindingFailureConditions",
        ),
        (
            {"devices": [{"name": "a", "bindingConditions": ["x"], "bindingFailureConditions": ["x"]}]},
            "spec.devices[0].bindingFailureConditions[0]",
        ),
        (
            {
                "devices": [
                    {"name": "a", "bindingConditions": list("abcde"), "bindingFailureConditions": ["x"]}
                ]
            },
            "spec.devices[0].bindingConditions",
        ),
        (
            {"devices": [{"name": "a", "attributes": {f"a{n}": {"int": n} for n in range(33)}}]},
            "spec.devices[0]",
        ),
        (
            {"devices": [{"name": "a", "attributes": {"m": {"string": "x" * 65}}}]},
            "spec.devices[0].attributes[m].string",
        ),
        (
            {"devices": [{"name": "a", "attributes": {"m": {"int": 1, "bool": True}}}]},
            "spec.devices[0].attributes[m]",
        ),
        ({"devices": [{"name": "a", "attributes": {"a.dev/0x": {"int": 1}}}]}, "spec.devices[0].attributes"),
        (
            {"devices": [{"name": "a", "taints": [{"key": "k", "effect": "Never"}]}]},
            "spec.devices[0].taints[0].effect",
        ),
        ({"devices": [{"name": "a", "taints": TAINT * 17}]}, "spec.devices[0].taints"),
        ({"allNodes": None}, "spec"),
        ({"nodeName": "n"}, "spec"),
        ({"driver": "Bad!"}, "spec.driver"),
        ({"pool": {"name": "p", "generation": 1, "resourceSliceCount": 0}}, "spec.pool.resourceSliceCount"),
    ],
)
async def test_slices_over_a_limit_are_refused(api: Any, make_slice: Any, spec: Any, field: Any) -> None:
    refused = await api.post(SLICES, make_slice(**spec))
    assert refused.code == 422
    assert field in [cause["field"] for cause in refused.body["details"]["causes"]]


@pytest.mark.parametrize(
    "count", [{"devices": devices(128)}, {"devices": devices(64, taints=TAINT)}, {"devices": []}]
)
async def test_slices_at_a_limit_are_taken(api: Any, make_slice: Any, count: Any) -> None:
    assert (await api.post(SLICES, make_slice(**count))).code == 201


@pytest.mark.parametrize(
    "spec", [{"driver": "b.dev"}, {"pool": {"name": "q", "generation": 1, "resourceSliceCount": 1}}]
)
async def test_driver_and_pool_of_a_slice_are_immutable(api: Any, make_slice: Any, spec: Any) -> None:
    await api.post(SLICES, make_slice())
    refused = await api.put(f"{SLICES}/s1", make_slice(**spec))
    assert "field is immutable" in refused.body["message"]
