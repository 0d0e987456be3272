"""The values of the chart: documented, checked by a schema, and the same as the daemons' settings."""

import json
import re

import pytest
import yaml

from drawbar.mocks.testing import helm, manifests

# What the chart decides by itself, or what the pod tells.


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
    ({"node": {"bitstreams": {"image": {"pullPolicy": "Sometimes"}}}}, "/node/bitstreams/image/pullPolicy"),
    ({"node": {"bitstreams": {"image": {"reference": "a b"}}}}, "/node/bitstreams/image/reference"),
    ({"node": {"kubeletDir": "var/lib/kubelet"}}, "/node/kubeletDir"),
    ({"driverName": "Not A Name"}, "/driverName"),
    ({"deviceClasses": {"classes": ["gpus"]}}, "/deviceClasses/classes/0"),
    ({"deviceClasses": {"extendedResources": {"gpus": "drawbar.dev/gpu"}}}, "'gpus' not allowed"),
    ({"deviceClasses": {"extendedResources": {"other": "drawbar.dev/card"}}}, "add other to deviceClasses"),
    ({"deviceClasses": {"extendedResources": {"gpu": "gpu"}}}, "/deviceClasses/extendedResources/gpu"),
    ({"credentialsSecrets": "one"}, "want array"),
    ({"fullnameOverride": "Not A Name"}, "/fullnameOverride"),
    ({"nameOverride": "x" * 21}, "/nameOverride"),
    ({"node": {"updateStrategy": {"typ": "OnDelete"}}}, "'typ' not allowed"),
    ({"image": {"repository": ""}}, "image.repository is empty: name the registry"),
)


async def test_wrong_values_are_refused_with_their_path_and_a_reason(render):
    for values, words in WRONG:
        with pytest.raises(helm.HelmError) as caught:
            await render(**values)
        assert words in str(caught.value)


async def test_a_class_gets_the_extended_resource_that_the_values_name_and_no_other_does(render):
    resources = {"fpga": "drawbar.dev/fpga"}
    documents = await render(deviceClasses={"extendedResources": resources})
    named = {
        document["metadata"]["name"]: document["spec"]["extendedResourceName"]
        for document in documents
        if document["kind"] == "DeviceClass" and "extendedResourceName" in document["spec"]
    }
    assert named == {"fpga.drawbar.dev": "drawbar.dev/fpga"}


async def test_other_names_hold_in_every_object_and_every_reference(render):
    """Roles are bound to the accounts of the pods, policies name them, and the controller finds the node daemons' pods."""
    documents = await render(
        fullnameOverride="rack",
        nameOverride="cards",
        webhook={"enabled": True},
        healthMonitor=MONITOR,
        networkPolicy=OPEN,
    )
    accounts = {each["metadata"]["name"] for each in documents if each["kind"] == "ServiceAccount"}
    assert accounts == {"rack-controller", "rack-node", "rack-webhook", "rack-health-monitor"}
    pods = [each["spec"]["template"] for each in documents if each["kind"] in ("Deployment", "DaemonSet")]
    assert {pod["spec"]["serviceAccountName"] for pod in pods} == accounts
    for each in documents:
        assert each["metadata"]["labels"]["app.kubernetes.io/name"] == "cards", each["metadata"]["name"]
        for subject in each.get("subjects", ()):
            assert subject["name"] in accounts
    users = [
        str(each["spec"]["matchConditions"])
        for each in documents
        if each["kind"] == "ValidatingAdmissionPolicy" and "matchConditions" in each["spec"]
    ]
    assert len(users) > 5
    assert [user for user in users if "serviceaccount:drawbar:rack-" not in user] == []
    config = next(
        each["data"]["controller.yaml"]
        for each in documents
        if each["kind"] == "ConfigMap" and "controller.yaml" in each["data"]
    )
    selector = dict(pair.split("=") for pair in yaml.safe_load(config)["nodeDaemonSelector"].split(","))
    (daemon,) = [each for each in documents if each["kind"] == "DaemonSet"]
    assert selector.items() <= daemon["spec"]["template"]["metadata"]["labels"].items()
    leases = [
        rule["resourceNames"]
        for each in documents
        if each["kind"] == "Role"
        for rule in each["rules"]
        if rule["resources"] == ["leases"] and "resourceNames" in rule
    ]
    assert leases == [["drawbar-controller"]], "the controller names its lease itself"
    left = [name for name in names_in(documents) if name.startswith("drawbar-")]
    assert left == []


def names_in(documents):
    return [each["metadata"]["name"] for each in documents if each["kind"] != "CustomResourceDefinition"]


MONITOR = {"enabled": True, "tlsSecretName": "tls", "tokenSecretName": "token"}
OPEN = {"webhookFrom": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "healthMonitorFrom": [{"podSelector": {}}]}


async def test_accounts_strategy_and_spread_are_those_of_the_values(render):
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    annotated = {"serviceAccount": {"annotations": {"a": "b"}}}
    documents = await render(
        controller=annotated | {"topologySpreadConstraints": [spread]},
        node=annotated | {"updateStrategy": {"type": "OnDelete"}},
        webhook=annotated
        | {
            "enabled": True,
            "topologySpreadConstraints": [spread],
            "extraEnv": [{"name": "A", "value": "b"}],
        },
        healthMonitor=MONITOR | annotated | {"extraEnv": [{"name": "A", "value": "b"}]},
        networkPolicy=OPEN,
    )
    accounts = [each["metadata"] for each in documents if each["kind"] == "ServiceAccount"]
    assert [account["annotations"] for account in accounts] == [{"a": "b"}] * 4
    by_component = {
        each["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]: each["spec"]
        for each in documents
        if each["kind"] in ("Deployment", "DaemonSet")
    }
    assert by_component["node"]["updateStrategy"] == {"type": "OnDelete"}
    for component in ("controller", "webhook"):
        assert by_component[component]["template"]["spec"]["topologySpreadConstraints"] == [spread]
    for component in ("webhook", "health-monitor"):
        (container,) = by_component[component]["template"]["spec"]["containers"]
        assert {"name": "A", "value": "b"} in container["env"]


def test_no_object_of_the_schema_lets_a_misspelt_key_through(pytestconfig):
    closed_by_path = dict(closed_objects(schema_of(pytestconfig)))
    assert len(closed_by_path) > 30
    assert [path for path, closed in closed_by_path.items() if closed is not False] == []


def test_every_value_has_a_comment_and_a_schema(pytestconfig):
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


async def test_the_manifests_match_the_rendered_chart(engine, pytestconfig):
    deploy = pytestconfig.rootpath / "deploy"
    for name, text in (await manifests.render_manifests(engine, deploy / "drawbar")).items():
        assert (deploy / "manifests" / name).read_text() == text, f"run deploy/render: {name} is older"


async def test_helms_own_linter_reports_no_problem_of_the_chart(engine, pytestconfig):
    values = {"image": {"repository": "r/d"}}
    reported = await engine.call(
        "helm_lint", paths=[str(pytestconfig.rootpath / "deploy" / "drawbar")], strict=True, values=values
    )
    assert json.loads(reported)["messages"] is None
