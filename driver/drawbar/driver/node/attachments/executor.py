"""Executes the actions of `attachments.plan`, one side effect each.

An action on the device changes what is observed, so the plan is made again in the same round, `ROUNDS_MAX` times at most;
then the key is queued again. On any error it stops; the key is queued again after a pause, and everything is observed anew.
"""

import asyncio
import datetime
import functools
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from drawbar.driver import clocks, sightings
from drawbar.driver.api import attachments, parameters
from drawbar.driver.catalogue import reasons
from drawbar.driver.node import classes, erasing, errors, kernel
from drawbar.driver.node.attachments import (
    actions,
    functions,
    hooks,
    matching,
    plan,
    reporting,
    sole_arrival,
    versions,
)
from drawbar.driver.node.discovery import devices
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.inventory import index, model, netdevs, pci
from drawbar.driver.node.release import plan as release_plan
from drawbar.driver.node.release import releaser

STEPS_MAX = 64
"""A device that takes more to come to rest is looked at again later."""


async def clean(
    kernel: kernel.Kernel,
    host: classes.Host,
    card: model.Card,
    device_class: str,
    cleaning: releaser.Cleaning = releaser.AS_ITS_CLASS,
    *,
    companions: Collection[model.Card] = (),
    keeps_functions: bool = False,
) -> str | release_plan.Working:
    """Take away what the last claim left on a device that stays attached, as far as can be done at once; idempotent.

    Its data are erased where they are to be, and each function is reset by the best method that it has (FLR where it can).
    What stands on the device, such as memory that is online, is taken down by its class first; initialisation builds it up
    again.

    Args:
        kernel: of the host.
        host: the same.
        card: the device.
        device_class: what it is treated as.
        cleaning: what is to be done about its user's traces.
        companions: the other members of its composite, those that this node shows.
        keeps_functions: its virtual functions are an administrator's, and stay.

    Returns:
        Why a trace of the last use may be left, in a clause; empty when none is; or that its data are being erased.
    """
    match cleaning.state:
        case erasing.Running():
            return release_plan.Working(seconds=plan.LOOK_SECONDS)
        case erasing.Failed(why=why):
            return why
        case _:
            pass
    operations = classes.by_name(device_class).among(companions)
    users = await asyncio.to_thread(operations.users, host, card)
    if users:
        return release_plan.message(users)
    try:
        for _ in range(STEPS_MAX):
            if await asyncio.to_thread(operations.unrest, host, card) is None:
                break
            await operations.quiesce(kernel, host, card)
        else:
            return "it does not come to rest"
        await operations.quiesce(kernel, host, card)
        eraser = cleaning.eraser(host, card, device_class)
        if eraser is not None and cleaning.erasure is not None:
            cleaning.erasure.begin(card.address, eraser)
            return release_plan.Working(seconds=plan.LOOK_FIRST_SECONDS)
        for function in card.functions:
            if function.sriov is not None and function.sriov.num_vfs and not keeps_functions:
                await kernel.set_vfs(function.address, 0)
                await kernel.set_vf_probing(function.address, on=True)
        is_virtual = card.first.physical_function is not None
        addresses = (card.address,) if is_virtual else operations.resets(card)
        for address in addresses if cleaning.resets else ():
            await kernel.reset(address)
    except errors.KernelRefused as refused:
        return str(refused)
    return ""


ROUNDS_MAX = 8
"""Of planning in one call; an arrival takes two, a step of a release one, a device that was cleaned four."""
AGAIN_SECONDS = 0.05
"""After so many rounds other attachments are reconciled first."""
DELETION = "deletion"
_NOT_OFFERED = (
    "its class has its virtual functions offered, and this node offers none of such devices: set localPool.virtualFunctions, and "
    "have localPool.classes name the class, or leave virtualFunctions.offered out"
)
_IN_ITS_PLACE = (
    "its class asks for virtual functions, and this node offers those of its own devices in place of the device: leave virtualFunctions "
    "out of the class, or turn localPool.virtualFunctions off"
)
_PARTS_OF_PATIENCE = 4
"""A card may take at most this part of a device's time to show its identifiers: the rest is for its driver and its hook."""
_ALL_ONES = "its configuration space answers with ones alone"
Links = Callable[[str, Mapping[int, netdevs.FunctionLink]], None]


@dataclass(slots=True, kw_only=True)
class Memory:
    """What this daemon remembers of one attachment; a new daemon observes it again.

    Attributes:
        uid: of the attachment; a later one of the same name has another.
        claim_notified: the failure is recorded on the claim.
        attempt: the last try to make the device ready.
        leaving: the device, since its release was begun.
        erasure: of the last use of the device.
        hook: the run of its hook, or the load of its bitstream.
        draining: of the device, since its release was begun.
        hook_for: uid and allocation timestamp of the claim that this is or was for.
        functions_for: the same of the claim for which virtual functions are being set up.
        seen: by condition, and for its deletion, when that was first seen to hold.
        looked: the device was read from the kernel since it was attached.
        baseline: the node's cards before the attach, for a device that is recognised by its arrival.
    """

    uid: str
    claim_notified: bool = False
    looked: bool = False
    baseline: sole_arrival.Baseline | None = None
    attempt: actions.Attempt | None = None
    leaving: model.Card | None = None
    erasure: erasing.Erasure = field(default_factory=erasing.Erasure)
    hook: asyncio.Task[str] | None = None
    draining: hooks.Draining = field(default_factory=hooks.Draining)
    hook_for: tuple[str, str] = ("", "")
    functions_for: tuple[str, str] = ("", "")
    seen: sightings.Sightings[str] = field(default_factory=sightings.Sightings)

    def end_hook(self) -> None:
        """End its hooks that still run."""
        self.draining.end()
        if self.hook is not None:
            self.hook.cancel()
            self.hook = None

    def see(self, attachment: attachments.DeviceAttachment, now: datetime.datetime) -> None:
        """Note what of the attachment holds now."""
        for kind in (attachments.ATTACHED, attachments.VISIBLE):
            self.seen.see(kind, attachment.holds(kind) or None, now)
        self.seen.see(DELETION, attachment.deleting or None, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """The use of a device's virtual functions on this node.

    Attributes:
        claims: that have one, each in a clause.
        offered: the node's pool has one.
    """

    claims: tuple[str, ...] = ()
    offered: bool = False


def _unshared(_: attachments.DeviceAttachment) -> Sharing:
    return Sharing()


def _offers_none(_: str) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """The fingerprint of the card that an attachment had in an inventory; empty without one."""

    inventory: index.Inventory
    attachment: attachments.DeviceAttachment
    card: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the executor works with.

    Attributes:
        sharing: which claims have virtual functions of an attachment's device, and whether such are offered.
        offers: whether this node offers the virtual functions of a class of devices that are lent.
        memories: by name of the attachment; `forget` bounds it.
        judged: the health of the devices; None where it is not monitored.
        hooks: runs the programs that make devices ready, and loads bitstreams.
        links: sets up virtual functions through a network interface, as `netdevs.set_up_functions`; it blocks.
        companion: returns the DeviceAttachment of that name on this node, or None.
        attached: returns the DeviceAttachments of this node, of all drivers.
        held: the cards of the attachments, by name, while neither inventory nor attachment changes.
        ledger: the cards that came and went.
        local: returns the card of a device that lives in this node, by pool and name; None where the devices are a fabric's.
    """

    reporter: reporting.Reporter
    arrivals: devices.Devices
    kernel: kernel.Kernel
    releaser: releaser.Releaser
    boot_id: str
    since: datetime.datetime
    patience: datetime.timedelta
    clock: clocks.Clock
    time_of_day: clocks.Clock
    holder: Callable[[str, str], str | None]
    hooks: hooks.Runner
    judged: verdicts.Verdicts | None = None
    links: Links = netdevs.set_up_functions
    sharing: Callable[[attachments.DeviceAttachment], Sharing] = _unshared
    offers: Callable[[str], bool] = _offers_none
    companion: Callable[[str], attachments.DeviceAttachment | None] = lambda _: None
    attached: Callable[[], Iterable[attachments.DeviceAttachment]] = lambda: ()
    local: Callable[[str, str], model.Card | None] | None = None
    memories: dict[str, Memory] = field(default_factory=dict)
    held: dict[str, _Held] = field(default_factory=dict)
    ledger: sole_arrival.Ledger = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ledger", sole_arrival.Ledger(self.arrivals, self.clock, self._released))

    def forget(self, name: str) -> None:
        """The attachment is gone."""
        self.held.pop(name, None)
        memory = self.memories.pop(name, None)
        if memory is not None:
            memory.end_hook()

    def memory(self, attachment: attachments.DeviceAttachment) -> Memory:
        """What is remembered of it."""
        memory = self.memories.get(attachment.metadata.name)
        if memory is None or memory.uid != attachment.metadata.uid:
            if memory is not None:
                memory.end_hook()
            memory = self.memories[attachment.metadata.name] = Memory(uid=attachment.metadata.uid)
        return memory

    def match(self, attachment: attachments.DeviceAttachment) -> matching.Match:
        """Which of this node's cards the device is, as far as is known now."""
        if self.local is not None:
            card = self.local(attachment.spec.pool, attachment.spec.device)
            return matching.Absent() if card is None else matching.Found(card=card, by="identifier")
        node, identity = attachment.status.node, attachment.identity
        return matching.match(
            self.arrivals.inventory,
            identity,
            slot=matching.expected_slot(attachment, self.boot_id),
            record=node if node is not None and node.boot_id == self.boot_id else None,
            arrivals=self._arrivals(attachment) if identity.sole_arrival else None,
            neighbours=self._neighbours(attachment),
            fresh=self._fresh(attachment),
        )

    def _arrivals(self, attachment: attachments.DeviceAttachment) -> matching.Arrivals:
        memory = self.memories.get(attachment.metadata.name)
        if memory is None or memory.uid != attachment.metadata.uid:
            return self.ledger.arrivals(None, None)
        return self.ledger.arrivals(memory.baseline, memory.seen.since(attachments.ATTACHED))

    def _fresh(self, attachment: attachments.DeviceAttachment) -> frozenset[str]:
        """Return the cards that may show more identifiers in time: a device that leaves, or whose time is short, is decided at once."""
        memory = self.memories.get(attachment.metadata.name)
        attached_at = memory.seen.since(attachments.ATTACHED) if memory is not None else None
        wait = min(datetime.timedelta(seconds=sole_arrival.FRESH_SECONDS), self.patience / _PARTS_OF_PATIENCE)
        is_short = attached_at is not None and self.clock() >= attached_at + self.patience - wait
        return frozenset() if attachment.deleting or is_short else self.ledger.fresh(wait)

    def _neighbours(self, attachment: attachments.DeviceAttachment) -> matching.Neighbours:
        """Return the other attachments of this node that still have, or wait for, a card."""
        name = attachment.metadata.name
        rest = [
            each
            for each in self.attached()
            if each.metadata.name != name and not each.holds(attachments.RELEASED)
        ]
        recognised = {each.metadata.name: self._recorded(each) for each in rest}
        return matching.Neighbours(
            identities=tuple(each.identity for each in rest),
            cards=frozenset(card for card in map(self._held_card, rest) if card),
            waiting=tuple(
                matching.Waiting(
                    name=each.metadata.name,
                    identity=each.identity,
                    slot=matching.expected_slot(each, self.boot_id),
                )
                for each in rest
                # The controller attaches a device without identifiers only after the one before has been recognised.
                if not recognised[each.metadata.name]
                and (each.holds(attachments.ATTACHED) or not each.identity.sole_arrival)
            ),
        )

    def _recorded(self, attachment: attachments.DeviceAttachment) -> str:
        """Return the fingerprint of the card that was recognised in this boot; empty without one."""
        node = attachment.status.node
        if node is None or node.boot_id != self.boot_id or node.recognised_by is None:
            return ""
        return node.recognised_by.fingerprint

    def _held_card(self, attachment: attachments.DeviceAttachment) -> str:
        """Return the fingerprint of the card that the attachment has; compared once for each inventory, not for each match."""
        inventory, name = self.arrivals.inventory, attachment.metadata.name
        held = self.held.get(name)
        if held is None or held.inventory is not inventory or held.attachment is not attachment:
            node = attachment.status.node if self._recorded(attachment) else None
            card = matching.held_card(inventory, attachment.identity, node)
            held = self.held[name] = _Held(inventory=inventory, attachment=attachment, card=card)
        return held.card

    def _released(self) -> frozenset[str]:
        """Return the fingerprints of the cards that may leave this node."""
        leaving = (self._recorded(each) for each in self.attached() if each.deleting)
        return frozenset(card for card in leaving if card)

    def card(self, attachment: attachments.DeviceAttachment) -> model.Card | None:
        """The device, while this node has it."""
        match = self.match(attachment)
        return match.card if matching.is_expected(match, attachment) else None

    def members(self, attachment: attachments.DeviceAttachment) -> tuple[actions.Member, ...]:
        """The other members of its composite."""
        return tuple(self._member(name) for name in attachment.spec.companions)

    def _member(self, name: str) -> actions.Member:
        attachment = self.companion(name)
        card = self.card(attachment) if attachment is not None else None
        lack = None
        if attachment is not None and card is not None:
            lack = classes.by_name(attachment.identity.device_class).lacks(card)
        return actions.Member(name=name, attachment=attachment, card=card, lack=lack)

    def pending_step(self, attachment: attachments.DeviceAttachment) -> str:
        """Return what keeps the device from being ready, in a clause; empty if this daemon is not at work on it."""
        memory = self.memories.get(attachment.metadata.name)
        if memory is None or memory.uid != attachment.metadata.uid:
            return ""
        erasure = memory.erasure.state()
        if isinstance(erasure, erasing.Running):
            return erasure.progress
        return memory.attempt.lack if memory.attempt is not None else ""

    def companions(self, attachment: attachments.DeviceAttachment) -> tuple[model.Card, ...]:
        """The other members of its composite, those that this node has."""
        return tuple(member.card for member in self.members(attachment) if member.card is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """The result of an action, for the next plan of the same round; without one the round is over.

    Attributes:
        again: plan again.
    """

    again: bool = False
    released: release_plan.Outcome | None = None
    cleaned: str | release_plan.Working | None = None


async def reconcile(context: Context, attachment: attachments.DeviceAttachment) -> float | None:
    """One round for one attachment; gives the seconds after which to look again, if time alone can change it.

    Raises:
        kube_errors.KubeError: a write failed; observe again and decide again.
    """
    work = _Work(context, attachment)
    done = _Done()
    for _ in range(ROUNDS_MAX):
        observed = await work.observe(done)
        now = context.clock()
        moment: datetime.datetime | None = None
        done = _Done()
        for action in plan.plan(observed, now):
            if isinstance(action, actions.LookAgain):
                moment = action.at
            else:
                done = await work.carry_out(action, now)
        if not done.again:
            return None if moment is None else max(0.0, (moment - now).total_seconds())
    return AGAIN_SECONDS


class _Work:
    """One round for one attachment, which is taken as it was when the round began."""

    def __init__(self, context: Context, attachment: attachments.DeviceAttachment) -> None:
        self._context = context
        self._attachment = attachment
        self._memory = context.memory(attachment)

    async def observe(self, done: _Done) -> actions.Observed:
        """Return the input of the plan; slots and links, which have no events, are read if they matter."""
        context, attachment = self._context, self._attachment
        self._memory.see(attachment, context.clock())
        seen = self._memory.seen
        match = context.match(attachment)
        stale = self._stale(match)
        if stale is not None:
            await stale()
            match = context.match(attachment)
        spec = attachment.spec
        card = match.card if isinstance(match, matching.Found) else None
        key = verdicts.Key(pool=spec.pool, device=spec.device)
        ends = attachment.deleting or attachment.has_traces
        sharing = context.sharing(attachment) if ends else Sharing()
        return actions.Observed(
            attachment=attachment,
            match=match,
            lack=classes.by_name(attachment.identity.device_class).lacks(card) if card is not None else None,
            attempt=self._memory.attempt,
            held_by=context.holder(spec.pool, spec.device),
            sharers=sharing.claims,
            offered=sharing.offered,
            boot_id=context.boot_id,
            since=context.since,
            patience=self._patience(),
            claim_notified=self._memory.claim_notified,
            attached_at=seen.since(attachments.ATTACHED),
            visible_at=seen.since(attachments.VISIBLE),
            leaving_at=seen.since(DELETION),
            health=context.judged.verdict(key) if context.judged is not None else verdicts.UNKNOWN,
            leaving=self._memory.leaving,
            released=done.released,
            cleaned=done.cleaned,
            lagging=context.arrivals.is_lagging,
        )

    def _patience(self) -> datetime.timedelta:
        """How long the device may take: as any other, and as long as its hook."""
        hook = self._attachment.spec.initialise
        seconds = hook.timeout_seconds if hook is not None else 0
        return self._context.patience + datetime.timedelta(seconds=seconds)

    def _stale(self, match: matching.Match) -> Callable[[], Awaitable[object]] | None:
        """What to read again before anything is decided, if that matters now."""
        attachment, arrivals = self._attachment, self._context.arrivals
        if isinstance(match, matching.Found):
            gone = attachment.deleting and attachment.holds(attachments.RELEASED)
            arriving = not attachment.deleting and not attachment.holds(attachments.VISIBLE)
            # What was here before it was attached may be gone, and the event of that still on its way.
            unseen = arriving and attachment.holds(attachments.ATTACHED) and not self._memory.looked
            if gone or unseen or (arriving and plan.dead_link(match.card) is not None):
                self._memory.looked |= unseen
                return functools.partial(arrivals.refresh, match.card.address)
            is_doubtful = not attachment.deleting and match.by == "record"
            is_late = is_doubtful and matching.can_tell_more(attachment.identity, match.card)
            return arrivals.refresh_lagging if is_late else None
        slot = matching.expected_slot(attachment, self._context.boot_id)
        waited_for = attachment.holds(attachments.ATTACHED) and not attachment.deleting
        if waited_for and attachment.status.error is None:
            return functools.partial(self._look_again, slot)
        return None

    async def _look_again(self, slot: str) -> None:
        """Read what changes without an event: the slot, if it is known, and cards whose drivers initialise them later."""
        if slot:
            await self._context.arrivals.refresh_slot(slot)
        await self._context.arrivals.refresh_lagging()

    async def carry_out(self, action: actions.DeviceAction | actions.Report, now: datetime.datetime) -> _Done:
        """Execute one action."""
        match action:
            case actions.PowerSlot(slot=slot):
                return await self._power(slot, now)
            case actions.Initialise(card=card):
                return await self._initialise(card, now)
            case actions.Clean(card=card):
                return await self._clean(card, now)
            case actions.Release(card=card, slot=slot):
                return await self._release(card, slot)
            case _:
                await self._report(action)
                return _Done()

    async def _report(self, action: actions.Report) -> None:
        reporter, attachment, now = self._context.reporter, self._attachment, self._context.time_of_day()
        match action:
            case actions.ReportVisible(card=card):
                await reporter.visible(attachment, self._recognised(card), now)
            case actions.ReportFailed(reason=reason, message=message):
                await reporter.failed(attachment, reason, message, now)
            case actions.ReportToClaim(reason=reason, message=message):
                await reporter.report_to_claim(attachment, reason, message, now)
                self._memory.claim_notified = True
            case actions.ListCards():
                self._memory.baseline = self._context.ledger.baseline()
                await reporter.listed(attachment)
            case actions.ReportClean(card=card):
                await reporter.clean(attachment, self._recognised(card))
            case actions.RecordPlace(card=card):
                await reporter.place(attachment, self._recognised(card))
            case actions.ReportHealth(verdict=verdict):
                await reporter.health(attachment, verdict)
            case actions.ReportBlocked(reason=reason, message=message):
                await reporter.blocked(attachment, reason, message, now)
            case actions.ReportReleased():
                await reporter.released(attachment, now)
            case _:
                assert_never(action)

    def _recognised(self, card: model.Card) -> reporting.Recognised:
        return reporting.recognise(self._attachment, card, self._context.match(self._attachment))

    async def _power(self, slot: str, now: datetime.datetime) -> _Done:
        """The card shows up with an event, if it does."""
        lack = "it was switched on, and stays off"
        try:
            await self._context.kernel.power_slot(slot, on=True)
        except errors.KernelRefused as refused:
            lack = str(refused)
        self._remember(None, lack, now)
        return _Done()

    async def _initialise(self, card: model.Card, now: datetime.datetime) -> _Done:
        reason, final, waits = "", False, False
        try:
            if await asyncio.to_thread(pci.is_silent, f"{self._context.kernel.sysfs}/{card.first.path}"):
                lack, reason = _ALL_ONES, reasons.LINK_DOWN
            else:
                lack = self._awaited()
                waits = bool(lack)
                operations = self._operations
                if not waits:
                    said = parameters.DeviceParameters(memory=self._attachment.spec.memory)
                    lack = await operations.initialise(self._context.kernel, card, said) or ""
                old = await self._too_old(card) if not lack else None
                if old is not None:
                    lack, reason, final = old, reasons.VERSION_TOO_OLD, True
                elif not lack:
                    lack = await self._functions(card, needs_driver=operations.needs_driver)
                    lack = lack or self._hook(card)
        except errors.KernelRefused as refused:
            lack = str(refused)
        except errors.HookFailed as failed:
            lack, reason, final = str(failed), reasons.HOOK_FAILED, True
        except errors.BitstreamNotLoaded as failed:
            lack, reason, final = str(failed), reasons.BITSTREAM_NOT_LOADED, True
        except errors.CannotInterleave as impossible:
            lack, reason, final = str(impossible), reasons.NOT_INTERLEAVED, True
        except errors.CannotSetUp as impossible:
            lack, reason, final = str(impossible), reasons.FUNCTIONS_NOT_SET_UP, True
        self._remember(card, lack, now, reason=reason, final=final, waits=waits)
        return _Done(again=True)

    @property
    def _operations(self) -> classes.Class:
        """What is done with a device of its class, among the other members of its composite."""
        operations = classes.by_name(self._attachment.identity.device_class)
        return operations.among(self._context.companions(self._attachment))

    def _awaited(self) -> str:
        """What an interleaved device waits for, in a clause; empty for nothing, and where its memory is its own region."""
        if not self._attachment.spec.memory.interleave:
            return ""
        return plan.awaited(self._attachment, self._context.members(self._attachment)) or ""

    async def _too_old(self, card: model.Card) -> str | None:
        claim = self._attachment.spec.claim
        if claim is None or claim.minimum_versions == attachments.Versions():
            return None
        return await asyncio.to_thread(
            versions.too_old, card, claim.minimum_versions, self._context.kernel.sysfs
        )

    @property
    def _may_be_in_use(self) -> bool:
        """Whether pods of the claim may use the device already, so that it is not to be set up any more."""
        attachment, claim, node = self._attachment, self._attachment.spec.claim, self._attachment.status.node
        return (
            claim is not None
            and node is not None
            and attachment.holds(attachments.VISIBLE)
            and (node.claim_uid, node.boot_id) == (claim.uid, self._context.boot_id)
        )

    async def _functions(self, card: model.Card, *, needs_driver: bool) -> str:
        """Go towards the virtual functions of the claim's class; return what is still missing.

        Raises:
            errors.CannotSetUp: the device can never have them.
            errors.KernelRefused: the kernel will not.
        """
        spec, memory = self._attachment.spec, self._memory
        wanted = spec.claim.virtual_functions if spec.claim is not None else None
        if wanted is None or not wanted.groups or self._may_be_in_use:
            return ""
        impossible = functions.problem(card, wanted)
        if wanted.offered and not self._context.offers(self._attachment.identity.device_class):
            impossible = impossible or _NOT_OFFERED
        if spec.is_local and self._context.offers(self._attachment.identity.device_class):
            impossible = impossible or _IN_ITS_PLACE
        if impossible is not None:
            raise errors.CannotSetUp(impossible)
        begun = memory.functions_for == self._attachment.user
        steps = tuple(
            functions.steps(card, wanted, key=f"{spec.fabric or spec.node_name}/{spec.device}", begun=begun)
        )
        for step in steps:
            await self._set_up(step)
        if steps and not begun:
            memory.functions_for = self._attachment.user
            return "its virtual functions are being made"
        return functions.lack(card, wanted, needs_driver=needs_driver)

    async def _set_up(self, step: functions.Step) -> None:
        kernel = self._context.kernel
        match step:
            case functions.Make(address=address, count=count):
                await kernel.set_vfs(address, 0)
                await kernel.set_vf_probing(address, on=False)
                await kernel.set_vfs(address, count)
            case functions.SetLinks(interface=interface, links=links):
                what = f"to set up the virtual functions of {interface}"
                await kernel.run(interface, what, lambda: self._context.links(interface, links))
            case functions.GiveDriver(owner=owner, address=address, driver=driver, instead=instead):
                await kernel.set_vf_probing(owner, on=True)
                if instead is not None:
                    await kernel.unbind(address)
                if driver is not None:
                    await kernel.override_driver(address, driver)
                await kernel.probe(address)
            case _:
                assert_never(step)

    def _hook(self, card: model.Card) -> str:
        """Run the hook of the claim's class, or load the bitstream, once for the claim; return what is still missing.

        Raises:
            errors.HookFailed: the hook did not succeed.
            errors.BitstreamNotLoaded: there is no hook, and the bitstream is not loaded.
        """
        attachment, memory, context = self._attachment, self._memory, self._context
        asked = attachment.spec.initialise
        if asked is None or self._may_be_in_use:
            return ""
        if memory.hook_for != self._attachment.user:
            memory.end_hook()
            memory.hook_for = self._attachment.user
            memory.hook = context.hooks.begin(attachment, asked, card)
            context.reporter.hook_begun(attachment, asked)
        if memory.hook is None or not memory.hook.done():
            return f"its hook {asked.hook} is running" if asked.hook else f"{asked.bitstream} is being loaded"
        why = memory.hook.result()
        if why:
            raise errors.HookFailed(why) if asked.hook else errors.BitstreamNotLoaded(why)
        return ""

    async def _clean(self, card: model.Card, now: datetime.datetime) -> _Done:
        context = self._context
        host = classes.Host.from_sysfs(context.kernel.sysfs)
        why = await clean(
            context.kernel,
            host,
            card,
            self._attachment.identity.device_class,
            self._cleaning(),
            companions=context.companions(self._attachment),
        )
        if why == "":
            self._memory.erasure = erasing.Erasure()
        self._remember(None, why if isinstance(why, str) else "", now)
        return _Done(again=True, cleaned=why)

    def _cleaning(self) -> releaser.Cleaning:
        """Return what is to be done about the traces of the device's use. Without a use there is nothing to erase."""
        attachment, node = self._attachment, self._attachment.status.node
        asked = node.clean_up if node is not None else None
        return releaser.Cleaning(
            way=attachment.spec.clean,
            erasure=self._memory.erasure if attachment.is_used else None,
            hook=functools.partial(self._context.hooks.eraser, attachment, asked)
            if asked is not None
            else None,
        )

    async def _release(self, card: model.Card | None, slot: str) -> _Done:
        self._memory.leaving = card
        outcome = await self._context.releaser.step(
            card,
            slot,
            device_class=self._attachment.identity.device_class,
            cleaning=self._cleaning(),
            drain=self._drain,
            companions=self._context.companions(self._attachment),
        )
        if isinstance(outcome, release_plan.Released):
            self._memory.leaving = None
            self._memory.draining.end()
        return _Done(again=True, released=outcome)

    def _drain(self, card: model.Card, used: bool) -> str:
        """Have the drain hook of the device's last claim run while it is used; return in a clause what to wait for, if anything."""
        attachment, node, context = self._attachment, self._attachment.status.node, self._context
        asked = node.drain if node is not None else None
        if asked is None:
            return ""
        begin = functools.partial(context.hooks.begin_draining, attachment, asked, card)
        now = asyncio.get_running_loop().time()
        return self._memory.draining.step(asked.hook, begin, now, used=used)

    def _remember(
        self,
        card: model.Card | None,
        lack: str,
        now: datetime.datetime,
        *,
        reason: str = "",
        final: bool = False,
        waits: bool = False,
    ) -> None:
        """Remember the result of a try; failed tries of the same kind in a row count from the first."""
        before = self._memory.attempt
        same = before is not None and (before.card is None) == (card is None) and bool(before.lack)
        since = before.since if before is not None and same else now
        waited = now if waits else before.waited if before is not None else None
        self._memory.attempt = actions.Attempt(
            card=card,
            lack=lack,
            memory=self._attachment.spec.memory,
            reason=reason,
            final=final,
            at=now,
            since=since,
            waited=waited,
        )
