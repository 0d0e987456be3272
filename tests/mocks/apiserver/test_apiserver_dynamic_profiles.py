"""What each profile serves and keeps of resource.k8s.io: gates, taint rules, and the proposal's taints in slices."""

from typing import Any

import pytest
from tests.mocks.apiserver.bodies import TAINT, claim, device, fields, make_shared_device

BASE = "/apis/resource.k8s.io/v1"
SLICES = f"{BASE}/resourceslices"
CLAIMS = f"{BASE}/namespaces/default/resourceclaims"
RULES = f"{BASE}/devicetaintrules"


async def test_gates_drop_their_fields_unless_in_use(start: Any, make_slice: Any) -> None:
    api = await start(profile="1.34")
    body = make_slice(devices=[make_shared_device() | {"taints": [TAINT], "attributes": {"m": {"int": 1}}}])
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


async def test_the_pool_can_be_selected_since_1_37(start: Any, make_slice: Any) -> None:
    for profile, code in (("1.36", 400), ("1.37", 200)):
        api = await start(profile=profile)
        assert (await api.get(SLICES, fieldSelector="spec.pool.name=chassis-1")).code == code


def rule(**spec: Any) -> dict[str, Any]:
    default = {"deviceSelector": {"driver": "drawbar.dev"}, "taint": TAINT}
    return {"metadata": {"name": "r"}, "spec": default | spec}


async def test_device_taint_rules_are_served_where_their_release_serves_them(start: Any) -> None:
    served = {}
    for profile, gates in (
        ("1.34", {}),
        ("1.34", {"DRADeviceTaints": True}),
        ("1.36", {}),
        ("1.36", {"DRADeviceTaintRules": True}),
        ("1.37", {}),
    ):
        api = await start(profile=profile, gates=gates)
        paths = {v: f"/apis/resource.k8s.io/{v}/devicetaintrules" for v in ("v1", "v1beta2", "v1alpha3")}
        served[profile, bool(gates)] = [v for v, path in paths.items() if (await api.get(path)).code == 200]
    assert served == {
        ("1.34", False): [],
        ("1.34", True): ["v1alpha3"],
        ("1.36", False): [],
        ("1.36", True): ["v1beta2", "v1alpha3"],
        ("1.37", False): ["v1"],
    }


async def test_a_rule_has_effect_none_since_1_35(start: Any) -> None:
    body = {"metadata": {"name": "r"}, "spec": {"taint": {"key": "a.dev/b", "effect": "None"}}}
    answers = {}
    for profile, version, gate in (
        ("1.34", "v1alpha3", "DRADeviceTaints"),
        ("1.36", "v1beta2", "DRADeviceTaintRules"),
    ):
        api = await start(profile=profile, gates={gate: True})
        answers[profile] = await api.post(f"/apis/resource.k8s.io/{version}/devicetaintrules", body)
    assert fields(answers["1.34"]) == ["spec.taint.effect"]
    assert answers["1.36"].code == 201


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
