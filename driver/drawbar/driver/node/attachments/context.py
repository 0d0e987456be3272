"""The surroundings of the work on attachments, and this daemon's memory of each attachment."""

import asyncio
import datetime
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from drawbar.driver import clocks, sightings
from drawbar.driver.api import attachments
from drawbar.driver.node import classes, kernel, treatment
from drawbar.driver.node.attachments import actions, matching, reporting, sole_arrival
from drawbar.driver.node.discovery import devices, live
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.inventory import evidence, index, model, netdevs
from drawbar.driver.node.treatment import erasing, hooks

DELETION = "deletion"
_PARTS_OF_PATIENCE = 4
"""A card may take at most a quarter of a device's time to show its identifiers. The rest is for its driver and its hook."""
Links = Callable[[str, Mapping[int, netdevs.FunctionLink]], None]


@dataclass(slots=True, kw_only=True)
class Memory:
    """This daemon's memory of one attachment; a new daemon observes the attachment again.

    Attributes:
        uid: the attachment's UID; a later attachment of the same name has another.
        claim_notified: whether the failure is recorded on the claim.
        looked: whether the device was read from the kernel after it was attached.
        baseline: the node's cards before the attach, for a device that is recognised by its arrival.
        match: the match of the last look.
        attempt: the last attempt to make the device ready.
        leaving: the device, from the beginning of its release.
        progress: the progress of the treatment after the last use.
        hook: the run of the hook, or the load of the bitstream.
        hook_for: UID and allocation timestamp of the hook's claim.
        functions_for: UID and allocation timestamp of the claim of the virtual functions.
        last_card: address and arrival of the card that the hook and the virtual functions are for; None before it was seen.
        is_hook_seen: whether the end of the hook was seen.
        is_taken_out: whether the card left and came back while its own hook ran.
        seen: the time of first sight of each condition, and of the deletion.
    """

    uid: str
    claim_notified: bool = False
    looked: bool = False
    baseline: sole_arrival.Baseline | None = None
    match: matching.Match = field(default_factory=matching.Absent)
    attempt: actions.Attempt | None = None
    leaving: model.Card | None = None
    progress: treatment.Progress = field(default_factory=treatment.Progress)
    hook: asyncio.Task[str] | None = None
    hook_for: tuple[str, str] = ("", "")
    functions_for: tuple[str, str] = ("", "")
    last_card: tuple[str, int] | None = None
    is_hook_seen: bool = True
    is_taken_out: bool = False
    seen: sightings.Sightings[str] = field(default_factory=sightings.Sightings)

    def end_hook(self) -> None:
        """End the hooks that still run."""
        self.progress.draining.end()
        if self.hook is not None:
            self.hook.cancel()
            self.hook = None

    def begin_hook(self, user: tuple[str, str], hook: asyncio.Task[str], *, is_load: bool) -> None:
        """Remember the run of the user's hook. A load of a bitstream leaves its card in place; any other hook may take it out."""
        self.hook_for, self.hook, self.is_hook_seen = user, hook, is_load

    def see_card(self, card: model.Card) -> None:
        """Note the device's card. If it was put in again, forget the work on it, unless its own hook took it out."""
        has_stayed = self.last_card is None or card.has_stayed(*self.last_card)
        self.last_card = card.address, card.arrival
        if not self.is_hook_seen:
            self.is_taken_out |= not has_stayed
            self.is_hook_seen = self.hook is None or self.hook.done()
        elif not has_stayed:
            if self.hook is not None:
                self.hook.cancel()
            self.hook, self.is_taken_out = None, False
            self.hook_for = self.functions_for = ("", "")

    def trust(self, record: attachments.NodeReport) -> attachments.NodeReport:
        """Return the record of the card. A card that its own hook took out counts as the recorded one."""
        if not self.is_hook_seen:
            return msgspec.structs.replace(record, arrival=0)
        if self.is_taken_out and self.last_card is not None:
            return msgspec.structs.replace(record, arrival=self.last_card[1])
        return record

    def see(self, attachment: attachments.DeviceAttachment, now: datetime.datetime) -> None:
        """Note the conditions of the attachment that hold now, and its deletion."""
        for kind in (attachments.ATTACHED, attachments.VISIBLE):
            self.seen.see(kind, attachment.holds(kind) or None, now)
        self.seen.see(DELETION, attachment.deleting or None, now)


class Sharing(msgspec.Struct, frozen=True, kw_only=True):
    """The use of a device's virtual functions on this node.

    Attributes:
        claims: the claims that hold a virtual function, each in a clause.
        offered: whether the node's pool offers a virtual function.
    """

    claims: tuple[str, ...] = ()
    offered: bool = False


def build_unshared(_: attachments.DeviceAttachment) -> Sharing:
    """Return the sharing of a device without virtual functions in use."""
    return Sharing()


@dataclass(slots=True, kw_only=True)
class _Held:
    """An attachment as a neighbour of the others, in one inventory.

    Attributes:
        attachment: the attachment at that time.
        identity: the identity of its device.
        recorded_card: the card at the recorded address in this inventory; None without one.
        card: the fingerprint of the attachment's card; empty without one.
        waiting: the attachment as one without a recognised card; None with one, or before the attach of such a device.
    """

    attachment: attachments.DeviceAttachment
    identity: attachments.Identity
    inventory: index.Inventory
    recorded_card: model.Card | None
    card: str
    waiting: matching.Waiting | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The surroundings of the work on attachments.

    Attributes:
        reporter: writes the reports.
        arrivals: the node's devices, as the kernel shows them.
        kernel: writes to sysfs.
        boot_id: the ID of the running kernel's boot.
        since: the start of this daemon.
        patience: the time for a device to become ready, without its hook.
        clock: the steady clock.
        time_of_day: the clock of timestamps in objects.
        holder: returns the UID of the claim that holds a device or is about to get it, by pool and name.
        hooks: runs the programs that make devices ready, and loads bitstreams.
        node_verdicts: the health of the devices; None if it is not monitored.
        links: sets up virtual functions through a network interface, as `netdevs.set_up_functions`; it blocks.
        sharing: returns the use of the virtual functions of an attachment's device.
        offers: returns whether this node offers the virtual functions of a class of lent devices.
        companion: returns the DeviceAttachment of that name on this node, or None.
        attached: returns the DeviceAttachments of this node, of all drivers.
        local: returns the card of one of the node's own devices, by pool and name; None for work on fabric devices.
        memories: the memories by name of the attachment; `forget` removes them.
        held: a cache of the attachments as neighbours, by name; `forget` removes them.
        ledger: the cards that arrived and vanished.
    """

    reporter: reporting.Reporter
    arrivals: devices.Devices
    kernel: kernel.Kernel
    treatment: treatment.Executor
    boot_id: str
    since: datetime.datetime
    patience: datetime.timedelta
    clock: clocks.Clock
    time_of_day: clocks.Clock
    holder: Callable[[str, str], str | None]
    hooks: hooks.Runner
    node_verdicts: verdicts.Verdicts | None = None
    links: Links = netdevs.set_up_functions
    sharing: Callable[[attachments.DeviceAttachment], Sharing] = build_unshared
    offers: Callable[[str], bool] = lambda _: False
    companion: Callable[[str], attachments.DeviceAttachment | None] = lambda _: None
    attached: Callable[[], Iterable[attachments.DeviceAttachment]] = lambda: ()
    local: Callable[[str, str], model.Card | None] | None = None
    memories: dict[str, Memory] = field(default_factory=dict)
    held: dict[str, _Held] = field(default_factory=dict)
    ledger: sole_arrival.Ledger = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "ledger", sole_arrival.Ledger(self.arrivals, self.clock, self._cards_in_release)
        )

    def forget(self, name: str) -> None:
        """Forget an attachment after its removal, and end its hooks."""
        self.held.pop(name, None)
        memory = self.memories.pop(name, None)
        if memory is not None:
            memory.end_hook()

    def memory(self, attachment: attachments.DeviceAttachment) -> Memory:
        """Return the memory of the attachment; make a new one for a new attachment."""
        memory = self.memories.get(attachment.metadata.name)
        if memory is None or memory.uid != attachment.metadata.uid:
            if memory is not None:
                memory.end_hook()
            memory = self.memories[attachment.metadata.name] = Memory(uid=attachment.metadata.uid)
        return memory

    def match(self, attachment: attachments.DeviceAttachment) -> matching.Match:
        """Return the present match of the device with this node's cards."""
        if self.local is not None:
            card = self.local(attachment.spec.pool, attachment.spec.device)
            return matching.Absent() if card is None else matching.Found(card=card, by="identifier")
        identity = attachment.identity
        return matching.match(
            self.arrivals.inventory,
            identity,
            slot=matching.find_expected_slot(attachment, self.boot_id),
            record=self.record(attachment),
            arrivals=self._list_arrivals(attachment) if identity.sole_arrival else None,
            neighbours=self._neighbours(attachment),
            fresh=self._fresh_cards(attachment),
        )

    def record(self, attachment: attachments.DeviceAttachment) -> attachments.NodeReport | None:
        """Return this node's report on the device in this boot, or None."""
        node, memory = attachment.status.node, self.memories.get(attachment.metadata.name)
        if node is None or node.boot_id != self.boot_id:
            return None
        if attachment.deleting:
            # Its card is only released, even if it has changed meanwhile.
            return msgspec.structs.replace(node, arrival=0)
        return memory.trust(node) if memory is not None and memory.uid == attachment.metadata.uid else node

    def is_affected(self, attachment: attachments.DeviceAttachment, changes: live.Changes) -> bool:
        """Return whether these changes of the hardware can affect the attachment.

        A ready device with an identifier is unaffected while its card stays the same and no changed card shows a number of
        the device.
        """
        memory = self.memories.get(attachment.metadata.name)
        is_ready = attachment.holds(attachments.VISIBLE) and not attachment.deleting
        if memory is None or not is_ready or attachment.has_traces or attachment.spec.companions:
            return True
        match, inventory = memory.match, self.arrivals.inventory
        if not isinstance(match, matching.Found) or not match.is_proved or changes.objects:
            return True
        if memory.uid != attachment.metadata.uid or inventory.card_of(match.card.address) != match.card:
            return True
        changed = (inventory.card_of(address) for address in changes.functions)
        keys = evidence.list_keys(attachment.identity)
        return any(evidence.is_shown(keys, card) for card in changed if card is not None)

    def _list_arrivals(self, attachment: attachments.DeviceAttachment) -> matching.Arrivals:
        memory = self.memories.get(attachment.metadata.name)
        if memory is None or memory.uid != attachment.metadata.uid:
            return self.ledger.arrivals(None, None)
        return self.ledger.arrivals(memory.baseline, memory.seen.since(attachments.ATTACHED))

    def _fresh_cards(self, attachment: attachments.DeviceAttachment) -> frozenset[str]:
        """Return the fingerprints of the fresh cards; none if the device leaves or its time is short, to decide at once."""
        memory = self.memories.get(attachment.metadata.name)
        attached_at = memory.seen.since(attachments.ATTACHED) if memory is not None else None
        wait = min(datetime.timedelta(seconds=sole_arrival.FRESH_SECONDS), self.patience / _PARTS_OF_PATIENCE)
        is_short = attached_at is not None and self.clock() >= attached_at + self.patience - wait
        return frozenset() if attachment.deleting or is_short else self.ledger.fresh(wait)

    def _neighbours(self, attachment: attachments.DeviceAttachment) -> matching.Neighbours:
        """Return the other attachments of this node that still have a card or wait for one."""
        name = attachment.metadata.name
        listed = [self._find_neighbour(each) for each in self.attached() if each.metadata.name != name]
        rest = [held for held in listed if held is not None]
        return matching.Neighbours(
            identities=tuple(held.identity for held in rest),
            cards=frozenset(held.card for held in rest if held.card),
            waiting=tuple(held.waiting for held in rest if held.waiting is not None),
        )

    def _find_fingerprint(self, attachment: attachments.DeviceAttachment) -> str:
        """Return the fingerprint of the attachment's recognised card in this boot; empty without one."""
        node = attachment.status.node
        if node is None or node.boot_id != self.boot_id or node.recognised_by is None:
            return ""
        return node.recognised_by.fingerprint

    def _find_neighbour(self, attachment: attachments.DeviceAttachment) -> _Held | None:
        """Return the attachment as a neighbour, or None after its release.

        The value is cached until the attachment or the card at its recorded address changes: every attachment asks for
        all others at each change of the hardware.
        """
        inventory, name = self.arrivals.inventory, attachment.metadata.name
        held = self.held.get(name)
        if held is not None and held.attachment is attachment:
            if held.inventory is inventory:
                return held
            if held.recorded_card is self._find_recorded_card(inventory, attachment):
                held.inventory = inventory
                return held
        if attachment.holds(attachments.RELEASED):
            self.held.pop(name, None)
            return None
        identity, is_recognised = attachment.identity, bool(self._find_fingerprint(attachment))
        # The controller attaches a device without identifiers only after the recognition of the previous one.
        waits = attachment.holds(attachments.ATTACHED) or not identity.sole_arrival
        slot = matching.find_expected_slot(attachment, self.boot_id)
        held = self.held[name] = _Held(
            attachment=attachment,
            identity=identity,
            inventory=inventory,
            recorded_card=self._find_recorded_card(inventory, attachment),
            card=matching.find_held_card(
                inventory, identity, attachment.status.node if is_recognised else None
            ),
            waiting=matching.Waiting(name=name, identity=identity, slot=slot)
            if waits and not is_recognised
            else None,
        )
        return held

    def _find_recorded_card(
        self, inventory: index.Inventory, attachment: attachments.DeviceAttachment
    ) -> model.Card | None:
        """Return the card at the recorded address of the attachment, or None."""
        node = attachment.status.node if self._find_fingerprint(attachment) else None
        return inventory.card_of(node.pci_address) if node is not None else None

    def _cards_in_release(self) -> frozenset[str]:
        """Return the fingerprints of the cards in release."""
        leaving = (self._find_fingerprint(each) for each in self.attached() if each.deleting)
        return frozenset(card for card in leaving if card)

    def card(self, attachment: attachments.DeviceAttachment) -> model.Card | None:
        """Return the device's card, or None if this node does not have it."""
        match = self.match(attachment)
        return match.card if matching.is_expected(match, attachment) else None

    def last_card(self, attachment: attachments.DeviceAttachment) -> model.Card | None:
        """Return the device's card in the last round for its attachment, or None."""
        match = self.memory(attachment).match
        return match.card if matching.is_expected(match, attachment) else None

    def members(self, attachment: attachments.DeviceAttachment) -> tuple[actions.Member, ...]:
        """Return the other members of the device's composite."""
        return tuple(self._member(name) for name in attachment.spec.companions)

    def _member(self, name: str) -> actions.Member:
        attachment = self.companion(name)
        card = self.card(attachment) if attachment is not None else None
        missing = None
        if attachment is not None and card is not None:
            missing = classes.by_name(attachment.identity.device_class).missing_requirements(card)
        return actions.Member(name=name, attachment=attachment, card=card, missing=missing)

    def pending_step(self, attachment: attachments.DeviceAttachment) -> str:
        """Return the pending step before the device is ready, in a clause; empty if this daemon does not work on it."""
        memory = self.memories.get(attachment.metadata.name)
        if memory is None or memory.uid != attachment.metadata.uid:
            return ""
        state = memory.progress.erasure.state()
        if isinstance(state, erasing.Running):
            return state.progress
        return memory.attempt.missing if memory.attempt is not None else ""

    def companions(self, attachment: attachments.DeviceAttachment) -> tuple[model.Card, ...]:
        """Return the cards of the other composite members on this node."""
        return tuple(member.card for member in self.members(attachment) if member.card is not None)
