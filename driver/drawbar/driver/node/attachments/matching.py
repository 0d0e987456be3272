"""The identification of an attachment's device among this node's cards; pure.

Invariants:

- A card with a contradicting witness is never the device, in any slot (see `witnesses`).
- An identifier shown by two cards, or shared by two devices of the fabric, proves nothing. It only narrows the choice.
- If two cards could be the device, neither is chosen.
- A recognised device stays that card. If another card proves to be the device later, that is a fault.
- A card that was taken out and put in again is recognised again, because another card of the model may have its place.

There are four kinds of proof, the strongest first:

1. an identifier, which follows the device into any slot;
2. the card recognised by this node in this boot;
3. the slot connected by the fabric, if its card is of the device's model;
4. the sole arrival.

**Fresh cards.** A new card may soon show an identifier, once its driver is bound or has initialised it. Slot and sole arrival
decide about a fresh card only after that time.

**Sole arrival.** Without a common identifier, the device is the only card of its model that arrived after the attach began. This
run of the daemon must have listed all cards before the attach, and lost no event since. No other attachment may wait for such a
card. The controller attaches such devices one at a time.
"""

import re
from collections.abc import Container, Sequence
from typing import Final, Literal, TypeGuard

import msgspec

from drawbar.driver.api import attachments
from drawbar.driver.node.attachments import witnesses
from drawbar.driver.node.attachments.witnesses import Verdict, Witness
from drawbar.driver.node.inventory import evidence, index, model, silences
from drawbar.fabric import recognition
from drawbar.fabric.classes import DeviceClass
from drawbar.fabric.witnesses import Kind

SLOT: Final = "slot"
SOLE_ARRIVAL: Final = "sole-arrival"
By = Literal["identifier", "record", "slot", "sole-arrival"]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The recognised device.

    Attributes:
        card: the device's card.
        by: the kind of proof.
        witnesses: all compared facts.
    """

    card: model.Card
    by: By
    witnesses: tuple[Witness, ...] = ()

    @property
    def is_proved(self) -> bool:
        """Return whether the card itself shows an identifier of the device."""
        return self.by == "identifier"

    @property
    def deciding(self) -> Witness | None:
        """Return the deciding witness; None for a card that was recognised before and has no proof now."""
        if self.is_proved:
            return witnesses.strongest(self.witnesses)
        return next((each for each in self.witnesses if each.kind == self.by), None)


class Wrong(msgspec.Struct, frozen=True, kw_only=True):
    """Another card in the device's place.

    Attributes:
        card: the other card.
        why: the contradiction, in a clause.
        was_recognised: whether this node had taken the card for the device.
    """

    card: model.Card
    why: str
    was_recognised: bool = False


class Absent(msgspec.Struct, frozen=True, kw_only=True):
    """The absence of the device.

    Attributes:
        slot: the expected slot, if it is known and exists.
        settles: whether a fresh card may be the device, and the decision is pending.
        silent: the cards of its model that show none of its numbers, and may be the device.
    """

    slot: model.Slot | None = None
    settles: bool = False
    silent: tuple[model.Card, ...] = ()


class Unpowered(msgspec.Struct, frozen=True, kw_only=True):
    """A card without power in the expected slot."""

    slot: model.Slot


class Ambiguous(msgspec.Struct, frozen=True, kw_only=True):
    """Several cards with identifiers of the device."""

    cards: tuple[model.Card, ...]


class Unrecognised(msgspec.Struct, frozen=True, kw_only=True):
    """A doubt about the device's card.

    Attributes:
        cards: the possible cards.
        why: the doubt, in a clause.
    """

    cards: tuple[model.Card, ...]
    why: str


Match = Found | Wrong | Absent | Unpowered | Ambiguous | Unrecognised


class Arrivals(msgspec.Struct, frozen=True, kw_only=True):
    """The arrivals of cards since the attach, as seen by this run of the daemon.

    Attributes:
        before: the fingerprints of the cards before the attach.
        vanished: the fingerprints of the cards that went since, or shortly before, without a release.
        doubt: the reason that the rule does not hold, in a clause; empty if it holds.
        settled: whether enough time has passed since the report of the attach and since the last arrival.
    """

    before: frozenset[str] = frozenset()
    vanished: frozenset[str] = frozenset()
    doubt: str = ""
    settled: bool = True


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Another attachment of this node, with a device that was not recognised yet.

    Attributes:
        name: the name of the DeviceAttachment.
        slot: the device's expected hot-plug slot; empty if unknown.
    """

    name: str
    identity: attachments.Identity
    slot: str = ""


class Neighbours(msgspec.Struct, frozen=True, kw_only=True):
    """The other attachments of this node.

    Attributes:
        identities: the identities of all their devices.
        cards: the fingerprints of their recognised cards.
        waiting: the attachments without a recognised card.
    """

    identities: tuple[attachments.Identity, ...] = ()
    cards: frozenset[str] = frozenset()
    waiting: tuple[Waiting, ...] = ()

    def find_competitor(self, card: model.Card) -> str | None:
        """Return the name of an attachment that may wait for this card, or None."""
        return next((each.name for each in self.waiting if _may_wait_for(each, card)), None)


NO_NEIGHBOURS = Neighbours()


def match(
    inventory: index.Inventory,
    identity: attachments.Identity,
    *,
    slot: str = "",
    record: attachments.NodeReport | None = None,
    arrivals: Arrivals | None = None,
    neighbours: Neighbours = NO_NEIGHBOURS,
    fresh: Container[str] = (),
) -> Match:
    """Return the match of the device with the cards.

    Args:
        inventory: the kernel's view of the node.
        identity: the fabric's description of the device.
        slot: the hot-plug slot of the last sight, or the expected one; empty if unknown.
        record: this node's report of the device in this boot; None without one.
        arrivals: the arrivals, if the device may be recognised by sole arrival; else None.
        neighbours: the other attachments of this node.
        fresh: the fingerprints of the fresh cards, which may show more identifiers soon.
    """
    recorded, showing = _find_recorded_card(inventory, record), _find_showing(inventory, identity)
    # A card with an identifier of the device and no contradiction was not exchanged.
    is_shown = any(each.card is recorded for each in showing)
    if (
        recorded is not None
        and record is not None
        and not is_shown
        and _was_exchanged(recorded, record, identity, neighbours)
    ):
        recorded = None
    proved = tuple(each for each in showing if _proves(showing, each, identity, neighbours))
    if proved:
        return _match_proved(proved, recorded, neighbours)
    back = None
    if recorded is not None and record is not None:
        if recorded.has_stayed(record.pci_address, record.arrival):
            return _match_record(recorded, identity)
        back = recorded
    search = _Search(
        inventory=inventory,
        identity=identity,
        narrowed=tuple(each.card for each in showing),
        neighbours=neighbours,
        fresh=fresh,
    )
    if back is not None and search.may_tell_more(back):
        return Absent(settles=True)
    is_exact = record is not None and record.slot == slot
    placed = search.match_slot(slot, is_exact=is_exact)
    if not isinstance(placed, Absent) or placed.settles or placed.slot is not None:
        return placed
    if identity.sole_arrival:
        return search.match_arrival(arrivals)
    match len(search.narrowed):
        case 0:
            return Absent(silent=search.find_silent())
        case 1:
            return Unrecognised(cards=search.narrowed, why="its numbers are those of several devices")
        case _:
            return Ambiguous(cards=search.narrowed)


def find_expected_slot(attachment: attachments.DeviceAttachment, boot_id: str) -> str:
    """Return the slot of the device in this boot, or else the fabric's slot for it; empty if unknown."""
    status = attachment.status
    if status.node is not None and status.node.boot_id == boot_id and status.node.slot:
        return status.node.slot
    connected = status.connection.slot if status.connection is not None else ""
    return attachment.identity.slot or connected


def is_expected(match: Match, attachment: attachments.DeviceAttachment) -> TypeGuard[Found]:
    """Return whether the found card can be the device already.

    Before the attach only an identifier counts, because the slot may still contain its former card.
    """
    return isinstance(match, Found) and (match.is_proved or attachment.holds(attachments.ATTACHED))


def may_be(identity: attachments.Identity, card: model.Card) -> bool:
    """Return whether the card is of the device's model, without a contradiction."""
    compared = witnesses.compare(identity, card)
    return witnesses.contradiction(compared) is None and witnesses.is_model(compared)


def has_identifier(identity: attachments.Identity, card: model.Card) -> bool:
    """Return whether the card shows an identifier of the device, without a contradiction."""
    compared = witnesses.compare(identity, card)
    numbers = (each for each in compared if each.kind not in witnesses.MODEL_KINDS)
    agrees = any(each.verdict is Verdict.AGREES for each in numbers)
    return agrees and witnesses.contradiction(compared) is None


def can_tell_more(identity: attachments.Identity, card: model.Card) -> bool:
    """Return whether the card may still show an identifier that can be compared with the fabric's."""
    wanted = {each.kind for each in evidence.list_identifiers(identity)}.intersection(recognition.STRENGTH)
    return any(not wanted.isdisjoint(silences.find_pending(function)) for function in card.functions)


def find_held_card(
    inventory: index.Inventory, identity: attachments.Identity, record: attachments.NodeReport | None
) -> str:
    """Return the fingerprint of the recognised card; empty if it left its place, or contradicts the device's identity.

    A card that replaces a lost one in its slot can have the same address and model.
    """
    card = _find_recorded_card(inventory, record)
    if card is None or witnesses.contradiction(witnesses.compare(identity, card)) is not None:
        return ""
    return witnesses.fingerprint(card)


def list_compared_kinds(identity: attachments.Identity) -> str:
    """Return the kinds of the device's identifiers, for messages."""
    kinds = {
        each.kind for each in evidence.list_identifiers(identity) if not isinstance(each, recognition.Derived)
    }
    names = ["serial number" if kind == "serial" else kind.value for kind in kinds]
    return ", ".join(sorted(names)) or "none"


class _Showing(msgspec.Struct, frozen=True, kw_only=True):
    """A card with identifiers of the device, and without a contradiction.

    Attributes:
        compared: all compared facts.
        keys: kind and value of the common identifiers.
    """

    card: model.Card
    compared: tuple[Witness, ...]
    keys: frozenset[tuple[str, str]]


def _find_showing(inventory: index.Inventory, identity: attachments.Identity) -> tuple[_Showing, ...]:
    keys: dict[str, set[tuple[str, str]]] = {}
    cards: dict[str, model.Card] = {}
    for listed in evidence.list_identifiers(identity):
        if listed.kind not in recognition.STRENGTH:
            continue
        for card in inventory.cards_with(listed.kind, listed.value):
            cards[card.address] = card
            keys.setdefault(card.address, set()).add((listed.kind, listed.value))
    compared = ((card, witnesses.compare(identity, card)) for card in cards.values())
    return tuple(
        _Showing(card=card, compared=facts, keys=frozenset(keys[card.address]))
        for card, facts in compared
        if witnesses.contradiction(facts) is None
    )


def _proves(
    showing: Sequence[_Showing], each: _Showing, identity: attachments.Identity, neighbours: Neighbours
) -> bool:
    """Return whether the card shows an identifier of no other card and no other device."""
    elsewhere = frozenset(key for other in showing if other is not each for key in other.keys)
    unique = (each.keys & evidence.find_own_keys(identity)) - elsewhere
    return bool(unique) and not all(
        any(key in evidence.list_keys(other) for other in neighbours.identities) for key in unique
    )


def _match_proved(
    showing: Sequence[_Showing],
    recorded: model.Card | None,
    neighbours: Neighbours,
) -> Found | Wrong | Ambiguous | Unrecognised:
    """Return the match of the proved cards: one is the device, unless another card is on record as the device."""
    if len(showing) > 1:
        return Ambiguous(cards=tuple(each.card for each in showing))
    proved = showing[0]
    if witnesses.fingerprint(proved.card) in neighbours.cards:
        why = "the card with its numbers is the device of another DeviceAttachment"
        return Unrecognised(cards=(proved.card,), why=why)
    if recorded is None or recorded.address == proved.card.address:
        return Found(card=proved.card, by="identifier", witnesses=proved.compared)
    why = f"{proved.card.address} is the device, by {witnesses.strongest(proved.compared)}"
    return Wrong(card=recorded, why=why, was_recognised=True)


def _find_recorded_card(
    inventory: index.Inventory, record: attachments.NodeReport | None
) -> model.Card | None:
    """Return the card that this node recognised, if it is still in its place; else None."""
    if record is None or record.recognised_by is None:
        return None
    card = inventory.card_of(record.pci_address)
    if card is None or witnesses.fingerprint(card) != record.recognised_by.fingerprint:
        return None
    return card


def _was_exchanged(
    card: model.Card, record: attachments.NodeReport, identity: attachments.Identity, neighbours: Neighbours
) -> bool:
    """Return whether another card of the same model has replaced the recognised one at its address.

    If the card was recognised without an identifier, a contradiction means that it was never the device. It counts as a
    replacement only if it is the device of another attachment.
    """
    if witnesses.contradiction(witnesses.compare(identity, card)) is None:
        return False
    was_proved = record.recognised_by is not None and record.recognised_by.kind not in (SLOT, SOLE_ARRIVAL)
    return was_proved or any(has_identifier(each, card) for each in neighbours.identities)


def _match_record(card: model.Card, identity: attachments.Identity) -> Found | Wrong:
    compared = witnesses.compare(identity, card)
    against = witnesses.contradiction(compared)
    if against is not None:
        return Wrong(card=card, why=str(against), was_recognised=True)
    return Found(card=card, by="record", witnesses=compared)


class _Search(msgspec.Struct, frozen=True, kw_only=True):
    """The search for a device without a proved card.

    Attributes:
        inventory: the kernel's view of the node.
        identity: the fabric's description of the device.
        narrowed: the cards with a number shared by other cards or devices.
        neighbours: the other attachments of this node.
        fresh: the fingerprints of the fresh cards.
    """

    inventory: index.Inventory
    identity: attachments.Identity
    narrowed: tuple[model.Card, ...]
    neighbours: Neighbours
    fresh: Container[str]

    def match_slot(self, name: str, *, is_exact: bool) -> Match:
        """Return the match by the slot. `is_exact` means that this node saw the device in it."""
        slots = self.inventory.slots
        if not name or (not is_exact and any(_is_repeated(name, slot.name) for slot in slots)):
            return Absent()
        slot = next((slot for slot in slots if slot.name == name), None)
        card = next((card for card in self.inventory.cards if card.first.slot == name), None)
        if card is None:
            if slot is not None and slot.present and slot.powered is False:
                return Unpowered(slot=slot)
            return Absent(slot=slot)
        compared = witnesses.compare(self.identity, card)
        why = self._objection(card, compared)
        if why is not None:
            return Wrong(card=card, why=why)
        if self.may_tell_more(card):
            return Absent(slot=slot, settles=True)
        if self.narrowed and card not in self.narrowed:
            return Unrecognised(
                cards=self.narrowed, why=f"{card.address} is in its slot and shows none of its numbers"
            )
        slot_witness = Witness(kind=SLOT, fabric=name, host=name, verdict=Verdict.AGREES)
        return Found(card=card, by=SLOT, witnesses=(*compared, slot_witness))

    def match_arrival(self, arrivals: Arrivals | None) -> Found | Absent | Unrecognised:
        """Return the match by sole arrival."""
        if arrivals is None or arrivals.doubt:
            why = arrivals.doubt if arrivals is not None else "it was not seen to arrive"
            return Unrecognised(cards=self.narrowed, why=why)
        new = tuple(card for card in self.inventory.cards if self._is_new(card, arrivals))
        if len(new) > 1:
            return Unrecognised(cards=new, why="several cards of its model arrived")
        if not new:
            return Absent()
        card = new[0]
        if not arrivals.settled or self.may_tell_more(card):
            return Absent(settles=True)
        if self.narrowed and card not in self.narrowed:
            return Unrecognised(cards=(card, *self.narrowed), why=f"{card.address} shows none of its numbers")
        if witnesses.likeness(card) in {witnesses.likeness(gone) for gone in arrivals.vanished}:
            return Unrecognised(cards=new, why="a card like it had vanished shortly before, and may be back")
        competitor = self.neighbours.find_competitor(card)
        if competitor is not None:
            return Unrecognised(cards=new, why=f"DeviceAttachment {competitor} waits for such a card too")
        fact = Witness(kind=SOLE_ARRIVAL, fabric="attach", host=card.address, verdict=Verdict.AGREES)
        return Found(card=card, by=SOLE_ARRIVAL, witnesses=(*witnesses.compare(self.identity, card), fact))

    def find_silent(self) -> tuple[model.Card, ...]:
        """Return the cards of the device's model that may be the device, and show no number to tell."""
        return tuple(
            card
            for card in self.inventory.cards
            if card.device_class is not DeviceClass.BRIDGE
            and witnesses.is_model(witnesses.compare_model(self.identity, card))
            and may_be(self.identity, card)
            and not self._is_neighbours(card)
        )

    def _objection(self, card: model.Card, compared: tuple[Witness, ...]) -> str | None:
        against = witnesses.contradiction(compared)
        if against is not None:
            return str(against)
        if not witnesses.is_model(compared):
            return _explain_mismatch(self.identity, card)
        return "it is the device of another DeviceAttachment" if self._is_neighbours(card) else None

    def may_tell_more(self, card: model.Card) -> bool:
        """Return whether the card is fresh, and may still show an identifier that can be compared."""
        return witnesses.fingerprint(card) in self.fresh and can_tell_more(self.identity, card)

    def _is_neighbours(self, card: model.Card) -> bool:
        """Return whether the card is another attachment's device, by its record or by a number of its own."""
        return witnesses.fingerprint(card) in self.neighbours.cards or (
            card not in self.narrowed
            and any(has_identifier(each.identity, card) for each in self.neighbours.waiting)
        )

    def _is_new(self, card: model.Card, arrivals: Arrivals) -> bool:
        return (
            card.device_class is not DeviceClass.BRIDGE
            and card.first.physical_function is None
            and witnesses.fingerprint(card) not in arrivals.before
            and (card in self.narrowed or not _has_number(card, arrivals.before))
            and may_be(self.identity, card)
            and not self._is_neighbours(card)
        )


def _explain_mismatch(identity: attachments.Identity, card: model.Card) -> str:
    if not witnesses.has_model(identity):
        return "the fabric shows neither a common identifier nor a PCI id to recognise it by"
    return f"it is of class {card.device_class}, not {identity.device_class}"


def _has_number(card: model.Card, fingerprints: frozenset[str]) -> bool:
    """Return whether a fingerprint has the card's Device Serial Number. A number that a whole model shows does not count."""
    numbers = {text.rpartition(" ")[2] for text in fingerprints}
    return any(each.kind is Kind.PCIE_DSN and each.value in numbers for each in card.first.identifiers)


def _is_repeated(name: str, listed: str) -> bool:
    """Return whether the listed slot has this name and a suffix; the kernel numbers slots of one name as it finds them."""
    return re.fullmatch(rf"{re.escape(name)}-[0-9]+", listed) is not None


def _may_wait_for(waiting: Waiting, card: model.Card) -> bool:
    return waiting.slot in ("", card.first.slot) and may_be(waiting.identity, card)
