import asyncio
import functools

import pytest

from drawbar.driver import main
from drawbar.driver.api import attachments
from drawbar.driver.kube import client, config, kinds
from drawbar.mocks.cluster import deployment


@pytest.fixture(autouse=True)
def no_environment(monkeypatch, tmp_path):
    # pytest-xdist gives its workers a width.
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def run_verb(capsys):
    """Return a function; `run_verb(*words)` runs `drawbar` and returns its status, output and errors."""

    def run(*words):
        try:
            status = main.main([str(word) for word in words])
        except SystemExit as ended:
            status = ended.code
        printed = capsys.readouterr()
        assert "Traceback" not in printed.out + printed.err
        return status, printed.out, printed.err

    return run


def _command(verb):
    @pytest.fixture(name=f"{verb}_command")
    def command(run_verb):
        return functools.partial(run_verb, verb)

    return command


explain_command, maintenance_command, move_command, status_command, taint_command = map(
    _command, ("explain", "maintenance", "move", "status", "taint")
)


@pytest.fixture
def cluster(drawbar_apiserver, monkeypatch):
    """Return a function that runs coroutine functions with a client of a filled API server.

    The Fabric rack-1 has two devices; gpu-1 is ready on node-1 for the pod train-0. The claim `next` waits
    for the scheduler; the node's own device disk-9 is in use by the claim `local`.
    """
    monkeypatch.setenv("KUBECONFIG", str(drawbar_apiserver.kubeconfig))

    def call(function):
        async def work():
            async with client.connecting(config.from_kubeconfig(drawbar_apiserver.kubeconfig)) as api:
                return await function(api)

        return asyncio.run(work())

    call(_fill)
    call.server = drawbar_apiserver
    return call


async def _fill(api):
    await deployment.apply(api)
    connected = {
        "type": "Connected",
        "status": "True",
        "reason": "Connected",
        "message": "",
        "lastTransitionTime": STAMP,
    }
    await _create(api, kinds.NODE, "node-1", {"spec": {}})
    await _create(
        api,
        kinds.FABRIC,
        "rack-1",
        {"spec": {"adapter": "grpc", "endpoint": "unix:/run/f.sock"}},
        {"conditions": [connected], "devices": 2, "hosts": 1},
    )
    for pool, names, node_selection in (
        ("rack-1/enc-1", ("gpu-1", "gpu-2"), {"allNodes": True}),
        ("node-1", ("disk-9",), {"nodeName": "node-1"}),
    ):
        common = {"fabric": "rack-1", "enclosure": "enc-1", "class": "gpu", "model": "A100"}
        attributes = common if "/" in pool else {"class": "nvme"}
        devices = [
            {"name": name, "attributes": {key: {"string": content} for key, content in attributes.items()}}
            for name in names
        ]
        if "/" in pool:
            devices[1]["taints"] = [{"key": "drawbar.dev/maintenance", "effect": "NoSchedule"}]
        spec = {"driver": "drawbar.dev", "devices": devices, **node_selection}
        spec["pool"] = {"name": pool, "generation": 1, "resourceSliceCount": 1}
        await _create(api, kinds.SLICE, pool.replace("/", "-"), {"spec": spec})
    for name, pool, device in (
        ("train", "rack-1/enc-1", "gpu-1"),
        ("local", "node-1", "disk-9"),
        ("next", "", ""),
    ):
        requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.drawbar.dev"}}]
        await _create(
            api, kinds.CLAIM, name, {"spec": {"devices": {"requests": requests}}}, namespace="default"
        )
        if pool:
            result = {"request": "gpu", "driver": "drawbar.dev", "pool": pool, "device": device}
            field = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
            allocation = {
                "devices": {"results": [result]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            }
            consumer = {"resource": "pods", "name": f"{name}-0", "uid": f"u-{name}"}
            await _patch(
                api, kinds.CLAIM, name, {"allocation": allocation, "reservedFor": [consumer]}, "default"
            )
    spec = {
        "fabric": "rack-1",
        "deviceID": "gpu-1",
        "driver": "drawbar.dev",
        "pool": "rack-1/enc-1",
        "device": "gpu-1",
        "nodeName": "node-1",
        "hostID": "host-1",
        "model": "A100",
        "identity": {"deviceClass": "gpu", "serial": "S1"},
        "claim": {"namespace": "default", "name": "train", "uid": "u"},
    }
    conditions = [
        {"type": name, "status": "True", "reason": "Done", "message": "", "lastTransitionTime": STAMP}
        for name in ("Attached", "Visible")
    ]
    await _create(
        api,
        kinds.ATTACHMENT,
        "rack-1.gpu-1",
        {"spec": spec, "metadata": {"labels": {attachments.NODE_LABEL: "node-1"}}},
        {"phase": "Ready", "conditions": conditions},
    )
    pod = {
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "train"}],
        }
    }
    await _create(api, kinds.POD, "train-0", pod, namespace="default")


STAMP = "2026-01-01T00:00:00Z"


async def _create(api, kind, name, content, status=None, *, namespace=None):
    labels = content.get("metadata", {})
    body = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        **content,
        "metadata": {"name": name, **labels},
    }
    await api.create(kind, body, into=dict, namespace=namespace)
    if status is not None:
        await _patch(api, kind, name, status, namespace)


async def _patch(api, kind, name, status, namespace):
    await api.patch(
        kind,
        name,
        {"status": status},
        content=client.Patch.MERGE,
        into=dict,
        namespace=namespace,
        subresource="status",
    )
