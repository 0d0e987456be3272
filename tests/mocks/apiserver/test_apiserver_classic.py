"""Servers of 1.30 and 1.31: what they serve, default and drop, and how their objects look to people."""

from typing import Any

import pytest

from drawbar.mocks.apiserver import profiles

Json = dict[str, Any]
NODE: Json = {
    "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
}
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


def collection(profile: str, plural: str, *, namespaced: bool = True) -> str:
    home = "/namespaces/default" if namespaced else ""
    return f"/apis/resource.k8s.io/{profiles.CLASSIC_VERSIONS[profile]}{home}/{plural}"


def claim_spec(profile: str) -> Json:
    if profile == "1.30-classic":
        return {"resourceClassName": "c"}
    return {"controller": "a.dev", "devices": {"requests": [{"name": "one", "deviceClassName": "c"}]}}


def pod(profile: str, name: str = "p") -> Json:
    use = {"resourceClaimName": "c"}
    entry = {"name": "g", "source": use} if profile == "1.30-classic" else {"name": "g", **use}
    container = {"name": "main", "image": "x", "resources": {"claims": [{"name": "g"}]}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "resourceClaims": [entry]}}


@pytest.mark.parametrize("profile", profiles.CLASSIC_VERSIONS)
async def test_a_classic_server_serves_its_own_version_of_the_group_alone(start: Any, profile: str) -> None:
    api = await start(profile=profile)
    group = (await api.get("/apis/resource.k8s.io")).body
    assert [version["version"] for version in group["versions"]] == [profiles.CLASSIC_VERSIONS[profile]]
    assert (await api.get("/apis/resource.k8s.io/v1/resourceclaims")).code == 404
    assert (await api.get("/version")).body["gitVersion"].startswith(f"v{profile[:4]}.")


@pytest.mark.parametrize("profile", profiles.CLASSIC_VERSIONS)
async def test_an_unchanged_claim_or_template_is_no_change(start: Any, profile: str) -> None:
    api = await start(profile=profile)
    for plural, spec in (
        ("resourceclaims", claim_spec(profile)),
        ("resourceclaimtemplates", {"spec": claim_spec(profile)}),
    ):
        body = {"metadata": {"name": "c"}, "spec": spec}
        made = await api.post(collection(profile, plural), body)
        again = await api.put(f"{collection(profile, plural)}/c", body)
        assert (made.code, again.code, again.version) == (201, 200, made.version)


GOOD: Json = {  # a valid object of each kind, for both releases where there is one entry
    "resourceclaims": claim_spec,
    "resourceclaimtemplates": lambda profile: {"spec": claim_spec(profile)},
    "podschedulingcontexts": lambda _profile: {"potentialNodes": ["a"]},
    "deviceclasses": lambda _profile: {},
}


@pytest.mark.parametrize(
    ("profile", "plural", "bad", "field"),
    [
        ("1.30-classic", "resourceclaims", {"resourceClassName": "A b"}, "spec.resourceClassName"),
        ("1.31-classic", "resourceclaims", {"controller": "a b"}, "spec.controller"),
        ("1.30-classic", "resourceclaimtemplates", {"spec": {}}, "spec.spec.resourceClassName"),
        ("1.31-classic", "resourceclaimtemplates", {"spec": {"controller": "a b"}}, "spec.spec.controller"),
        ("1.31-classic", "podschedulingcontexts", {"potentialNodes": ["a", "a"]}, "spec.potentialNodes[1]"),
        ("1.31-classic", "deviceclasses", {"config": [{}]}, "spec.config[0].opaque"),
    ],
)
async def test_a_bad_spec_is_refused_whether_it_is_new_or_changed(
    start: Any, profile: str, plural: str, bad: Json, field: str
) -> None:
    api = await start(profile=profile)
    path = collection(profile, plural, namespaced=plural != "deviceclasses")
    made = await api.post(path, {"metadata": {"name": "x"}, "spec": bad})
    assert made.code == 422
    assert field in [cause["field"] for cause in made.body["details"]["causes"]]
    assert (await api.post(path, {"metadata": {"name": "x"}, "spec": GOOD[plural](profile)})).code == 201
    changed = await api.put(f"{path}/x", {"metadata": {"name": "x"}, "spec": bad})
    assert changed.code == 422
    assert field in [cause["field"] for cause in changed.body["details"]["causes"]]


@pytest.mark.parametrize(
    ("profile", "plural", "bad", "field"),
    [
        ("1.30-classic", "resourceclaims", {"allocation": {}}, "status.driverName"),
        (
            "1.31-classic",
            "resourceclaims",
            {"allocation": {"controller": "a b"}},
            "status.allocation.controller",
        ),
        (
            "1.30-classic",
            "podschedulingcontexts",
            {"resourceClaims": [{"name": "a"}] * 2},
            "status.claims[1]",
        ),
    ],
)
async def test_a_bad_status_is_refused(start: Any, profile: str, plural: str, bad: Json, field: str) -> None:
    api = await start(profile=profile)
    path = collection(profile, plural)
    await api.post(path, {"metadata": {"name": "x"}, "spec": GOOD[plural](profile)})
    refused = await api.merge(f"{path}/x/status", {"status": bad})
    assert [cause["field"] for cause in refused.body["details"]["causes"]] == [field]


async def test_a_class_of_130_is_checked_whenever_it_is_written(start: Any) -> None:
    api = await start(profile="1.30-classic")
    path = collection("1.30-classic", "resourceclasses", namespaced=False)
    assert (await api.post(path, {"metadata": {"name": "c"}, "driverName": ""})).code == 422
    made = await api.post(path, {"metadata": {"name": "c"}, "driverName": "a.dev", "suitableNodes": NODE})
    assert (made.code, made.body["metadata"]["generation"]) == (201, 1)
    assert (await api.merge(f"{path}/c", {"driverName": "a b"})).code == 422
    moved = await api.merge(f"{path}/c", {"driverName": "b.dev"})
    assert (moved.body["driverName"], moved.body["metadata"]["generation"]) == ("b.dev", 2)


@pytest.mark.parametrize("profile", profiles.CLASSIC_VERSIONS)
async def test_a_pod_has_no_generation_yet(start: Any, profile: str) -> None:
    api = await start(profile=profile)
    made = await api.post("/api/v1/namespaces/default/pods", pod(profile))
    assert "generation" not in made.body["metadata"]


@pytest.mark.parametrize(("profile", "kept"), [("1.30-classic", False), ("1.31-classic", True)])
async def test_130_selects_custom_objects_by_no_field(
    start: Any, definition: Json, profile: str, kept: bool
) -> None:
    api = await start(profile=profile)
    definition["spec"]["versions"][0]["selectableFields"] = [{"jsonPath": ".spec.nodeName"}]
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    made = await api.post(path, definition)
    assert ("selectableFields" in made.body["spec"]["versions"][0]) is kept
    names = definition["spec"]["names"]
    served = (
        f"/apis/{definition['spec']['group']}/{definition['spec']['versions'][0]['name']}/{names['plural']}"
    )
    listing = await api.get(served, fieldSelector="spec.nodeName=a")
    assert listing.code == (200 if kept else 400)


@pytest.mark.parametrize(
    ("profile", "columns", "cells"),
    [
        (
            "1.30-classic",
            ["Name", "ResourceClassName", "AllocationMode", "State", "Age"],
            ["c", "c", "WaitForFirstConsumer", "allocated,deallocating"],
        ),
        ("1.31-classic", ["Name", "State", "Age"], ["c", "allocated,deallocating"]),
    ],
)
async def test_people_see_the_state_of_a_claim(
    start: Any, profile: str, columns: list[str], cells: list[str]
) -> None:
    api = await start(profile=profile)
    claims = collection(profile, "resourceclaims")
    await api.post(claims, {"metadata": {"name": "c"}, "spec": claim_spec(profile)})
    status: Json = {"allocation": {}, "deallocationRequested": True}
    if profile == "1.30-classic":
        status["driverName"] = "a.dev"
    assert (await api.merge(f"{claims}/c/status", {"status": status})).code == 200
    table = (await api.get(claims, accept=TABLE)).body
    assert [column["name"] for column in table["columnDefinitions"]] == columns
    assert table["rows"][0]["cells"][:-1] == cells


async def test_people_see_the_selected_node_of_a_context(start: Any) -> None:
    api = await start(profile="1.31-classic")
    contexts = collection("1.31-classic", "podschedulingcontexts")
    await api.post(contexts, {"metadata": {"name": "p"}, "spec": {"selectedNode": "n"}})
    assert (await api.get(contexts, accept=TABLE)).body["rows"][0]["cells"][:2] == ["p", "n"]


async def test_fields_that_came_later_are_unknown_to_an_older_release(start: Any) -> None:
    api = await start(profile="1.30-classic")
    body = pod("1.30-classic")
    body["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": "c"}]
    refused = await api.post("/api/v1/namespaces/default/pods", body, fieldValidation="Strict")
    assert refused.code == 400
    assert 'unknown field "spec.resourceClaims[0].resourceClaimName"' in refused.body["message"]
