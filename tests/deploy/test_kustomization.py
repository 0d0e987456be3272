"""deploy/manifests as a kustomization: all of Drawbar that the chart installs by default, under one image."""

from pathlib import Path

import pytest
import yaml

from drawbar.mocks.testing import manifests

FOLDER = Path(__file__).parents[2] / "deploy" / "manifests"
COMPONENTS = sorted(manifests.COMPONENTS)


def list_resources(folder=FOLDER):
    return yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]


def documents(folder=FOLDER):
    return [
        document
        for name in list_resources(folder)
        for document in yaml.safe_load_all((folder / name).read_text())
        if document
    ]


def key(document):
    return document["kind"], document["metadata"]["name"]


def test_it_lists_every_file_beside_it():
    for folder in (FOLDER, *(FOLDER / "components" / name for name in COMPONENTS)):
        files = {file.name for file in folder.glob("*.yaml")} - {"kustomization.yaml"}
        assert sorted(list_resources(folder)) == sorted(files)


def test_each_optional_part_is_a_component():
    assert sorted(path.name for path in (FOLDER / "components").iterdir()) == COMPONENTS
    for name in COMPONENTS:
        content = yaml.safe_load((FOLDER / "components" / name / "kustomization.yaml").read_text())
        assert (content["apiVersion"], content["kind"]) == (
            "kustomize.config.k8s.io/v1alpha1",
            "Component",
        )


@pytest.mark.tool("chart")
@pytest.mark.parametrize("name", COMPONENTS)
async def test_a_component_adds_the_same_objects_as_the_chart(render, name):
    _, values = manifests.COMPONENTS[name]
    default = {key(document) for document in await render()}
    enabled = {key(document) for document in await render(**values)}
    added = [key(document) for document in documents(FOLDER / "components" / name)]
    assert len(added) == len(set(added))
    assert set(added) == enabled - default


def test_both_daemons_have_the_image_that_a_kustomization_replaces():
    pods = {
        key(document): document["spec"]["template"]["spec"]
        for document in documents()
        if document["kind"] in ("Deployment", "DaemonSet")
    }
    assert pods.keys() == {("Deployment", "drawbar-controller"), ("DaemonSet", "drawbar-node")}
    for pod in pods.values():
        assert {each["image"].rpartition(":")[0] for each in pod["containers"]} == {manifests.IMAGE}


def test_everything_that_an_object_names_is_in_it():
    made = {key(document) for document in documents()}
    for document in documents():
        if document["kind"] in ("Deployment", "DaemonSet"):
            pod = document["spec"]["template"]["spec"]
            assert ("ServiceAccount", pod["serviceAccountName"]) in made
            maps = [volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume]
            assert maps
            assert {("ConfigMap", name) for name in maps} <= made
        if document["kind"].endswith("RoleBinding"):
            assert (document["roleRef"]["kind"], document["roleRef"]["name"]) in made
        if document["kind"] == "ValidatingAdmissionPolicyBinding":
            assert ("ValidatingAdmissionPolicy", document["spec"]["policyName"]) in made


@pytest.mark.tool("chart")
async def test_it_has_all_that_the_chart_installs_and_a_namespace(render):
    # Helm's own end of a release is nothing for kubectl.
    chart = {key(document) for document in await render() if "-uninstall" not in document["metadata"]["name"]}
    assert {key(document) for document in documents()} == chart | {("Namespace", "drawbar")}
