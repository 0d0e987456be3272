"""Prepares and unprepares the devices of pods: one call per pod and driver, with all its claims.

Source: pkg/kubelet/cm/dra/manager.go of Kubernetes 1.36, as described by the fact pages.
"""

from collections.abc import Iterable

import grpc.aio

from drawbar.driver.kube import client, kinds
from drawbar.driver.kube import errors as kube_errors
from drawbar.mocks.claims import documents
from drawbar.mocks.kubelet import claiminfo, errors, plugins, settings
from drawbar.proto.kubelet.dra.v1 import api_pb2


class Preparer:
    """The device manager of one node."""

    def __init__(
        self,
        api: client.Client,
        *,
        watcher: plugins.PluginWatcher,
        infos: claiminfo.ClaimInfos,
        times: settings.Settings,
    ) -> None:
        self._api = api
        self._watcher = watcher
        self._infos = infos
        self._times = times

    async def prepare(self, pod: documents.Document) -> dict[str, claiminfo.ClaimInfo]:
        """Prepares what is not prepared yet; gives the claims by the names the pod has for them.

        Raises:
            errors.PrepareError: a claim is not as it must be, or a plugin refused or is not there.
        """
        claims = await self._resolve(pod)
        references = {
            claim.metadata.uid: claiminfo.Reference(
                namespace=claim.metadata.namespace,
                name=claim.metadata.name,
                uid=claim.metadata.uid,
                drivers=tuple(dict.fromkeys(result["driver"] for result in documents.results(claim))),
            )
            for claim in claims.values()
        }
        held = self._infos.hold(pod.metadata.uid, list(references.values()))
        todo = [info for info in held if not info.prepared]
        batches = _by_driver(todo)
        # All plugins are looked up before the first is called.
        called = [(self._watcher.plugin(driver), batch) for driver, batch in batches.items()]
        for plugin, batch in called:
            await self._prepare_batch(plugin, batch)
        for info in todo:
            info.prepared = True
        by_uid = {info.reference.uid: info for info in held}
        return {name: by_uid[claim.metadata.uid] for name, claim in claims.items()}

    async def unprepare(self, pod_uid: str) -> None:
        """Unprepares what no other pod uses, and forgets the pod.

        Raises:
            errors.PrepareError: a plugin refused or is not there; nothing is forgotten.
        """
        last = [info for info in self._infos.held_by(pod_uid) if info.pods == {pod_uid}]
        batches = _by_driver(last)
        called = [(self._watcher.plugin(driver), batch) for driver, batch in batches.items()]
        for plugin, batch in called:
            await self._unprepare_batch(plugin, batch)
        self._infos.release(pod_uid)

    async def _resolve(self, pod: documents.Document) -> dict[str, documents.Document]:
        found: dict[str, documents.Document] = {}
        for entry, name, template in documents.pod_claims(pod):
            if name is None:
                raise errors.PrepareError(
                    f"pod {pod.full_name}: ResourceClaim for {entry} was not created yet"
                )
            if name:
                found[entry] = await self._claim(pod, name, from_template=template is not None)
        return found

    async def _claim(self, pod: documents.Document, name: str, *, from_template: bool) -> documents.Document:
        namespace = pod.metadata.namespace
        try:
            claim = await self._api.read(kinds.CLAIM, name, into=documents.Document, namespace=namespace)
        except kube_errors.NotFound as error:
            raise errors.PrepareError(
                f"failed to fetch ResourceClaim {name} referenced by pod {pod.metadata.name}: not found"
            ) from error
        if from_template and not documents.is_owned_by(claim, pod):
            raise errors.PrepareError(f"ResourceClaim {name} was not created for pod {pod.full_name}")
        if not documents.is_reserved_for(claim, pod):
            raise errors.PrepareError(
                f"pod {pod.metadata.name}({pod.metadata.uid}) is not allowed to use ResourceClaim "
                f"{name}({claim.metadata.uid})"
            )
        if documents.allocation(claim) is None:
            raise errors.PrepareError(f"ResourceClaim {name} is not allocated")
        return claim

    async def _prepare_batch(self, plugin: plugins.Plugin, batch: list[claiminfo.ClaimInfo]) -> None:
        try:
            answer = await plugin.prepare(_messages(batch), self._times.call_timeout_seconds)
        except grpc.aio.AioRpcError as error:
            raise errors.PrepareError(f"NodePrepareResources: {_words(error)}") from error
        self._check("NodePrepareResources", batch, answer.claims.keys())
        for info in batch:
            if message := answer.claims[info.reference.uid].error:
                raise errors.PrepareError(
                    f"NodePrepareResources failed for ResourceClaim {info.reference.name}: {message}"
                )
        for info in batch:
            kept = [device for device in info.devices if device.driver != plugin.driver]
            prepared = answer.claims[info.reference.uid].devices
            info.devices = kept + [_device(plugin.driver, device) for device in prepared]

    async def _unprepare_batch(self, plugin: plugins.Plugin, batch: list[claiminfo.ClaimInfo]) -> None:
        try:
            answer = await plugin.unprepare(_messages(batch), self._times.call_timeout_seconds)
        except grpc.aio.AioRpcError as error:
            raise errors.PrepareError(f"NodeUnprepareResources: {_words(error)}") from error
        self._check("NodeUnprepareResources", batch, answer.claims.keys())
        for info in batch:
            if message := answer.claims[info.reference.uid].error:
                raise errors.PrepareError(
                    f"NodeUnprepareResources failed for ResourceClaim {info.reference.name}: {message}"
                )

    def _check(self, method: str, batch: list[claiminfo.ClaimInfo], answered: Iterable[str]) -> None:
        asked = {info.reference.uid for info in batch}
        unknown = sorted(set(answered) - asked)
        if unknown:
            raise errors.PrepareError(f"{method} returned result for unknown claim UID {unknown[0]}")
        skipped = asked - set(answered)
        if skipped:
            raise errors.PrepareError(f"{method} skipped {len(skipped)} ResourceClaims")


def container_ids(container: dict[str, object], claims: dict[str, claiminfo.ClaimInfo]) -> list[str]:
    """The CDI ids of one container: of the claims, or the single requests, that it names."""
    resources = container.get("resources")
    wanted = resources.get("claims") if isinstance(resources, dict) else None
    ids: list[str] = []
    for use in wanted or ():
        info = claims.get(use["name"])
        for device in info.devices if info is not None else ():
            request = use.get("request")
            if not request or not device.requests or request in device.requests:
                ids += device.cdi
    return ids


def _by_driver(infos: Iterable[claiminfo.ClaimInfo]) -> dict[str, list[claiminfo.ClaimInfo]]:
    batches: dict[str, list[claiminfo.ClaimInfo]] = {}
    for info in infos:
        for driver in info.reference.drivers:
            batches.setdefault(driver, []).append(info)
    return batches


def _messages(batch: Iterable[claiminfo.ClaimInfo]) -> list[api_pb2.Claim]:
    references = [info.reference for info in batch]
    return [api_pb2.Claim(namespace=one.namespace, uid=one.uid, name=one.name) for one in references]


def _device(driver: str, device: api_pb2.Device) -> claiminfo.Device:
    return claiminfo.Device(
        driver=driver,
        pool=device.pool_name,
        device=device.device_name,
        requests=tuple(device.request_names),
        cdi=tuple(device.cdi_device_ids),
    )


def _words(error: grpc.aio.AioRpcError) -> str:
    return f"rpc error: code = {error.code().name} desc = {error.details()}"
