"""The binding cycle of one pod: reserve and allocate its claims, wait for their devices, bind; or undo all.

The order is that of PreBind and Unreserve of the real scheduler. The pod is nominated for the node before its claims
change. The finalizer is on the claim before its allocation, so that an allocated claim cannot vanish. The pod is bound
last. On any failure the pod leaves `reservedFor`, and the allocation stays for the next scheduling cycle. A claim for
extended resources is deleted.
"""

import asyncio
import datetime
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from drawbar.mocks.claims import documents
from drawbar.mocks.kube import client, errors, kinds, meta, mirror
from drawbar.mocks.scheduler import extended, messages, objects, plan, reports, settings

log = logging.getLogger(__name__)

CONFLICTS_MAX = 5


class BindingFailed(Exception):
    """The pod could not be bound; the message is for its event."""


class PodGone(Exception):
    """The pod was deleted while it waited."""


class Binder:
    """The executor of placements for all pods; calls for different pods may overlap."""

    def __init__(
        self,
        api: client.Client,
        *,
        claims: mirror.Mirror[documents.Document],
        pods: mirror.Mirror[documents.Document],
        reporter: reports.Reporter,
        times: settings.Settings,
        clock: Callable[[], datetime.datetime],
    ) -> None:
        self._api = api
        self._claims = claims
        self._pods = pods
        self._reporter = reporter
        self._times = times
        self._clock = clock
        self.before_1_36 = False

    async def bind(
        self, pod: documents.Document, claims: Sequence[documents.Document], placement: plan.Placement
    ) -> None:
        """Bind the pod to its node.

        Raises:
            BindingFailed: binding is impossible; its reservations are undone.
            PodGone: the pod no longer exists; its reservations are undone.
            errors.KubeError: the API server refused a request; call `unreserve` when it answers again.
        """
        try:
            if claims:
                await self._nominate(pod, placement.node)
            reserved = [
                await self._reserve(pod, claim, placement.allocations.get(claim.metadata.uid))
                for claim in claims
            ]
            if any(plan.has_binding_conditions(claim) for claim in reserved):
                await self._reporter.report_waiting(pod, placement.node)
                await self._wait(pod, reserved)
            await self._bind(pod, placement.node)
        except (BindingFailed, PodGone, errors.KubeError):
            await self.unreserve(pod, claims)
            raise

    async def unreserve(self, pod: documents.Document, claims: Sequence[documents.Document]) -> None:
        """Remove the pod from `reservedFor` of its claims; allocations stay, except for extended resources."""
        for claim in claims:
            if extended.is_for(claim, pod):
                await self.delete(claim)
            else:
                await self._update_status(claim, lambda fresh: _without_pod(fresh, pod))

    async def create(self, body: Mapping[str, Any]) -> documents.Document:
        """Create a claim, and return it as stored."""
        whole = {"apiVersion": kinds.CLAIM.api_version, "kind": kinds.CLAIM.kind, **body}
        namespace = body["metadata"]["namespace"]
        made = await self._api.create(kinds.CLAIM, whole, into=documents.Document, namespace=namespace)
        self._claims.learn(made)
        return made

    async def delete(self, claim: documents.Document) -> None:
        """Delete a claim for extended resources, with its allocation, without waiting."""
        try:
            fresh = await self._fresh(claim)
            kept = tuple(name for name in fresh.metadata.finalizers if name != documents.PROTECTION_FINALIZER)
            if kept != fresh.metadata.finalizers:
                await self._set_finalizers(fresh, kept)
        except BindingFailed:
            return
        uid = claim.metadata.uid
        await self._api.delete(kinds.CLAIM, claim.metadata.name, namespace=claim.metadata.namespace, uid=uid)

    async def record(self, pod: documents.Document, status: Mapping[str, Any]) -> None:
        """Write `status.extendedResourceClaimStatus` of the pod."""
        await self._write_status(pod, {"extendedResourceClaimStatus": status})

    async def deallocate(self, claim: documents.Document) -> None:
        """Remove a claim's allocation, reservations and device entries.

        Raises:
            errors.Conflict: the claim changed; read it again.
        """
        freed = documents.with_status(claim, allocation=None, reservedFor=None, devices=None)
        await self._replace(freed, subresource="status")

    async def _reserve(
        self, pod: documents.Document, claim: documents.Document, allocated: objects.Allocation | None
    ) -> documents.Document:
        if allocated is not None and documents.PROTECTION_FINALIZER not in claim.metadata.finalizers:
            finalizers = (*claim.metadata.finalizers, documents.PROTECTION_FINALIZER)
            try:
                claim = await self._set_finalizers(claim, finalizers)
            except errors.Conflict:
                fresh = await self._fresh(claim)
                kept = set(fresh.metadata.finalizers) | {documents.PROTECTION_FINALIZER}
                claim = await self._set_finalizers(fresh, tuple(sorted(kept)))
        now = meta.timestamp(self._clock())
        return await self._update_status(claim, lambda fresh: _with_pod(fresh, pod, allocated, now))

    async def _update_status(
        self,
        claim: documents.Document,
        change: Callable[[documents.Document], documents.Document | None],
    ) -> documents.Document:
        """Write the claim as changed by `change`, again after each conflict; return it.

        If `change` gives None, write nothing.
        """
        for _ in range(CONFLICTS_MAX):
            stored = self._claims.get(claim.metadata.name, claim.metadata.namespace)
            base = stored if stored is not None and stored.metadata.uid == claim.metadata.uid else claim
            wanted = change(base)
            if wanted is None:
                return base
            try:
                return await self._replace(wanted, subresource="status")
            except errors.Conflict:
                await self._fresh(claim)
            except errors.NotFound:
                return base
        raise BindingFailed(f"claim {claim.full_name} changed {CONFLICTS_MAX} times while it was written")

    async def _fresh(self, claim: documents.Document) -> documents.Document:
        try:
            fresh = await self._api.read(
                kinds.CLAIM,
                claim.metadata.name,
                into=documents.Document,
                namespace=claim.metadata.namespace,
            )
        except errors.NotFound as error:
            raise BindingFailed(f'resourceclaim "{claim.metadata.name}" not found') from error
        if fresh.metadata.uid != claim.metadata.uid:
            raise BindingFailed(f'resourceclaim "{claim.metadata.name}" was replaced')
        self._claims.learn(fresh)
        return fresh

    async def _set_finalizers(
        self, claim: documents.Document, finalizers: tuple[str, ...]
    ) -> documents.Document:
        body = documents.with_finalizers(claim, finalizers)
        return await self._claims.merge(claim, body, manager="kube-scheduler")

    async def _replace(
        self, claim: documents.Document, *, subresource: str | None = None
    ) -> documents.Document:
        body: dict[str, Any] = msgspec.to_builtins(claim)
        body |= {"apiVersion": kinds.CLAIM.api_version, "kind": kinds.CLAIM.kind}
        written = await self._api.replace(
            kinds.CLAIM,
            claim.metadata.name,
            body,
            into=documents.Document,
            namespace=claim.metadata.namespace,
            subresource=subresource,
        )
        self._claims.learn(written)
        return written

    async def _nominate(self, pod: documents.Document, node: str) -> None:
        await self._write_status(pod, {"nominatedNodeName": node})

    async def _write_status(self, pod: documents.Document, status: Mapping[str, Any]) -> None:
        body = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        try:
            await self._api.patch(
                kinds.POD,
                pod.metadata.name,
                body,
                content=client.Patch.MERGE,
                into=documents.Document,
                namespace=pod.metadata.namespace,
                subresource="status",
            )
        except (errors.NotFound, errors.Conflict) as error:
            raise PodGone(pod.full_name) from error

    async def _wait(self, pod: documents.Document, claims: Sequence[documents.Document]) -> None:
        timeout = datetime.timedelta(seconds=self._times.binding_timeout_seconds)
        try:
            async with asyncio.timeout(self._times.binding_timeout_seconds):
                while True:
                    if self._is_ready(pod, claims, timeout):
                        return
                    # Polling is intended: the real scheduler does not watch here.
                    await asyncio.sleep(self._times.poll_seconds)
        except TimeoutError as error:
            raise BindingFailed("device binding timeout") from error

    def _is_ready(
        self, pod: documents.Document, claims: Sequence[documents.Document], timeout: datetime.timedelta
    ) -> bool:
        stored = self._pods.get(pod.metadata.name, pod.metadata.namespace)
        if stored is None or stored.metadata.uid != pod.metadata.uid or documents.is_deleting(stored):
            raise PodGone(pod.full_name)
        current = [self._current(claim) for claim in claims]
        match plan.readiness(current):
            case None:
                return True
            case plan.Failed(claim=name, reason=reason, message=message):
                raise BindingFailed(
                    messages.binding_failed(name, reason, message, before_1_36=self.before_1_36)
                )
            case plan.Pending(claim=name):
                # Only the first unready claim counts.
                first = next(claim for claim in current if claim.metadata.name == name)
                if plan.has_timed_out(first, now=self._clock(), timeout=timeout):
                    raise BindingFailed(messages.binding_timeout(name, before_1_36=self.before_1_36))
                return False

    def _current(self, claim: documents.Document) -> documents.Document:
        stored = self._claims.get(claim.metadata.name, claim.metadata.namespace)
        if stored is None or stored.metadata.uid != claim.metadata.uid:
            raise BindingFailed(f'resourceclaim "{claim.metadata.name}" not found')
        return stored

    async def _bind(self, pod: documents.Document, node: str) -> None:
        path = kinds.POD.path(namespace=pod.metadata.namespace, name=pod.metadata.name, subresource="binding")
        body: Mapping[str, Any] = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": pod.metadata.name,
                "namespace": pod.metadata.namespace,
                "uid": pod.metadata.uid,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._api.request("POST", path, body=body)
        except errors.NotFound as error:
            raise PodGone(pod.full_name) from error


def _with_pod(
    claim: documents.Document, pod: documents.Document, allocated: objects.Allocation | None, now: str
) -> documents.Document | None:
    if documents.is_deleting(claim):
        raise BindingFailed(f"claim {claim.metadata.name} got deleted in the meantime")
    allocation = documents.allocation(claim)
    if allocated is None and allocation is None:
        raise BindingFailed(f"claim {claim.metadata.name} got deallocated in the meantime")
    if allocated is not None and allocation is not None:
        raise BindingFailed(f"claim {claim.metadata.name} got allocated elsewhere in the meantime")
    if allocated is None and documents.is_reserved_for(claim, pod):
        return None
    changes: dict[str, Any] = {}
    if allocated is not None:
        changes["allocation"] = {**msgspec.to_builtins(allocated), "allocationTimestamp": now}
    elif allocation is not None and not allocation.get("allocationTimestamp"):
        # The API server refuses it, because an allocation is immutable. So no pod can use another program's allocation
        # without a timestamp. Source: bindClaim, pkg/scheduler/framework/plugins/dynamicresources.
        changes["allocation"] = {**allocation, "allocationTimestamp": now}
    entry = {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}
    consumers = [
        consumer for consumer in documents.reserved_for(claim) if consumer.get("uid") != pod.metadata.uid
    ]
    return documents.with_status(claim, reservedFor=[*consumers, entry], **changes)


def _without_pod(claim: documents.Document, pod: documents.Document) -> documents.Document | None:
    if not documents.is_reserved_for(claim, pod):
        return None
    consumers = [
        consumer for consumer in documents.reserved_for(claim) if consumer.get("uid") != pod.metadata.uid
    ]
    return documents.with_status(claim, reservedFor=consumers or None)
