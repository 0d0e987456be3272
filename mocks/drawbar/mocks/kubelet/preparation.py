"""The preparation of pods' devices: one call per pod and driver, with all its claims.

Rules: everything is looked up before anything is recorded, so that a pod whose driver is missing can be deleted.
Records are stored before a plugin is called. The first failure ends the work, and the next try starts from the
beginning. A claim in use by another pod is not unprepared.

Source: pkg/kubelet/cm/dra/manager.go of Kubernetes 1.36, as described by the fact pages. Limits: no claims of pod
groups. Kubelets up to 1.30 store their records after the call of the plugin and word their errors differently; that is
not emulated.
"""

import dataclasses
from collections.abc import Collection, Iterable

from drawbar.mocks.claims import documents
from drawbar.mocks.kube import client, kinds
from drawbar.mocks.kube import errors as kube_errors
from drawbar.mocks.kubelet import claiminfo, errors, plugins, protocols, settings, statuses, versions


class Preparer:
    """The device manager of one node."""

    def __init__(
        self,
        api: client.Client,
        *,
        held: plugins.Plugins,
        infos: claiminfo.ClaimInfos,
        times: settings.Settings,
    ) -> None:
        self._api = api
        self._plugins = held
        self._infos = infos
        self._times = times
        self._timeout_seconds = versions.call_timeout_seconds(times.release, times.call_timeout_seconds)
        self._kind = dataclasses.replace(kinds.CLAIM, version=versions.claim_version(times.release))

    async def prepare(self, pod: documents.Document) -> None:
        """Prepare the unprepared claims of a pod.

        Raises:
            errors.PrepareError: a claim is invalid, or a plugin refused or is missing.
        """
        claims = await self._resolve(pod)
        # A missing driver is an error even if all is prepared, because the node is faulty.
        by_driver = {
            driver: self._plugins.plugin(driver) for claim in claims.values() for driver in _drivers(claim)
        }
        todo = [info for info in self._note(pod, claims.values()) if not info.prepared]
        for driver, batch in _by_driver(todo).items():
            await self._prepare_batch(by_driver[driver], batch)
        for info in todo:
            info.prepared = True
        self._infos.save()

    def claims(self, pod: documents.Document) -> dict[str, claiminfo.ClaimInfo]:
        """Return the known claims of a prepared pod, by the pod's names for them."""
        named = ((entry, name) for entry, name, _ in documents.pod_claims(pod))
        extended, _ = documents.extended_claim(pod)
        infos = {
            entry: self._infos.get(pod.metadata.namespace, name)
            for entry, name in (*named, (statuses.EXTENDED, extended))
            if name
        }
        return {entry: info for entry, info in infos.items() if info is not None}

    async def unprepare(self, pod_uid: str) -> None:
        """Unprepare the claims not used by another pod, and forget the pod.

        Raises:
            errors.PrepareError: a plugin refused or is missing; the claims of only this pod stay recorded.
        """
        used = self._infos.used_by(pod_uid)
        if not used:
            return
        last = []
        for info in used:
            if len(info.pods) > 1:
                info.pods.discard(pod_uid)
            else:
                last.append(info)
        for driver, batch in _by_driver(last).items():
            await self._unprepare_batch(self._plugins.plugin(driver), batch)
        self._infos.remove(last)
        self._infos.save()

    async def _resolve(self, pod: documents.Document) -> dict[str, documents.Document]:
        resolved: dict[str, documents.Document] = {}
        only_used = versions.has_handles(self._times.release)
        for entry, name, template in documents.pod_claims(pod):
            if name is None:
                raise errors.PrepareError(f'pod "{pod.full_name}": ResourceClaim not created yet')
            if name and (not only_used or statuses.is_used(pod, entry)):
                resolved[entry] = await self._claim(pod, name, from_template=template is not None)
        name, _ = documents.extended_claim(pod)
        if name:
            resolved[statuses.EXTENDED] = await self._claim(pod, name, from_template=True)
        return resolved

    async def _claim(self, pod: documents.Document, name: str, *, from_template: bool) -> documents.Document:
        namespace = pod.metadata.namespace
        try:
            claim = await self._api.read(self._kind, name, into=documents.Document, namespace=namespace)
        except kube_errors.KubeError as error:
            raise errors.PrepareError(f"fetch ResourceClaim {name}: {error}") from error
        if from_template and not documents.is_owned_by(claim, pod):
            raise errors.PrepareError(
                f"ResourceClaim {claim.full_name} was not created for pod {pod.full_name} (pod is not owner)"
            )
        if not documents.is_reserved_for(claim, pod):
            raise errors.PrepareError(
                f"pod {pod.metadata.name} ({pod.metadata.uid}) is not allowed to use ResourceClaim "
                f"{name} ({claim.metadata.uid})"
            )
        if documents.allocation(claim) is None:
            raise errors.PrepareError(f"ResourceClaim {name}: not allocated")
        return claim

    def _note(
        self, pod: documents.Document, claims: Iterable[documents.Document]
    ) -> list[claiminfo.ClaimInfo]:
        """Record the pod's use of these claims, and store each record before the next; return the records."""
        noted = []
        for claim in claims:
            info = self._infos.get(*claim.key)
            if info is None:
                info = self._infos.add(
                    claiminfo.ClaimInfo(
                        namespace=claim.metadata.namespace,
                        name=claim.metadata.name,
                        uid=claim.metadata.uid,
                        drivers=_drivers(claim),
                        handles=_handles(claim),
                    )
                )
            elif info.uid != claim.metadata.uid:
                raise errors.PrepareError(
                    f"old ResourceClaim with same name {info.name} and different UID {info.uid} still exists "
                    f"(previous pod force-deleted?!)"
                )
            info.pods.add(pod.metadata.uid)
            self._infos.save()
            noted.append(info)
        # A pod may name one claim twice.
        return list({info.uid: info for info in noted}.values())

    async def _prepare_batch(self, plugin: plugins.Plugin, batch: list[claiminfo.ClaimInfo]) -> None:
        method = "NodePrepareResources"
        try:
            answers = await plugin.prepare(_messages(plugin.driver, batch), self._timeout_seconds)
        except errors.CallFailed as error:
            raise errors.PrepareError(f"{method}: {error}") from error
        by_uid = {info.uid: info for info in batch}
        for uid, result in answers.items():
            _check_result(method, by_uid, uid, result)
            by_uid[uid].devices += [_device(plugin.driver, device) for device in result.devices]
        _check_count(method, batch, answers)

    async def _unprepare_batch(self, plugin: plugins.Plugin, batch: list[claiminfo.ClaimInfo]) -> None:
        method = "NodeUnprepareResources"
        try:
            answers = await plugin.unprepare(_messages(plugin.driver, batch), self._timeout_seconds)
        except errors.CallFailed as error:
            raise errors.PrepareError(f"{method}: {error}") from error
        by_uid = {info.uid: info for info in batch}
        for uid, result in answers.items():
            _check_result(method, by_uid, uid, result)
        _check_count(method, batch, answers)


def _check_result(
    method: str, by_uid: dict[str, claiminfo.ClaimInfo], uid: str, result: protocols.Answer
) -> None:
    if uid not in by_uid:
        raise errors.PrepareError(f"{method} returned result for unknown claim UID {uid}")
    if result.error:
        raise errors.PrepareError(f"{method} failed for ResourceClaim {by_uid[uid].name}: {result.error}")


def _check_count(method: str, batch: list[claiminfo.ClaimInfo], answered: Collection[str]) -> None:
    skipped = len(batch) - len(answered)
    if skipped:
        raise errors.PrepareError(f"{method} skipped {skipped} ResourceClaims")


def _drivers(claim: documents.Document) -> tuple[str, ...]:
    results = [result["driver"] for result in documents.results(claim)]
    return tuple(dict.fromkeys([*results, *_handles(claim)]))


def _handles(claim: documents.Document) -> dict[str, str]:
    """Return the handles of a `v1alpha2` claim by driver; one without a driver belongs to the allocating driver."""
    handles = (documents.allocation(claim) or {}).get("resourceHandles") or ()
    usual = claim.status.get("driverName") or ""
    return {handle.get("driverName") or usual: handle.get("data") or "" for handle in handles}


def _by_driver(infos: Iterable[claiminfo.ClaimInfo]) -> dict[str, list[claiminfo.ClaimInfo]]:
    batches: dict[str, list[claiminfo.ClaimInfo]] = {}
    for info in infos:
        for driver in info.drivers:
            batches.setdefault(driver, []).append(info)
    return batches


def _messages(driver: str, batch: Iterable[claiminfo.ClaimInfo]) -> list[protocols.Claim]:
    return [
        protocols.Claim(
            namespace=info.namespace,
            uid=info.uid,
            name=info.name,
            handle=info.handles.get(driver, ""),
            cdi=tuple(name for device in info.devices if device.driver == driver for name in device.cdi),
        )
        for info in batch
    ]


def _device(driver: str, device: protocols.Device) -> claiminfo.Device:
    return claiminfo.Device(
        driver=driver,
        pool=device.pool,
        device=device.device,
        requests=device.requests,
        cdi=device.cdi,
        share_id=device.share_id,
    )
