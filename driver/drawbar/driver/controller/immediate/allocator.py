"""Immediate allocation, one claim after the other: observe, have `plan` decide, and write.

The order keeps a device from being given twice: each write is known before the next claim is looked at. An allocation
is one write with the claim's UID and resourceVersion, so it fails if the scheduler was first. The attach takes the
ordinary way from there. A crash at any moment leaves a claim either allocated or not.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

import msgspec

from drawbar.driver import backoff, evaluation
from drawbar.driver.api import attachments, claims, core, demands
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import names
from drawbar.driver.controller.allocation import inventory, matching, selectors
from drawbar.driver.controller.cluster import Cluster
from drawbar.driver.controller.immediate import decisions
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.kube import kinds, workers

log = logging.getLogger(__name__)

# The scheduler may work for this time with an earlier view.
SETTLE_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 60.0
# Each change has all waiting claims looked at again, and they name the same few classes. This is less than
# LOOK_AGAIN_SECONDS, so that a claim after that time has its classes read again.
CLASS_SECONDS = 30.0
CLASSES_MAX = 256
# Simultaneous changes are handled together.
GATHER_SECONDS = 0.2
# Seconds of processor time for selectors before other claims follow; a free evaluation counts as the minimum.
SELECTOR_SECONDS = 0.2
SELECTOR_SECONDS_MIN = 0.01
# The most characters of all selectors of a claim; the memory of a claim has to be bounded.
SELECTORS_CHARS_MAX = 65_536
RETRY_FIRST_SECONDS = 1.0
RETRY_MAX_SECONDS = 300.0

Name = tuple[str, str]


@dataclass(slots=True, kw_only=True, eq=False)
class _Memory:
    """The memory of one claim while it exists. Its loss at a restart costs one more try.

    Attributes:
        reported: reason and message of its last Event.
        demanding: the claim with its spec, as last read.
        too_long: whether its selectors are too long, and are not kept in `demanding`.
        counted: the last failed allocation; if its clearing was refused as stale, it is not counted again.
        not_before: the time of the next try, on the loop's clock.
    """

    uid: str
    reported: tuple[str, str] = ("", "")
    demanding: demands.Claim | None = None
    too_long: bool = False
    failures: int = 0
    counted: claims.Allocation | None = None
    devices: frozenset[names.DeviceKey] = frozenset()
    nodes: frozenset[str] = frozenset()
    not_before: float = 0.0


@dataclass(slots=True, kw_only=True, eq=False)
class Waiting:
    """The claims that ask for immediate allocation; kept while another controller leads.

    Attributes:
        settle_seconds: the time during which a device withdrawn from the scheduler is not given.
        memories: the memory by claim.
        withdrawn: the time of each device's withdrawal from the scheduler, on the loop's clock.
    """

    settle_seconds: float = SETTLE_SECONDS
    queue: workers.WorkQueue[Name] = field(default_factory=workers.WorkQueue)
    memories: dict[Name, _Memory] = field(default_factory=dict)
    withdrawn: dict[names.DeviceKey, float] = field(default_factory=dict)

    def ask(self, name: Name, uid: str) -> None:
        """Have a claim processed; forget a claim without a UID."""
        if not uid:
            self.memories.pop(name, None)
            return
        memory = self.memories.get(name)
        if memory is None or memory.uid != uid:
            self.memories[name] = _Memory(uid=uid)
        self.queue.add(name)

    def withdraw(self, device: names.DeviceKey) -> None:
        """Note that a device is no longer shown to the scheduler."""
        self.withdrawn = self.find_settling() | {device: asyncio.get_running_loop().time()}

    def requeue_all(self) -> None:
        """Have all claims processed again, since devices or nodes changed."""
        for name in self.memories:
            self.queue.add_after(name, GATHER_SECONDS)

    def find_settling(self) -> dict[names.DeviceKey, float]:
        """Return the recently withdrawn devices, which the scheduler may still be giving to a claim."""
        now = asyncio.get_running_loop().time()
        return {key: at for key, at in self.withdrawn.items() if now - at < self.settle_seconds}


@dataclass(slots=True, kw_only=True, eq=False)
class Allocator:
    """The immediate allocation of one term of leadership. Run `run()` as a task.

    Attributes:
        enabled: whether the configuration allows it; otherwise a claim that asks for it gets an Event.
        evaluator: evaluates the claims' selectors.
        waiting: the claims.
    """

    cluster: Cluster
    enabled: bool
    evaluator: evaluation.Evaluator
    waiting: Waiting
    # By name: the class, or None if it does not exist, and the time of the read on the loop's clock.
    _classes: dict[str, tuple[demands.DeviceClass | None, float]] = field(default_factory=dict)
    _judge: selectors.Judge = field(init=False)
    _budget: selectors.Budget = field(init=False)

    def __post_init__(self) -> None:
        self._judge = selectors.Judge(self.cluster.driver, self.evaluator)
        self._budget = selectors.Budget()

    async def run(self) -> None:
        """Work until cancelled."""
        for name in self.waiting.memories:
            self.waiting.queue.add(name)
        await self.waiting.queue.run(
            self._round,
            lambda name: {"namespace": name[0], "claim": name[1]},
            worker="immediate-claims",
            contained=self.cluster.contained,
            report=self._report_unexpected,
        )

    def _report_unexpected(self, name: Name, failure: str) -> None:
        claim = self.cluster.claims.get(name[1], name[0])
        if claim is not None:
            self.cluster.recorder.record_unexpected(kinds.CLAIM, claim.metadata, failure)

    async def _round(self, name: Name) -> float | None:
        """Process one claim; return the seconds until the next look, if time can change anything, or None."""
        claim, memory = self.cluster.claims.get(name[1], name[0]), self.waiting.memories.get(name)
        if claim is None or memory is None or claim.metadata.deletion_timestamp is not None:
            self.cluster.refusals.drop(_subject(name))
            return None
        if claim.status.allocation is not None:
            memory.demanding = None
            return await self._review(claim, claim.status.allocation, memory)
        if not self.enabled:
            message = "the claim asks for immediate allocation, which is off (immediateAllocation of the controller)"
            self._report(claim, memory, reasons.IMMEDIATE_ALLOCATION_OFF, message)
            return None
        if not self.cluster.pools.keeps_conditions:
            # Without binding conditions, a pod would be bound before its device is there.
            message = "not allocated at once: the API server drops binding conditions, or was not asked yet"
            self._report(claim, memory, reasons.BINDING_CONDITIONS_DROPPED, message)
            return LOOK_AGAIN_SECONDS
        left = memory.not_before - asyncio.get_running_loop().time()
        return left if left > 0 else await self._allocate(claim, memory)

    async def _review(
        self, claim: claims.ResourceClaim, allocation: claims.Allocation, memory: _Memory
    ) -> float | None:
        """Clear a failed allocation; return the seconds until its missing node counts as gone, or None."""
        of_fabrics = {names.fabric_of(result.pool) for result in claim.results(self.cluster.driver)}
        gone_at = self.cluster.absences.gone_at(allocation.node or "", of_fabrics)
        now = self.cluster.clock()
        gone = gone_at is not None and gone_at <= now
        decided = decisions.review(claim, self.cluster.driver, node_gone=gone) if self.enabled else None
        if decided is not None:
            await self._carry_out(decided, claim, memory)
        elif claim_index.is_ready(claim, self.cluster.driver):
            memory.failures, memory.devices, memory.nodes = 0, frozenset(), frozenset()
        return (gone_at - now).total_seconds() if gone_at is not None and not gone else None

    async def _allocate(self, claim: claims.ResourceClaim, memory: _Memory) -> float | None:
        while True:
            self.waiting.withdrawn = self.waiting.find_settling()
            offered = inventory.find_published_reserved(self.cluster) | self.waiting.withdrawn.keys()
            reserved = inventory.find_reserved(self.cluster, offered)
            again = self.waiting.settle_seconds if offered else LOOK_AGAIN_SECONDS
            if not any(device.free for device in reserved.devices.values()):
                message = "no free device is reserved for immediate allocation (policy.immediate of a Fabric); waiting"
                self._report(claim, memory, reasons.NO_RESERVED_DEVICE, message)
                return again
            asked = await self._read(claim, memory)
            if asked is None:
                return None
            if memory.too_long:
                message = (
                    "the claim cannot be allocated at once: "
                    f"its selectors have more than {SELECTORS_CHARS_MAX} characters"
                )
                self._report(claim, memory, reasons.IMMEDIATE_ALLOCATION_UNSUPPORTED, message)
                return None
            decided = await self._decide(asked, memory, reserved)
            if not self._judge.pending:
                await self._carry_out(decided, claim, memory)
                return again if isinstance(decided, decisions.Wait) else None
            pause = await self._evaluate(claim, memory)
            if pause is not None:
                return pause

    async def _decide(
        self, demanding: demands.Claim, memory: _Memory, reserved: matching.Inventory
    ) -> decisions.Allocate | decisions.Wait:
        observed = decisions.OpenClaim(
            driver=self.cluster.driver,
            claim=demanding,
            classes=await self._read_classes(demanding),
            inventory=reserved,
            nodes=_candidates(self.cluster, demanding, memory.nodes, reserved),
            avoided=memory.devices,
        )
        self._judge.begin()
        decided = decisions.plan(observed, self._judge.meets, self.cluster.time_of_day())
        if isinstance(decided, decisions.Wait) and self._judge.faults:
            expression, reason = next(iter(self._judge.faults.items()))
            text = f"{decided.message}; a selector fails: {reason}; it is {demands.shorten(expression)}"
            return decisions.Wait(reason=decided.reason, message=text)
        return decided

    async def _evaluate(self, claim: claims.ResourceClaim, memory: _Memory) -> float | None:
        """Evaluate the selectors that the plan needs.

        Returns:
            None if that took little time; else the seconds until the claim's next look.
        """
        namespace = claim.metadata.namespace
        pause = self._budget.wait(namespace)
        if pause:
            self._report(claim, memory, reasons.SELECTORS_TOO_EXPENSIVE, selectors.too_expensive(namespace))
            return pause
        _, taken = await self._judge.settle(SELECTOR_SECONDS)
        used = sum(taken.values())
        self._budget.use(namespace, max(used, SELECTOR_SECONDS_MIN))
        return 0.0 if used >= SELECTOR_SECONDS else None

    async def _carry_out(
        self, action: decisions.Action, claim: claims.ResourceClaim, memory: _Memory
    ) -> None:
        match action:
            case decisions.Allocate(allocation=allocation, node=node, devices=devices):
                await self._write(claim, devices, msgspec.to_builtins(allocation))
                listed = ", ".join(f"{key.fabric}/{key.device}" for key in devices)
                self._report(
                    claim,
                    memory,
                    reasons.IMMEDIATELY_ALLOCATED,
                    f"{listed} allocated on node {node}",
                    warning=False,
                )
                log.info("claim allocated at once", extra={"claim": claim.metadata.name, "node": node})
            case decisions.TakeBack(reason=reason, message=message, node=node, devices=devices):
                # The memory comes first: the write starts the next round.
                if memory.counted != claim.status.allocation:
                    memory.failures, memory.counted = memory.failures + 1, claim.status.allocation
                memory.devices |= frozenset(devices)
                memory.nodes |= {node}
                pause = backoff.longest(memory.failures, RETRY_FIRST_SECONDS, RETRY_MAX_SECONDS)
                memory.not_before = asyncio.get_running_loop().time() + pause
                await self._write(claim, devices, None)
                self._report(claim, memory, reason, f"{message}; trying again in {pause:.0f} s")
            case decisions.Wait(reason=reason, message=message):
                self._report(claim, memory, reason, message)
            case _:
                assert_never(action)

    async def _write(
        self, claim: claims.ResourceClaim, devices: Iterable[names.DeviceKey], allocation: object
    ) -> None:
        """Set or clear the allocation of the observed claim; the API server drops the status of its devices."""
        metadata = {"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version}
        subject = _subject((claim.metadata.namespace, claim.metadata.name))
        with self.cluster.refusals.attempt({key.fabric for key in devices}, subject):
            body = {"metadata": metadata, "status": {"allocation": allocation}}
            await self.cluster.claims.merge(claim, body, manager=self.cluster.manager, subresource="status")

    async def _read(self, claim: claims.ResourceClaim, memory: _Memory) -> demands.Claim | None:
        """Return the claim with its requests, which never change, or None if it is another claim by now."""
        if memory.demanding is None:
            stored = await self.cluster.api.read(
                kinds.CLAIM, claim.metadata.name, namespace=claim.metadata.namespace, into=demands.Claim
            )
            if stored.metadata.uid != claim.metadata.uid:
                return None
            memory.demanding = msgspec.structs.replace(stored, metadata=claim.metadata)
            memory.too_long = _selectors_chars(stored) > SELECTORS_CHARS_MAX
            if memory.too_long:
                memory.demanding = msgspec.structs.replace(memory.demanding, spec=demands.ClaimSpec())
        return msgspec.structs.replace(memory.demanding, metadata=claim.metadata)

    async def _read_classes(self, demanding: demands.Claim) -> dict[str, demands.DeviceClass]:
        """Return the existing classes that the claim names, read within `CLASS_SECONDS`."""
        classes, now = {}, asyncio.get_running_loop().time()
        for name in sorted(decisions.class_names(demanding.spec.devices)):
            device_class, at = self._classes.get(name, (None, -CLASS_SECONDS))
            if now - at >= CLASS_SECONDS:
                try:
                    device_class = await self.cluster.api.read(
                        kinds.DEVICE_CLASS, name, into=demands.DeviceClass
                    )
                except kube_errors.NotFound:
                    device_class = None
                if len(self._classes) >= CLASSES_MAX:
                    self._classes.clear()
                self._classes[name] = device_class, now
            if device_class is not None:
                classes[name] = device_class
        return classes

    def _report(
        self, claim: claims.ResourceClaim, memory: _Memory, reason: str, message: str, *, warning: bool = True
    ) -> None:
        """Record an Event on the claim, unless it is the same as the last one."""
        if memory.reported == (reason, message):
            return
        memory.reported = (reason, message)
        regarding = attachments.ClaimReference(
            namespace=claim.metadata.namespace, name=claim.metadata.name, uid=claim.metadata.uid
        )
        record = self.cluster.recorder.record_warning if warning else self.cluster.recorder.record_normal
        record(regarding, reason=reason, message=message)


def _subject(name: Name) -> str:
    return f"claim {name[0]}/{name[1]}"


def _selectors_chars(claim: demands.Claim) -> int:
    return sum(
        len(expression)
        for request in claim.spec.devices.requests
        for _, way in request.ways()
        for expression in demands.expressions(way.selectors)
    )


def _candidates(
    cluster: Cluster, claim: demands.Claim, avoided: frozenset[str], reserved: matching.Inventory
) -> tuple[str, ...]:
    """Return the nodes to try, the best first.

    This is the node that the claim names; else the nodes without taints, without failures of this claim, and with the
    fewest devices.
    """
    demand = claim.metadata.annotations.get(claims.NODE_ANNOTATION)
    reached = {name for fabric in reserved.fabrics.values() for name in fabric.hosts}

    def is_usable(node: core.Node) -> bool:
        name = node.metadata.name
        is_open = not node.out_of_service and not node.spec.unschedulable
        return is_open and name in reached and demand in (None, "", name)

    def order(node: core.Node) -> tuple[bool, bool, int, str]:
        name = node.metadata.name
        return bool(node.spec.taints), name in avoided, sum(1 for _ in cluster.placed.list_on(name)), name

    return tuple(node.metadata.name for node in sorted(filter(is_usable, cluster.nodes), key=order))
