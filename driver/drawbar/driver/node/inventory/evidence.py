"""A device's identifiers by its fabric and by its card, including derived ones; pure."""

import functools
from collections.abc import Iterable, Set

from drawbar.driver.api import attachments
from drawbar.driver.node.inventory import model
from drawbar.fabric import recognition, witnesses
from drawbar.fabric.witnesses import Identifier, Kind

Key = tuple[Kind, str]
"""Kind and value of an identifier."""


@functools.lru_cache(4096)
def list_identifiers(identity: attachments.Identity) -> tuple[Identifier, ...]:
    """Return the fabric's identifiers of the device."""
    return recognition.expand(_parse(identity, identity.identifiers))


@functools.lru_cache(4096)
def list_keys(identity: attachments.Identity) -> frozenset[Key]:
    """Return the keys of the fabric's identifiers of the device."""
    return frozenset((each.kind, each.value) for each in list_identifiers(identity))


@functools.lru_cache(4096)
def find_own_keys(identity: attachments.Identity) -> frozenset[Key]:
    """Return the keys that identify the device, because no other device of the fabric has them."""
    own = _parse(identity, (each for each in identity.identifiers if not each.shared))
    return frozenset(
        (each.kind, each.value) for each in recognition.expand(own) if each.kind in recognition.STRENGTH
    )


@functools.lru_cache(4096)
def expand_shown(identifiers: tuple[Identifier, ...]) -> tuple[Identifier, ...]:
    """Return the identifiers of a card. Cached, because each round compares all cards."""
    return recognition.expand(identifiers)


def is_shown(keys: Set[Key], card: model.Card) -> bool:
    """Return whether the card shows an identifier with one of these keys."""
    return any((each.kind, each.value) in keys for each in expand_shown(card.identifiers))


def _parse(
    identity: attachments.Identity, listed: Iterable[attachments.DeviceIdentifier]
) -> tuple[Identifier, ...]:
    kinds = set(Kind)
    made = [
        witnesses.identifier(Kind(each.kind), each.value, each.source)
        for each in listed
        if each.kind in kinds
    ]
    made.append(witnesses.identifier(Kind.SERIAL, identity.serial, "serial number"))
    return tuple(each for each in made if each is not None)
