"""What the controller writes of a new Fabric."""

import asyncio

from drawbar.driver.api import fabrics
from drawbar.driver.kube import kinds


def test_a_new_fabric_gets_its_finalizer_and_its_status_without_a_conflict(in_storm):
    async def steps(storm):
        for name in ("g", "h", "i"):
            body = {
                "apiVersion": "drawbar.dev/v1alpha1",
                "kind": "Fabric",
                "metadata": {"name": name},
                "spec": {"adapter": "fused", "endpoint": "here"},
            }
            await storm.api.create(kinds.FABRIC, body, into=dict)
        await asyncio.sleep(10)
        for name in ("f", "g", "h", "i"):
            fabric = await storm.api.read(kinds.FABRIC, name, into=dict)
            assert fabric["metadata"]["finalizers"] == [fabrics.FINALIZER]
        refused = [
            write for write in storm.server.writes if write.resource == "fabrics" and write.code >= 400
        ]
        assert refused == []

    in_storm(steps)
