"""Hot-plug slots: which there are, and whether a card is in and powered.

Which files a slot has depends on what its port can do; without a hot-plug driver there are no slots.
"""

from collections.abc import Iterable, Mapping

from drawbar.driver.node.inventory import files, links, model

_FOLDER = "bus/pci/slots"


def read(root: str) -> tuple[model.Slot, ...]:
    """Every slot, in order of name."""
    found = (read_one(root, name) for name in names(root))
    return ordered(slot for slot in found if slot is not None)


def names(root: str) -> list[str]:
    """The names of the slots, in no order that means anything."""
    return files.names(f"{root}/{_FOLDER}")


def read_one(root: str, name: str) -> model.Slot | None:
    """The slot of this name, or None if there is none, or none that says where it is."""
    path = f"{root}/{_FOLDER}/{name}"
    address = files.text(path + "/address")
    if not address:
        return None
    return model.Slot(
        name=name,
        address=address,
        present=flag(files.number(path + "/adapter")),
        powered=flag(files.number(path + "/power")),
        attention=files.number(path + "/attention"),
        speed_gts=links.speed(files.text(path + "/cur_bus_speed")),
        max_speed_gts=links.speed(files.text(path + "/max_bus_speed")),
    )


def ordered(slots: Iterable[model.Slot]) -> tuple[model.Slot, ...]:
    """By name: slot 10 comes after slot 9, and names that are no numbers (`2-1`) come last."""
    return tuple(sorted(slots, key=_by_name))


def addresses(slots: Iterable[model.Slot]) -> dict[str, str]:
    """Slot names by address (`domain:bus:device`); of two slots that claim one address the last counts."""
    return {slot.address: slot.name for slot in ordered(slots)}


def nearest(path: str, by_address: Mapping[str, str]) -> str | None:
    """The slot that the device in this directory sits in: the nearest on the way up."""
    for part in reversed(path.split("/")):
        address = part.rpartition(".")[0]
        if address in by_address:
            return by_address[address]
    return None


def flag(value: int | None) -> bool | None:
    """0 or 1 as a truth value; None stays None."""
    return None if value is None else value != 0


def _by_name(slot: model.Slot) -> tuple[int, str]:
    return (int(slot.name), "") if slot.name.isdecimal() else (1 << 32, slot.name)
