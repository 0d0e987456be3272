"""A node of a site as the tests use it: node daemon and kubelet double over there, the API server double here.

What the tests leave attached, because one failed, is let go of at the end in the order of a release, never by force.
What cannot be is named.
"""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from lab import cluster, errors, waiting, worker

from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.kube import kinds
from field import configuration, fabric_devices, node, session

FOLDER = "/run/drawbar-hil.XXXXXX"


@contextlib.asynccontextmanager
async def running_node(
    site: configuration.Site, assigned: fabric_devices.Assigned, folder: Path, logs: Path
) -> AsyncIterator[worker.Worker]:
    """Start kubelet and daemon on the node, and yield it once it is ready.

    Args:
        site: what may be touched.
        assigned: what the running test may touch of it.
        folder: for kubeconfigs, here.
        logs: for the output of the other machine.

    Raises:
        errors.LabError: it does not become ready; or a device could not be detached at the end.
    """
    async with (
        session.fabric(site) as adapter,
        node.connecting(site.node, logs / f"{site.node.name}.agent.log") as reached,
        _folder(reached) as there,
        cluster.Cluster.running(folder) as belongs,
    ):
        plugs = fabric_devices.FabricDevices(adapter, site, await adapter.devices(), assigned)
        made = worker.Worker(reached, plugs, belongs, logs, node.layout(site.node, there))
        try:
            await made.start()
            yield made
            await _give_back(made, plugs, site)
        finally:
            await made.stop()


@contextlib.asynccontextmanager
async def _folder(reached: node.Node) -> AsyncIterator[str]:
    """Make a folder over there with a name of its own; delete it with its content at the end."""
    made = (await reached.output("mktemp", "-d", FOLDER)).strip()
    try:
        yield made
    finally:
        with contextlib.suppress(errors.LabError):
            await reached.run("rm", "-rf", "--one-file-system", made)


async def _give_back(
    made: worker.Worker, plugs: fabric_devices.FabricDevices, site: configuration.Site
) -> None:
    """End what a failed test has left, pods first, and detach the devices.

    Raises:
        errors.LabError: a device is still attached; names it.
    """
    api = made.cluster.api
    with contextlib.suppress(AssertionError):  # what does not end is named below
        for pod in (await api.list_all(kinds.POD, into=dict)).items:
            await made.cluster.end_pod(pod["metadata"]["name"])
        for claim in (await api.list_all(kinds.CLAIM, into=dict)).items:
            await made.cluster.deallocate(claim["metadata"]["name"])
        for attachment in (await api.list_all(kinds.ATTACHMENT, into=dict)).items:
            await _release(made.cluster, attachment["metadata"]["name"], site.detach_seconds)
        for device_id in await plugs.list_attached_devices():
            await plugs.detach(device_id)
    if left := await plugs.list_attached_devices():
        raise errors.LabError(
            f"still attached to {site.node.host}: {', '.join(left)}; power the slots off on {site.node.name}, and "
            "detach them by the fabric manager"
        )


async def _release(belongs: cluster.Cluster, name: str, seconds: float) -> None:
    with contextlib.suppress(kube_errors.NotFound):
        await belongs.api.delete(kinds.ATTACHMENT, name)

    async def is_released() -> bool:
        attachment = await belongs.read(kinds.ATTACHMENT, name) or {}
        conditions = attachment.get("status", {}).get("conditions", ())
        return not attachment or any(
            condition["type"] == "Released" and condition["status"] == "True" for condition in conditions
        )

    await waiting.until(is_released, seconds=seconds)
