"""A node is offered only while its daemon is alive."""

from tests.scenes import maintenances

from drawbar.driver.kube import client, kinds

LABEL = "fabric.drawbar.dev/fab"
SELECTOR = "app=drawbar-node,release=main"
LABELS = dict(pair.split("=") for pair in SELECTOR.split(","))


async def daemon_pod(cluster, node, *, ready):
    """Report the pod of a node daemon as its kubelet does; create it if it is absent."""
    name = f"drawbar-{node}"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": LABELS},
        "spec": {"nodeName": node, "containers": [{"name": "node", "image": "drawbar"}]},
    }
    if not any(
        pod["metadata"]["name"] == name for pod in (await cluster.api.list_all(kinds.POD, into=dict)).items
    ):
        await cluster.api.create(kinds.POD, pod, namespace="drawbar", into=dict)
    await set_ready(cluster, kinds.POD, name, ready=ready, namespace="drawbar")


async def set_ready(cluster, kind, name, *, ready, namespace=None):
    status = {"status": {"conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}]}}
    await cluster.api.patch(
        kind,
        name,
        status,
        content=client.Patch.MERGE,
        subresource="status",
        into=dict,
        namespace=namespace,
        manager="kubelet",
    )


async def list_labelled_nodes(cluster):
    return [
        node["metadata"]["name"]
        for node in (await cluster.api.list_all(kinds.NODE, into=dict)).items
        if LABEL in node["metadata"].get("labels", {})
    ]


async def test_a_node_is_offered_while_the_pod_of_its_daemon_is_ready(controller_world, until, monkeypatch):
    monkeypatch.setattr("drawbar.driver.controller.daemons.GRACE_SECONDS", 1.0)
    async with controller_world() as cluster:
        await daemon_pod(cluster, "node-1", ready=True)
        cluster.start(node_daemon_selector=SELECTOR)
        await cluster.make_fabric()
        await until(lambda: list_labelled_nodes(cluster), lambda nodes: nodes == ["node-1"])
        degraded = await cluster.condition("Degraded", status="True")
        assert "no node daemon is Ready on node-2" in degraded["message"]
        # Its daemon comes, the other one dies.
        await daemon_pod(cluster, "node-2", ready=True)
        await until(lambda: list_labelled_nodes(cluster), lambda nodes: nodes == ["node-1", "node-2"])
        await cluster.condition("Degraded", status="False")
        await daemon_pod(cluster, "node-1", ready=False)
        await until(lambda: list_labelled_nodes(cluster), lambda nodes: nodes == ["node-2"])
        await daemon_pod(cluster, "node-1", ready=True)
        await until(lambda: list_labelled_nodes(cluster), lambda nodes: nodes == ["node-1", "node-2"])


async def test_a_node_that_is_not_ready_is_not_offered_where_daemons_are_no_pods(controller_world, until):
    async with controller_world() as cluster:
        cluster.start()
        await cluster.make_fabric()
        await until(lambda: list_labelled_nodes(cluster), lambda nodes: nodes == ["node-1", "node-2"])
        await set_ready(cluster, kinds.NODE, "node-1", ready=False)
        await until(lambda: list_labelled_nodes(cluster), lambda nodes: nodes == ["node-2"])
        await set_ready(cluster, kinds.NODE, "node-1", ready=True)
        await until(lambda: list_labelled_nodes(cluster), lambda nodes: nodes == ["node-1", "node-2"])


async def test_a_fabric_without_a_usable_node_is_not_ready(controller_world):
    async with controller_world() as cluster:
        cluster.start()
        await cluster.make_fabric()
        await cluster.condition("Ready", status="True")
        await maintenances.begin(cluster.api, nodes=["node-1", "node-2"])
        await cluster.condition("Ready", status="False", reason="NoUsableNode")
        await maintenances.end(cluster.api)
        await cluster.condition("Ready", status="True", reason="Ready")
        devices = [device.id for device in (await cluster.fabric.devices()).devices]
        await maintenances.begin(cluster.api, devices=devices)
        await cluster.condition("Ready", status="False", reason="NoUsableDevice")
        await maintenances.end(cluster.api)
        await cluster.condition("Ready", status="True", reason="Ready")


async def test_a_node_in_maintenance_is_not_offered_until_that_ends(controller_world, until):
    async with controller_world() as cluster:
        cluster.start()
        await cluster.make_fabric()
        await until(lambda: list_labelled_nodes(cluster), lambda nodes: nodes == ["node-1", "node-2"])
        await maintenances.begin(cluster.api, nodes=["node-2", "elsewhere"])
        await until(lambda: list_labelled_nodes(cluster), lambda nodes: nodes == ["node-1"])
        await maintenances.end(cluster.api)
        await until(lambda: list_labelled_nodes(cluster), lambda nodes: nodes == ["node-1", "node-2"])
