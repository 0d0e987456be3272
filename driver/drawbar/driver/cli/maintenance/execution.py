"""Write a plan into Maintenances, and wait until the controller has acted on it."""

import asyncio
import sys

from drawbar.driver import backoff, errors
from drawbar.driver.api import core, maintenances, taintrules
from drawbar.driver.catalogue import taints
from drawbar.driver.cli import identity, objects, progress
from drawbar.driver.cli.maintenance import entries
from drawbar.driver.cli.status import live, observed, reading
from drawbar.driver.controller import names
from drawbar.driver.kube import client, kinds, mirror
from drawbar.driver.kube import errors as kube_errors

MANAGER = "drawbar-maintenance"
TRIES = 5
"""The most attempts against simultaneous writes of the same Maintenance."""


async def read(
    api: client.Client, target: objects.Target, *, driver: str
) -> tuple[observed.Cluster, frozenset[str]]:
    """Return the cluster, and the labels of the target node.

    Raises:
        Nothing: there is no such node.
    """
    async with progress.show_activity("reading the cluster"):
        cluster = await reading.read_devices(api, driver=driver)
        if target.kind != "node":
            return cluster, frozenset()
        try:
            node = await api.read(kinds.NODE, target.name, into=core.Node)
        except kube_errors.NotFound as error:
            raise entries.Nothing(f"there is no node {target.name}; kubectl get nodes lists them") from error
    return cluster, frozenset(node.metadata.labels)


async def write(api: client.Client, planned: entries.Plan, *, dry_run: bool = False) -> None:
    """Write each change, or have the API server check it; report the earlier writes on stderr after a failure.

    Raises:
        errors.DrawbarError: a Maintenance is refused, or others change it at every attempt.
    """
    done: list[str] = []
    try:
        for change in planned.changes:
            await _write_one(api, planned, change, dry_run=dry_run)
            done.append(change.fabric)
    except BaseException:
        left = [change.fabric for change in planned.changes if change.fabric not in done]
        if done:
            sys.stderr.write(
                f"changed: {', '.join(done)}; not changed: {', '.join(left)}; give the command again for the rest\n"
            )
        raise


async def _write_one(
    api: client.Client, planned: entries.Plan, change: entries.Change, *, dry_run: bool
) -> None:
    try:
        async for attempt in backoff.build_retrying(kube_errors.Conflict, kube_errors.NotFound, tries=TRIES):
            with attempt:
                listed = await api.list_all(kinds.MAINTENANCE, into=maintenances.Maintenance)
                for write in entries.writes(planned, change, listed.items):
                    await _write_object(api, write, dry_run=dry_run)
    except (kube_errors.Conflict, kube_errors.NotFound) as error:
        raise errors.DrawbarError(
            f"a Maintenance of Fabric {change.fabric} was written by others each of {TRIES} times; try again, or look who "
            "writes it: kubectl get maintenances --show-managed-fields -o yaml"
        ) from error


async def _write_object(api: client.Client, write: entries.Write, *, dry_run: bool) -> None:
    if write.spec is None and write.before is not None:
        if dry_run:
            return
        metadata = write.before.metadata
        await api.delete(
            kinds.MAINTENANCE, write.name, uid=metadata.uid, resource_version=metadata.resource_version
        )
        return
    body = entries.document(write)
    if write.before is None:
        body["metadata"]["annotations"] = {taintrules.CREATED_BY_ANNOTATION: await identity.user(api)}
        await api.create(kinds.MAINTENANCE, body, into=maintenances.Maintenance, dry_run=dry_run)
        return
    await api.patch(
        kinds.MAINTENANCE,
        write.name,
        body,
        content=client.Patch.MERGE,
        into=maintenances.Maintenance,
        manager=MANAGER,
        dry_run=dry_run,
    )


async def settle(api: client.Client, planned: entries.Plan, target: objects.Target, *, driver: str) -> None:
    """Wait until slices, or the node's labels, show the change."""
    wake = asyncio.Event()
    if target.kind != "node":
        async with (
            progress.show_activity("waiting until the controller has published it"),
            live.following(api, driver=driver, changed=lambda _old, _new: wake.set()) as cluster,
        ):
            while not entries.holds(planned, cluster.cluster(), f"{driver}/{taints.MAINTENANCE.key}"):
                wake.clear()
                await wake.wait()
        return
    if not planned.on:
        # A full host, or one with a silent node daemon, has no label either.
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
        progress.show_activity("waiting until the controller has taken the node's labels off"),
        asyncio.TaskGroup() as tasks,
    ):
        following = tasks.create_task(node.run(), name="node")
        await node.synced.wait()
        while (item := node.get(target.name)) is not None and labels & item.metadata.labels.keys():
            wake.clear()
            await wake.wait()
        following.cancel()
