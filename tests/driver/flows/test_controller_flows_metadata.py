"""Device metadata files: what a container reads of its devices (KEP-5304)."""

import json
from pathlib import Path

from drawbar.driver.kube import kinds

WITH_FILES = {"device_metadata": True}
REQUEST = {"name": "disk", "exactly": {"deviceClassName": "nvme.drawbar.dev"}}
ROOT = "/var/run/kubernetes.io/dra-device-attributes"
NAME = "drawbar.dev-metadata.json"


def read_mounted_metadata(cluster):
    """Return what the containers of all prepared claims can read in the newest version, by its path in them."""
    content = {}
    for node in cluster.trees:
        for file in (cluster.path / node / "k" / "cdi").glob("*.json"):
            for device in json.loads(file.read_text())["devices"]:
                for mount in device["containerEdits"].get("mounts", ()):
                    assert "ro" in mount["options"]
                    content[mount["containerPath"]] = json.loads(
                        Path(mount["hostPath"]).read_text().splitlines()[0]
                    )
    return content


async def test_a_claim_selects_a_device_by_an_attribute_of_the_fabrics_adapter(flow_lab):
    vendor = 'device.attributes["example.com"]'
    wanted = f'has({vendor}.position) && {vendor}.position == 2 && {vendor}.rack == "r7"'
    async with flow_lab("1.36", devices=3) as cluster:
        await cluster.until(cluster.slices, bool)
        exactly = {**REQUEST["exactly"], "selectors": [{"cel": {"expression": wanted}}]}
        requests = [{"name": "disk", "exactly": exactly}]
        await cluster.create(kinds.CLAIM, "third", "default", spec={"devices": {"requests": requests}})
        await cluster.pod_using("p", {"name": "disk", "resourceClaimName": "third"})
        await cluster.wait_until_running("p")
        (claim,) = await cluster.claims()
        results = claim["status"]["allocation"]["devices"]["results"]
        assert [result["device"] for result in results] == ["disk-2"]


async def test_the_devices_of_a_claim_and_of_a_template_are_described_where_their_pods_look(flow_lab):
    async with flow_lab("1.36", devices=2, node=WITH_FILES) as cluster:
        await cluster.until(cluster.slices, bool)
        await cluster.pod_from_template("templated", {"requests": [REQUEST]}, ["storage"])
        node, (device,) = await cluster.wait_until_running("templated")
        ((path, document),) = read_mounted_metadata(cluster).items()
        assert path == f"{ROOT}/resourceclaimtemplates/storage/disk/{NAME}"
        (claim,) = (await cluster.api.list_all(kinds.CLAIM, into=dict)).items
        assert document["podClaimName"] == "storage"
        assert document["metadata"] == {
            "name": claim["metadata"]["name"],
            "namespace": "default",
            "uid": claim["metadata"]["uid"],
            "generation": 1,
        }
        ((entry,),) = [request["devices"] for request in document["requests"]]
        attributes = entry["attributes"]
        assert (entry["name"], attributes["fabric"]) == (device, {"string": "fab"})
        assert {name: value for name, value in attributes.items() if name.startswith("example.com/")} == {
            "example.com/rack": {"string": "r7"},
            "example.com/firmware": {"version": "1.2.3"},
            "example.com/shielded": {"bool": True},
            "example.com/position": {"int": int(device.removeprefix("disk-"))},
        }
        assert (
            cluster.trees[node]
            .root.joinpath("bus/pci/devices", attributes["resource.kubernetes.io/pciBusID"]["string"])
            .exists()
        )

        await cluster.create(kinds.CLAIM, "own", "default", spec={"devices": {"requests": [REQUEST]}})
        await cluster.pod_using("direct", {"name": "storage", "resourceClaimName": "own"})
        await cluster.until(
            cluster.pods, lambda value: value["direct"].get("status", {}).get("phase") == "Running"
        )
        assert sorted(read_mounted_metadata(cluster)) == [
            f"{ROOT}/{path}/disk/{NAME}" for path in ("resourceclaims/own", "resourceclaimtemplates/storage")
        ]
        await cluster.api.delete(kinds.POD, "templated", namespace="default")
        await cluster.wait_until_gone("templated")
        await cluster.is_free(device)
        folder = cluster.path / node / "k" / "plugins" / "drawbar.dev" / "metadata"
        assert claim["metadata"]["uid"] not in [path.name for path in folder.glob("*")]
