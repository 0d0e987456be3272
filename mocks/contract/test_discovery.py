"""Discovery: a server's own description."""

import pytest

from contract import api

DYNAMIC = "resource.k8s.io"
GROUPS = (
    "rbac.authorization.k8s.io",
    "coordination.k8s.io",
    "events.k8s.io",
    "apiextensions.k8s.io",
    DYNAMIC,
)


async def test_the_version_is_one_that_clients_can_compare(world):
    version = (await world.api.get("/version")).body
    assert version["major"] == "1"
    assert int(version["minor"].rstrip("+")) >= 30
    # A server built from sources may have any patch and suffix, even v0.0.0.
    assert version["gitVersion"].startswith("v")


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_a_healthy_server_says_ok(world, path):
    reply = await world.api.get(path)
    assert (reply.code, reply.body) == (200, "ok")


async def test_the_core_group_has_version_one(world):
    reply = await world.api.get("/api")
    assert (reply.body["kind"], reply.body["versions"]) == ("APIVersions", ["v1"])


async def test_every_group_is_listed_with_its_preferred_version(world):
    reply = await world.api.get("/apis")
    groups = {group["name"]: group for group in reply.body["groups"]}
    assert reply.body["kind"] == "APIGroupList"
    for name in GROUPS:
        group = groups[name]
        assert group["preferredVersion"] in group["versions"]
        version = world.can.classic if name == DYNAMIC and world.can.classic else "v1"
        assert group["preferredVersion"] == {"groupVersion": f"{name}/{version}", "version": version}


@pytest.mark.parametrize("name", GROUPS)
async def test_a_group_can_be_asked_for_alone(world, name):
    reply = await world.api.get(f"/apis/{name}")
    assert (reply.body["kind"], reply.body["name"]) == ("APIGroup", name)


@pytest.mark.parametrize(
    ("path", "plural", "kind", "namespaced"),
    [
        ("/api/v1", "pods", "Pod", True),
        ("/api/v1", "nodes", "Node", False),
        ("/apis/coordination.k8s.io/v1", "leases", "Lease", True),
    ],
)
async def test_a_resource_is_listed_with_its_kind_scope_and_verbs(world, path, plural, kind, namespaced):
    reply = await world.api.get(path)
    listed = {resource["name"]: resource for resource in reply.body["resources"]}[plural]
    assert (reply.body["kind"], listed["kind"], listed["namespaced"]) == ("APIResourceList", kind, namespaced)
    wanted = {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
    assert wanted <= set(listed["verbs"])


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/api/v1", "pods/status"),
        ("/api/v1", "pods/binding"),
        ("/api/v1", "nodes/status"),
    ],
)
async def test_a_subresource_is_listed_beside_its_resource(world, path, name):
    reply = await world.api.get(path)
    assert name in [resource["name"] for resource in reply.body["resources"]]


@pytest.mark.parametrize(
    ("plural", "short"), [("pods", "po"), ("nodes", "no"), ("configmaps", "cm"), ("namespaces", "ns")]
)
async def test_short_names_are_listed(world, plural, short):
    reply = await world.api.get("/api/v1")
    listed = {resource["name"]: resource for resource in reply.body["resources"]}[plural]
    assert short in listed["shortNames"]


@pytest.mark.parametrize("path", ["/apis/nothing.contract", "/apis/resource.k8s.io/v0", "/nothing"])
async def test_an_unserved_path_is_not_found(world, path):
    assert (await world.api.get(path)).code == 404


@pytest.mark.needs("v1")
@pytest.mark.parametrize(
    ("plural", "kind", "namespaced"),
    [
        ("resourceclaims", "ResourceClaim", True),
        ("resourceclaims/status", "ResourceClaim", True),
        ("resourceslices", "ResourceSlice", False),
        ("deviceclasses", "DeviceClass", False),
    ],
)
async def test_the_kinds_of_dynamic_allocation_are_listed(world, plural, kind, namespaced):
    reply = await world.api.get("/apis/resource.k8s.io/v1")
    listed = {resource["name"]: resource for resource in reply.body["resources"]}[plural]
    assert (listed["kind"], listed["namespaced"]) == (kind, namespaced)


@pytest.mark.needs("v1")
async def test_the_schema_of_a_group_is_served_as_openapi(world):
    paths = (await world.api.get("/openapi/v3")).body["paths"]
    where = paths["apis/resource.k8s.io/v1"]["serverRelativeURL"]
    path, _, query = where.partition("?")
    schemas = (await world.api.get(path, **dict([query.split("=")] if query else []))).body["components"][
        "schemas"
    ]
    # The gate may be off: the schema knows the type all the same.
    assert "bindingConditions" in schemas["io.k8s.api.resource.v1.Device"]["properties"]


async def test_an_object_can_be_asked_for_as_a_table_for_people(world):
    made = await world.make("configmaps", data={"a": "1"})
    reply = await world.api.get(world.path("configmaps", made["metadata"]["name"]), accept=api.TABLE)
    assert (reply.body["kind"], reply.body["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert reply.body["columnDefinitions"][0]["name"] == "Name"
    assert reply.body["rows"][0]["cells"][0] == made["metadata"]["name"]
    assert reply.body["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


async def test_a_method_that_a_path_does_not_have_is_not_allowed(world):
    made = await world.make("configmaps")
    reply = await world.api.post(world.path("configmaps", made["metadata"]["name"]), made)
    assert (reply.code, reply.reason) == (405, "MethodNotAllowed")


async def test_metadata_can_be_asked_for_alone(world):
    made = await world.make("configmaps", data={"a": "1"})
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    reply = await world.api.get(world.path("configmaps", made["metadata"]["name"]), accept=accept)
    assert reply.body["kind"] == "PartialObjectMetadata"
    assert reply.body["metadata"]["uid"] == made["metadata"]["uid"]
    assert "data" not in reply.body
