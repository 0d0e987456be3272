import pytest

from drawbar.driver import main
from drawbar.driver.kube import client, kinds


@pytest.fixture
def move_command(capsys):
    """Runs `drawbar move` and returns its exit status, output and errors."""

    def run(*words):
        try:
            status = main.main(["move", *map(str, words)])
        except SystemExit as ended:
            status = ended.code
        printed = capsys.readouterr()
        assert "Traceback" not in printed.out + printed.err
        return status, printed.out, printed.err

    return run


@pytest.fixture
def with_pod(cluster):
    """The cluster, in which the pod train-0, that nothing makes again, uses the claim `train`."""

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
