"""Allocates claims at once: looks, lets `plan` decide, and writes, one claim after the other.

One after the other, since what one claim gets another must not: what was written is known before the next one is looked
at. An allocation is one write with the claim's uid and resourceVersion, so it fails if the scheduler was first. Attaching
is the ordinary way from there: whoever ends this process at any moment leaves an allocated claim, or one that is not.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import assert_never

import msgspec

from drawbar.driver import expressions
from drawbar.driver.api import attachments, claims, demands, fabrics
from drawbar.driver.controller import names
from drawbar.driver.controller.attachments import context as attachment_context
from drawbar.driver.controller.classic import stock
from drawbar.driver.controller.fabrics import directory
from drawbar.driver.controller.immediate import observation, plan
from drawbar.driver.kube import client, events, kinds, queue, reflector
from drawbar.driver.kube import errors as kube_errors

log = logging.getLogger(__name__)

ALLOCATED = "ImmediatelyAllocated"
TURNED_OFF = "ImmediateAllocationOff"
DROPPED = "BindingConditionsDropped"
# The scheduler may work for so long with what it was shown before.
SETTLE_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 60.0
# What changes together is looked at together.
GATHER_SECONDS = 0.2
RETRY_FIRST_SECONDS = 1.0
RETRY_MAX_SECONDS = 300.0
_DOUBLINGS_MAX = 10

Name = tuple[str, str]


@dataclass(slots=True, kw_only=True, eq=False)
class _Memory:
    """What is remembered of one claim while it is there. Lost at a restart, which costs one more try.

    Attributes:
        said: what it was last told.
        asked: the claim with its spec, as it was last read.
        not_before: on the loop's clock.
    """

    uid: str
    said: tuple[str, str] = ("", "")
    asked: demands.Claim | None = None
    failures: int = 0
    devices: frozenset[names.DeviceKey] = frozenset()
    nodes: frozenset[str] = frozenset()
    not_before: float = 0.0


@dataclass(slots=True, kw_only=True, eq=False)
class Allocator:
    """The one who allocates claims at once. Run `run()` as a task while this controller leads.

    Attributes:
        watched: all claims.
        enabled: an administrator wants it; without, a claim that asks for it is told.
        settle_seconds: how long a device is left alone that the scheduler was shown.
    """

    api: client.Client
    view: observation.View
    watched: reflector.Reflector[claims.ResourceClaim]
    recorder: events.Recorder
    enabled: bool
    manager: str
    settle_seconds: float = SETTLE_SECONDS
    _queue: queue.WorkQueue[Name] = field(default_factory=queue.WorkQueue)
    _known: dict[Name, _Memory] = field(default_factory=dict)
    # When the scheduler was last shown a device, on the loop's clock.
    _offered: dict[names.DeviceKey, float] = field(default_factory=dict)

    def changed(self, old: claims.ResourceClaim | None, new: claims.ResourceClaim | None) -> None:
        """Takes over a change of a claim, any claim."""
        found = new or old
        assert found is not None
        name = (found.metadata.namespace, found.metadata.name)
        if new is None or not demands.is_immediate(new.metadata):
            self._known.pop(name, None)
            return
        known = self._known.get(name)
        if known is None or known.uid != new.metadata.uid:
            self._known[name] = _Memory(uid=new.metadata.uid)
        self._queue.add(name)

    def look_again(self) -> None:
        """Something that can be given may have come, or gone."""
        if self.enabled:
            self._note_offers()
        for name in self._known:
            self._queue.add_after(name, GATHER_SECONDS)

    async def run(self) -> None:
        """Works until cancelled."""
        for name in self._known:
            self._queue.add(name)
        while True:
            name = await self._queue.take()
            try:
                again = await self._round(name)
            except kube_errors.KubeError as error:
                pause = self._queue.retry(name)
                log.warning(
                    "claim not allocated, trying again: %s",
                    error,
                    extra={"claim": name[1], "seconds": round(pause, 2)},
                )
            else:
                self._queue.forget(name)
                if again is not None:
                    self._queue.add_after(name, again)
            finally:
                self._queue.done(name)

    async def _round(self, name: Name) -> float | None:
        """Looks at one claim; gives the seconds after which to look again, if time alone can change anything."""
        claim, memory = self.watched.get(name[1], name[0]), self._known.get(name)
        if claim is None or memory is None or claim.metadata.deletion_timestamp is not None:
            return None
        if claim.status.allocation is not None:
            await self._review(claim, memory)
            return None
        if not self.enabled:
            message = "the claim asks for immediate allocation, which is off (immediateAllocation of the controller)"
            self._tell(claim, memory, TURNED_OFF, message)
            return None
        if not self.view.pools.keeps_conditions:
            # A pod would be bound before its device is there.
            message = "not allocated at once: the API server drops binding conditions, or was not asked yet"
            self._tell(claim, memory, DROPPED, message)
            return LOOK_AGAIN_SECONDS
        left = memory.not_before - asyncio.get_running_loop().time()
        return left if left > 0 else await self._allocate(claim, memory)

    async def _review(self, claim: claims.ResourceClaim, memory: _Memory) -> None:
        allocation = claim.status.allocation
        node = self.view.nodes.get(allocation.node or "") if allocation is not None else None
        gone = node is None or node.out_of_service
        decided = plan.review(claim, self.view.driver, node_gone=gone) if self.enabled else None
        if decided is not None:
            await self._carry_out(decided, claim, memory)
        elif plan.is_ready(claim, self.view.driver):
            memory.failures, memory.devices, memory.nodes = 0, frozenset(), frozenset()

    async def _allocate(self, claim: claims.ResourceClaim, memory: _Memory) -> float | None:
        found = observation.inventory(self.view, self._note_offers())
        again = self.settle_seconds if self._offered else LOOK_AGAIN_SECONDS
        if not any(one.free for one in found.devices.values()):
            message = (
                "no free device is reserved for immediate allocation (policy.immediate of a Fabric); waiting"
            )
            await self._carry_out(plan.Wait(reason=plan.NOTHING_RESERVED, message=message), claim, memory)
            return again
        asked = await self._read(claim, memory)
        if asked is None:
            return None
        faults: dict[str, str] = {}

        def judge(device: stock.Device, expression: str) -> bool:
            try:
                return expressions.matches(expression, self.view.driver, device.shown)
            except (expressions.SelectorError, ValueError) as error:
                faults.setdefault(expression, " ".join(str(error).split()))
                return False

        observed = plan.Observed(
            driver=self.view.driver,
            claim=asked,
            classes=await self._classes(asked),
            inventory=found,
            nodes=observation.places(self.view, asked, memory.nodes, found),
            avoided=memory.devices,
        )
        decided = plan.plan(observed, judge, self.view.clock())
        if isinstance(decided, plan.Wait) and faults:
            expression, reason = next(iter(faults.items()))
            text = f"{decided.message}; the selector {expression!r} fails: {reason}"
            decided = plan.Wait(reason=decided.reason, message=text)
        await self._carry_out(decided, claim, memory)
        return again if isinstance(decided, plan.Wait) else None

    async def _carry_out(self, action: plan.Action, claim: claims.ResourceClaim, memory: _Memory) -> None:
        match action:
            case plan.Allocate(allocation=allocation, node=node, devices=devices):
                await self._write(claim, msgspec.to_builtins(allocation))
                listed = ", ".join(f"{key.fabric}/{key.device}" for key in devices)
                self._tell(claim, memory, ALLOCATED, f"{listed} allocated on node {node}", warning=False)
                log.info("claim allocated at once", extra={"claim": claim.metadata.name, "node": node})
            case plan.TakeBack(reason=reason, message=message, node=node, devices=devices):
                # First the memory: the write brings the next round.
                memory.failures += 1
                memory.devices |= frozenset(devices)
                memory.nodes |= {node}
                doublings = min(memory.failures - 1, _DOUBLINGS_MAX)
                pause = min(RETRY_MAX_SECONDS, RETRY_FIRST_SECONDS * 2**doublings)
                memory.not_before = asyncio.get_running_loop().time() + pause
                await self._write(claim, None)
                self._tell(claim, memory, reason, f"{message}; trying again in {pause:.0f} s")
            case plan.Wait(reason=reason, message=message):
                self._tell(claim, memory, reason, message)
            case _:
                assert_never(action)

    async def _write(self, claim: claims.ResourceClaim, allocation: object) -> None:
        """Sets or clears the allocation of the claim as it was seen; the API server drops what was said of devices."""
        metadata = {"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version}
        stored = await self.api.patch(
            kinds.CLAIM,
            claim.metadata.name,
            {"metadata": metadata, "status": {"allocation": allocation}},
            content=client.Patch.MERGE,
            into=claims.ResourceClaim,
            namespace=claim.metadata.namespace,
            subresource="status",
            manager=self.manager,
        )
        self.watched.learn(stored)

    async def _read(self, claim: claims.ResourceClaim, memory: _Memory) -> demands.Claim | None:
        """The claim with what it asks for, which never changes; None where it is another one by now."""
        if memory.asked is None:
            found = await self.api.read(
                kinds.CLAIM, claim.metadata.name, namespace=claim.metadata.namespace, into=demands.Claim
            )
            if found.metadata.uid != claim.metadata.uid:
                return None
            memory.asked = found
        return msgspec.structs.replace(memory.asked, metadata=claim.metadata)

    async def _classes(self, asked: demands.Claim) -> dict[str, demands.DeviceClass]:
        found = {}
        for name in sorted(plan.class_names(asked.spec.devices)):
            try:
                found[name] = await self.api.read(kinds.DEVICE_CLASS, name, into=demands.DeviceClass)
            except kube_errors.NotFound:
                continue
        return found

    def _note_offers(self) -> frozenset[names.DeviceKey]:
        """What the scheduler was shown until a moment ago."""
        now = asyncio.get_running_loop().time()
        self._offered |= dict.fromkeys(observation.shown(self.view), now)
        self._offered = {key: at for key, at in self._offered.items() if now - at < self.settle_seconds}
        return frozenset(self._offered)

    def _tell(
        self, claim: claims.ResourceClaim, memory: _Memory, reason: str, message: str, *, warning: bool = True
    ) -> None:
        """Says it once, until something else is to be said."""
        if memory.said == (reason, message):
            return
        memory.said = (reason, message)
        regarding = attachments.ClaimReference(
            namespace=claim.metadata.namespace, name=claim.metadata.name, uid=claim.metadata.uid
        )
        tell = self.recorder.warning if warning else self.recorder.normal
        tell(regarding, reason=reason, message=message)


def of(
    context: attachment_context.Context,
    known: reflector.Reflector[fabrics.Fabric],
    sessions: directory.Directory,
    *,
    enabled: bool,
) -> Allocator:
    """The allocator of the controller whose attachments have this context."""
    view = observation.View(
        driver=context.driver,
        fabrics=known,
        sessions=sessions,
        attachments=context.attachments,
        placed=context.placed,
        nodes=context.nodes,
        given=context.index,
        pools=context.pools,
        clock=context.clock,
    )
    return Allocator(
        api=context.api,
        view=view,
        watched=context.claims,
        recorder=context.recorder,
        enabled=enabled,
        manager=context.manager,
    )
