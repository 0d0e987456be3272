"""The examples of claims and workloads: each pod of them runs, with devices of the classes that it asks for."""

import shutil
import tempfile
from pathlib import Path

import pytest
import yaml

from drawbar.driver.kube import kinds
from drawbar.fabric.contract import OFFERED_CLASSES, DeviceClass
from drawbar.mocks import cluster
from drawbar.mocks.fabric import pool
from drawbar.mocks.testing import worlds

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
NAMESPACE = "default"


def documents(name):
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


TEMPLATES = {
    document["metadata"]["name"]: document["spec"]["spec"]
    for document in documents("claims.yaml")
    if document["kind"] == "ResourceClaimTemplate"
}
WORKLOADS = [document for document in documents("workloads.yaml") if document["kind"] != "Service"]
PODS = {document["metadata"]["name"]: document["spec"]["template"] for document in WORKLOADS}


def requests(pod):
    """Yield for each device of the pod's claims the classes that it may have."""
    for claim in pod["spec"]["resourceClaims"]:
        for request in TEMPLATES[claim["resourceClaimTemplateName"]]["devices"]["requests"]:
            ways = request.get("firstAvailable") or [request["exactly"]]
            classes = {way["deviceClassName"].removesuffix(".drawbar.dev") for way in ways}
            yield from [classes] * ways[0].get("count", 1)


def test_there_is_a_workload_of_each_class_and_a_deployment_and_a_job_are_among_them():
    asked = {name for pod in PODS.values() for classes in requests(pod) for name in classes}
    assert asked == {*map(str, OFFERED_CLASSES), "none"} - {str(DeviceClass.OTHER)}
    assert {document["kind"] for document in WORKLOADS} >= {"Deployment", "Job"}


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda document: document["metadata"]["name"])
def test_a_workload_selects_its_own_pods_whose_containers_use_their_claims(workload):
    template = workload["spec"]["template"]
    if workload["kind"] != "Job":
        assert workload["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    used = {
        claim["name"]
        for container in template["spec"]["containers"]
        for claim in container["resources"]["claims"]
    }
    assert used == {claim["name"] for claim in template["spec"]["resourceClaims"]}


@pytest.fixture
def _folder(monkeypatch):
    """Make the cluster create its directory in a path shorter than tmp_path, for the sockets in it."""
    path = Path(tempfile.mkdtemp(prefix="d"))
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    yield
    shutil.rmtree(path)


@pytest.mark.usefixtures("_folder")
async def test_the_pods_of_all_workloads_run_with_devices_of_the_classes_that_they_ask_for():
    devices = pool.make_enclosures(
        {DeviceClass(name): 2 for name in ("gpu", "accelerator")}
        | dict.fromkeys((DeviceClass.FPGA, DeviceClass.NVME, DeviceClass.CXL_MEMORY, DeviceClass.NIC), 1)
    )
    settings = cluster.Settings(enclosures=devices, slots=8, poll_seconds=0.2)
    classes = {device.id: str(device.device_class) for enclosure in devices for device in enclosure.devices}
    async with cluster.Cluster.running(settings) as running:
        world = worlds.World(running.api)
        for name, spec in TEMPLATES.items():
            await world.create(kinds.CLAIM_TEMPLATE, name, NAMESPACE, spec={"spec": spec})
        for name, template in PODS.items():
            await world.create(kinds.POD, name, NAMESPACE, spec=template["spec"])

        async def phases():
            listing = await running.api.list_all(kinds.POD, into=dict, namespace=NAMESPACE)
            return {pod["metadata"]["name"]: pod.get("status", {}).get("phase") for pod in listing.items}

        await world.until(phases, lambda value: set(value.values()) == {"Running"}, 90)
        claims = (await running.api.list_all(kinds.CLAIM, into=dict, namespace=NAMESPACE)).items
    for name, pod in PODS.items():
        allocated = [
            classes[result["device"]]
            for claim in claims
            if claim["metadata"]["ownerReferences"][0]["name"] == name
            for result in claim["status"]["allocation"]["devices"]["results"]
        ]
        assert len(allocated) == len(list(requests(pod)))
        assert all(device in wanted for device, wanted in zip(allocated, requests(pod), strict=True)), name
