"""Numbers for the network interfaces of a claim's devices, where its parameters name them; pure.

Invariant: no two interfaces of one claim get the same name, in whichever container they meet.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence

import msgspec

from drawbar.driver.api import parameters
from drawbar.driver.node.preparation import finding, nothing


def numbered(given: Sequence[finding.Given]) -> list[finding.Given]:
    """The same with the number of the first interface in each record, in order of pool and device."""
    used: Counter[str] = Counter()
    first: dict[tuple[str, str], int] = {}
    for one in sorted(given, key=lambda one: (one.record.pool, one.record.device)):
        prefix = parameters.recorded(one.record.parameters).network.interface_prefix
        key = (one.record.pool, one.record.device)
        # Two shares of one device are one device to the container.
        if prefix is not None and not isinstance(one, nothing.Nothing) and key not in first:
            first[key] = used[prefix]
            used[prefix] += one.interfaces
    return [_with(one, first.get((one.record.pool, one.record.device), 0)) for one in given]


def _with(one: finding.Given, first: int) -> finding.Given:
    if not first:
        return one
    return dataclasses.replace(one, record=msgspec.structs.replace(one.record, first_interface=first))
