"""The kubelet double of one node: the life of each pod.

A start prepares the pod's devices, makes a sandbox and its containers (only their runtime specs), and reports Running.
A deletion ends the containers within the grace period, unprepares, reports their end, and removes the object. A
finished pod is unprepared. A removal by force (grace period 0) does the same without the object. Each failure to start
is an Event; each failure is tried again with growing pauses.

Prepare is called only for a new sandbox. A restarted kubelet does not call it for pods with a sandbox. A loop
unprepares claims of pods that disappeared while the kubelet was down.

Limits: no images, networks, probes, order of init containers, container exits (a test writes a finished pod's phase
itself), eviction or static pods.
"""

import asyncio
import datetime
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from drawbar.mocks.claims import documents, events
from drawbar.mocks.kube import client, kinds, meta, mirror, workqueue
from drawbar.mocks.kube import errors as kube_errors
from drawbar.mocks.kubelet import (
    claiminfo,
    errors,
    health,
    node,
    plugins,
    preparation,
    runtime,
    sandboxes,
    settings,
    statuses,
    versions,
)

log = logging.getLogger(__name__)

WORKERS = 8
# The grace period of containers after a removal by force.
FORCED_GRACE_SECONDS = 2.0
WorkKey = tuple[str, str, str]


class Kubelet:
    """The kubelet of one node. Make it with `server.serving`.

    Attributes:
        spec: the node's description.
        plugins: the registered plugins.
        sandboxes: the containers' runtime specs.
    """

    def __init__(
        self,
        api: client.Client,
        spec: node.NodeSpec,
        *,
        held: plugins.Plugins,
        infos: claiminfo.ClaimInfos,
        healths: health.Healths,
        times: settings.Settings,
        clock: Callable[[], datetime.datetime],
    ) -> None:
        self.spec = spec
        self.plugins = held
        self.sandboxes = sandboxes.Sandboxes(spec.pods)
        self._api = api
        self._times = times
        self._clock = clock
        self._events = events.Recorder(api, component="kubelet", clock=clock)
        self._infos = infos
        self._look = healths.look if versions.watches_health(times.release) else None
        self._preparer = preparation.Preparer(api, held=held, infos=infos, times=times)
        self._queue: workqueue.WorkQueue[WorkKey] = workqueue.WorkQueue()
        self._failures: dict[WorkKey, int] = {}
        self._worked = asyncio.Event()
        # The end of each pod's containers, in the loop's time.
        self._ends: dict[str, float] = {}
        self._pods = mirror.Mirror(
            api,
            kinds.POD,
            into=documents.Document,
            changed=self._pod_changed,
            fields=f"spec.nodeName={spec.name}",
        )

    async def follow(self) -> None:
        """Follow the list of pods until cancelled."""
        await self._pods.run()

    async def wait_until_listed(self) -> None:
        """Return once the first list of pods is in."""
        await self._pods.synced.wait()

    async def run(self) -> None:
        """Work on pods until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(WORKERS):
                    work = self._queue.run(self._sync_again)
                    group.create_task(work, name=f"kubelet-worker-{self.spec.name}-{number}")
                group.create_task(self._resync(), name=f"kubelet-resync-{self.spec.name}")
                group.create_task(self._reconcile(), name=f"kubelet-reconcile-{self.spec.name}")
        finally:
            self._queue.close()

    async def wait_for_sync(self) -> None:
        """Return after the next sync of a pod; to wait for a change of `sandboxes`."""
        await self._worked.wait()

    def health_changed(self, driver: str, devices: set[health.DeviceKey]) -> None:
        """Sync the pods that use one of these devices."""
        affected = {
            uid
            for info in self._infos
            for device in info.devices
            if device.driver == driver and (device.pool, device.device) in devices
            for uid in info.pods
        }
        self._enqueue(affected)

    def kill_sandbox(self, pod_uid: str) -> None:
        """Remove a pod's sandbox, as if its pause process died; a new one is made at once."""
        self.sandboxes.kill(pod_uid)
        self._enqueue({pod_uid})

    def _enqueue(self, uids: set[str]) -> None:
        for pod in self._pods:
            if pod.metadata.uid in uids:
                self._queue.add((*pod.key, pod.metadata.uid))

    def _pod_changed(self, old: documents.Document | None, new: documents.Document | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._queue.add((*old.key, old.metadata.uid))
        if new is not None:
            self._queue.add((*new.key, new.metadata.uid))

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(self._times.resync_seconds)
            for pod in self._pods:
                self._queue.add((*pod.key, pod.metadata.uid))

    async def _reconcile(self) -> None:
        """Unprepare the claims of missing and finished pods."""
        while True:
            await asyncio.sleep(self._times.unprepare_seconds)
            active = {pod.metadata.uid for pod in self._pods if not documents.is_finished(pod)}
            for uid in self._infos.pods() - active:
                self._queue.add(("", "", uid))

    async def _sync_again(self, key: WorkKey) -> float | None:
        """Bring one pod to its state; after a failure return the seconds until the next attempt."""
        try:
            await self._sync(key)
        except (errors.KubeletError, kube_errors.KubeError) as error:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            log.info("pod sync failed", extra={"pod": key, "reason": str(error)})
            return self._times.pause_seconds(failures)
        else:
            self._failures.pop(key, None)
            return None
        finally:
            self._worked.set()
            self._worked = asyncio.Event()

    async def _sync(self, key: WorkKey) -> None:
        namespace, name, uid = key
        pod = self._pods.get(name, namespace)
        if pod is None or pod.metadata.uid != uid:
            await self._forget(key)
        elif documents.is_deleting(pod):
            await self._terminate(pod, key)
        elif documents.is_finished(pod):
            self.sandboxes.kill(uid)
            await self._preparer.unprepare(uid)
        elif not self.sandboxes.exists(uid) or self.sandboxes.list_missing_containers(pod):
            await self._start(pod)
        elif pod.status.get("phase") != "Running":
            await self._report_running(pod)
        else:
            await self._report_health(pod)

    async def _start(self, pod: documents.Document) -> None:
        uid = pod.metadata.uid
        try:
            if not self.sandboxes.exists(uid):
                await self._preparer.prepare(pod)
                self.sandboxes.make(uid)
            self._run_containers(pod)
        except errors.PrepareError as error:
            note = f"Failed to prepare dynamic resources: prepare dynamic resources: {error}"
            await self._warn(pod, "FailedPrepareDynamicResources", note)
            raise
        except errors.RuntimeFailure as error:
            await self._warn(pod, "Failed", f"Error: {error}")
            raise
        await self._annotate(pod)
        await self._report_running(pod)
        log.info("pod runs", extra={"pod": pod.full_name, "node": self.spec.name})

    def _run_containers(self, pod: documents.Document) -> None:
        """Run the missing containers. A container that cannot be made blocks the later ones."""
        claims = self._preparer.claims(pod)
        for container in self.sandboxes.list_missing_containers(pod):
            spec = runtime.create(
                container,
                statuses.cdi_ids(pod, container, claims),
                directories=self.spec.cdi_directories,
                check_device_nodes=self._times.check_device_nodes,
            )
            self.sandboxes.run(pod, container["name"], spec)

    async def _terminate(self, pod: documents.Document, key: WorkKey) -> None:
        uid = pod.metadata.uid
        had_containers = self.sandboxes.exists(uid)
        if not self._have_ended(key, float(pod.metadata.deletion_grace_period_seconds or 0)):
            return
        # Before the report of the containers' end, because afterwards the devices may be allocated again.
        await self._preparer.unprepare(uid)
        if had_containers or pod.status.get("phase") == "Running":
            ended = statuses.make_ended_status(pod, meta.timestamp(self._clock()))
            await self._unless_gone(self._patch(pod, {"status": ended}, subresource="status"))
        await self._unless_gone(self._remove(pod))
        self.sandboxes.remove(uid)

    async def _forget(self, key: WorkKey) -> None:
        """Clean up after a pod without an object."""
        uid = key[2]
        if self._have_ended(key, FORCED_GRACE_SECONDS):
            await self._preparer.unprepare(uid)
            self.sandboxes.remove(uid)

    def _have_ended(self, key: WorkKey, grace_seconds: float) -> bool:
        """Return true if the pod's containers have ended; otherwise end them, and sync the pod again later."""
        uid = key[2]
        if not self.sandboxes.exists(uid):
            return True
        now = asyncio.get_running_loop().time()
        ends = min(self._ends.get(uid, float("inf")), now + min(self._times.stop_seconds, grace_seconds))
        if now < ends:
            self._ends[uid] = ends
            self._queue.add_after(key, ends - now)
            return False
        self._ends.pop(uid, None)
        self.sandboxes.kill(uid)
        return True

    async def _annotate(self, pod: documents.Document) -> None:
        prepared = statuses.make_prepared_annotation(self._preparer.claims(pod))
        if prepared is not None:
            annotations = {statuses.PREPARED_ANNOTATION: prepared}
            await self._patch(pod, {"metadata": {"annotations": annotations}})

    async def _report_running(self, pod: documents.Document) -> None:
        now = meta.timestamp(self._clock())
        status = statuses.make_running_status(pod, self._preparer.claims(pod), self._look, now)
        await self._patch(pod, {"status": status}, subresource="status")

    async def _report_health(self, pod: documents.Document) -> None:
        if self._look is None:
            return
        reported = list(pod.status.get("containerStatuses") or ())
        fresh = statuses.with_health(pod, reported, self._preparer.claims(pod), self._look)
        if fresh != reported:
            await self._patch(pod, {"status": {"containerStatuses": fresh}}, subresource="status")

    async def _patch(
        self, pod: documents.Document, body: dict[str, Any], *, subresource: str | None = None
    ) -> None:
        # The uid protects another pod of the same name from the write.
        metadata = {**body.get("metadata", {}), "uid": pod.metadata.uid}
        written = await self._api.patch(
            kinds.POD,
            pod.metadata.name,
            {**body, "metadata": metadata},
            content=client.Patch.MERGE,
            into=documents.Document,
            namespace=pod.metadata.namespace,
            subresource=subresource,
        )
        self._pods.learn(written)

    async def _remove(self, pod: documents.Document) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": pod.metadata.uid},
        }
        path = kinds.POD.path(namespace=pod.metadata.namespace, name=pod.metadata.name)
        await self._api.request("DELETE", path, body=body)

    async def _unless_gone(self, write: Awaitable[None]) -> None:
        try:
            await write
        except (kube_errors.NotFound, kube_errors.Conflict):
            # The pod is gone, or another pod has its name.
            return

    async def _warn(self, pod: documents.Document, reason: str, note: str) -> None:
        await self._events.record(pod, kind="Pod", reason=reason, note=note, action="Starting", warning=True)
