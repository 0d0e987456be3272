"""Immediate allocation: its watches and its waiting claims."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import assert_never

import msgspec

from drawbar.driver import evaluation
from drawbar.driver.api import claims, demands
from drawbar.driver.controller import change_kinds, jobs, names
from drawbar.driver.controller.allocation import interface
from drawbar.driver.controller.attachments.context import Context
from drawbar.driver.controller.immediate import allocator
from drawbar.driver.watching import watch


class ImmediateRequest(msgspec.Struct, frozen=True):
    """A claim that asks for immediate allocation; without a `uid`, a claim that is gone or no longer asks."""

    namespace: str
    name: str
    uid: str = ""


class Withdrawn(msgspec.Struct, frozen=True):
    """A device that is no longer published to the scheduler."""

    device: names.DeviceKey


class LookAgain(msgspec.Struct, frozen=True):
    """A change of devices or nodes; every waiting claim may get a device."""


Key = ImmediateRequest | Withdrawn | LookAgain


def _is_immediate(claim: claims.ResourceClaim | None) -> bool:
    return claim is not None and demands.is_immediate(claim.metadata)


def _asking_claims(change: change_kinds.ClaimChange) -> list[ImmediateRequest]:
    claim = change.new or change.old
    assert claim is not None
    metadata = claim.metadata
    return [
        ImmediateRequest(metadata.namespace, metadata.name, metadata.uid if _is_immediate(change.new) else "")
    ]


def _withdrawn(change: change_kinds.SliceChange) -> Iterator[Withdrawn]:
    old, new, fabric = change.old, change.new, change.fabric
    if old is not None and fabric is not None:
        shown = {device.name for device in new.spec.devices} if new is not None else set()
        for device in old.spec.devices:
            if device.name not in shown:
                yield Withdrawn(names.DeviceKey(fabric=fabric, device=device.name))


@dataclass(slots=True, kw_only=True, eq=False)
class ImmediateAllocation(interface.Allocation):
    """Immediate allocation of one controller.

    Attributes:
        enabled: whether the configuration allows it; otherwise a claim that asks for it gets an Event.
        evaluator: evaluates the claims' selectors.
    """

    watches = (
        watch(
            "claim asks for immediate allocation, or no longer",
            change_kinds.ClaimChange,
            _asking_claims,
            when=lambda c: _is_immediate(c.old) or _is_immediate(c.new),
        ),
        watch("slice withdraws devices", change_kinds.SliceChange, _withdrawn),
        watch(
            "node lost or found: immediate",
            change_kinds.NodeChange,
            lambda _: [LookAgain()],
            when=lambda c: c.is_lost_or_found,
        ),
        watch("supply: immediate", jobs.JobDone, lambda _: [LookAgain()], when=lambda c: c.renews_supply),
    )
    worker = "immediate"

    enabled: bool
    evaluator: evaluation.Evaluator
    waiting: allocator.Waiting = field(default_factory=allocator.Waiting)

    def wake(self, key: Key) -> None:
        """Take in a change, even while another controller leads."""
        match key:
            case ImmediateRequest(namespace=namespace, name=name, uid=uid):
                self.waiting.ask((namespace, name), uid)
            case Withdrawn(device=device):
                if self.enabled:
                    self.waiting.withdraw(device)
            case LookAgain():
                self.waiting.requeue_all()
            case _:
                assert_never(key)

    async def run(self, context: Context) -> None:
        """Allocate until cancelled."""
        await allocator.Allocator(
            cluster=context.cluster, enabled=self.enabled, evaluator=self.evaluator, waiting=self.waiting
        ).run()
