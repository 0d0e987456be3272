"""The pools are looked at again though nothing changed, over hours in virtual time."""

import asyncio
import contextlib
import itertools
import types

from drawbar.driver import containment
from drawbar.driver.api import attachments, claims, core, fabrics, slices
from drawbar.driver.controller import attachment_index, fabric_reconciler, jobs, maintenance, refusals
from drawbar.driver.controller import claims as claims_index
from drawbar.driver.controller.fabrics import sessions
from drawbar.driver.controller.pools import publisher
from drawbar.driver.kube import client, config, kinds, mirror
from drawbar.driver.operation import readiness
from drawbar.fabric import registry
from drawbar.mocks import apiserver
from drawbar.mocks.cluster import deployment
from drawbar.mocks.testing import virtualtime

HOURS = 3
FABRICS = 8
# One round of a pool and the next are at most five minutes apart, and at least four.
RESYNC_SECONDS = (240.0, 300.0)
# What a round itself takes, its probe among it.
SLACK_SECONDS = 1.0


class Rounds(readiness.Watchdog):
    """When each chore was begun, by its name."""

    def __init__(self, loop):
        super().__init__()
        self.loop, self.begun = loop, {}

    def watching(self, what, **limits):
        self.begun.setdefault(what, []).append(self.loop.time())
        return super().watching(what, **limits)


def ignore_change(*_):
    """Ignore the change."""


async def resyncs(loop, path):
    """Return by Fabric the times at which its pools were looked at during `HOURS`."""
    rounds = Rounds(loop)
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(apiserver.serving())
        kubeconfig = server.kubeconfig(path / "admin", "admin")
        api = await stack.enter_async_context(client.connecting(config.from_kubeconfig(kubeconfig)))
        await deployment.apply(api)
        for number in range(FABRICS):
            body = {
                "apiVersion": "drawbar.dev/v1alpha1",
                "kind": "Fabric",
                "metadata": {"name": f"f{number}"},
                "spec": {"adapter": "grpc", "endpoint": "unix:/absent"},
            }
            await api.create(kinds.FABRIC, body, into=dict)
        mirrors = {
            name: mirror.Mirror(api, kind, into=into, changed=ignore_change)
            for name, kind, into in (
                ("fabrics", kinds.FABRIC, fabrics.Fabric),
                ("attachments", kinds.ATTACHMENT, attachments.DeviceAttachment),
                ("claims", kinds.CLAIM, claims.ResourceClaim),
                ("nodes", kinds.NODE, core.Node),
                ("slices", kinds.SLICE, slices.ResourceSlice),
            )
        }
        sources = publisher.Sources(
            fabrics=mirrors["fabrics"],
            sessions=sessions.Sessions(registry.adapter_class),
            placed=attachment_index.Index(),
            allocated=claims_index.Index("drawbar.dev", loop.now),
            maintenance=maintenance.Index(),
        )
        pools = publisher.Publisher(
            api,
            driver="drawbar.dev",
            published=mirrors["slices"],
            sources=sources,
            clock=loop.now,
            time_of_day=loop.now,
        )
        cluster = types.SimpleNamespace(
            **mirrors,
            driver="drawbar.dev",
            clock=loop.now,
            time_of_day=loop.now,
            placed=sources.placed,
            allocated=sources.allocated,
            maintenance=sources.maintenance,
            sessions=sources.sessions,
            pools=pools,
            refusals=refusals.Refusals(lambda fabric: None),
            contained=containment.Uncontained(),
        )
        queue = jobs.Jobs(cluster.nodes, cluster.sessions)
        done = fabric_reconciler.FabricReconciler(cluster, queue, rounds, lambda change: None)
        tasks = [loop.create_task(mirror.run()) for mirror in mirrors.values()]
        tasks.append(loop.create_task(done.work()))
        for watched in mirrors.values():
            await watched.synced.wait()
        for fabric in mirrors["fabrics"]:
            queue.add(jobs.Job.PUBLISH, fabric.metadata.name)
        await asyncio.sleep(HOURS * 3600)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return {what: begun for what, begun in rounds.begun.items() if what.startswith("publish ")}


def test_the_pools_of_each_fabric_are_looked_at_every_five_minutes_and_not_all_together(tmp_path):
    loop = virtualtime.VirtualTimeLoop()
    try:
        starts = loop.run_until_complete(resyncs(loop, tmp_path))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
    assert len(starts) == FABRICS
    shortest, longest = RESYNC_SECONDS
    for begun in starts.values():
        pauses = [later - earlier for earlier, later in itertools.pairwise(begun)]
        assert len(pauses) >= HOURS * 3600 / longest - 1
        assert all(shortest <= pause <= longest + SLACK_SECONDS for pause in pauses)
        assert max(pauses) - min(pauses) > (longest - shortest) / 4
    # They began together, and an hour later they do not: no two of them within the same second.
    after_an_hour = sorted(next(moment for moment in begun if moment > 3600) for begun in starts.values())
    assert after_an_hour[-1] - after_an_hour[0] > (longest - shortest) / 4
