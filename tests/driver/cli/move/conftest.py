import pytest

from drawbar.driver.kube import client, kinds


@pytest.fixture
def with_pod(cluster):
    """Reserve the claim `train` for the pod train-0, which nothing makes again; return the cluster."""

    async def reserve(api):
        pod = await api.read(kinds.POD, "train-0", into=dict, namespace="default")
        consumer = {"resource": "pods", "name": "train-0", "uid": pod["metadata"]["uid"]}
        change = {"status": {"reservedFor": [consumer]}}
        await api.patch(
            kinds.CLAIM,
            "train",
            change,
            content=client.Patch.MERGE,
            into=dict,
            namespace="default",
            subresource="status",
        )

    cluster(reserve)
    return cluster
