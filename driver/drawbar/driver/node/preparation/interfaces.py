"""Numbers for the network interfaces of a claim's devices, where its parameters name them.

Invariant: no two interfaces of one claim get the same name, in whichever container they meet.
"""

import dataclasses
from collections.abc import Sequence

import msgspec

from drawbar.driver.api import parameters
from drawbar.driver.node.preparation import finding, records

# By prefix the interfaces of each device, as pool and name, in order of these.
_Named = dict[str, dict[tuple[str, str], int]]


def prefix(said: records.Json) -> str | None:
    """What recorded parameters call the interfaces, if they do."""
    return parameters.recorded(said).network.interface_prefix


def numbered(given: Sequence[finding.Given]) -> list[finding.Given]:
    """The same with the number of the first interface in each record, in order of pool and device."""
    first: dict[tuple[str, str], int] = {}
    for counts in _named(given).values():
        used = 0
        for key, count in counts.items():
            first[key] = used
            used += count
    return [_with(one, first.get((one.record.pool, one.record.device), 0)) for one in given]


def are_all_here(given: Sequence[finding.Given]) -> bool:
    """Whether `numbered` says what it said when they were prepared: a container takes its interfaces with it."""
    return all(len(counts) < 2 or all(counts.values()) for counts in _named(given).values())


def _named(given: Sequence[finding.Given]) -> _Named:
    found: _Named = {}
    for one in sorted(given, key=lambda one: (one.record.pool, one.record.device)):
        said = prefix(one.record.parameters)
        if said is not None and one.interfaces is not None:
            # Two shares of one device are one device to the container.
            found.setdefault(said, {}).setdefault((one.record.pool, one.record.device), one.interfaces)
    return found


def _with(one: finding.Given, first: int) -> finding.Given:
    if not first:
        return one
    return dataclasses.replace(one, record=msgspec.structs.replace(one.record, first_interface=first))
