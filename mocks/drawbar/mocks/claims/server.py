"""The claim controller double: watches pods, claims and templates, and performs the actions of `plan`.

It also handles pods that were bound without the scheduler (`scheduled`): it reserves their allocated claims, and with
classic DRA writes their node to their PodSchedulingContexts.

Not emulated: claims of pod groups, the metrics, the event about a template that does not exist, and the garbage
collector in general (a claim made for a pod is deleted here when its pod is gone).
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal, assert_never

import msgspec

from drawbar.mocks import controlloop
from drawbar.mocks.claims import dialects, discovery, documents, plan, scheduled, users
from drawbar.mocks.claims.classic import plan as classic
from drawbar.mocks.kube import client, connections, errors, kinds, mirror, workqueue

log = logging.getLogger(__name__)

WorkKey = tuple[Literal["pod", "claim"], str, str]


class ClaimController:
    """Keeps claims consistent with the pods that use them. Make it with `serving`."""

    def __init__(self, api: client.Client, dialect: dialects.Dialect) -> None:
        self._api = api
        self._dialect = dialect
        self._queue: workqueue.WorkQueue[WorkKey] = workqueue.WorkQueue()
        # Claims that were just made, until the watch shows them: otherwise a second one would be made.
        self._owned: dict[str, dict[str, documents.Document]] = {}
        self._users = users.Users()
        self._templates = self._mirror(dialect.template, self._template_changed)
        self._claims = self._mirror(dialect.claim, self._claim_changed)
        self._pods = self._mirror(kinds.POD, self._pod_changed)
        self._contexts: mirror.Mirror[documents.Document] | None = None
        if dialect.context is not None:
            # Nothing follows from a change of one: it is looked up when its pod is looked at.
            self._contexts = self._mirror(dialect.context, lambda _old, _new: None)

    async def run(self, ready: asyncio.Event) -> None:
        """Run until cancelled; set `ready` when the first lists were received."""
        copies = [self._templates, self._claims, self._pods]
        if self._contexts is not None:
            copies.append(self._contexts)
        await controlloop.run("claims", copies, self._queue, self._sync, ready)

    def _mirror(self, kind: kinds.Kind, changed: Any) -> mirror.Mirror[documents.Document]:
        return mirror.Mirror(self._api, kind, into=documents.Document, changed=changed)

    def _template_changed(self, _old: documents.Document | None, new: documents.Document | None) -> None:
        if new is None:
            return
        for pod in self._pods:
            if any(template == new.metadata.name for _, _, template in documents.pod_claims(pod)):
                self._queue.add(("pod", *pod.key))

    def _claim_changed(self, old: documents.Document | None, new: documents.Document | None) -> None:
        if old is not None and (owner := documents.owning_pod(old)) is not None and new is None:
            left = self._owned.get(owner.uid, {})
            left.pop(_entry(old), None)
            if not left:
                self._owned.pop(owner.uid, None)
            self._queue.add(("pod", old.metadata.namespace, owner.name))
        if new is None:
            return
        owner = documents.owning_pod(new)
        if owner is not None:
            self._owned.setdefault(owner.uid, {})[_entry(new)] = new
            self._queue.add(("pod", new.metadata.namespace, owner.name))
        self._queue.add(("claim", *new.key))
        for key in self._users.for_claim(new.key):
            self._queue.add(("pod", *key))

    def _pod_changed(self, old: documents.Document | None, new: documents.Document | None) -> None:
        self._users.pod_changed(old, new)
        pod = new if new is not None else old
        assert pod is not None
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            for claim in self._owned.pop(old.metadata.uid, {}).values():
                self._queue.add(("claim", *claim.key))
        self._queue.add(("pod", *pod.key))
        extended, _ = documents.extended_claim(pod)
        for name in (extended, *(name for _, name, _ in documents.pod_claims(pod))):
            if name:
                self._queue.add(("claim", pod.metadata.namespace, name))

    async def _sync(self, key: WorkKey) -> None:
        kind, namespace, name = key
        await (self._sync_pod(namespace, name) if kind == "pod" else self._sync_claim(namespace, name))

    async def _sync_pod(self, namespace: str, name: str) -> None:
        pod = self._pods.get(name, namespace)
        if pod is None:
            return
        templates = {
            item.metadata.name: item for item in self._templates if item.metadata.namespace == namespace
        }
        actions = plan.for_pod(
            pod, self._owned.get(pod.metadata.uid, {}), templates, self._dialect.claim.api_version
        )
        if not actions:
            await self._serve_scheduled(pod)
        for action in actions:
            match action:
                case plan.CreateClaim():
                    made = await self._api.create(
                        self._dialect.claim, action.body, into=documents.Document, namespace=namespace
                    )
                    log.info("claim made", extra={"claim": made.full_name, "pod": pod.full_name})
                    # Comes back to this pod, and records the name then.
                    self._claims.learn(made)
                case plan.RecordClaims():
                    await self._record(pod, action)
                case _:
                    assert_never(action)

    async def _serve_scheduled(self, pod: documents.Document) -> None:
        """Handle a pod that has a node already."""
        contexts = self._contexts
        context = contexts.get(pod.metadata.name, pod.metadata.namespace) if contexts is not None else None
        for action in scheduled.for_pod(pod, self._claims_of(pod), context, self._dialect):
            match action:
                case plan.WriteStatus():
                    await self._replace(self._dialect.claim, action.claim, self._claims, subresource="status")
                case scheduled.SelectNode():
                    assert contexts is not None
                    await self._replace(action.kind, action.context, contexts)
                case scheduled.MakeContext():
                    assert contexts is not None
                    made = await self._api.create(
                        action.kind, action.body, into=documents.Document, namespace=pod.metadata.namespace
                    )
                    contexts.learn(made)
                case _:
                    assert_never(action)

    def _claims_of(self, pod: documents.Document) -> list[documents.Document]:
        """Return the pod's claims, up to the first that does not exist or has another owner."""
        claims = []
        for _, name, template in documents.pod_claims(pod):
            claim = self._claims.get(name or "", pod.metadata.namespace)
            if name != "" and (claim is None or (template and not documents.is_owned_by(claim, pod))):
                break
            if claim is not None:
                claims.append(claim)
        return claims

    async def _record(self, pod: documents.Document, action: plan.RecordClaims) -> None:
        body = {"metadata": {"uid": pod.metadata.uid}, "status": {"resourceClaimStatuses": action.statuses}}
        written = await self._api.patch(
            kinds.POD,
            pod.metadata.name,
            body,
            content=client.Patch.MERGE,
            into=documents.Document,
            namespace=pod.metadata.namespace,
            subresource="status",
        )
        self._pods.learn(written)

    async def _sync_claim(self, namespace: str, name: str) -> None:
        claim = self._claims.get(name, namespace)
        if claim is None:
            return
        pods = await self._consumers(claim)
        owner_done = await self._owner_is_done(claim)
        decide = plan.for_claim if self._contexts is None else classic.for_claim
        for action in decide(claim, pods, owner_done=owner_done):
            match action:
                case plan.WriteStatus():
                    claim = await self._replace(
                        self._dialect.claim, action.claim, self._claims, subresource="status"
                    )
                case plan.RemoveFinalizer():
                    kept = tuple(
                        finalizer
                        for finalizer in claim.metadata.finalizers
                        if finalizer != documents.PROTECTION_FINALIZER
                    )
                    freed = documents.with_finalizers(claim, kept)
                    with contextlib.suppress(errors.NotFound):
                        claim = await self._claims.merge(claim, freed, manager="kube-controller-manager")
                case plan.DeleteClaim():
                    await self._api.delete(
                        self._dialect.claim, name, namespace=namespace, uid=claim.metadata.uid
                    )
                case _:
                    assert_never(action)

    async def _replace(
        self,
        kind: kinds.Kind,
        document: documents.Document,
        into: mirror.Mirror[documents.Document],
        *,
        subresource: str | None = None,
    ) -> documents.Document:
        body: dict[str, Any] = msgspec.to_builtins(document)
        body |= {"apiVersion": kind.api_version, "kind": kind.kind}
        try:
            written = await self._api.replace(
                kind,
                document.metadata.name,
                body,
                into=documents.Document,
                namespace=document.metadata.namespace,
                subresource=subresource,
            )
        except errors.NotFound:
            return document
        # Without its last finalizer a deleted claim is gone; the watch reports that, and learning would put it back here.
        if not documents.is_deleting(written) or written.metadata.finalizers:
            into.learn(written)
        return written

    async def _consumers(self, claim: documents.Document) -> list[documents.Document]:
        """Return the pods of `reservedFor` that exist; those missing from the watch are read from the API server."""
        pods = []
        for entry in documents.reserved_for(claim):
            if entry.get("resource") != "pods":
                continue
            pod = await self._pod(claim.metadata.namespace, entry["name"], entry["uid"])
            if pod is not None:
                pods.append(pod)
        return pods

    async def _owner_is_done(self, claim: documents.Document) -> bool:
        owner = documents.owning_pod(claim)
        if owner is None or documents.is_deleting(claim):
            return False
        pod = await self._pod(claim.metadata.namespace, owner.name, owner.uid)
        return pod is None or documents.is_done(pod)

    async def _pod(self, namespace: str, name: str, uid: str) -> documents.Document | None:
        pod = self._pods.get(name, namespace)
        if pod is not None and pod.metadata.uid == uid:
            return pod
        try:
            pod = await self._api.read(kinds.POD, name, into=documents.Document, namespace=namespace)
        except errors.NotFound:
            return None
        return pod if pod.metadata.uid == uid else None


@asynccontextmanager
async def serving(connection: connections.Connection) -> AsyncIterator[None]:
    """Run a claim controller while the block lasts; the block is entered when its first lists were received.

    It is the one of the API server's release: with classic DRA, it leaves deallocation to the drivers.
    """
    async with client.connecting(connection) as api, asyncio.TaskGroup() as group:
        ready = asyncio.Event()
        task = group.create_task(_run(api, ready), name="claim-controller")
        try:
            await ready.wait()
            yield
        finally:
            task.cancel()


async def _run(api: client.Client, ready: asyncio.Event) -> None:
    await ClaimController(api, await discovery.dialect(api)).run(ready)


def _entry(claim: documents.Document) -> str:
    return claim.metadata.annotations.get(documents.POD_CLAIM_ANNOTATION, "")
