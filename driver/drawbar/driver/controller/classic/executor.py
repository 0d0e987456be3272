"""Carries out what `classic.plan` decided, one side effect per action.

The actions of one claim, or of one context, follow each other, and the first error ends them; those of different subjects
go side by side. Nothing is repaired here: the next round observes again.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, assert_never

from drawbar.driver.api import attachments, claims, classic, classic_contexts, meta
from drawbar.driver.controller import names
from drawbar.driver.controller.attachments import actions as attachment_actions
from drawbar.driver.controller.attachments import context as attachment_context
from drawbar.driver.controller.attachments import statements as attachment_statements
from drawbar.driver.controller.classic import actions, lookout, statements
from drawbar.driver.kube import client, kinds
from drawbar.driver.kube import errors as kube_errors

log = logging.getLogger(__name__)

# So many subjects are written about at a time.
WRITERS = 16
ALLOCATED = "Allocated"
FREED = "Deallocated"


@dataclass(slots=True, kw_only=True, eq=False)
class Executor:
    """The hands of the negotiation."""

    context: attachment_context.Context
    known: lookout.Lookout
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(WRITERS))

    async def carry_out(self, steps: Iterable[actions.Action]) -> bool:
        """Does all of it; gives whether the API server took all of it that was not decided on an old view."""
        by_subject: dict[str, list[actions.Action]] = {}
        for step in steps:
            by_subject.setdefault(actions.subject(step), []).append(step)
        async with asyncio.TaskGroup() as tasks:
            begun = [
                tasks.create_task(self._in_turn(chain), name=f"classic-{uid}")
                for uid, chain in by_subject.items()
            ]
        return all(task.result() for task in begun)

    async def _in_turn(self, chain: list[actions.Action]) -> bool:
        async with self._places:
            subject = _Subject(self.context, self.known)
            for step in chain:
                try:
                    await subject.do(step)
                except (kube_errors.Conflict, kube_errors.NotFound) as error:
                    # The view was old, as is to be expected where many come at once; what it lacks, the watch tells.
                    log.debug("will decide again: %s", error, extra={"step": type(step).__name__})
                    return True
                except kube_errors.KubeError as error:
                    log.warning("will decide again: %s", error, extra={"step": type(step).__name__})
                    return False
        return True


class _Subject:
    """One claim or one context, while something is done about it."""

    def __init__(self, context: attachment_context.Context, known: lookout.Lookout) -> None:
        self._context = context
        self._known = known
        # Of the claim, after our own writes.
        self._version = ""

    async def do(self, step: actions.Action) -> None:
        """One side effect."""
        match step:
            case actions.Protect(claim=claim):
                await self._patch(claim, statements.protected(claim, self._seen(claim)))
            case actions.Attach():
                await self._attach(step)
            case actions.Detach():
                await self._detach(step)
            case actions.Allocate():
                await self._allocate(step)
            case actions.Free(claim=claim):
                await self._patch(claim, statements.freed(claim, self._seen(claim)), status=True)
                self._say(claim, FREED, "its devices were given back")
                log.info("claim deallocated", extra=_extras(claim))
            case actions.Unprotect(claim=claim):
                await self._patch(claim, statements.unprotected(claim, self._seen(claim)))
            case actions.Complain(claim=claim, reason=reason, message=message):
                self._say(claim, reason, message, warning=True)
                log.warning("claim cannot be served: %s", message, extra=_extras(claim))
            case actions.Answer():
                await self._answer(step)
            case _:
                assert_never(step)

    def _seen(self, claim: classic.Claim) -> str:
        return self._version or claim.resource_version

    async def _patch(self, claim: classic.Claim, body: dict[str, Any], *, status: bool = False) -> None:
        watched = self._known.claim_reflectors[claim.version]
        try:
            stored = await self._context.api.patch(
                kinds.CLASSIC_CLAIMS[claim.version.value],
                claim.name.name,
                body,
                content=client.Patch.MERGE,
                into=lookout.CLAIMS[claim.version],
                namespace=claim.name.namespace,
                subresource="status" if status else None,
                manager=self._context.manager,
            )
        except kube_errors.NotFound:
            known = watched.get(claim.name.name, claim.name.namespace)
            if known is not None and known.metadata.uid == claim.uid:
                watched.unlearn(known)
            raise
        self._version = stored.metadata.resource_version
        if stored.metadata.deletion_timestamp is not None and not stored.metadata.finalizers:
            watched.unlearn(stored)
        else:
            watched.learn(stored)

    async def _attach(self, step: actions.Attach) -> None:
        context, key = self._context, step.key
        session = context.fabrics.get(key.fabric)
        device = session.device(key.device) if session is not None else None
        if device is None:
            raise kube_errors.Conflict(f"fabric {key.fabric} has no device {key.device} any more")
        wish = attachment_actions.Wish(
            claim=attachments.ClaimReference(
                namespace=step.claim.name.namespace,
                name=step.claim.name.name,
                uid=step.claim.uid,
                requests=(step.request,),
                devices=step.devices,
            ),
            node=step.node,
            host_id=step.host_id,
            pool=step.pool,
            allocation_timestamp=step.allocated_at,
            seen_at=context.clock(),
            attached_said=True,
            failed_said=False,
            visible_said=True,
        )
        body = attachment_statements.intent(context.driver, key, device, wish)
        context.latency.begun(key)
        try:
            stored = await context.api.create(kinds.ATTACHMENT, body, into=attachments.DeviceAttachment)
        except kube_errors.KubeError:
            context.latency.never_begun(key)
            raise
        # Made just now, so nobody can have called the fabric for it.
        for side in attachment_actions.Side:
            context.calls.never_asked(stored.metadata.uid, side)
        context.attachments.learn(stored)
        extra = {"attachment": key.attachment, "node": step.node, "claim": step.claim.name.name}
        log.info("attachment created", extra=extra)

    async def _detach(self, step: actions.Detach) -> None:
        known = step.attachment
        if step.reason:
            key = names.DeviceKey(fabric=known.spec.fabric, device=known.spec.device)
            self._context.latency.failed(key, step.reason)
            self._say(step.claim, step.reason, f"{known.spec.device}: {step.message}", warning=True)
        left = await self._context.api.begin_delete(
            kinds.ATTACHMENT, known.metadata.name, uid=known.metadata.uid, into=attachments.DeviceAttachment
        )
        if left is not None:
            self._context.attachments.learn(left)
        else:
            self._context.attachments.unlearn(known)
        log.info("release asked for", extra={"attachment": known.metadata.name, "reason": step.reason})

    async def _allocate(self, step: actions.Allocate) -> None:
        claim, handle = step.claim, step.handle
        body = statements.allocated(self._context.driver, step, self._seen(claim))
        await self._patch(claim, body, status=True)
        for device in handle.devices:
            self._context.latency.allocated(names.DeviceKey(fabric=device.fabric, device=device.device))
        given = ", ".join(f"{one.device} of fabric {one.fabric}" for one in handle.devices)
        where = f" on node {handle.node}" if handle.node else ""
        message = f"{given or 'no device, for none is left'}{where}"
        self._say(claim, ALLOCATED, message, pod=step.pod)
        log.info("claim allocated", extra=_extras(claim) | {"node": handle.node})

    async def _answer(self, step: actions.Answer) -> None:
        context = step.context
        stored = await self._context.api.patch(
            kinds.SCHEDULING_CONTEXTS[context.version.value],
            context.name.name,
            statements.answered(step),
            content=client.Patch.MERGE,
            into=classic_contexts.PodSchedulingContext,
            namespace=context.name.namespace,
            subresource="status",
            manager=self._context.manager,
        )
        self._known.context_reflectors[context.version].learn(stored)

    def _say(
        self,
        claim: classic.Claim,
        reason: str,
        message: str,
        *,
        warning: bool = False,
        pod: claims.Consumer | None = None,
    ) -> None:
        recorder = self._context.recorder
        reference = attachments.ClaimReference(
            namespace=claim.name.namespace, name=claim.name.name, uid=claim.uid
        )
        (recorder.warning if warning else recorder.normal)(reference, reason=reason, message=message)
        consumers = claim.reserved_for if pod is None else (pod,)
        users = claims.ResourceClaim(
            metadata=meta.ObjectMeta(namespace=claim.name.namespace),
            status=claims.ClaimStatus(reserved_for=consumers),
        )
        recorder.tell_pods(users, warning=warning, reason=reason, message=message)


def _extras(claim: classic.Claim) -> dict[str, str]:
    return {"claim": claim.name.name, "namespace": claim.name.namespace}
