"""Carries a release out, one step at a time.

Every call looks at the kernel anew, decides (`plan`), makes at most one change, and ends by a deadline; the card that was
asked about only says which functions are meant. Nothing has to be remembered between two calls, so a daemon that is killed
anywhere goes on where it was; what is remembered here only spares repeated writes and tells for how long there has been no
progress.

A device whose serial number comes from its driver (NVMe) is nameless once that is unbound, so after a crash between
unbinding and removal the inventory does not know it. What is found in its slot without a driver and without a serial
number is it: the fabric has put nothing else there before it got the report that the device is free.
"""

import asyncio
import functools
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import assert_never

from drawbar.driver.api import attachments
from drawbar.driver.catalogue import reasons
from drawbar.driver.node import classes, erasing, errors, kernel
from drawbar.driver.node.classes import users
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import cxl, files, index, model, pci
from drawbar.driver.node.release import plan
from drawbar.fabric.classes import DeviceClass

HIGHEST_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """The times of a release.

    Attributes:
        kernel_seconds: how long one call to the kernel may take before it is reported as blocked.
        progress_seconds: how long a step that the kernel took may stay without effect before that is reported.
        next_seconds: the pause between two steps.
        blocked_seconds: how long until a blocked release is looked at again.
    """

    kernel_seconds: float = 30.0
    progress_seconds: float = 10.0
    next_seconds: float = 0.01
    blocked_seconds: float = 2.0


def problems(settings: Timeouts) -> list[str]:
    """One sentence for each value that cannot be."""
    wrong = []
    for field in fields(settings):
        value = getattr(settings, field.name)
        # Written so that it holds for no NaN.
        if not 0 < value <= HIGHEST_SECONDS:
            wrong.append(
                f"release {field.name} {value} is not a number of seconds from above 0 to {HIGHEST_SECONDS:.0f}"
            )
    return wrong


_FUNCTIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The state of a device.

    Attributes:
        card: the functions that are left, fresh; None when none is.
    """

    observed: plan.Observed
    card: model.Card | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """What is to be done about what a user left on a device before it leaves the node, or goes to the next claim.

    Attributes:
        way: as `attachments.AttachmentSpec.clean`, of which empty is the class's own.
        erasure: of this use of the device; None where it was not used since it was last cleaned.
        hook: by card, an administrator's program that cleans it, after its data are erased; None without one.
    """

    way: attachments.Clean | None = None
    erasure: erasing.Erasure | None = None
    hook: Callable[[model.Card], erasing.Eraser] | None = None

    @property
    def resets(self) -> bool:
        """Whether the device is reset."""
        return self.way is not attachments.Clean.NONE

    @property
    def state(self) -> erasing.State:
        """How the erasing stands; a failure counts no more once nothing is to be erased, by an administrator's word."""
        state = self.erasure.state() if self.erasure is not None else erasing.Done()
        spared = self.way is attachments.Clean.NONE
        spared |= self.way is attachments.Clean.RESET and self.hook is None
        return erasing.Done() if spared and isinstance(state, erasing.Failed) else state

    def eraser(self, host: classes.Host, card: model.Card, device_class: str) -> erasing.Eraser | None:
        """Return what erases the data that are still to be erased, and runs the hook; None without any."""
        if self.erasure is None or self.way is attachments.Clean.NONE:
            return None
        if isinstance(self.erasure.state(), erasing.Done):
            return None
        by_class = classes.by_name(device_class).eraser(host, card)
        steps = (
            None if self.way is attachments.Clean.RESET else by_class,
            self.hook(card) if self.hook is not None else None,
        )
        wanted = tuple(step for step in steps if step is not None)

        def all_of_them(report: erasing.Report) -> None:
            for step in wanted:
                step(report)

        return all_of_them if wanted else None


Drain = Callable[[model.Card, bool], str]
"""Makes those who use a card let go of it, if anything does use it (the second argument), and does not wait for that.

Returns in a clause what to wait for; empty where nothing uses the card and nothing is under way.
"""

AS_ITS_CLASS = Cleaning()
"""Of a device that was not used."""


def look(
    host: classes.Host,
    card: model.Card | None,
    slot: str,
    device_class: str | None,
    cleaning: Cleaning = AS_ITS_CLASS,
    *,
    companions: Collection[model.Card] = (),
) -> Observation:
    """Everything about one device.

    Args:
        host: where to look.
        card: as it was last seen; None when the inventory has no such device any more.
        slot: the name of its slot; empty where it sits in none.
        device_class: what it is treated as; None for what its first function is.
        cleaning: what is to be done about its user's traces.
        companions: the other members of its composite, those that this node shows.
    """
    in_slot = tuple(_in_slot(host, slot))
    own = _own(host, card, in_slot)
    own_card = _card(host, own)
    used: tuple[str, ...] = ()
    unrest = None
    resets: tuple[str, ...] = ()
    data, driverless = None, False
    if own_card is not None:
        treated_as = device_class or own_card.first.device_class
        operations = classes.by_name(treated_as).among(companions)
        used, unrest = operations.users(host, own_card), operations.unrest(host, own_card)
        resets = operations.resets(own_card) if cleaning.resets else ()
        if cleaning.eraser(host, own_card, treated_as) is not None:
            data = own_card.address
            driverless = not operations.needs_driver
    return Observation(
        observed=plan.Observed(
            functions=tuple(_function(host, function, resets) for function in own),
            slot=_slot(host, slot, taken=bool(in_slot) and not own),
            used_by=used,
            unrest=unrest,
            data=data,
            driverless=driverless,
        ),
        card=own_card,
    )


def _own(
    host: classes.Host, card: model.Card | None, in_slot: tuple[model.PciFunction, ...]
) -> tuple[model.PciFunction, ...]:
    """Return what is left of the device, and everything that loses its power with it."""
    functions = card.functions if card is not None else ()
    seen = {function.address: function for function in in_slot}
    by_address = {
        fresh.address: fresh for function in functions if (fresh := _again(host, function, seen)) is not None
    }
    if by_address or all(_is_nameless(function) for function in in_slot):
        by_address |= {function.address: function for function in in_slot}
    for function in tuple(by_address.values()):
        for address in function.sriov.virtual_functions if function.sriov is not None else ():
            virtual = reader.read_function(host.sysfs, address)
            if virtual is not None:
                by_address.setdefault(address, virtual)
    return tuple(by_address.values())


def _again(
    host: classes.Host, former: model.PciFunction, seen: Mapping[str, model.PciFunction]
) -> model.PciFunction | None:
    """The function as it is now; None if it is gone, or its address is another device's by now.

    What was `seen` in the slot is not read again: gone by then, it would be what has taken the slot from itself.
    """
    fresh = seen.get(former.address) or reader.read_function(host.sysfs, former.address)
    return fresh if fresh is not None and _is_same(fresh, former) else None


def _is_same(fresh: model.PciFunction, former: model.PciFunction) -> bool:
    """Whether two looks saw one device. Without a driver another number may stand for its serial, or none."""
    if (fresh.vendor, fresh.device) != (former.vendor, former.device):
        return False
    if fresh.dsn and former.dsn:
        return fresh.dsn == former.dsn
    if fresh.driver is None or former.driver is None or not fresh.serial or not former.serial:
        return True
    return model.canonical_serial(fresh.serial) == model.canonical_serial(former.serial)


def _is_nameless(function: model.PciFunction) -> bool:
    """Without a driver, and so without the serial number that the inventory knows it by."""
    named = function.serial is not None and function.device_class is not DeviceClass.NVME
    return function.driver is None and not named


def _in_slot(host: classes.Host, slot: str) -> Iterator[model.PciFunction]:
    """Every function in or below a slot."""
    place = files.text(f"{host.sysfs}/bus/pci/slots/{slot}/address") if slot else None
    for number in range(_FUNCTIONS if place else 0):
        link = files.link_target(f"{host.sysfs}/bus/pci/devices/{place}.{number}")
        if link is not None:
            port = files.below_root(link).rpartition("/")[0]
            for address in _below(host, port):
                function = reader.read_function(host.sysfs, address)
                if function is not None:
                    yield function
            return


def _below(host: classes.Host, path: str) -> Iterator[str]:
    for name in files.names(f"{host.sysfs}/{path}"):
        if pci.ADDRESS.fullmatch(name):
            yield name
            yield from _below(host, f"{path}/{name}")


def _card(host: classes.Host, own: Iterable[model.PciFunction]) -> model.Card | None:
    functions = tuple(own)
    if not functions:
        return None
    return model.make_card(functions, {}, index.by_function(cxl.read(os.fspath(host.sysfs)).memdevs))


def _function(host: classes.Host, function: model.PciFunction, resets: Collection[str]) -> plan.Function:
    return plan.Function(
        address=function.address,
        path=function.path,
        bound=function.driver is not None and function.device_class is not DeviceClass.BRIDGE,
        vfs=function.sriov.num_vfs if function.sriov is not None else 0,
        virtual=function.physical_function is not None,
        # The kernel makes the file where it has a way to reset the function (Documentation/ABI/testing/sysfs-bus-pci).
        resets=function.address in resets
        and os.path.lexists(f"{host.sysfs}/bus/pci/devices/{function.address}/reset"),
    )


def _slot(host: classes.Host, name: str, *, taken: bool) -> plan.Slot | None:
    folder = f"{host.sysfs}/bus/pci/slots/{name}"
    if not name or not files.names(folder):
        return None
    return plan.Slot(
        name=name,
        powered=pci.flag(files.number(folder + "/power")),
        present=pci.flag(files.number(folder + "/adapter")),
        taken=taken,
    )


log = logging.getLogger(__name__)

REMEMBERED_MAX = 1024
"""Releases that were begun; a host has fewer slots."""
EFFECT_SECONDS = 0.05
"""Between two looks whether a step has had its effect; a kernel's has when `write` returns."""
SETTLED_SECONDS = 0.25
"""How long a slot is looked at that was switched off and still shows as on."""
ERASE_REPORTED_SECONDS = 2.0
"""An erase that takes longer is reported with its progress, every so often."""
ERASE_LOOK_SECONDS = 1.0
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


def _drained(action: plan.Action, waits_for: str) -> plan.Action:
    if not waits_for:
        return action
    return plan.Wait(message=f"{action.message}; {waits_for}" if isinstance(action, plan.Wait) else waits_for)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Treated:
    """How a device is treated; the fields are arguments of `Releaser.step`."""

    device_class: str | None
    cleaning: Cleaning
    companions: tuple[model.Card, ...]

    def operations(self, card: model.Card) -> classes.Class:
        """What is done with the device."""
        return classes.by_name(self.device_class or card.first.device_class).among(self.companions)


class Releaser:
    """Releases the devices of one node. Steps for different devices may run at the same time."""

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
        self._begun: dict[str, _Begun] = {}
        self._warned = False

    async def step(
        self,
        card: model.Card | None,
        slot: str,
        *,
        device_class: str | None = None,
        cleaning: Cleaning = AS_ITS_CLASS,
        drain: Drain | None = None,
        companions: Collection[model.Card] = (),
    ) -> plan.Outcome:
        """The next step for one device; idempotent, makes one change at most.

        Args:
            card: as the inventory has it now; None when it has it no more.
            slot: the name of its slot, the one that was recorded when the card is None; empty where it sits in none.
            device_class: what the device was offered as; None for what its first function is.
            cleaning: what is to be done about its user's traces.
            drain: see `Drain`; None where nothing does that.
            companions: the other members of its composite, those that this node shows.
        """
        key = f"slot {slot}" if slot else card.address if card is not None else ""
        if not key:
            return plan.Released()
        # This process has the device open while it erases it, and is no user to wait for.
        if (under_way := _erasing(cleaning.state)) is not None:
            return under_way
        self._warn()
        begun = self._begun.get(key, _Begun())
        treated = _Treated(device_class=device_class, cleaning=cleaning, companions=tuple(companions))
        try:
            observation = await self._look(key, card or begun.card, slot, treated)
            action = plan.plan(observation.observed)
            begun = replace(begun, card=observation.card)
            if begun.card is not None and drain is not None:
                action = _drained(action, drain(begun.card, isinstance(action, plan.Wait)))
            return await self._carry_out(key, begun, action, treated)
        except errors.KernelSilent as silent:
            return self._blocked(reasons.KERNEL_SILENT, str(silent))
        except errors.NotCleaned as unclean:
            return self._blocked(reasons.NOT_CLEANED, str(unclean))
        except errors.KernelRefused as refused:
            return self._blocked(reasons.KERNEL_REFUSED, str(refused))

    async def _look(self, key: str, card: model.Card | None, slot: str, treated: _Treated) -> Observation:
        read = functools.partial(
            look,
            self._host,
            card,
            slot,
            treated.device_class,
            treated.cleaning,
            companions=treated.companions,
        )
        return await self._kernel.run(f"release: {key}", f"how the device in {key} stands", read)

    async def _carry_out(
        self, key: str, begun: _Begun, action: plan.Action, treated: _Treated
    ) -> plan.Outcome:
        match action:
            case plan.Done():
                self._begun.pop(key, None)
                return plan.Released()
            case plan.Wait(message=message):
                self._remember(key, _Begun(card=begun.card))
                return self._blocked(reasons.IN_USE, message)
            case plan.Erase():
                self._remember(key, _Begun(card=begun.card))
                return await self._erase(begun.card, treated)
            case _:
                if isinstance(action, plan.Unbind) and treated.cleaning.erasure is not None:
                    treated.cleaning.erasure.spare()
                return await self._make(key, begun, action, treated)

    async def _erase(self, card: model.Card | None, treated: _Treated) -> plan.Outcome:
        """Begin to erase what nothing uses any more; the kernel refuses while it does."""
        cleaning = treated.cleaning
        assert card is not None  # the plan is of this card
        assert cleaning.erasure is not None  # or nothing would be to erase
        await self._quiesce(card, treated)
        eraser = cleaning.eraser(self._host, card, treated.device_class or card.first.device_class)
        if eraser is not None:
            log.info("erasing", extra={"device": card.address})
            cleaning.erasure.begin(card.address, eraser)
        return plan.Working(seconds=EFFECT_SECONDS)

    async def _make(
        self,
        key: str,
        begun: _Begun,
        action: plan.Step,
        treated: _Treated,
    ) -> plan.Outcome:
        now = self._clock()
        # By its words: a function that is leaving loses its file `reset` first, and its removal is still the same step.
        again = begun.action is not None and plan.words(action) == plan.words(begun.action)
        since = begun.since if again else now
        due = not again or now - begun.made >= REPEAT_SECONDS
        if due:
            self._remember(key, _Begun(card=begun.card))  # what the kernel refuses was not made
            await self._do(action, begun.card, treated)
            log.info("a step of a release was made", extra={"device": key, "step": plan.words(action)})
        elif isinstance(action, plan.PowerOff) and now - since >= SETTLED_SECONDS:
            # The kernel took it, and the slot stayed empty. The switch of a port without a power controller says "on"
            # for ever.
            self._begun.pop(key, None)
            return plan.Released()
        self._remember(key, replace(begun, action=action, since=since, made=now if due else begun.made))
        if now - since > self._limits.progress_seconds:
            text = f"asked to {plan.words(action)}, the kernel has not for {now - since:.0f} s; look at its log (dmesg)"
            return self._blocked(reasons.NO_PROGRESS, text)
        return plan.Working(seconds=EFFECT_SECONDS if again else self._limits.next_seconds)

    async def _do(
        self,
        action: plan.Step,
        card: model.Card | None,
        treated: _Treated,
    ) -> None:
        match action:
            case plan.DropVirtualFunctions(address=address):
                await self._kernel.set_vfs(address, 0)
            case plan.Quiesce():
                await self._quiesce(card, treated)
            case plan.Bind(address=address):
                await self._kernel.probe(address)
            case plan.Unbind(address=address):
                await self._quiesce(card, treated)
                # Another member of its composite may have been made ready with it since it was looked at.
                if not treated.companions or await self._is_at_rest(card, treated):
                    await self._kernel.unbind(address)
            case plan.Remove(address=address, reset=reset):
                if reset:
                    await self._reset(address)
                await self._kernel.remove(address)
            case plan.PowerOff(slot=slot):
                await self._kernel.power_slot(slot, on=False)
            case _:
                assert_never(action)

    async def _quiesce(self, card: model.Card | None, treated: _Treated) -> None:
        if card is not None:
            await treated.operations(card).quiesce(self._kernel, self._host, card)

    async def _is_at_rest(self, card: model.Card | None, treated: _Treated) -> bool:
        if card is None:
            return True
        return await asyncio.to_thread(treated.operations(card).unrest, self._host, card) is None

    async def _reset(self, address: str) -> None:
        try:
            await self._kernel.reset(address)
        except errors.KernelSilent:
            raise
        except errors.KernelRefused as refused:
            raise errors.NotCleaned(
                f"{address} is not reset, so the device stays on this node: {refused}"
            ) from refused

    def _blocked(self, reason: str, message: str) -> plan.Blocked:
        return plan.Blocked(reason=reason, message=message, seconds=self._limits.blocked_seconds)

    def _remember(self, key: str, begun: _Begun) -> None:
        self._begun.pop(key, None)
        self._begun[key] = begun
        while len(self._begun) > REMEMBERED_MAX:
            del self._begun[next(iter(self._begun))]

    def _warn(self) -> None:
        """Log once that users can be missed."""
        if not self._warned:
            self._warned = True
            if (why := users.blindness(self._host.proc)) is not None:
                log.warning(why)


def _erasing(state: erasing.State) -> plan.Outcome | None:
    """The outcome of a step while the device is being erased, or that has just failed; None where it goes on."""
    match state:
        case erasing.Running(progress=progress, seconds=seconds):
            if seconds < ERASE_REPORTED_SECONDS:
                return plan.Working(seconds=EFFECT_SECONDS)
            return plan.Blocked(reason=reasons.CLEANING, message=progress, seconds=ERASE_LOOK_SECONDS)
        case erasing.Failed(why=why):
            return plan.Blocked(reason=reasons.NOT_CLEANED, message=why, seconds=ERASE_LOOK_SECONDS)
        case erasing.Due() | erasing.Done():
            return None
        case _:
            assert_never(state)
