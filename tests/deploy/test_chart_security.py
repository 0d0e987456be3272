"""The catalogue lists what the chart grants, and docs/examples/claims.yaml a claim for each of its classes."""

import re

import pytest
import yaml

from drawbar.driver.catalogue import permissions
from drawbar.mocks.scheduler import objects, selectors


@pytest.fixture
def page(pytestconfig):
    return (pytestconfig.rootpath / "docs" / "security.md").read_text()


@pytest.fixture
def manifest(pytestconfig):
    def read(name):
        text = (pytestconfig.rootpath / "deploy" / "manifests" / name).read_text()
        return list(yaml.safe_load_all(text))

    return read


def section(page, title):
    return page.partition(f"## {title}\n")[2].partition("\n## ")[0]


def rows(text):
    for line in text.splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize(
    "role", [role for role in permissions.ROLES if role.manifest], ids=lambda role: role.name
)
def test_the_permissions_of_the_catalogue_are_the_roles(manifest, role):
    granted = [
        (group, resource, " ".join(rule["verbs"]), ", ".join(rule.get("resourceNames", ())))
        for document in manifest(role.manifest)
        for rule in document.get("rules") or ()
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    ]
    listed = [(rule.group, rule.resource, rule.verbs, rule.only) for rule in role.permissions]
    assert sorted(listed) == sorted(granted)
    assert [rule for rule in role.permissions if not rule.why] == []


def test_an_operator_has_all_rights_of_a_viewer():
    """The operator's verbs refer to `drawbar status` and `drawbar explain`."""

    def grants(role):
        return {(rule.group, rule.resource, verb) for rule in role.permissions for verb in rule.verbs.split()}

    assert grants(permissions.VIEWER) <= grants(permissions.OPERATOR)


def test_every_policy_is_explained(page, manifest):
    _, *documented = rows(section(page, "Admission policies"))
    policies = [
        document["metadata"]["name"]
        for document in manifest("policies.yaml")
        if document["kind"] == "ValidatingAdmissionPolicy"
    ]
    assert sorted(row[0].strip("`") for row in documented) == sorted(policies)


@pytest.mark.parametrize("file", ["deviceclasses.yaml", "classic/deviceclasses.yaml"])
def test_no_selector_of_a_class_fails_on_a_device_that_has_no_attributes(manifest, file):
    """If a selector fails, no device of that class can be allocated, so one node could block all others."""
    bare = objects.Device(name="bare")
    gpu = objects.Device(name="gpu", attributes={"class": {"string": "gpu"}})
    chosen = []
    for device_class in manifest(file):
        expression = device_class["spec"]["selectors"][0]["cel"]["expression"]
        assert not selectors.matches(expression, "drawbar.dev", bare)
        assert not selectors.matches(expression, "other.example.com", gpu)
        chosen += (
            [device_class["metadata"]["name"]] if selectors.matches(expression, "drawbar.dev", gpu) else []
        )
    assert chosen == ["gpu.drawbar.dev"]


@pytest.mark.parametrize("file", ["policies.yaml", "classic/policies.yaml"])
def test_every_policy_names_its_versions_because_an_api_server_checks_the_types_of_these_alone(
    manifest, file
):
    versions = [
        rule["apiVersions"]
        for document in manifest(file)
        if document["kind"] == "ValidatingAdmissionPolicy"
        for rule in document["spec"]["matchConstraints"]["resourceRules"]
    ]
    assert versions
    assert not any("*" in named for named in versions)


async def test_every_mount_of_the_node_daemon_has_its_reason(page, render):
    (daemon,) = [document for document in await render() if document["kind"] == "DaemonSet"]
    pod = daemon["spec"]["template"]["spec"]
    paths = [volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume]
    text = section(page, "The node daemon's pod")
    assert sorted(re.findall(r"^\| `(/[^`]*)`", text, re.MULTILINE)) == sorted(paths)


def test_the_examples_of_claims_have_one_for_each_device_class(pytestconfig, manifest):
    text = (pytestconfig.rootpath / "docs" / "examples" / "claims.yaml").read_text()
    asked = {
        way["deviceClassName"]
        for document in yaml.safe_load_all(text)
        if document["kind"] == "ResourceClaimTemplate"
        for request in document["spec"]["spec"]["devices"]["requests"]
        for way in request.get("firstAvailable") or [request["exactly"]]
    }
    assert asked == {device_class["metadata"]["name"] for device_class in manifest("deviceclasses.yaml")}
