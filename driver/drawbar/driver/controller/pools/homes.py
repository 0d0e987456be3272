"""Which pool a device belongs to, decided purely.

Invariant: a device never changes its pool while it is published, wherever others come and go. Only its own change (of
enclosure or model) or a new rule about its model moves it, and never while a claim has it, published or not. One that
moved before its claim was seen goes back to the pool out of which it was given: in the other it would be offered again, and
a taint there would not be about the claim's device.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from drawbar.driver.api import slices
from drawbar.driver.controller import names
from drawbar.driver.slices import plan as slice_plan
from drawbar.fabric import contract


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What decides besides the devices themselves.

    Attributes:
        restricted: models whose devices have pools of their own.
        held: names of devices that stay where they are.
        unlisted: names of devices that stay published although they are not listed, and keep their room.
        claimed: by device name the pool that the allocation of a claim names.
        given: by device name the pool out of which a claim was given it; what is published goes before.
    """

    restricted: Collection[str] = ()
    held: Collection[str] = ()
    unlisted: Collection[str] = ()
    claimed: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)


def pools(
    fabric: str,
    found: tuple[contract.Device, ...],
    published: tuple[slices.ResourceSlice, ...],
    rules: Rules | None = None,
) -> dict[str, str]:
    """The pool of each device by its name: where it is published or was given, else the first of its kind with room."""
    rules = rules or Rules()
    first = {
        names.label(device.id): names.pool(
            fabric, device.enclosure, device.model if device.model in rules.restricted else ""
        )
        for device in found
    }
    homes: dict[str, str] = {}
    filled: dict[str, int] = {}
    full = {one.spec.pool.name for one in published if len(one.spec.devices) >= slice_plan.DEVICES_MAX}
    for one in published:
        pool = one.spec.pool.name
        for device in one.spec.devices:
            wanted, claimed = first.get(device.name), rules.claimed.get(device.name)
            stays = device.name in rules.held or pool == claimed or (wanted and _belongs(pool, wanted))
            returns = claimed is not None and claimed != pool and claimed not in full
            if device.name in rules.unlisted:
                filled[pool] = filled.get(pool, 0) + 1
            if wanted is not None and stays and not returns:
                homes[device.name] = pool
                filled[pool] = filled.get(pool, 0) + 1
    given = {**rules.given, **rules.claimed}
    for name in sorted(given.keys() & (first.keys() - homes.keys())):
        homes[name] = given[name]
        filled[homes[name]] = filled.get(homes[name], 0) + 1
    return slice_plan.place(homes, first, filled)


def _belongs(pool: str, first: str) -> bool:
    return pool == first or (pool.startswith(f"{first}/") and pool[len(first) + 1 :].isdigit())
