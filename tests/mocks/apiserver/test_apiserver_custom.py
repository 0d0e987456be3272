"""CustomResourceDefinitions and the resources they define; Tables; discovery."""

from typing import Any

import pytest

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/drawbar.dev/v1alpha1/widgets"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@pytest.fixture
async def served_definition(api: Any, definition: Any) -> Any:
    assert (await api.post(CRDS, definition)).code == 201
    return api


def widget(name: str = "w", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "drawbar.dev/v1alpha1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": {"nodeName": "node-a", **spec},
    }


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"size": "big"}, "must be of type integer"),
        ({"size": 0}, "greater than or equal to 1"),
        ({"size": 10}, "less than or equal to 9"),
        ({"mode": "odd"}, 'supported values: "fast", "safe"'),
        ({"nodeName": "NODE"}, "should match '^[a-z0-9-]+$'"),
    ],
)
async def test_objects_against_the_schema_are_refused(served_definition: Any, spec: Any, text: Any) -> None:
    refused = await served_definition.post(WIDGETS, widget(**spec))
    assert refused.code == 422
    assert text in refused.body["message"]


async def test_deleting_the_definition_deletes_its_objects_first(served_definition: Any) -> None:
    body = widget()
    body["metadata"]["finalizers"] = ["drawbar.dev/detach"]
    await served_definition.post(WIDGETS, body)
    await served_definition.delete(f"{CRDS}/widgets.drawbar.dev")
    assert (await served_definition.get(f"{WIDGETS}/w")).body["metadata"]["deletionTimestamp"]
    await served_definition.merge(f"{WIDGETS}/w", {"metadata": {"finalizers": None}})
    assert (await served_definition.get(WIDGETS)).code == 404
    assert (await served_definition.get(f"{CRDS}/widgets.drawbar.dev")).code == 404


@pytest.mark.parametrize(
    ("plural", "columns"),
    [
        ("/api/v1/pods", ["Name", "Ready", "Status", "Restarts", "Age"]),
        ("/api/v1/nodes", ["Name", "Status", "Roles", "Age", "Version"]),
        ("/apis/resource.k8s.io/v1/resourceclaims", ["Name", "State", "Age"]),
        ("/apis/resource.k8s.io/v1/resourceslices", ["Name", "Node", "Driver", "Pool", "Age"]),
        ("/apis/resource.k8s.io/v1/deviceclasses", ["Name", "Age"]),
        ("/apis/coordination.k8s.io/v1/leases", ["Name", "Holder", "Age"]),
    ],
)
async def test_built_in_tables_have_the_columns_people_know(api: Any, plural: Any, columns: Any) -> None:
    table = (await api.get(plural, accept=TABLE)).body
    assert [c["name"] for c in table["columnDefinitions"] if c["priority"] == 0] == columns


async def test_the_version_is_that_of_the_profile(start: Any) -> None:
    for profile, version in (("1.34", "v1.34.9"), ("1.36", "v1.36.2"), ("1.37", "v1.37.0")):
        api = await start(profile=profile)
        assert (await api.get("/version")).body["gitVersion"] == version
        groups = {g["name"] for g in (await api.get("/apis")).body["groups"]}
        assert {"resource.k8s.io", "coordination.k8s.io", "rbac.authorization.k8s.io"} <= groups


async def test_items_of_a_list_name_their_kind_only_where_it_is_custom(
    served_definition: Any, make_config_map: Any
) -> None:
    await served_definition.post("/api/v1/namespaces/default/configmaps", make_config_map())
    await served_definition.post(WIDGETS, widget())
    built_in = (await served_definition.get("/api/v1/namespaces/default/configmaps")).body
    custom = (await served_definition.get(WIDGETS)).body
    assert (built_in["kind"], "kind" in built_in["items"][0]) == ("ConfigMapList", False)
    assert (custom["kind"], custom["items"][0]["kind"]) == ("WidgetList", "Widget")


@pytest.mark.parametrize(
    "rule",
    ["self ==", "self ++ 1", "self.nothing == 1", "other == 1", "self.mode", "self.nodeName.all(x, y == 1)"],
)
async def test_a_rule_that_makes_no_sense_does_not_compile(api: Any, definition: Any, rule: str) -> None:
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["x-kubernetes-validations"] = [{"rule": rule}]
    refused = await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    assert refused.code == 422
    assert "x-kubernetes-validations[0].rule" in refused.body["details"]["causes"][0]["field"]
