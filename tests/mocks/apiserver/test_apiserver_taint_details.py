"""What a taint may say of itself: description, data and a rate of evictions, which only the proposal (KEP-5055) knows."""

from typing import Any

import pytest

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
TAINT = {"key": "a.dev/b", "effect": "NoSchedule"}
DETAILS = {"description": "lane lost", "data": {"lane": 3}, "evictionsPerSecond": 5}


@pytest.mark.parametrize("profile", ["1.36", "1.37"])
async def test_releases_know_no_details_of_taints_and_drop_them_unless_asked_to_be_strict(
    start: Any, make_slice: Any, profile: str
) -> None:
    api = await start(profile=profile)
    body = make_slice(devices=[{"name": "a", "taints": [{**TAINT, **DETAILS}]}])
    refused = await api.post(f"{SLICES}?fieldValidation=Strict", body)
    assert refused.code == 400
    assert all(name in refused.body["message"] for name in DETAILS)
    made = await api.post(SLICES, body)
    assert made.code == 201, made.body
    (stored,) = made.body["spec"]["devices"][0]["taints"]
    assert set(stored) == {*TAINT, "timeAdded"}


async def test_a_rule_of_the_proposal_has_the_details_of_its_taint_checked(start: Any) -> None:
    proposal = await start(profile="kep-5055")
    group = "/apis/resource.k8s.io/v1beta2/devicetaintrules"
    spec = {"deviceSelector": {"driver": "drawbar.dev"}, "taint": {**TAINT, **DETAILS}}
    made = await proposal.post(group, {"metadata": {"name": "r"}, "spec": spec})
    assert made.code == 201, made.body
    stored = made.body["spec"]["taint"]
    assert stored | DETAILS == stored
    bad = await proposal.merge(f"{group}/r", {"spec": {"taint": {"evictionsPerSecond": -1}}})
    assert bad.code == 422, bad.body
    assert [cause["field"] for cause in bad.body["details"]["causes"]] == ["spec.taint.evictionsPerSecond"]
