"""The executor of a device's treatment, one step at a time.

Every call looks at the kernel, plans, takes at most one step and ends by a deadline. No state has to survive between two calls,
so the treatment continues after the daemon is killed. `Progress` avoids repeated writes, and measures the time without progress.
"""

import functools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import assert_never

from drawbar.driver.catalogue import reasons
from drawbar.driver.node import classes, errors, kernel
from drawbar.driver.node.classes import users
from drawbar.driver.node.inventory import model
from drawbar.driver.node.treatment import erasing, observation, plan
from drawbar.driver.node.treatment.observation import Order, Progress

HIGHEST_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """The times of a treatment.

    Attributes:
        kernel_seconds: the time before a kernel call is reported as too long.
        progress_seconds: the time before a step without effect is reported.
        next_seconds: the pause between two steps.
        blocked_seconds: the pause before the next try of a blocked treatment.
    """

    kernel_seconds: float = 30.0
    progress_seconds: float = 10.0
    next_seconds: float = 0.01
    blocked_seconds: float = 2.0


def problems(settings: Timeouts) -> list[str]:
    """Return one sentence for each wrong value."""
    wrong = []
    for field in fields(settings):
        value = getattr(settings, field.name)
        # NaN fails this comparison, so it is refused.
        if not 0 < value <= HIGHEST_SECONDS:
            wrong.append(
                f"release {field.name} {value} is not a number of seconds from above 0 to {HIGHEST_SECONDS:.0f}"
            )
    return wrong


log = logging.getLogger(__name__)

EFFECT_SECONDS = 0.05
"""The pause between two looks for the effect of a step. Most steps have their effect when the kernel's `write` returns."""
SETTLED_SECONDS = 0.25
"""The time after which a slot counts as switched off although it still shows as on."""
ERASE_REPORTED_SECONDS = 2.0
"""The time after which an erase is reported with its progress."""
ERASE_LOOK_SECONDS = 1.0
REPEAT_SECONDS = 1.0
"""The time without an effect after which a step is repeated."""


class Executor:
    """The executor of one node's treatments. Steps for different devices may run at the same time."""

    def __init__(
        self,
        kernel: kernel.Kernel,
        *,
        host: classes.Host | None = None,
        limits: Timeouts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kernel = kernel
        self._host = host or classes.Host.from_sysfs(kernel.sysfs)
        self._limits = limits or Timeouts()
        self._clock = clock
        self._warned = False

    async def step(self, order: Order, progress: Progress) -> plan.Outcome:
        """Take the next step for one device; return its outcome. It is idempotent, and makes at most one change."""
        if not order.name:
            return plan.Done()
        # During an erase this process has the device open, and would count as its user.
        if (under_way := _erasing_outcome(order.erasure_state(progress))) is not None:
            return under_way
        self._warn()
        try:
            draining = progress.draining.observe(order.drain, self._clock())
            read = functools.partial(observation.look, self._host, order, progress, draining)
            seen = await self._kernel.run(
                f"treatment: {order.name}", f"how the device in {order.name} stands", read
            )
            progress.card = seen.card
            return await self._carry_out(plan.plan(seen.observed), order, progress)
        except errors.KernelSilent as silent:
            return self._make_blocked(reasons.KERNEL_SILENT, str(silent))
        except errors.NotCleaned as unclean:
            return self._make_blocked(reasons.NOT_CLEANED, str(unclean))
        except errors.KernelRefused as refused:
            return self._make_blocked(reasons.KERNEL_REFUSED, str(refused))

    async def _carry_out(self, action: plan.Action, order: Order, progress: Progress) -> plan.Outcome:
        if not isinstance(action, plan.Reset | plan.Finish):
            progress.reset, progress.is_flushed = frozenset(), False
        match action:
            case plan.Finish():
                progress.step = None
                progress.draining.end()
                return plan.Done()
            case plan.Block(reason=reason, message=message):
                progress.step = None
                return self._make_blocked(reason, message)
            case plan.Drain(message=message):
                progress.step = None
                return self._drain(message, order, progress)
            case plan.Erase():
                progress.step = None
                return await self._erase(order, progress)
            case _:
                return await self._take(action, order, progress)

    def _drain(self, users: str, order: Order, progress: Progress) -> plan.Blocked:
        assert order.drain is not None  # only a drain hook can be due
        assert progress.card is not None  # only a present card has users
        progress.draining.begin(order.drain, progress.card)
        draining = progress.draining.observe(order.drain, self._clock())
        return self._make_blocked(reasons.IN_USE, f"{users}; {draining.message}")

    async def _erase(self, order: Order, progress: Progress) -> plan.InProgress:
        """Begin to erase a device without users; return the outcome. The kernel refuses to erase a device in use."""
        card = progress.card
        assert card is not None  # only a present card has data
        await self._quiesce(order, card)
        eraser = order.eraser(self._host, card, progress)
        if eraser is not None:
            log.info("a device is being erased", extra={"device": card.address})
            progress.erasure.begin(card.address, eraser)
        return plan.InProgress(seconds=EFFECT_SECONDS)

    async def _take(self, step: plan.Step, order: Order, progress: Progress) -> plan.Outcome:
        now = self._clock()
        # Compared by text: a function loses its `reset` file before it goes, and its removal is still the same step.
        is_same = progress.step is not None and plan.describe(step) == plan.describe(progress.step)
        since = progress.since if is_same else now
        if not is_same or now - progress.taken_at >= REPEAT_SECONDS:
            progress.step = None  # a refused step does not count as taken
            await self._do(step, order, progress)
            log.info(
                "a step of a treatment was taken", extra={"device": order.name, "step": plan.describe(step)}
            )
            progress.taken_at = now
        elif isinstance(step, plan.PowerOff) and now - since >= SETTLED_SECONDS:
            # The kernel accepted it, and the slot stayed empty. Without a power controller, a port always shows "on".
            progress.step = None
            return plan.Done()
        progress.step, progress.since = step, since
        if now - since > self._limits.progress_seconds:
            text = f"asked to {plan.describe(step)}, the kernel has not for {now - since:.0f} s; look at its log (dmesg)"
            return self._make_blocked(reasons.NO_PROGRESS, text)
        return plan.InProgress(seconds=EFFECT_SECONDS if is_same else self._limits.next_seconds)

    async def _do(self, step: plan.Step, order: Order, progress: Progress) -> None:
        match step:
            case plan.DropVirtualFunctions(address=address):
                if not order.leaves:
                    await self._kernel.set_vf_probing(address, on=True)
                await self._kernel.set_vfs(address, 0)
            case plan.Quiesce():
                await self._quiesce(order, progress.card)
            case plan.Bind(address=address):
                await self._kernel.probe(address)
            case plan.Reset(address=address):
                await self._quiesce(order, progress.card)
                if address:
                    await self._reset(address, order)
                progress.reset, progress.is_flushed = progress.reset | {address}, True
            case plan.Unbind(address=address):
                progress.erasure.skip()
                await self._quiesce(order, progress.card)
                # Since the look, the device may have been made ready together with another composite member.
                if not order.companions or await self._is_at_rest(order, progress.card):
                    await self._kernel.unbind(address)
            case plan.Remove(address=address, reset=reset):
                if reset:
                    await self._reset(address, order)
                await self._kernel.remove(address)
            case plan.PowerOff(slot=slot):
                await self._kernel.power_slot(slot, on=False)
            case _:
                assert_never(step)

    async def _quiesce(self, order: Order, card: model.Card | None) -> None:
        if card is not None:
            await order.operations(card).quiesce(self._kernel, self._host, card)

    async def _is_at_rest(self, order: Order, card: model.Card | None) -> bool:
        if card is None:
            return True
        pending = order.operations(card).pending_quiesce_step
        target = f"quiesce: {order.name}"
        look = functools.partial(pending, self._host, card)
        return await self._kernel.run(target, f"whether the device in {order.name} is at rest", look) is None

    async def _reset(self, address: str, order: Order) -> None:
        try:
            await self._kernel.reset(address)
        except errors.KernelSilent:
            raise
        except errors.KernelRefused as refused:
            effect = "the device stays on this node" if order.leaves else "no other claim gets the device"
            raise errors.NotCleaned(f"{address} is not reset, so {effect}: {refused}") from refused

    def _make_blocked(self, reason: str, message: str) -> plan.Blocked:
        return plan.Blocked(reason=reason, message=message, seconds=self._limits.blocked_seconds)

    def _warn(self) -> None:
        """Log once if the daemon cannot see all users of devices."""
        if not self._warned:
            self._warned = True
            if (why := users.blindness(self._host.proc)) is not None:
                log.warning(why)


def _erasing_outcome(state: erasing.State) -> plan.Outcome | None:
    """Return the outcome during an erase or shortly after its failure; None if a step is due."""
    match state:
        case erasing.Running(progress=progress, seconds=seconds):
            if seconds < ERASE_REPORTED_SECONDS:
                return plan.InProgress(seconds=EFFECT_SECONDS)
            return plan.InProgress(seconds=ERASE_LOOK_SECONDS, message=progress)
        case erasing.Failed(why=why):
            return plan.Blocked(reason=reasons.NOT_CLEANED, message=why, seconds=ERASE_LOOK_SECONDS)
        case erasing.NotStarted() | erasing.Done():
            return None
        case _:
            assert_never(state)
