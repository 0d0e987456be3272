"""The ways to ask for a device by the manifests of docs/examples/ways.yaml, and the health that a pod shows of it."""

import copy
from pathlib import Path

import yaml

from drawbar.driver.kube import kinds
from drawbar.driver.node.local import nulls
from drawbar.fabric import contract
from drawbar.mocks.fabric import faults

MANIFESTS = Path(__file__).parents[3] / "docs" / "examples" / "ways.yaml"
WITH_NULLS = {"null_device": nulls.NullDevice(enabled=True, copies=1)}
BROKEN = faults.Fail(method=contract.OperationKind.ATTACH, retryable=False, message="the retimer is dark")
RESOURCE = "drawbar.dev/disk"


def manifest(kind):
    """Return the only object of that kind in the manifests."""
    (document,) = (item for item in yaml.safe_load_all(MANIFESTS.read_text()) if item["kind"] == kind)
    return document


def gpu(number, model):
    """Return the configuration of a GPU of the simulated fabric."""
    identity = {"serial": f"48-b0-2d-00-00-00-00-0{number}", "pciVendor": 0x1002, "pciDevice": 0x740F}
    return {"id": f"gpu-{number}", "class": "gpu", "model": model} | identity


async def offers_null_devices(cluster):
    """Wait until both nodes have published the null device."""

    async def names():
        listing = await cluster.api.list_all(kinds.SLICE, into=dict)
        specs = [item["spec"] for item in listing.items if item["spec"].get("nodeName")]
        return [[device["name"] for device in spec.get("devices", ())] for spec in specs]

    await cluster.until(names, lambda value: value == [["none"], ["none"]])


async def test_a_list_of_priorities_gives_the_best_device_that_is_free_and_nothing_after_the_last(flow_lab):
    # The pool has them in the order of their names.
    devices = [gpu(0, "A0"), gpu(1, "L4"), gpu(2, "H100")]
    enclosures = [{"id": "enc", "devices": devices}]
    async with flow_lab("1.36", enclosures=enclosures, node=WITH_NULLS) as cluster:
        template = manifest("ResourceClaimTemplate")
        await cluster.until(cluster.slices, lambda specs: [len(spec["devices"]) for spec in specs] == [3])
        await offers_null_devices(cluster)
        allocated = {}
        for name in ("a", "b", "c"):
            await cluster.pod_from_template(name, template["spec"]["spec"]["devices"], ["gpu"])
            allocated[name] = (await cluster.wait_until_running(name))[1]
        assert allocated == {"a": ["gpu-2"], "b": ["gpu-1"], "c": ["none"]}
        assert sorted(await cluster.attachments()) == ["gpu-1", "gpu-2"]
        (allocation,) = await cluster.wait_until_allocated("b")
        (result,) = allocation["devices"]["results"]
        assert result["request"] == "gpu/small"
        # What became free goes to the next pod, not to the one that has less.
        await cluster.api.delete(kinds.POD, "a", namespace="default")
        await cluster.wait_until_gone("a")
        await cluster.is_free("gpu-2")
        await cluster.pod_from_template("d", template["spec"]["spec"]["devices"], ["gpu"])
        assert (await cluster.wait_until_running("d"))[1] == ["gpu-2"]
        assert await cluster.devices_of("c") == ["none"]


async def test_the_status_of_a_pod_shows_that_its_device_became_unhealthy_and_recovered(flow_lab):
    async with flow_lab("1.36", devices=1) as cluster:
        await cluster.pod("a")
        node, _ = await cluster.wait_until_running("a")

        async def health():
            """Return the devices of the pod's only container, each with its claim."""
            (container,) = (await cluster.pods())["a"]["status"]["containerStatuses"]
            shown = container.get("allocatedResourcesStatus", ())
            return [(entry["name"], device) for entry in shown for device in entry["resources"]]

        def shows(status, words=""):
            return lambda value: (
                [(name, device["health"]) for name, device in value if words in device.get("message", "")]
                == [("claim:disk-0", status)]
            )

        ((_, before),) = await cluster.until(health, shows("Healthy"))
        (state,) = cluster.trees[node].root.glob("bus/pci/devices/*/nvme/nvme*/state")
        state.write_text("dead\n")
        ((_, after),) = await cluster.until(health, shows("Unhealthy", "dead"))
        assert after["resourceID"] == before["resourceID"]
        state.write_text("live\n")
        await cluster.until(health, shows("Healthy"))


async def offer_disks(cluster):
    """Make the DeviceClass with an extended resource."""
    theirs = manifest("DeviceClass")
    await cluster.create(kinds.DEVICE_CLASS, theirs["metadata"]["name"], spec=theirs["spec"])


async def pod_with_limit(cluster, name, amount):
    """Make the pod with a limit, of so many disks, and no claim."""
    spec = copy.deepcopy(manifest("Pod")["spec"])
    spec["containers"][0]["resources"]["limits"][RESOURCE] = str(amount)
    await cluster.create(kinds.POD, name, "default", spec=spec)


async def test_a_limit_of_a_container_attaches_disks_of_the_fabric_which_are_free_after_the_pod(flow_lab):
    async with flow_lab("1.36", devices=3) as cluster:
        await offer_disks(cluster)
        await pod_with_limit(cluster, "a", 2)
        _, devices = await cluster.wait_until_running("a")
        assert len(devices) == 2
        assert sorted(await cluster.attachments()) == devices
        (claim,) = await cluster.claims("a")
        assert claim["metadata"]["name"].startswith("a-extended-resources-")
        assert claim["metadata"]["annotations"]["resource.kubernetes.io/extended-resource-claim"] == "true"
        status = (await cluster.pods())["a"]["status"]["extendedResourceClaimStatus"]
        assert status["resourceClaimName"] == claim["metadata"]["name"]
        (request,) = claim["spec"]["devices"]["requests"]
        mapping = {"containerName": "main", "resourceName": RESOURCE, "requestName": request["name"]}
        assert status["requestMappings"] == [mapping]
        assert len(cluster.cdi_files) == 1
        # One disk is left; the third pod waits for those that the first gives back.
        await pod_with_limit(cluster, "b", 1)
        await cluster.wait_until_running("b")
        await pod_with_limit(cluster, "c", 1)
        await cluster.wait_for_event_about("c", "FailedScheduling")
        await cluster.api.delete(kinds.POD, "a", namespace="default")
        await cluster.wait_until_gone("a")
        await cluster.wait_until_running("c")
        for name in ("b", "c"):
            await cluster.api.delete(kinds.POD, name, namespace="default")
            await cluster.wait_until_gone(name)
        await cluster.until(cluster.attachments, lambda attachments: not attachments)
        await cluster.until(cluster.claims, lambda claims: not claims)


async def test_a_disk_that_cannot_be_attached_for_a_limit_is_replaced_by_the_next(flow_lab):
    async with flow_lab("1.36", policy={"probationSeconds": 3600}) as cluster:
        cluster.fabric.console.add_fault(BROKEN)
        await offer_disks(cluster)
        await pod_with_limit(cluster, "a", 1)
        assert (await cluster.wait_until_running("a"))[1] == ["disk-1"]
        # The claim with the failure is deleted and replaced, not allocated again.
        assert len(await cluster.claims("a")) == 1
        await cluster.wait_for_event("FailedScheduling", "the retimer is dark")
        await cluster.until(cluster.attachments, lambda attachments: list(attachments) == ["disk-1"])
