"""The values of the chart: documented, checked by a schema, and the same as the daemons' settings."""

import json
import re

import pytest
import yaml

from drawbar.driver.configuration import schema
from drawbar.driver.controller import settings as controller_settings
from drawbar.driver.node import settings as node_settings
from drawbar.mocks.testing import helm, manifests

# What the chart decides by itself, or what the pod tells.
DECIDED = {
    "controller": {
        "driverName",
        "leaseNamespace",
        "nodeDaemonSelector",
        "kubeconfig",
        "identity",
        "http.address",
    },
    "node": {*("driverName", "kubeletDir", "cdiDir", "kubeconfig"), *("nodeName", "podUID", "http.address")},
}


def schema_of(pytestconfig):
    return json.loads((pytestconfig.rootpath / "deploy" / "drawbar" / "values.schema.json").read_text())


def closed_objects(node, path=""):
    """Yield the path of every object of the schema with fields of its own, and whether it is closed."""
    if "properties" in node:
        yield path, node.get("additionalProperties")
        for key, below in node["properties"].items():
            yield from closed_objects(below, f"{path}.{key}")


def leaves(node, path=""):
    for key, below in node.items():
        if isinstance(below, dict) and below:
            yield from leaves(below, f"{path}.{key}")
        else:
            yield f"{path}.{key}".removeprefix(".")


# Values, and a part of the message that refuses them.
WRONG = (
    ({"driverNam": "x"}, "additional properties 'driverNam' not allowed"),
    ({"controller": {"replcas": 3}}, "additional properties 'replcas' not allowed"),
    ({"controller": {"replicas": 0}}, "minimum"),
    ({"controller": {"config": {"bindingTimeout": 1}}}, "'bindingTimeout' not allowed"),
    ({"controller": {"config": {"log": {"format": "xml"}}}}, "must be one of 'text', 'json'"),
    ({"node": {"config": {"localPool": {"clases": []}}}}, "'clases' not allowed"),
    ({"node": {"kubeletDir": "var/lib/kubelet"}}, "/node/kubeletDir"),
    ({"driverName": "Not A Name"}, "/driverName"),
    ({"deviceClasses": {"classes": ["gpus"]}}, "/deviceClasses/classes/0"),
    ({"credentialsSecrets": "one"}, "want array"),
    ({"image": {"repository": ""}}, "image.repository is empty: name the registry"),
    ({"metrics": {"enabled": True}}, "metrics.proxy.image is empty: the daemons give"),
)


async def test_wrong_values_are_refused_with_their_place_and_a_reason(render):
    for values, words in WRONG:
        with pytest.raises(helm.HelmError) as caught:
            await render(**values)
        assert words in str(caught.value)


def test_no_object_of_the_schema_lets_a_misspelt_key_through(pytestconfig):
    closed_by_path = dict(closed_objects(schema_of(pytestconfig)))
    assert len(closed_by_path) > 30
    assert [path for path, closed in closed_by_path.items() if closed is not False] == []


@pytest.mark.parametrize(
    ("component", "settings"),
    [("controller", controller_settings.Settings), ("node", node_settings.Settings)],
)
def test_the_schema_has_the_settings_of_the_daemons_and_no_others(pytestconfig, component, settings):
    config = schema_of(pytestconfig)["properties"][component]["properties"]["config"]

    def keys(node, path=""):
        for key, below in node["properties"].items():
            if "properties" in below:
                yield from keys(below, f"{path}{key}.")
            else:
                yield f"{path}{key}"

    assert set(keys(config)) == {option.key for option in schema.options(settings)} - DECIDED[component]


def test_every_value_has_a_comment_above_it_and_a_place_in_the_schema(pytestconfig):
    text = (pytestconfig.rootpath / "deploy" / "drawbar" / "values.yaml").read_text()
    lines = text.splitlines()
    # Those whose value stands in the same line, at any depth.
    bare = [
        line
        for before, line in zip(["", *lines], lines, strict=False)
        if re.match(r" *\w+: \S", line) and not before.strip().startswith("#")
    ]
    assert [line.strip() for line in bare if not re.match(r" +(requests|limits): ", line)] == []
    properties = schema_of(pytestconfig)["properties"]
    for leaf in leaves(yaml.safe_load(text)):
        at = {"properties": properties}
        for key in leaf.split("."):
            if "properties" not in at:
                break
            assert key in at["properties"], leaf
            at = at["properties"][key]


async def test_the_manifests_are_what_the_chart_renders(engine, pytestconfig):
    deploy = pytestconfig.rootpath / "deploy"
    for name, text in (await manifests.rendered(engine, deploy / "drawbar")).items():
        assert (deploy / "manifests" / name).read_text() == text, f"run deploy/render: {name} is older"


async def test_helms_own_linter_reports_no_problem_of_the_chart(engine, pytestconfig):
    values = {"image": {"repository": "r/d"}}
    said = await engine.call(
        "helm_lint", paths=[str(pytestconfig.rootpath / "deploy" / "drawbar")], strict=True, values=values
    )
    assert {message["severity"] for message in json.loads(said)["messages"]} <= {"INFO"}
