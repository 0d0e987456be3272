"""The kubelet double at work, for any number of nodes in one process.

A pod of a node goes: prepare its devices, make its containers (only their runtime specs), say Running; when it is being
deleted or has finished: unprepare; when it was deleted: remove the object. Each failure is an event and a retry.

Not emulated: images, networks, probes, init containers, container exits, the health stream, the wiping of
ResourceSlices, graceful termination time.
"""

import asyncio
import datetime
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from drawbar.driver.api import meta
from drawbar.driver.kube import client, config, kinds, queue, reflector
from drawbar.driver.kube import errors as kube_errors
from drawbar.mocks.claims import documents, events
from drawbar.mocks.kubelet import claiminfo, errors, node, plugins, preparation, runtime, settings

log = logging.getLogger(__name__)

PREPARED_ANNOTATION = "mocks.drawbar.dev/prepared"
WORKERS = 8
WorkKey = tuple[str, str, str]


def utc_now() -> datetime.datetime:
    """The time of day, in UTC."""
    return datetime.datetime.now(datetime.UTC)


class Kubelet:
    """One node. Make it with `serving`."""

    def __init__(
        self,
        api: client.Client,
        spec: node.NodeSpec,
        *,
        watcher: plugins.PluginWatcher,
        times: settings.Settings,
        clock: Callable[[], datetime.datetime],
    ) -> None:
        self.spec = spec
        self.plugins = watcher
        self._api = api
        self._times = times
        self._clock = clock
        self._events = events.Recorder(api, component="kubelet", clock=clock)
        self._infos = claiminfo.ClaimInfos(spec.pods)
        self._preparer = preparation.Preparer(api, watcher=watcher, infos=self._infos, times=times)
        self._queue: queue.WorkQueue[WorkKey] = queue.WorkQueue()
        self._failures: dict[WorkKey, int] = {}
        self._pods = reflector.Reflector(
            api,
            kinds.POD,
            into=documents.Document,
            changed=self._pod_changed,
            fields=f"spec.nodeName={spec.name}",
        )

    async def run(self, ready: asyncio.Event) -> None:
        """Works until cancelled; sets `ready` when the first list of pods is in."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pods.run(), name=f"kubelet-pods-{self.spec.name}")
                await self._pods.synced.wait()
                present = {pod.metadata.uid for pod in self._pods}
                for uid in self._infos.pods() - present:
                    self._queue.add(("", "", uid))
                ready.set()
                for number in range(WORKERS):
                    group.create_task(self._work(), name=f"kubelet-worker-{self.spec.name}-{number}")
        finally:
            self._queue.close()

    def _pod_changed(self, old: documents.Document | None, new: documents.Document | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._queue.add((*old.key, old.metadata.uid))
        if new is not None:
            self._queue.add((*new.key, new.metadata.uid))

    async def _work(self) -> None:
        while True:
            key = await self._queue.take()
            try:
                await self._sync(key)
                self._failures.pop(key, None)
            except (errors.KubeletError, kube_errors.KubeError) as error:
                failures = self._failures.get(key, 0) + 1
                self._failures[key] = failures
                self._queue.add_after(key, self._times.pause_seconds(failures))
                log.info("pod sync failed", extra={"pod": key, "reason": str(error)})
            finally:
                self._queue.done(key)

    async def _sync(self, key: WorkKey) -> None:
        namespace, name, uid = key
        pod = self._pods.get(name, namespace)
        if pod is None or pod.metadata.uid != uid:
            # Deleted without this kubelet, by force.
            await self._preparer.unprepare(uid)
        elif documents.is_deleting(pod):
            await self._preparer.unprepare(uid)
            await self._remove(pod)
        elif documents.is_finished(pod):
            await self._preparer.unprepare(uid)
        elif not self._config(pod, 0).exists():
            await self._start(pod)
        elif pod.status.get("phase") != "Running":
            await self._say_running(pod)

    async def _start(self, pod: documents.Document) -> None:
        try:
            claims = await self._preparer.prepare(pod)
            self._run_containers(pod, claims)
        except errors.PrepareError as error:
            note = f"Failed to prepare dynamic resources: {error}"
            await self._warn(pod, "FailedPrepareDynamicResources", note)
            raise
        except errors.RuntimeFailure as error:
            await self._warn(pod, "Failed", f"Error: {error}")
            raise
        await self._annotate(pod, claims)
        await self._say_running(pod)
        log.info("pod runs", extra={"pod": pod.full_name, "node": self.spec.name})

    def _run_containers(self, pod: documents.Document, claims: dict[str, claiminfo.ClaimInfo]) -> None:
        containers: Sequence[dict[str, Any]] = pod.spec.get("containers") or ()
        specs = [
            runtime.create(
                container,
                preparation.container_ids(container, claims),
                cdi=self.spec.cdi,
                check_device_nodes=self._times.check_device_nodes,
            )
            for container in containers
        ]
        # The first one last: its file says that the pod has all its containers.
        for number, spec in reversed(list(enumerate(specs))):
            runtime.write(self._config(pod, number), spec)

    def _config(self, pod: documents.Document, number: int) -> Path:
        """The runtime spec of a container: `config.json` for the first, `config-<name>.json` for the others."""
        containers = pod.spec.get("containers") or ()
        name = f"config-{containers[number]['name']}.json" if number else "config.json"
        return self.spec.pods / pod.metadata.uid / name

    async def _annotate(self, pod: documents.Document, claims: Mapping[str, claiminfo.ClaimInfo]) -> None:
        prepared = [
            {
                "claim": info.reference.name,
                "device": f"{device.driver}/{device.pool}/{device.device}",
                "cdi": list(device.cdi),
            }
            for info in claims.values()
            for device in info.devices
        ]
        if prepared:
            annotations = {PREPARED_ANNOTATION: json.dumps(prepared)}
            await self._patch(pod, {"metadata": {"uid": pod.metadata.uid, "annotations": annotations}})

    async def _say_running(self, pod: documents.Document) -> None:
        now = meta.timestamp(self._clock())
        containers = [
            {
                "name": container["name"],
                "image": container.get("image", ""),
                "imageID": "",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }
            for container in pod.spec.get("containers") or ()
        ]
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": now}
            for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ]
        status = {
            "phase": "Running",
            "startTime": now,
            "conditions": conditions,
            "containerStatuses": containers,
        }
        body = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        await self._patch(pod, body, subresource="status")

    async def _patch(
        self, pod: documents.Document, body: dict[str, Any], *, subresource: str | None = None
    ) -> None:
        written = await self._api.patch(
            kinds.POD,
            pod.metadata.name,
            body,
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
        try:
            await self._api.request("DELETE", path, body=body)
        except (kube_errors.NotFound, kube_errors.Conflict):
            # It is gone, or another pod has its name.
            return

    async def _warn(self, pod: documents.Document, reason: str, note: str) -> None:
        await self._events.record(pod, kind="Pod", reason=reason, note=note, action="Starting", warning=True)


@asynccontextmanager
async def serving(
    connection: config.Connection,
    nodes: Sequence[node.NodeSpec],
    times: settings.Settings | None = None,
    *,
    clock: Callable[[], datetime.datetime] = utc_now,
) -> AsyncIterator[dict[str, Kubelet]]:
    """Kubelets by node name, for as long as the block lasts; entered once their nodes are Ready."""
    times = times or settings.Settings()
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(client.connecting(connection))
        kubelets = {}
        for spec in nodes:
            kubelets[spec.name] = await stack.enter_async_context(_running(api, spec, times, clock))
        yield kubelets


@asynccontextmanager
async def _running(
    api: client.Client,
    spec: node.NodeSpec,
    times: settings.Settings,
    clock: Callable[[], datetime.datetime],
) -> AsyncIterator[Kubelet]:
    boot_id = node.prepare_directory(spec)
    async with plugins.watching(spec.registry, times) as watcher, asyncio.TaskGroup() as group:
        ready = asyncio.Event()
        kubelet = Kubelet(api, spec, watcher=watcher, times=times, clock=clock)
        task = group.create_task(kubelet.run(ready), name=f"kubelet-{spec.name}")
        try:
            await ready.wait()
            now = meta.timestamp(clock())
            await node.register(api, spec, boot_id=boot_id, release=times.release, now=now)
            yield kubelet
        finally:
            task.cancel()
