"""Carries out a move, one step after the other; each says on stderr what it did when a later one fails."""

import asyncio
import contextlib
import sys
from collections.abc import Iterator

from drawbar.driver import backoff, errors
from drawbar.driver.api.claims import ResourceClaim
from drawbar.driver.cli import progress
from drawbar.driver.cli.maintenance import execution as maintenance
from drawbar.driver.cli.maintenance import plan as maintenance_plan
from drawbar.driver.cli.move import plan
from drawbar.driver.cli.status import observed, reading
from drawbar.driver.kube import client, kinds, mirror
from drawbar.driver.kube import errors as kube_errors

# For the target of a settled change; no device has such a name.
DEVICES = maintenance_plan.Target(kind="device", name="")


async def read(
    api: client.Client, namespace: str, name: str, *, driver: str
) -> tuple[observed.Cluster, ResourceClaim, tuple[plan.Pod, ...]]:
    """Return the cluster, the claim, and the pods of its namespace.

    Raises:
        errors.DrawbarError: there is no such claim, or something cannot be read.
    """
    async with progress.shown("reading the cluster"):
        try:
            claim = await api.read(kinds.CLAIM, name, into=ResourceClaim, namespace=namespace)
        except kube_errors.NotFound as error:
            raise maintenance_plan.Nothing(
                f"there is no ResourceClaim {name} in namespace {namespace}; -n names another namespace"
            ) from error
        cluster = await reading.read(api, reading.Target(), driver=driver)
        if cluster.unread:
            raise errors.DrawbarError(
                f"not everything can be read, so nothing was changed: {cluster.unread[0]}"
            )
        pods = await api.list_all(kinds.POD, into=plan.Pod, namespace=namespace)
    return cluster, claim, pods.items


class Mover:
    """One move, and how far it has come."""

    def __init__(self, api: client.Client, planned: plan.Move, namespace: str, *, driver: str) -> None:
        self._api = api
        self._planned = planned
        self._namespace = namespace
        self._driver = driver
        self._evicted: list[str] = []
        self._is_begun = False
        self._refused = ""

    @property
    def undone(self) -> str:
        """What stays as it is now, and how that is ended; empty where nothing was changed."""
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
        """Move; `before` are the uids of the pods that are there now.

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

    async def _evict(self, pod: plan.Pod) -> None:
        """Ask for the eviction until its disruption budget allows it."""
        name = pod.metadata.name
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": self._namespace},
            "deleteOptions": {"preconditions": {"uid": pod.metadata.uid}},
        }
        path = kinds.POD.path(namespace=self._namespace, name=name, subresource="eviction")
        async with progress.shown(f"evicting pod {name}"):
            # Another pod may have that name by now, or none.
            with contextlib.suppress(kube_errors.NotFound, kube_errors.Conflict):
                loop = backoff.repeating(kube_errors.Throttled, noted=self._note_refusal)
                await loop(self._api.request, "POST", path, body=body)
                self._refused = ""

    def _note_refusal(self, error: Exception) -> None:
        self._refused = f"the API server refuses it: {error}"

    async def _follow(self, before: frozenset[str]) -> None:
        """Wait until each evicted pod is gone, and has one in its place that runs."""
        wake = asyncio.Event()
        pods = mirror.Mirror(
            self._api,
            kinds.POD,
            into=plan.Pod,
            namespace=self._namespace,
            changed=lambda _old, _new: wake.set(),
        )
        gone = {pod.metadata.uid for pod in self._planned.pods}
        async with (
            progress.shown("waiting until the pods that take their place run"),
            asyncio.TaskGroup() as tasks,
        ):
            following = tasks.create_task(pods.run(), name="pods")
            await pods.synced.wait()
            while plan.missing(self._planned, before, pods) or any(pod.metadata.uid in gone for pod in pods):
                wake.clear()
                await wake.wait()
            following.cancel()


@contextlib.contextmanager
def said(mover: Mover) -> Iterator[None]:
    """`with`: report on stderr how far it has come, where it does not come to its end."""
    try:
        yield
    except BaseException:
        if mover.undone:
            sys.stderr.write(f"{mover.undone}\n")
        raise
