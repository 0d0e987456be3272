"""DRA names of the devices that live in a node, and of its pools.

A device is named after its serial number where it has one that no other card of the node claims, else after its PCI
address: `gpu-48-b0-2d-00-00-00-00-01`, `fpga-0000-65-00-0`. A claim may outlive a reboot, and addresses move when a card
is added; serial numbers do not. A virtual function is named after its card and its number among its kind.

Source: `resource.k8s.io/v1` Device.name (a DNS label), ResourcePool.name (DNS subdomains joined by `/`).
"""

import collections
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from drawbar.driver.node.inventory import model
from drawbar.fabric.contract import DeviceClass

LABEL_CHARS = 63
HASH_CHARS = 8
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """Something of this node that can be given out as one device.

    Attributes:
        name: its DRA name.
        card: its functions; of a virtual function, that one alone.
        whole: the card that it is, or is a part of.
    """

    name: str
    card: model.Card
    whole: model.Card

    @property
    def is_virtual(self) -> bool:
        """Whether it is a virtual function."""
        return self.card.first.physical_function is not None


def residents(cards: Iterable[model.Card]) -> tuple[Resident, ...]:
    """Every card, and every virtual function of it, under the name it would have; names are unique.

    A name begins with the class and depends on the cards of that class alone, so those of other classes may be left out.
    """
    named = [
        (card, f"{card.first.device_class}-{model.canonical_serial(serial(card) or '')}") for card in cards
    ]
    claimed = collections.Counter(name for _, name in named)
    found: list[Resident] = []
    for card, by_serial in named:
        by_address = f"{card.first.device_class}-{card.address}"
        name = label(by_address if by_serial.endswith("-") or claimed[by_serial] > 1 else by_serial)
        found.append(Resident(name=name, card=card, whole=card))
        found += _virtual(card, name)
    return _distinct(found)


def serial(card: model.Card) -> str | None:
    """The serial number that tells a card, if it has one."""
    texts = [
        (function.serial or function.dsn, function.device_class)
        for function in card.functions
        if function.physical_function is None
    ]
    for text, device_class in texts:
        if text:
            # Whether its driver is bound or not, a CXL device has one number; it is written as the Device Serial Number.
            numbers = model.serial_numbers(text) if device_class is DeviceClass.CXL_MEMORY else ()
            return model.dashed_serial(min(numbers)) if len(numbers) == 1 else text
    return next((model.dashed_serial(one.serial) for one in card.memdevs if one.serial is not None), None)


def label(text: str) -> str:
    """A DNS label for any text that is equal only for equal texts, but for case and what separates."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    # Only what separates may have changed: anything else, or a cut, is told apart by a hash of the whole.
    if (
        len(plain) <= LABEL_CHARS
        and _LABEL.fullmatch(plain)
        and re.fullmatch(r"[a-z0-9.:_ -]+", text.lower())
    ):
        return plain
    short = plain[: LABEL_CHARS - HASH_CHARS - 1].rstrip("-")
    return f"{short or 'x'}-{_hash(text)}"


def class_of(name: str) -> DeviceClass | None:
    """The class of the devices that can have that name; None for a name that none of ours has."""
    found = [one for one in DeviceClass if name.startswith(f"{one}-")]
    return found[0] if found else None


def resource_slice(driver: str, pool_name: str) -> str:
    """The one name a pool's slice can have, so that no second one makes the pool invalid."""
    return f"{label(pool_name.partition('/')[0])}-{_hash(f'{driver}/{pool_name}')}"


def _virtual(card: model.Card, name: str) -> Iterable[Resident]:
    numbers: Mapping[str, int] = {
        address: number
        for function in card.functions
        if function.sriov is not None
        for number, address in enumerate(function.sriov.virtual_functions)
    }
    owners = sorted({function.physical_function for function in card.functions if function.physical_function})
    for function in card.functions:
        if function.physical_function is None or function.address not in numbers:
            continue
        part = f"-f{owners.index(function.physical_function)}" if len(owners) > 1 else ""
        yield Resident(
            name=label(f"{name}{part}-vf{numbers[function.address]}"),
            card=model.Card(functions=(function,), slot=card.slot),
            whole=card,
        )


def _distinct(found: list[Resident]) -> tuple[Resident, ...]:
    """What two share is nobody's name: serials that differ only in what separates, say."""
    counted = collections.Counter(one.name for one in found)
    return tuple(
        one
        if counted[one.name] == 1
        else Resident(
            name=label(f"{one.card.first.device_class}-{one.card.address}"), card=one.card, whole=one.whole
        )
        for one in found
    )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_CHARS]
