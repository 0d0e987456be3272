"""Writes a plan into Fabrics, and waits until the controller has done what follows."""

import asyncio
import sys
from collections.abc import Iterable

from drawbar.driver import backoff, errors
from drawbar.driver.api import core, fabrics
from drawbar.driver.cli import progress
from drawbar.driver.cli.maintenance import plan
from drawbar.driver.cli.status import live, observed, reading, tree
from drawbar.driver.controller import names
from drawbar.driver.kube import client, kinds, mirror
from drawbar.driver.kube import errors as kube_errors

MANAGER = "drawbar-maintenance"
TAINT = "maintenance"
TRIES = 5
"""Against others who write the same Fabric at the same moment."""


async def read(
    api: client.Client, target: plan.Target, *, driver: str
) -> tuple[observed.Cluster, frozenset[str]]:
    """Return the cluster, and the labels of the node that is meant.

    Raises:
        Nothing: there is no such node.
    """
    async with progress.shown("reading the cluster"):
        cluster = await reading.read(api, reading.Target(), driver=driver)
        if cluster.unread:
            raise errors.DrawbarError(
                f"not everything can be read, so nothing was changed: {cluster.unread[0]}"
            )
        if target.kind != "node":
            return cluster, frozenset()
        try:
            node = await api.read(kinds.NODE, target.name, into=core.Node)
        except kube_errors.NotFound as error:
            raise plan.Nothing(f"there is no node {target.name}; kubectl get nodes lists them") from error
    return cluster, frozenset(node.metadata.labels)


async def write(api: client.Client, planned: plan.Plan) -> None:
    """Write each change; what was written before a failure is reported on stderr.

    Raises:
        errors.DrawbarError: a Fabric is refused, is gone, or is written by others all the time.
    """
    done: list[str] = []
    try:
        for change in planned.changes:
            await _write_one(api, change, planned.devices, on=planned.on)
            done.append(change.fabric)
    except BaseException:
        left = [change.fabric for change in planned.changes if change.fabric not in done]
        sys.stderr.write(
            f"changed: {', '.join(done) or 'no Fabric'}; not changed: {', '.join(left)}; give the command again for the rest\n"
        )
        raise


async def _write_one(
    api: client.Client, change: plan.Change, devices: Iterable[tree.Device], *, on: bool
) -> None:
    pauses = backoff.Backoff()
    for _ in range(TRIES):
        fabric = await api.read(kinds.FABRIC, change.fabric, into=fabrics.Fabric)
        body = {
            # So that an entry written at the same moment is not lost.
            "metadata": {"resourceVersion": fabric.metadata.resource_version},
            "spec": plan.spec(fabric, change, devices, on=on),
        }
        try:
            await api.patch(
                kinds.FABRIC,
                change.fabric,
                body,
                content=client.Patch.MERGE,
                into=fabrics.Fabric,
                manager=MANAGER,
            )
        except kube_errors.Conflict:
            await asyncio.sleep(pauses.failed())
        else:
            return
    raise errors.DrawbarError(
        f"Fabric {change.fabric} was written by others each of {TRIES} times; try again, or look who writes it: "
        f"kubectl get fabric {change.fabric} --show-managed-fields -o yaml"
    )


async def settle(api: client.Client, planned: plan.Plan, target: plan.Target, *, driver: str) -> None:
    """Wait until slices, or the node's labels, show the change."""
    wake = asyncio.Event()
    if target.kind != "node":
        async with (
            progress.shown("waiting until the controller has published it"),
            live.following(api, driver=driver, changed=lambda _old, _new: wake.set()) as cluster,
        ):
            while not plan.holds(planned, cluster.cluster(), f"{driver}/{TAINT}"):
                wake.clear()
                await wake.wait()
        return
    if not planned.on:
        # A full host, or one whose node daemon is silent, has no label either.
        return
    labels = {names.node_label(change.fabric) for change in planned.changes}
    node = mirror.Mirror(
        api,
        kinds.NODE,
        into=core.Node,
        fields=f"metadata.name={target.name}",
        changed=lambda _old, _new: wake.set(),
    )
    async with (
        progress.shown("waiting until the controller has taken the node's labels off"),
        asyncio.TaskGroup() as tasks,
    ):
        following = tasks.create_task(node.run(), name="node")
        await node.synced.wait()
        while (item := node.get(target.name)) is not None and labels & item.metadata.labels.keys():
            wake.clear()
            await wake.wait()
        following.cancel()
