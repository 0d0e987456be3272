"""The stage `restore`: etcd is put back to a backup while pods have devices, and resourceVersions go back.

Between backup and restore one pod goes and another comes, so the restored objects promise a device that the fabric has taken
away, and the fabric has connected a device that no object mentions. The kubelets are restarted, as Kubernetes asks for
(https://kubernetes.io/docs/tasks/administer-cluster/configure-upgrade-etcd/#restoring-an-etcd-cluster); they would miss deletions
otherwise. No process of Drawbar is.
"""

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from drawbar.driver.kube import kinds
from drawbar.mocks.fabric import journal
from realcluster import accidents, control_plane, errors, installation, kubelets, stages

DEVICES = 4
SETTLE_SECONDS = 390.0
"""As in the accidents: leases run out, and the scheduler looks again after 5 minutes at the latest."""
KEPT, DELETED, CREATED = "kept", "deleted-since", "created-since"


def run(context: stages.Context) -> stages.Outcome:
    """Back up, change, restore, and look whether all devices are free once all pods are gone."""
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(context.plane())
        nodes = [stack.enter_context(kubelets.Kubelet.running(plane, name)) for name in control_plane.NODES]
        try:
            asyncio.run(_restore(context, plane, nodes))
        except errors.RealClusterError as error:
            return stages.Outcome(failed=True, text=str(error))
    return stages.Outcome(text="a backup of etcd was restored: nothing lost, leaked or attached twice")


async def _restore(
    context: stages.Context, plane: control_plane.ControlPlane, nodes: Sequence[kubelets.Kubelet]
) -> None:
    folder = context.folder / "drawbar"
    folder.mkdir()
    backup = context.folder / "backup"
    async with installation.Installation.running(plane, nodes, folder, devices=DEVICES) as made:
        for pod in (KEPT, DELETED):
            await made.create_pod(pod, 1)
        await _wait_until_settled(made, KEPT, DELETED)
        await _without_control_plane(plane, lambda: shutil.copytree(plane.settings.etcd_data, backup))
        await _wait_until_settled(made, KEPT, DELETED)
        before = await _version(made)

        await made.delete_pod(DELETED)
        await made.create_pod(CREATED, 1)
        await _wait_until_settled(made, KEPT, CREATED)
        context.say(f"backup at resourceVersion {before}, restore at {await _version(made)}")

        await _without_control_plane(plane, lambda: _replace(plane, backup))
        for kubelet in nodes:
            kubelet.kill()
            kubelet.start()
        for pod in (KEPT, DELETED):
            await made.delete_pod(pod)
        await stages.settle(made.list_leftovers, SETTLE_SECONDS)
        await made.create_pod("after", 2)
        await _wait_until_settled(made, "after")
        await made.delete_pod("after")
        await stages.settle(made.list_leftovers, SETTLE_SECONDS)
        if problems := accidents.attached_twice(journal.read(made.journal)) + made.tracebacks():
            raise errors.RealClusterError("; ".join(problems))


async def _without_control_plane(plane: control_plane.ControlPlane, change: Callable[[], object]) -> None:
    for name in reversed(control_plane.COMPONENTS):
        plane.stop(name)
    change()
    for name in control_plane.COMPONENTS:
        plane.start(name)
        await asyncio.to_thread(plane.wait_ready, name)


def _replace(plane: control_plane.ControlPlane, backup: Path) -> None:
    shutil.rmtree(plane.settings.etcd_data)
    shutil.copytree(backup, plane.settings.etcd_data)


async def _version(made: installation.Installation) -> int:
    listing = await made.insist(lambda: made.api.list_all(kinds.FABRIC, into=dict))
    return int(listing.resource_version)


async def _wait_until_settled(made: installation.Installation, *alive: str) -> None:
    async def problems() -> list[str]:
        pods = {pod["metadata"]["name"]: pod for pod in await made.objects(kinds.POD)}
        waiting = [
            f"pod {name} does not run" for name in alive if installation.phase(pods.get(name)) != "Running"
        ]
        waiting += [f"pod {name} is still there" for name in pods if name not in alive]
        return waiting or await made.untrue()

    await stages.settle(problems, SETTLE_SECONDS)
