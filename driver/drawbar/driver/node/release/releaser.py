"""Carries a release out, one step at a time.

Every call looks at the kernel, decides (`plan`), makes at most one change, and ends by a deadline. Nothing has to be
remembered between two calls, so a daemon that is killed anywhere goes on where it was; what is remembered here only
spares repeated writes and tells for how long there has been no progress.
"""

import functools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

from drawbar.driver.node import classes, errors, kernel
from drawbar.driver.node.classes import openers
from drawbar.driver.node.inventory import model
from drawbar.driver.node.release import observation, outcomes, plan, timeouts

log = logging.getLogger(__name__)

REMEMBERED_MAX = 1024
"""Releases that were begun; a host has fewer slots."""
EFFECT_SECONDS = 0.05
"""Between two looks whether a step has had its effect; a kernel's has when `write` returns."""
SETTLED_SECONDS = 0.25
"""How long a slot is looked at that was switched off and still says that it is on."""
REPEAT_SECONDS = 1.0
"""After so long without an effect a step is made again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """The last step of a release.

    Attributes:
        card: as it was last seen: an inventory may not know a device again once its driver is gone.
        since: when this very step was first made; `made`: when last.
    """

    card: model.Card | None = None
    action: plan.Action | None = None
    since: float = 0.0
    made: float = 0.0


class Releaser:
    """Lets go of the devices of one node. Steps for different devices may run at the same time."""

    def __init__(
        self,
        kernel: kernel.Kernel,
        *,
        host: classes.Host | None = None,
        limits: timeouts.Timeouts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kernel = kernel
        self._host = host or classes.Host.of(kernel.sysfs)
        self._limits = limits or timeouts.Timeouts()
        self._clock = clock
        self._begun: dict[str, _Begun] = {}
        self._warned = False

    async def step(
        self, card: model.Card | None, slot: str, *, device_class: str | None = None
    ) -> outcomes.Outcome:
        """The next step for one device; idempotent, makes one change at most.

        Args:
            card: as the inventory has it now; None when it has it no more.
            slot: the name of its slot, the one that was recorded when the card is None; empty where it sits in none.
            device_class: what the device was offered as; None for what its first function is.
        """
        key = f"slot {slot}" if slot else card.address if card is not None else ""
        if not key:
            return outcomes.Released()
        self._warn()
        begun = self._begun.get(key, _Begun())
        try:
            sight = await self._look(key, card or begun.card, slot, device_class)
            action = plan.plan(sight.observed)
            begun = replace(begun, card=sight.card)
            return await self._carry_out(key, begun, action, device_class)
        except errors.KernelSilent as silent:
            return self._blocked(outcomes.SILENT, str(silent))
        except errors.KernelRefused as refused:
            return self._blocked(outcomes.REFUSED, str(refused))

    async def _look(
        self, key: str, card: model.Card | None, slot: str, device_class: str | None
    ) -> observation.Sight:
        look = functools.partial(observation.look, self._host, card, slot, device_class)
        return await self._kernel.run(f"release: {key}", f"how the device in {key} stands", look)

    async def _carry_out(
        self, key: str, begun: _Begun, action: plan.Action, device_class: str | None
    ) -> outcomes.Outcome:
        match action:
            case plan.Done():
                self._begun.pop(key, None)
                return outcomes.Released()
            case plan.Wait(message=message):
                self._remember(key, _Begun(card=begun.card))
                return self._blocked(outcomes.IN_USE, message)
            case _:
                return await self._make(key, begun, action, device_class)

    async def _make(
        self,
        key: str,
        begun: _Begun,
        action: plan.DropVirtualFunctions | plan.Quiesce | plan.Unbind | plan.Remove | plan.PowerOff,
        device_class: str | None,
    ) -> outcomes.Outcome:
        now = self._clock()
        again = action == begun.action
        since = begun.since if again else now
        made = begun.made if again and now - begun.made < REPEAT_SECONDS else now
        if made == now:
            self._remember(key, _Begun(card=begun.card))  # what the kernel refuses was not made
            await self._do(action, begun.card, device_class)
            log.info("a step of a release was made", extra={"device": key, "step": plan.words(action)})
        elif isinstance(action, plan.PowerOff) and now - since >= SETTLED_SECONDS:
            # The kernel took it, and the slot stayed empty. The switch of a port without a power controller says "on"
            # for ever.
            self._begun.pop(key, None)
            return outcomes.Released()
        self._remember(key, replace(begun, action=action, since=since, made=made))
        if now - since > self._limits.progress_seconds:
            text = f"asked to {plan.words(action)}, the kernel has not for {now - since:.0f} s; look at its log (dmesg)"
            return self._blocked(outcomes.STUCK, text)
        return outcomes.Working(seconds=EFFECT_SECONDS if again else self._limits.next_seconds)

    async def _do(
        self,
        action: plan.DropVirtualFunctions | plan.Quiesce | plan.Unbind | plan.Remove | plan.PowerOff,
        card: model.Card | None,
        device_class: str | None,
    ) -> None:
        match action:
            case plan.DropVirtualFunctions(address=address):
                await self._kernel.set_vfs(address, 0)
            case plan.Quiesce():
                await self._quiesce(card, device_class)
            case plan.Unbind(address=address):
                await self._quiesce(card, device_class)
                await self._kernel.unbind(address)
            case plan.Remove(address=address):
                await self._kernel.remove(address)
            case plan.PowerOff(slot=slot):
                await self._kernel.power_slot(slot, on=False)
            case _:
                assert_never(action)

    async def _quiesce(self, card: model.Card | None, device_class: str | None) -> None:
        if card is not None:
            operations = classes.of(device_class or card.first.device_class)
            await operations.quiesce(self._kernel, self._host, card)

    def _blocked(self, reason: str, message: str) -> outcomes.Blocked:
        return outcomes.Blocked(reason=reason, message=message, seconds=self._limits.blocked_seconds)

    def _remember(self, key: str, begun: _Begun) -> None:
        self._begun.pop(key, None)
        self._begun[key] = begun
        while len(self._begun) > REMEMBERED_MAX:
            del self._begun[next(iter(self._begun))]

    def _warn(self) -> None:
        """Says once that users can be missed."""
        if not self._warned:
            self._warned = True
            if (why := openers.blindness(self._host.proc)) is not None:
                log.warning(why)
