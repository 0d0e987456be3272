"""The executor of `classic.negotiation`, with one side effect per action.

The actions of one claim, or of one context, follow each other, and the first error ends them. Those of different
subjects run in parallel. Nothing is repaired here: the next round observes again.

Every patch carries the object's UID and resourceVersion. So a decision on a stale view fails, and does not undo another
client's write.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, assert_never

import msgspec

from drawbar.driver import containment
from drawbar.driver.api import (
    claims,
    classic,
    classic_v1alpha2,
    classic_v1alpha3,
    meta,
    nodepools,
)
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import names, outcomes
from drawbar.driver.controller.attachments import identities
from drawbar.driver.controller.attachments import statements as attachment_statements
from drawbar.driver.controller.attachments.context import Context
from drawbar.driver.controller.classic import actions, claim_watch
from drawbar.driver.kube import errors as kube_errors

log = logging.getLogger(__name__)

# The most subjects with writes at a time.
WRITERS = 16


@dataclass(slots=True, kw_only=True, eq=False)
class Executor:
    """Carries out actions."""

    context: Context
    watch: claim_watch.ClaimWatch
    _writers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(WRITERS))

    async def carry_out(self, steps: Iterable[actions.Action]) -> bool:
        """Carry out all steps; return whether the API server took all that were not decided on a stale view."""
        by_subject: dict[str, list[actions.Action]] = {}
        for step in steps:
            by_subject.setdefault(actions.subject(step), []).append(step)
        async with asyncio.TaskGroup() as tasks:
            begun = [
                tasks.create_task(self._run_chain(chain), name=f"classic-{uid}")
                for uid, chain in by_subject.items()
            ]
        return all(task.result() for task in begun)

    async def _run_chain(self, chain: list[actions.Action]) -> bool:
        async with self._writers:
            subject = _Subject(self.context, self.watch)
            for step in chain:
                attempt = self._attempt(step)
                try:
                    with attempt:
                        await subject.do(step)
                except (kube_errors.Conflict, kube_errors.NotFound) as error:
                    # Stale views are expected if many steps come at once; the watch brings the rest.
                    log.debug("will decide again: %s", error, extra={"step": type(step).__name__})
                    return True
                except kube_errors.KubeError as error:
                    log.warning("will decide again: %s", error, extra={"step": type(step).__name__})
                    return False
                if attempt.failure:
                    return False
        return True

    def _attempt(self, step: actions.Action) -> containment.Attempt:
        """Return the context of a step; it shows an error on the step's claim."""
        cluster = self.context.cluster
        return cluster.contained.attempt(
            "classic-claims",
            actions.subject(step),
            extra=lambda: {"step": type(step).__name__},
            report=lambda failure: cluster.recorder.record_warning(
                None if isinstance(step, actions.Answer) else claim_watch.reference(step.claim),
                reason=reasons.UNEXPECTED_ERROR,
                message=failure,
            ),
            expected=kube_errors.KubeError,
        )


class _Subject:
    """One claim or one context, during its actions."""

    def __init__(self, context: Context, watch: claim_watch.ClaimWatch) -> None:
        self._context = context
        self._watch = watch
        # The claim's latest version, after our own writes.
        self._version = ""

    async def do(self, step: actions.Action) -> None:
        """Carry out one side effect."""
        match step:
            case actions.Protect(claim=claim):
                await self._patch(claim, finalizers=[*claim.finalizers, claim.finalizer])
            case actions.Attach():
                await self._attach(step)
            case actions.Detach():
                await self._detach(step)
            case actions.Allocate():
                await self._allocate(step)
            case actions.Free(claim=claim):
                is_old = claim.version is classic.Version.V1ALPHA2
                await self._patch(
                    claim,
                    status=classic_v1alpha2.build_deallocation()
                    if is_old
                    else classic_v1alpha3.build_deallocation(),
                )
                self._report(claim, reasons.DEALLOCATED, "its devices were given back")
                log.info("claim deallocated", extra=_extras(claim))
            case actions.Unprotect(claim=claim):
                await self._patch(claim, finalizers=claim.other_finalizers)
            case actions.Complain(claim=claim, reason=reason, message=message):
                self._report(claim, reason, message, warning=True)
                log.warning("claim cannot be served: %s", message, extra=_extras(claim))
            case actions.Answer():
                await self._answer(step)
            case _:
                assert_never(step)

    async def _patch(
        self,
        claim: classic.Claim,
        *,
        finalizers: Iterable[str] | None = None,
        status: dict[str, Any] | None = None,
    ) -> None:
        """Write the claim's finalizers or status."""
        body: dict[str, Any] = {
            "metadata": {"uid": claim.uid, "resourceVersion": self._version or claim.resource_version}
        }
        if finalizers is not None:
            body["metadata"]["finalizers"] = list(finalizers)
        else:
            body["status"] = status
        document = claim_watch.FORMS[claim.version].claim(metadata=_metadata(claim.name, claim.uid))
        stored = await self._watch.claim_mirrors[claim.version].merge(
            document,
            body,
            manager=self._context.cluster.manager,
            subresource="status" if finalizers is None else None,
        )
        self._version = stored.metadata.resource_version

    async def _attach(self, step: actions.Attach) -> None:
        context, key = self._context, step.key
        session = context.cluster.sessions.get(key.fabric)
        device = session.device(key.device) if session is not None else None
        if session is None or device is None:
            raise kube_errors.Conflict(f"fabric {key.fabric} has no device {key.device} any more")
        wanted = claim_watch.demand(
            claim_watch.reference(step.claim, step.request, step.devices),
            node=step.node,
            host_id=step.host_id,
            pool=step.pool,
            allocated_at=step.allocated_at,
            seen_at=context.cluster.clock(),
        )
        fabric = context.cluster.fabrics.get(key.fabric)
        unclean = fabric is not None and device.id in fabric.status.unclean
        identity = identities.identify(
            device,
            shared=session.inventory.numbers.find_shared(device),
            host=session.inventory.host(step.host_id),
        )
        body = attachment_statements.intent(
            session.spec, key, device, wanted, identity=identity, unclean=unclean
        )
        context.latency.begin_classic(key)
        try:
            stored = await context.cluster.attachments.create(body)
        except kube_errors.KubeError:
            context.latency.drop_classic(key)
            raise
        # The attachment was made just now, so no call to the fabric was made for it.
        for side in outcomes.Side:
            context.calls.note_no_call(stored.metadata.uid, side)
        extra = {"attachment": key.attachment, "node": step.node, "claim": step.claim.name.name}
        log.info("attachment created", extra=extra)

    async def _detach(self, step: actions.Detach) -> None:
        attachment = step.attachment
        if step.reason:
            key = names.DeviceKey(fabric=attachment.spec.fabric, device=attachment.spec.device)
            self._context.latency.note_failure(key, step.reason)
            self._report(step.claim, step.reason, f"{attachment.spec.device}: {step.message}", warning=True)
        await self._context.cluster.attachments.delete(attachment)
        log.info("release asked for", extra={"attachment": attachment.metadata.name, "reason": step.reason})

    async def _allocate(self, step: actions.Allocate) -> None:
        claim, handle = step.claim, step.handle
        if claim.version is classic.Version.V1ALPHA2:
            status = classic_v1alpha2.build_allocation(
                handle, self._context.cluster.driver, shareable=step.shareable
            )
        else:
            # A kubelet asks only the drivers of devices.
            nothing = nodepools.null_devices(handle.without, handle.node)
            status = classic_v1alpha3.build_allocation(
                handle, self._context.cluster.driver, nothing, step.config
            )
        consumers = list(claim.reserved_for)
        if step.pod is not None and all(consumer.uid != step.pod.uid for consumer in consumers):
            consumers.append(step.pod)
        if consumers:
            status["reservedFor"] = msgspec.to_builtins(consumers)
        await self._patch(claim, status=status)
        for device in handle.devices:
            self._context.latency.note_allocation(names.DeviceKey(fabric=device.fabric, device=device.device))
        allocated = ", ".join(f"{device.device} of fabric {device.fabric}" for device in handle.devices)
        where = f" on node {handle.node}" if handle.node else ""
        message = f"{allocated or 'no device, for none is left'}{where}"
        self._report(claim, reasons.ALLOCATED, message, pod=step.pod)
        log.info("claim allocated", extra=_extras(claim) | {"node": handle.node})

    async def _answer(self, step: actions.Answer) -> None:
        context = step.context
        body = {
            "metadata": {"uid": context.uid, "resourceVersion": context.resource_version},
            "status": classic.set_entries(context, dict(step.entries)),
        }
        document = classic.PodSchedulingContext(metadata=_metadata(context.name, context.uid))
        mirror = self._watch.context_mirrors[context.version]
        await mirror.merge(document, body, manager=self._context.cluster.manager, subresource="status")

    def _report(
        self,
        claim: classic.Claim,
        reason: str,
        message: str,
        *,
        warning: bool = False,
        pod: claims.Consumer | None = None,
    ) -> None:
        """Record an Event on the claim, and on the pods that use it or wait for it."""
        recorder = self._context.cluster.recorder
        (recorder.record_warning if warning else recorder.record_normal)(
            claim_watch.reference(claim), reason=reason, message=message
        )
        consumers = claim.reserved_for if pod is None else (pod,)
        users = claims.ResourceClaim(
            metadata=meta.ObjectMeta(namespace=claim.name.namespace),
            status=claims.ClaimStatus(reserved_for=consumers),
        )
        recorder.tell_pods(users, warning=warning, reason=reason, message=message)


def _metadata(name: classic.Name, uid: str) -> meta.ObjectMeta:
    return meta.ObjectMeta(namespace=name.namespace, name=name.name, uid=uid)


def _extras(claim: classic.Claim) -> dict[str, str]:
    return {"claim": claim.name.name, "namespace": claim.name.namespace}
