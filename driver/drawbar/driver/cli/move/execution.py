"""The execution of a move, step by step; if a step fails, stderr names the earlier ones."""

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from drawbar.driver import backoff
from drawbar.driver.api.claims import ResourceClaim
from drawbar.driver.cli import objects, progress
from drawbar.driver.cli.maintenance import entries
from drawbar.driver.cli.maintenance import execution as maintenance
from drawbar.driver.cli.move import claim_moves
from drawbar.driver.cli.status import observed, reading
from drawbar.driver.kube import client, kinds, mirror
from drawbar.driver.kube import errors as kube_errors

# The target whose change is settled.
DEVICES = objects.Target(kind="device")


async def read(
    api: client.Client, target: objects.Target, *, driver: str
) -> tuple[observed.Cluster, tuple[ResourceClaim, ...], tuple[claim_moves.Pod, ...]]:
    """Return the cluster, the claims to move, and the pods of their namespace.

    Args:
        api: the cluster's API server.
        target: a claim, or a pod whose claims are moved.
        driver: the DRA driver's name.

    Raises:
        errors.DrawbarError: there is no such object, or something cannot be read.
    """
    namespace = target.namespace
    async with progress.show_activity("reading the cluster"):
        names: tuple[str, ...] = (target.name,)
        try:
            if target.kind == "pod":
                pod = await api.read(kinds.POD, target.name, into=observed.Pod, namespace=namespace)
                names = pod.claim_names
            moved = [
                await api.read(kinds.CLAIM, name, into=ResourceClaim, namespace=namespace) for name in names
            ]
        except kube_errors.NotFound as error:
            what = "pod" if target.kind == "pod" else "ResourceClaim"
            raise entries.Nothing(
                f"there is no {what} {target.name} in namespace {namespace}; -n names another namespace"
            ) from error
        if target.kind == "pod":
            moved = [claim for claim in moved if claim.results(driver)]
        cluster = await reading.read_devices(api, driver=driver)
        pods = await api.list_all(kinds.POD, into=claim_moves.Pod, namespace=namespace)
    return cluster, tuple(moved), pods.items


class Mover:
    """One move and its progress."""

    def __init__(self, api: client.Client, planned: claim_moves.Move, namespace: str, *, driver: str) -> None:
        self._api = api
        self._planned = planned
        self._namespace = namespace
        self._driver = driver
        self._evicted: list[str] = []
        self._is_begun = False
        self._refused = ""
        self.successors: tuple[str, ...] = ()
        """The running successors of the evicted pods, once the move is done."""

    async def try_out(self) -> None:
        """Have the API server check each step; nothing is stored.

        Raises:
            errors.DrawbarError: a step is refused.
        """
        await maintenance.write(self._api, self._planned.change, dry_run=True)
        for pod in self._planned.pods:
            body = self._eviction(pod) | {"deleteOptions": {"dryRun": ["All"]}}
            await self._api.request("POST", self._path(pod), {"dryRun": "All"}, body=body)

    @property
    def undone(self) -> str:
        """Return the changes of a failed move, and how to undo them; empty if nothing was changed."""
        if not self._is_begun:
            return ""
        left = [pod.metadata.name for pod in self._planned.pods if pod.metadata.name not in self._evicted]
        sentences = [f"evicted: {', '.join(self._evicted) or 'no pod'}"]
        if left:
            sentences.append(
                f"not evicted: {', '.join(left)}" + (f" ({self._refused})" if self._refused else "")
            )
        named = [name for change in self._planned.change.changes for name in sorted(change.devices)]
        if named:
            commands = "; ".join(f"drawbar maintenance off device/{name}" for name in named)
            sentences.append(f"in maintenance until it is taken out: {commands}")
        return "; ".join(sentences)

    async def run(self, before: frozenset[str]) -> None:
        """Move the claims; `before` are the UIDs of the pods that exist now.

        Raises:
            errors.DrawbarError: a step is refused, or the API server is not reached.
        """
        planned = self._planned
        if planned.change.changes:
            await maintenance.write(self._api, planned.change)
        self._is_begun = True
        await maintenance.settle(self._api, planned.change, DEVICES, driver=self._driver)
        for pod in planned.pods:
            await self._evict(pod)
            self._evicted.append(pod.metadata.name)
        await self._follow(before)
        if planned.change.changes:
            await maintenance.write(self._api, planned.back)
        self._is_begun = False

    async def _evict(self, pod: claim_moves.Pod) -> None:
        """Request the eviction until the pod's disruption budget allows it."""
        name, path, body = pod.metadata.name, self._path(pod), self._eviction(pod)
        async with progress.show_activity(f"evicting pod {name}"):
            # Another pod may have the name by now, or none.
            with contextlib.suppress(kube_errors.NotFound, kube_errors.Conflict):
                loop = backoff.build_retrying(kube_errors.Throttled, noted=self._note_refusal)
                await loop(self._api.request, "POST", path, body=body)
                self._refused = ""

    def _path(self, pod: claim_moves.Pod) -> str:
        return kinds.POD.path(namespace=self._namespace, name=pod.metadata.name, subresource="eviction")

    def _eviction(self, pod: claim_moves.Pod) -> dict[str, Any]:
        return {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.metadata.name, "namespace": self._namespace},
            "deleteOptions": {"preconditions": {"uid": pod.metadata.uid}},
        }

    def _note_refusal(self, error: Exception) -> None:
        self._refused = f"the API server refuses it: {error}"

    async def _follow(self, before: frozenset[str]) -> None:
        """Wait until each evicted pod is gone and has a running successor."""
        wake = asyncio.Event()
        pods = mirror.Mirror(
            self._api,
            kinds.POD,
            into=claim_moves.Pod,
            namespace=self._namespace,
            changed=lambda _old, _new: wake.set(),
        )
        gone = {pod.metadata.uid for pod in self._planned.pods}
        async with (
            progress.show_activity("waiting until the pods that take their place run"),
            asyncio.TaskGroup() as tasks,
        ):
            following = tasks.create_task(pods.run(), name="pods")
            await pods.synced.wait()
            while claim_moves.count_missing(self._planned, before, pods) or any(
                pod.metadata.uid in gone for pod in pods
            ):
                wake.clear()
                await wake.wait()
            self.successors = claim_moves.successors(self._planned, before, pods)
            following.cancel()


@contextlib.contextmanager
def reporting(mover: Mover) -> Iterator[None]:
    """Report the remaining changes on stderr if the block fails."""
    try:
        yield
    except BaseException:
        if mover.undone:
            sys.stderr.write(f"{mover.undone}\n")
        raise
