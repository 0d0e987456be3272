"""The executor of `plan`'s decisions: context, claims, and the binding of the pod.

The order is that of PreBind and PostBind of the real scheduler. Every claim is reserved for the pod before the
binding. The context is deleted last, and a failure of that is harmless. When an attempt ends without a node, the pod
leaves `reservedFor` of its allocated claims, even while other claims are pending. A driver must not take that for
their end.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from drawbar.mocks.claims import dialects, documents
from drawbar.mocks.kube import client, errors, kinds, mirror
from drawbar.mocks.scheduler.binding import BindingFailed, PodGone
from drawbar.mocks.scheduler.classic import plan

log = logging.getLogger(__name__)

CONFLICTS_MAX = 5
MANAGER = "kube-scheduler"
Mirror = mirror.Mirror[documents.Document]


class Binder:
    """The executor for all pods; calls for different pods may overlap."""

    def __init__(
        self, api: client.Client, dialect: dialects.Dialect, *, claims: Mirror, contexts: Mirror
    ) -> None:
        assert dialect.context is not None
        self._api = api
        self._dialect = dialect
        self._context = dialect.context
        self._claims = claims
        self._contexts = contexts

    async def publish(self, pod: documents.Document, changes: Mapping[str, Any]) -> None:
        """Create the pod's context, or change some fields of its spec.

        Raises:
            errors.KubeError: the API server refused; try again.
        """
        context = self._contexts.get(pod.metadata.name, pod.metadata.namespace)
        if context is None:
            body = dialects.context_body(pod, self._context, dict(changes))
            written = await self._api.create(
                self._context, body, into=documents.Document, namespace=pod.metadata.namespace
            )
        else:
            written = await self._change(context, changes)
        self._contexts.learn(written)

    async def _change(self, context: documents.Document, changes: Mapping[str, Any]) -> documents.Document:
        changed = msgspec.structs.replace(context, spec={**context.spec, **changes})
        try:
            return await self._replace(self._context, changed)
        except errors.Conflict:
            # A driver wrote its answer meanwhile. No other program writes the spec, so a blind write is safe.
            body = {"metadata": {"uid": context.metadata.uid}, "spec": dict(changes)}
            return await self._api.patch(
                self._context,
                context.metadata.name,
                body,
                content=client.Patch.MERGE,
                into=documents.Document,
                namespace=context.metadata.namespace,
                manager=MANAGER,
            )

    async def deallocate(self, pod: documents.Document, decision: plan.Deallocate) -> None:
        """Request the deallocation of the claim, or clear the allocation if the scheduler owns it.

        Raises:
            errors.KubeError: the claim changed, or the API server refused; try again.
        """
        if decision.deselect:
            await self.publish(pod, {"selectedNode": ""})
        if decision.by_driver:
            freed = documents.with_status(decision.claim, reservedFor=None, deallocationRequested=True)
        else:
            freed = documents.with_status(decision.claim, reservedFor=None, allocation=None)
        self._claims.learn(await self._replace(self._dialect.claim, freed, subresource="status"))

    async def bind(self, pod: documents.Document, claims: Sequence[documents.Document], node: str) -> None:
        """Bind the pod to its node.

        Raises:
            BindingFailed: a claim is not available; the pod's reservations are undone.
            PodGone: the pod no longer exists; its reservations are undone.
            errors.KubeError: the API server refused a request; its reservations are undone if possible.
        """
        reserved = list(claims)
        try:
            for number, claim in enumerate(claims):
                reserved[number] = await self._update_status(claim, lambda fresh: _with_pod(fresh, pod))
            await self._bind(pod, node)
        except (BindingFailed, PodGone, errors.KubeError):
            await self.unreserve(pod, reserved)
            raise
        if claims:
            await self._forget_context(pod)

    async def unreserve(self, pod: documents.Document, claims: Sequence[documents.Document]) -> None:
        """Remove the pod from `reservedFor` of the given claims if it is there in their given state.

        Later reservations by a driver stay. Failed writes are left to the next attempt.
        """
        for claim in claims:
            if _without_pod(claim, pod) is None:
                continue
            try:
                await self._update_status(claim, lambda fresh: _without_pod(fresh, pod))
            except (BindingFailed, errors.KubeError) as error:
                log.info("claim stays reserved: %s", error, extra={"pod": pod.full_name})

    async def _update_status(
        self, claim: documents.Document, change: Callable[[documents.Document], documents.Document | None]
    ) -> documents.Document:
        """Write the claim as changed by `change`, again after each conflict; return it.

        If `change` gives None, write nothing.
        """
        stored = self._claims.get(claim.metadata.name, claim.metadata.namespace)
        base = stored if stored is not None and stored.metadata.uid == claim.metadata.uid else claim
        for _ in range(CONFLICTS_MAX):
            wanted = change(base)
            if wanted is None:
                return base
            try:
                written = await self._replace(self._dialect.claim, wanted, subresource="status")
            except errors.Conflict:
                base = await self._fresh(claim)
            except errors.NotFound as error:
                raise BindingFailed(f'resourceclaim "{claim.metadata.name}" not found') from error
            else:
                self._claims.learn(written)
                return written
        raise BindingFailed(f"claim {claim.full_name} changed {CONFLICTS_MAX} times while it was written")

    async def _fresh(self, claim: documents.Document) -> documents.Document:
        fresh = await self._api.read(
            self._dialect.claim,
            claim.metadata.name,
            into=documents.Document,
            namespace=claim.metadata.namespace,
        )
        if fresh.metadata.uid != claim.metadata.uid:
            raise BindingFailed(f'resourceclaim "{claim.metadata.name}" was replaced')
        self._claims.learn(fresh)
        return fresh

    async def _replace(
        self, kind: kinds.Kind, document: documents.Document, *, subresource: str | None = None
    ) -> documents.Document:
        body: dict[str, Any] = msgspec.to_builtins(document)
        body |= {"apiVersion": kind.api_version, "kind": kind.kind}
        return await self._api.replace(
            kind,
            document.metadata.name,
            body,
            into=documents.Document,
            namespace=document.metadata.namespace,
            subresource=subresource,
        )

    async def _bind(self, pod: documents.Document, node: str) -> None:
        name, namespace, uid = pod.metadata.name, pod.metadata.namespace, pod.metadata.uid
        body: Mapping[str, Any] = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = kinds.POD.path(namespace=namespace, name=name, subresource="binding")
        try:
            await self._api.request("POST", path, body=body)
        except errors.NotFound as error:
            raise PodGone(pod.full_name) from error

    async def _forget_context(self, pod: documents.Document) -> None:
        """Try once to delete the context; otherwise it goes with its pod."""
        try:
            await self._api.delete(self._context, pod.metadata.name, namespace=pod.metadata.namespace)
        except errors.KubeError as error:
            log.info("context not deleted: %s", error, extra={"pod": pod.full_name})


def _with_pod(claim: documents.Document, pod: documents.Document) -> documents.Document | None:
    if documents.is_reserved_for(claim, pod):
        return None
    if documents.is_deleting(claim):
        raise BindingFailed(f"claim {claim.full_name} got deleted in the meantime")
    # The API server checks the rest.
    entry = {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}
    return documents.with_status(claim, reservedFor=[*documents.reserved_for(claim), entry])


def _without_pod(claim: documents.Document, pod: documents.Document) -> documents.Document | None:
    if documents.allocation(claim) is None or not documents.is_reserved_for(claim, pod):
        return None
    consumers = [
        consumer for consumer in documents.reserved_for(claim) if consumer.get("uid") != pod.metadata.uid
    ]
    return documents.with_status(claim, reservedFor=consumers or None)
