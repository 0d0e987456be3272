import asyncio

import pytest

from drawbar.driver.kube import client, config, kinds


@pytest.fixture
def cluster(drawbar_apiserver, monkeypatch):
    """Return a function that runs coroutine functions with a client of a filled API server.

    The server has the devices gpu-1 and gpu-2 of one enclosure, and one device of another driver.
    gpu-1 has the claim `train` of the pod `train-0`, whose eviction nothing carries out here.
    """
    monkeypatch.setenv("KUBECONFIG", str(drawbar_apiserver.kubeconfig))

    def call(function):
        async def work():
            async with client.connecting(config.from_kubeconfig(drawbar_apiserver.kubeconfig)) as api:
                return await function(api)

        return asyncio.run(work())

    async def fill(api):
        for driver, pool, devices in (
            ("drawbar.dev", "rack-1/enc-1", ("gpu-1", "gpu-2")),
            ("gpu.example.com", "node-1", ("gpu-9",)),
        ):
            spec = {
                "driver": driver,
                "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
                "allNodes": True,
                "devices": [{"name": name} for name in devices],
            }
            body = {"metadata": {"name": driver}, "spec": spec}
            await api.create(kinds.SLICE, _body(kinds.SLICE, body), into=dict)
        requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.drawbar.dev"}}]
        body = {"metadata": {"name": "train"}, "spec": {"devices": {"requests": requests}}}
        await api.create(kinds.CLAIM, _body(kinds.CLAIM, body), into=dict, namespace="default")
        result = {"request": "gpu", "driver": "drawbar.dev", "pool": "rack-1/enc-1", "device": "gpu-1"}
        status = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": "train-0", "uid": "u-0"}],
        }
        await api.patch(
            kinds.CLAIM,
            "train",
            {"status": status},
            content=client.Patch.MERGE,
            into=dict,
            namespace="default",
            subresource="status",
        )

    call(fill)
    return call


def _body(kind, content):
    return {"apiVersion": kind.api_version, "kind": kind.kind, **content}
