"""A wrong device is never given: random fabrics and hosts with missing, shared, padded and placeholder identifiers.

A world has devices of few models and one node with cards of its own. Each side shows some of a card's numbers. The devices
arrive in any order, between cards that people plug in, and the daemon may restart. The device of each attachment is listed, so
each answer can be judged. What is assumed is what `docs/recognition.md` says: the controller attaches devices that are
recognised by their arrival one after the other, and the fabric reports an attach when the card is there. Two devices with one
number are both listed by the fabric.
"""

import dataclasses
import random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scenes import cards as scenes

from drawbar.driver.api import attachments
from drawbar.driver.controller.attachments import identities
from drawbar.driver.controller.fabrics import numbers
from drawbar.driver.node.attachments import matching, reporting, witnesses
from drawbar.driver.node.inventory import index
from drawbar.fabric import contract
from drawbar.fabric import witnesses as kinds
from drawbar.fabric.contract import DeviceClass
from drawbar.fabric.witnesses import Kind

MODELS = {
    "h100": (DeviceClass.GPU, 0x10DE, 0x2330, (Kind.GPU_UUID, Kind.BOARD_SERIAL, Kind.PCIE_DSN)),
    "disk": (DeviceClass.NVME, 0x144D, 0xA824, (Kind.NVME_SERIAL, Kind.EUI64, Kind.PCIE_DSN)),
    "nic": (DeviceClass.NIC, 0x15B3, 0x1021, (Kind.MAC, Kind.NODE_GUID, Kind.VPD_SERIAL)),
}
UNREADABLE = frozenset({Kind.BOARD_SERIAL})
WORLDS = 20
"""Of each example."""
PLACEHOLDERS = ("N/A", "0", "To Be Filled By O.E.M.", "00-00-00-00-00-00-00-00", "GPU-????????-????")


def true_number(kind, number):
    """Return a number that no other card has."""
    digits = f"{0x1A2B3C4D + number * 0x1F3:010x}"
    texts = {
        Kind.GPU_UUID: f"8d3ab7c0-14fe-9c02-6b1d-70{digits}",
        Kind.PCIE_DSN: f"9f2103{digits}",
        Kind.EUI64: f"002538{digits}",
        Kind.MAC: f"94{digits}",
        Kind.NODE_GUID: f"94{digits[:4]}0301{digits[4:]}",
    }
    return texts.get(kind, f"{kind[0]}sn{digits}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Piece:
    """A card, with what each side shows of it."""

    number: int
    bus: int
    model: str
    fabric: tuple
    host: tuple
    undeclared: str
    has_ids: bool

    @property
    def device(self):
        device_class, vendor, device, _ = MODELS[self.model]
        return contract.Device(
            id=f"d{self.number}",
            device_class=device_class,
            pci_vendor_id=vendor if self.has_ids else None,
            pci_device_id=device if self.has_ids else None,
            serial=self.undeclared or None,
            identifiers=make_identifiers(self.fabric),
        )

    @property
    def function(self):
        device_class, vendor, device, _ = MODELS[self.model]
        made = scenes.function(f"0000:{self.bus:02x}:00.0", device_class, vendor=vendor, device=device)
        return msgspec.structs.replace(made, identifiers=make_identifiers(self.host))


def make_identifiers(listed):
    made = (kinds.identifier(kind, text, "somewhere") for kind, text in listed)
    return tuple(each for each in made if each is not None)


SPELLINGS = (str, str.upper, lambda text: f"  {text}   ")


def make_piece(chance, number, bus):
    """Return a card; the fabric and the host each show some of its numbers, well or badly spelt."""
    model = chance.choice(sorted(MODELS))
    fabric, host = [], []
    for kind in MODELS[model][3]:
        text = true_number(kind, number)
        match chance.choice(["shown", "shown", "missing", "placeholder"]):
            case "shown":
                fabric.append((kind, chance.choice(SPELLINGS)(text)))
            case "placeholder":
                fabric.append((kind, chance.choice(PLACEHOLDERS)))
        if kind not in UNREADABLE and chance.random() < 0.5:
            host.append((kind, chance.choice(SPELLINGS)(text)))
    return Piece(
        number=number,
        bus=bus,
        model=model,
        fabric=tuple(fabric),
        host=tuple(host),
        undeclared=chance.choice(["", f"SN{number:04d}Q", "N/A"]),
        has_ids=chance.random() < 0.7,
    )


def make_twins(chance, first, second):
    """Give two cards of one model one number, which the fabric shows of both."""
    kind = chance.choice(MODELS[first.model][3])
    number = (kind, true_number(kind, first.number))

    def replace_number(piece):
        rest = tuple(each for each in piece.host if each[0] is not kind)
        has_shown = len(rest) < len(piece.host)
        fabric = (*(each for each in piece.fabric if each[0] is not kind), number)
        return dataclasses.replace(piece, fabric=fabric, host=(*rest, number) if has_shown else rest)

    return replace_number(first), replace_number(second)


def make_world(chance):
    """Return the fabric's devices, and the cards of the node and of the people that plug cards in."""
    count = chance.randint(2, 6)
    listed = chance.randint(1, count)
    buses = chance.sample(range(1, 100), count)
    made = [make_piece(chance, number, bus) for number, bus in enumerate(buses)]
    first, second = (chance.randrange(listed) for _ in range(2))
    if first != second and made[first].model == made[second].model:
        made[first], made[second] = make_twins(chance, made[first], made[second])
    return made[:listed], made[listed:]


class Node:
    """A node that is given devices one after the other, and remembers what it recognised."""

    def __init__(self, devices):
        listed = numbers.Numbers.from_devices(piece.device for piece in devices)
        self.identities = {
            piece: identities.identify(piece.device, shared=listed.find_shared(piece.device))
            for piece in devices
        }
        self.present, self.records, self.baselines = [], {}, {}

    @property
    def inventory(self):
        return index.Inventory(functions=tuple(piece.function for piece in self.present))

    def fingerprints(self):
        return frozenset(witnesses.fingerprint(card) for card in self.inventory.cards)

    def match(self, piece, attached, *, settled):
        identity, baseline = self.identities[piece], self.baselines.get(piece)
        doubt = "" if baseline is not None else "the daemon restarted"
        rest = [each for each in attached if each is not piece]
        report = self.records.get(piece)
        return matching.match(
            self.inventory,
            identity,
            record=report,
            fresh=() if settled else self.fingerprints(),
            arrivals=matching.Arrivals(before=baseline or frozenset(), doubt=doubt, settled=settled)
            if identity.sole_arrival
            else None,
            neighbours=matching.Neighbours(
                identities=tuple(self.identities[each] for each in rest),
                cards=frozenset(
                    self.records[each].recognised_by.fingerprint for each in rest if each in self.records
                ),
                waiting=tuple(
                    matching.Waiting(name=each.device.id, identity=self.identities[each])
                    for each in rest
                    if each not in self.records
                ),
            ),
        )

    def record(self, piece, outcome):
        if outcome.by == "record":
            return
        by = reporting.recognise(attachments_of(self.identities[piece]), outcome.card, outcome).by
        self.records[piece] = attachments.NodeReport(pci_address=outcome.card.address, recognised_by=by)


def attachments_of(identity):
    return attachments.DeviceAttachment(
        metadata=attachments.meta.ObjectMeta(name="fab.d"),
        spec=attachments.AttachmentSpec(
            fabric="fab",
            device_id="d",
            driver="d.example",
            pool="p",
            device="d",
            node_name="n",
            host_id="h",
            identity=identity,
        ),
    )


def proves(piece, present, devices):
    """Return whether both sides show a number that no other device has, and no other card shows a number of the device."""
    fabric, host = keys(piece.fabric), keys(piece.host)
    listed = set().union(*(keys(other.fabric) for other in devices if other is not piece))
    visible = set().union(*(keys(other.host) for other in present if other is not piece))
    return bool((fabric & host) - listed) and not fabric & visible


def keys(listed):
    return {(each.kind, each.value) for each in make_identifiers(listed)}


def is_contradicted(piece, identity):
    (card,) = index.Inventory(functions=(piece.function,)).cards
    return witnesses.contradiction(witnesses.compare(identity, card)) is not None


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 64))
def test_a_wrong_device_is_never_matched(seed):
    chance = random.Random(seed)
    for _ in range(WORLDS):
        play_world(chance, *make_world(chance))


def play_world(chance, devices, strangers):
    """Attach the devices of a world to its node one after the other, and judge each answer."""
    node, attached = Node(devices), []
    chance.shuffle(strangers)
    plugged = [strangers.pop() for _ in range(chance.randint(0, len(strangers)))]
    node.present += strangers
    for piece in chance.sample(devices, len(devices)):
        node.baselines[piece] = node.fingerprints()
        attached.append(piece)
        arriving = [piece]
        if plugged and chance.random() < 0.5:
            arriving.append(plugged.pop())
        chance.shuffle(arriving)
        for came in arriving:
            node.present.append(came)
            judge(node, piece, attached, settled=False)
        if chance.random() < 0.2:
            node.baselines.clear()
        for each in attached:
            outcome = judge(node, each, attached, settled=True)
            if proves(each, node.present, devices) and not is_contradicted(each, node.identities[each]):
                assert isinstance(outcome, matching.Found), (each, node.present)


def judge(node, piece, attached, *, settled):
    """Check the answer for an attachment, and record it."""
    outcome = node.match(piece, attached, settled=settled)
    if isinstance(outcome, matching.Found):
        assert outcome.card.address == piece.function.address, (outcome.by, piece, node.present)
        is_strong = outcome.by in ("identifier", "record")
        assert settled or is_strong or not matching.can_tell_more(node.identities[piece], outcome.card)
        node.record(piece, outcome)
    return outcome
