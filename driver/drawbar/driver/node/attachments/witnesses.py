"""The comparison of a fabric's description of a device with one card; pure.

Only numbers of the same kind are compared, the strongest kind first. A witness agrees, contradicts, or is silent with a
reason. It contradicts only if both sides show the number itself, both numbers are plausible, and the kind has one issuer. So
the serial number of a NIC never contradicts, because card and manager may quote different makers.

A number derived from another one can agree, but cannot contradict. The same holds for a serial number of an undeclared kind.
The ids of an FPGA are those of its image, and never contradict.
"""

import enum
import re
from collections.abc import Iterable

import msgspec

from drawbar.driver.api import attachments
from drawbar.driver.node.inventory import evidence, model, silences
from drawbar.fabric import recognition
from drawbar.fabric.classes import DeviceClass
from drawbar.fabric.witnesses import Identifier, Kind

PCI_ID, PART_NUMBER, CLASS = "pci-id", Kind.PART_NUMBER.value, "device-class"
MODEL_KINDS = frozenset({PCI_ID, PART_NUMBER, CLASS})

_ALWAYS_CONTRADICT = frozenset(
    {
        Kind.GPU_UUID,
        Kind.GPU_UNIQUE_ID,
        Kind.PCIE_DSN,
        Kind.NVME_SERIAL,
        Kind.NGUID,
        Kind.EUI64,
        Kind.MAC,
        Kind.NODE_GUID,
    }
)
# The manager and the driver both read the maker's own number.
_BOARD_ISSUERS = frozenset({recognition.NVIDIA, recognition.AMD, recognition.XILINX})
# A mismatch is no contradiction if a number of the other kind agrees: a BMC may show another UUID, or the number of another of the
# board's labels; a namespace may be new, a node GUID can be set, and a manager may list the addresses of other ports.
_EXCUSED_BY = {
    Kind.BOARD_SERIAL: frozenset({Kind.GPU_UNIQUE_ID, Kind.MAC}),
    Kind.GPU_UUID: frozenset({Kind.BOARD_SERIAL}),
    Kind.NGUID: frozenset({Kind.NVME_SERIAL}),
    Kind.EUI64: frozenset({Kind.NVME_SERIAL}),
    Kind.MAC: frozenset({Kind.BOARD_SERIAL, Kind.VPD_SERIAL}),
    Kind.NODE_GUID: frozenset({Kind.MAC, Kind.BOARD_SERIAL, Kind.VPD_SERIAL}),
}
# Kernels before 6.3 cut the serial number of an AMD board.
_CUT_CHARACTERS = 16
_NVIDIA_PART = re.compile(r"([0-9a-f]{4})-[0-9]{3}-.*")
_PATH_CHARS = 400


class Verdict(enum.StrEnum):
    """The meaning of a witness for one card."""

    AGREES = "agrees"
    CONTRADICTS = "contradicts"
    SILENT = "silent"


class Witness(msgspec.Struct, frozen=True, kw_only=True):
    """A fact of the fabric about the device, compared with a card.

    Attributes:
        kind: the kind of the identifier, or one of `MODEL_KINDS`, `slot` or `sole-arrival`.
        fabric: the fabric's value.
        fabric_source: the place of the value at the manager.
        host: the card's value; empty if the card shows none.
        host_source: the place of the value on the node.
        reason: the reason of silence; empty otherwise.
        is_derived: whether the number is derived from other numbers on both sides.
    """

    kind: str
    fabric: str
    fabric_source: str = ""
    host: str = ""
    host_source: str = ""
    verdict: Verdict
    reason: str = ""
    is_derived: bool = False

    def __str__(self) -> str:
        match self.verdict:
            case Verdict.AGREES:
                sources = " = ".join(source for source in (self.fabric_source, self.host_source) if source)
                return f"{self.kind} {self.fabric}" + (f" ({sources})" if sources else "")
            case Verdict.CONTRADICTS:
                return f"its {self.kind} is {self.host}, not {self.fabric}"
            case Verdict.SILENT:
                return f"{self.kind} ({self.reason})"


def compare(identity: attachments.Identity, card: model.Card) -> tuple[Witness, ...]:
    """Return a witness for each kind of the fabric's numbers, the strongest first, and then the witnesses of the model."""
    described, shown = evidence.list_identifiers(identity), evidence.expand_shown(card.identifiers)
    kinds = {each.kind for each in described}
    numbers = tuple(
        _compare_kind(kind, described, shown, card) for kind in recognition.STRENGTH if kind in kinds
    )
    # A number that several devices share, such as a baseboard's, excuses nothing: the card may be its neighbour.
    own = evidence.find_own_keys(identity)
    agreeing = {
        witness.kind
        for witness in numbers
        if witness.verdict is Verdict.AGREES and (witness.kind, witness.fabric) in own
    }
    return (
        *(_excuse(witness, agreeing) for witness in numbers),
        *compare_model(identity, card),
    )


def strongest(compared: Iterable[Witness]) -> Witness | None:
    """Return the strongest witness for the card, or None. After the numbers come those derived on both sides, then the model."""
    agreeing = [each for each in compared if each.verdict is Verdict.AGREES]
    return min(agreeing, key=lambda each: (each.kind in MODEL_KINDS, each.is_derived), default=None)


def contradiction(compared: Iterable[Witness]) -> Witness | None:
    """Return the strongest witness against the card, or None."""
    return next((each for each in compared if each.verdict is Verdict.CONTRADICTS), None)


def is_model(compared: Iterable[Witness]) -> bool:
    """Return whether the card is of the device's model, or of its class if the fabric shows no model."""
    verdicts = {each.verdict for each in compared if each.kind in MODEL_KINDS}
    return Verdict.AGREES in verdicts and Verdict.CONTRADICTS not in verdicts


def compare_model(identity: attachments.Identity, card: model.Card) -> tuple[Witness, ...]:
    """Return the witnesses of the card's model, which narrow the choice and prove nothing."""
    made = (_compare_pci_id(identity, card), *_compare_parts(identity, card), _compare_class(identity, card))
    return tuple(witness for witness in made if witness is not None)


def has_model(identity: attachments.Identity) -> bool:
    """Return whether the fabric shows a plausible model or a comparable class."""
    return bool(recognition.parse_pci_id(identity.pci_id)) or identity.device_class != DeviceClass.OTHER


def fingerprint(card: model.Card) -> str:
    """Return the card's place, model and Device Serial Number in one text, which stays the same for the same card.

    For an FPGA only place and vendor count, because its other ids and its number are those of its image.
    """
    first = card.first
    ids, number = f"{first.vendor:04x}", "-"
    if first.device_class is not DeviceClass.FPGA and first.vendor != recognition.XILINX:
        subsystem = f"{first.subsystem_vendor or 0:04x}:{first.subsystem_device or 0:04x}"
        ids, number = f"{ids}:{first.device:04x}/{subsystem}", first.dsn or "-"
    # A deep path is cut from the left, because the functions at its end distinguish the places.
    return f"{first.path.removeprefix('devices/')[-_PATH_CHARS:]} {ids} {number}"


def likeness(card: model.Card | str) -> str:
    """Return the part of a fingerprint that does not depend on the card's place."""
    text = card if isinstance(card, str) else fingerprint(card)
    return text.partition(" ")[2]


def _compare_kind(
    kind: Kind, described: Iterable[Identifier], of_card: Iterable[Identifier], card: model.Card
) -> Witness:
    theirs = [each for each in described if each.kind is kind]
    shown = [each for each in of_card if each.kind is kind]
    mine = {each.value: each for each in shown}
    pair = next(((each, mine[each.value]) for each in theirs if each.value in mine), None)
    if pair is not None:
        return _witness(kind, *pair, Verdict.AGREES)
    if not shown:
        return _witness(kind, theirs[0], None, Verdict.SILENT, _explain_silence(kind, card))
    direct = [each for each in theirs if not isinstance(each, recognition.Derived)]
    read = [each for each in shown if not isinstance(each, recognition.Derived)]
    if not direct or not read:
        reason = "it is derived from another number, so it does not contradict"
        return _witness(kind, theirs[0], shown[0], Verdict.SILENT, reason)
    if not _can_contradict(kind, direct[0].value, read[0].value, card):
        reason = "numbers of this kind may have different issuers"
        return _witness(kind, direct[0], read[0], Verdict.SILENT, reason)
    return _witness(kind, direct[0], read[0], Verdict.CONTRADICTS)


def _witness(
    kind: Kind, fabric: Identifier, host: Identifier | None, verdict: Verdict, reason: str = ""
) -> Witness:
    return Witness(
        kind=kind.value,
        fabric=fabric.value,
        fabric_source=fabric.source,
        host=host.value if host is not None else "",
        host_source=host.source if host is not None else "",
        verdict=verdict,
        reason=reason,
        is_derived=isinstance(fabric, recognition.Derived) and isinstance(host, recognition.Derived),
    )


def _explain_silence(kind: Kind, card: model.Card) -> str:
    if kind is Kind.PCIE_DSN and any(function.dsn_hidden for function in card.functions):
        return "the node daemon has no privilege to read it"
    driver = card.first.driver
    is_unbound = silences.silences(card.first).get(kind) is model.Silence.DRIVER_NOT_BOUND
    if kind not in recognition.WITHOUT_DRIVER and (driver is None or is_unbound):
        return f"{driver or 'no driver'} is bound"
    return "the card shows none"


def _can_contradict(kind: Kind, fabric: str, host: str, card: model.Card) -> bool:
    if kind is Kind.BOARD_SERIAL:
        is_cut = len(host) == _CUT_CHARACTERS and fabric.startswith(host)
        return card.first.vendor in _BOARD_ISSUERS and card.device_class is not DeviceClass.NIC and not is_cut
    return kind in _ALWAYS_CONTRADICT


def _excuse(witness: Witness, agreeing: set[str]) -> Witness:
    if witness.verdict is not Verdict.CONTRADICTS:
        return witness
    excuses = _EXCUSED_BY.get(Kind(witness.kind), frozenset())
    if not excuses & agreeing:
        return witness
    reason = f"it is {witness.host} on the card, whose {min(excuses & agreeing)} agrees"
    return msgspec.structs.replace(witness, verdict=Verdict.SILENT, reason=reason)


def _compare_pci_id(identity: attachments.Identity, card: model.Card) -> Witness | None:
    plausible = recognition.parse_pci_id(identity.pci_id)
    if plausible is None:
        return None
    # A virtual function is no part of the fabric's device, and has an id of its own.
    shown = [_pci_id(function) for function in card.bare.functions]
    verdict, reason, host = Verdict.CONTRADICTS, "", shown[0]
    if identity.pci_id in shown:
        verdict, host = Verdict.AGREES, identity.pci_id
    elif _is_fpga(identity, card):
        verdict, reason = Verdict.SILENT, "the ids of an FPGA are those of its image"
    return Witness(
        kind=PCI_ID,
        fabric=identity.pci_id,
        fabric_source="PCI ids",
        host=host,
        host_source=card.address,
        verdict=verdict,
        reason=reason,
    )


def _compare_parts(identity: attachments.Identity, card: model.Card) -> tuple[Witness, ...]:
    """Return a witness for each part number in NVIDIA's format, which begins with the device id."""
    made = []
    for listed in evidence.list_identifiers(identity):
        match = _NVIDIA_PART.fullmatch(listed.value) if listed.kind is Kind.PART_NUMBER else None
        if match is None or not _is_nvidias(identity, card):
            continue
        wanted = f"{recognition.NVIDIA:04x}:{match[1]}"
        shown = [_pci_id(function) for function in card.bare.functions]
        verdict = Verdict.AGREES if wanted in shown else Verdict.CONTRADICTS
        made.append(
            Witness(
                kind=PART_NUMBER,
                fabric=listed.value,
                fabric_source=listed.source,
                host=wanted if wanted in shown else shown[0],
                host_source=card.address,
                verdict=verdict,
            )
        )
    return tuple(made)


def _is_nvidias(identity: attachments.Identity, card: model.Card) -> bool:
    """Return whether a part number in NVIDIA's format is NVIDIA's, by the PCI id, or without one by vendor or class."""
    vendor = recognition.parse_pci_id(identity.pci_id)
    if vendor is not None:
        return vendor[0] == f"{recognition.NVIDIA:04x}"
    return card.first.vendor == recognition.NVIDIA or identity.device_class == DeviceClass.GPU


def _compare_class(identity: attachments.Identity, card: model.Card) -> Witness | None:
    """Return the witness of the class, or None. Different classes do not contradict, because each side chooses its own."""
    if identity.device_class == DeviceClass.OTHER:
        return None
    shown = {function.device_class.value for function in card.bare.functions}
    agrees = identity.device_class in shown or (
        identity.device_class in recognition.VAGUE_CLASSES and bool(shown & recognition.VAGUE_CLASSES)
    )
    plausible = recognition.parse_pci_id(identity.pci_id)
    if plausible is not None and _is_fpga(identity, card):
        agrees = plausible[0] == f"{card.first.vendor:04x}"
    return Witness(
        kind=CLASS,
        fabric=identity.device_class,
        host=card.device_class.value,
        host_source=card.address,
        verdict=Verdict.AGREES if agrees else Verdict.SILENT,
        reason="" if agrees else f"the card is of class {card.device_class.value}",
    )


def _is_fpga(identity: attachments.Identity, card: model.Card) -> bool:
    return (
        identity.device_class == DeviceClass.FPGA
        or card.first.vendor == recognition.XILINX
        or any(function.device_class is DeviceClass.FPGA for function in card.functions)
    )


def _pci_id(function: model.PciFunction) -> str:
    return f"{function.vendor:04x}:{function.device:04x}"
