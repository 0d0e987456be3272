"""The CI of another driver, on Drawbar's doubles: a scheduler gives its device to a pod.

In place of `publish` your driver runs.
"""

import time

from kubernetes import client, config

DRIVER = "gpu.example.com"
GROUP = {"group": "resource.k8s.io", "version": "v1"}


def publish(api, node):
    """Publish a GPU of a node, as your driver does."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": [{"name": "gpu-0"}]}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-gpus"},
        "spec": spec,
    }
    api.create_cluster_custom_object(**GROUP, plural="resourceslices", body=body)


def test_a_pod_gets_the_device(drawbar_session_cluster):
    """A claim is allocated to the published device, and the pod goes to its node."""
    connection = config.new_client_from_config(str(drawbar_session_cluster.kubeconfig))
    objects, core = client.CustomObjectsApi(connection), client.CoreV1Api(connection)
    (node,) = drawbar_session_cluster.nodes
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    objects.create_cluster_custom_object(
        **GROUP,
        plural="deviceclasses",
        body={
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "gpu"},
            "spec": {"selectors": [selector]},
        },
    )
    publish(objects, node)
    objects.create_namespaced_custom_object(
        **GROUP,
        namespace="default",
        plural="resourceclaims",
        body={
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "one"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
        },
    )
    container = {"name": "main", "image": "pause", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {"containers": [container], "resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]}
    core.create_namespaced_pod("default", {"metadata": {"name": "pod"}, "spec": spec})

    deadline = time.monotonic() + 120
    while not (placed := core.read_namespaced_pod("pod", "default").spec.node_name):
        assert time.monotonic() < deadline, "the pod is on no node"
        time.sleep(0.1)
    assert placed == node
    claim = objects.get_namespaced_custom_object(
        **GROUP, namespace="default", plural="resourceclaims", name="one"
    )
    (device,) = claim["status"]["allocation"]["devices"]["results"]
    assert (device["driver"], device["pool"], device["device"]) == (DRIVER, node, "gpu-0")
