"""Two reachability groups: the enclosure `left` is cabled to node-1's host alone, and `right` to that of node-2."""

from drawbar.driver.kube import kinds
from drawbar.mocks.testing import worlds

ENCLOSURES = [
    {"id": "left", "hosts": ["host-node-1"], "devices": [worlds.disk(0)]},
    {"id": "right", "hosts": ["host-node-2"], "devices": [worlds.disk(1)]},
]


async def claim_of_enclosure(cluster, name, enclosure, node=None):
    """Make a claim for a disk of this enclosure, and a pod with it, on this node if one is named."""
    selector = {"cel": {"expression": f'device.attributes["drawbar.dev"].enclosure == "{enclosure}"'}}
    exactly = {"deviceClassName": "nvme.drawbar.dev", "selectors": [selector]}
    spec = {"devices": {"requests": [{"name": "d", "exactly": exactly}]}}
    await cluster.create(cluster.claim_kind, name, "default", spec=spec)
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "d"}]}}
    pod = {"containers": [container], "resourceClaims": [{"name": "d", "resourceClaimName": name}]}
    where = {"nodeSelector": {"kubernetes.io/hostname": node}} if node is not None else {}
    await cluster.create(kinds.POD, name, "default", spec=pod | where)


async def labels_of(cluster, node):
    document = await cluster.api.read(kinds.NODE, node, into=dict)
    return {key for key in document["metadata"]["labels"] if key.startswith("reach.drawbar.dev/")}


async def is_labelled(cluster):
    """Wait until each node has the label of its own group."""
    labels = await cluster.until(
        lambda: _all_labels(cluster), lambda value: all(len(of_node) == 1 for of_node in value)
    )
    assert labels[0] != labels[1]


async def _all_labels(cluster):
    return [await labels_of(cluster, node) for node in ("node-1", "node-2")]


async def groups_of(cluster):
    fabric = await cluster.api.read(kinds.FABRIC, "fab", into=dict)
    return fabric["status"].get("reachGroups", [])


async def has_never_been_attached(cluster, device):
    """Return whether nothing was ever asked of the fabric for the device."""
    inventory = await cluster.fabric.devices()
    operations = await cluster.fabric.operations()
    asked = {operation.device.id for operation in operations if operation.device is not None}
    return inventory.device(device).connection is None and device not in asked


async def test_a_pod_runs_where_its_device_can_go_and_waits_where_it_cannot(flow_lab):
    async with flow_lab("1.36", enclosures=ENCLOSURES, policy={"probationSeconds": 3600}) as cluster:
        await cluster.until(cluster.slices, lambda specs: len(specs) == 2)
        await is_labelled(cluster)
        await claim_of_enclosure(cluster, "stuck", "right", "node-1")
        await claim_of_enclosure(cluster, "free", "left")
        assert await cluster.wait_until_running("free") == ("node-1", [])
        assert await cluster.list_connections() == {"disk-0": "host-node-1"}

        # The scheduler has looked at both pods by now, and gives the one on the other side nothing.
        await cluster.until(lambda: _condition(cluster, "stuck"), lambda reason: reason == "Unschedulable")
        assert await has_never_been_attached(cluster, "disk-1")
        assert await cluster.taints("disk-1") == set()
        await claim_of_enclosure(cluster, "neighbour", "right")
        assert (await cluster.wait_until_running("neighbour"))[0] == "node-2"
        assert await cluster.list_connections() == {"disk-0": "host-node-1", "disk-1": "host-node-2"}
        assert not (await cluster.pods())["stuck"]["spec"].get("nodeName")
        assert await groups_of(cluster) == [
            {"id": "left", "devices": 1, "hosts": 1, "nodes": 1},
            {"id": "right", "devices": 1, "hosts": 1, "nodes": 1},
        ]
        code, out, err = await cluster.operate("status")
        assert (code, err) == (0, "")
        assert "left  1 devices, 1 hosts, 1 of them nodes" in out


async def _condition(cluster, pod):
    conditions = (await cluster.pods())[pod].get("status", {}).get("conditions", ())
    return next((entry.get("reason") for entry in conditions if entry["type"] == "PodScheduled"), None)


async def test_a_label_of_a_group_that_is_taken_off_comes_back(flow_lab):
    async with flow_lab("1.36", enclosures=ENCLOSURES) as cluster:
        await cluster.until(cluster.slices, lambda specs: len(specs) == 2)
        await is_labelled(cluster)
        (label,) = await labels_of(cluster, "node-1")
        await cluster.change(kinds.NODE, "node-1", metadata={"labels": {label: None}})
        await is_labelled(cluster)
