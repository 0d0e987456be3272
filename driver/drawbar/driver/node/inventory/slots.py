"""Hot-plug slots: which there are, and whether a card is in and powered.

Which files a slot has depends on what its port can do; without a hot-plug driver there are no slots.
"""

from drawbar.driver.node.inventory import files, links, model


def read(root: str) -> tuple[model.Slot, ...]:
    """Every slot, in order of name."""
    return tuple(
        _read(root, name, address) for address, name in sorted(addresses(root).items(), key=_by_name)
    )


def addresses(root: str) -> dict[str, str]:
    """Slot names by address (`domain:bus:device`)."""
    found = {}
    for name in files.names(f"{root}/bus/pci/slots"):
        if address := files.text(f"{root}/bus/pci/slots/{name}/address"):
            found[address] = name
    return found


def _read(root: str, name: str, address: str) -> model.Slot:
    path = f"{root}/bus/pci/slots/{name}"
    return model.Slot(
        name=name,
        address=address,
        present=flag(files.number(path + "/adapter")),
        powered=flag(files.number(path + "/power")),
        attention=files.number(path + "/attention"),
        speed_gts=links.speed(files.text(path + "/cur_bus_speed")),
        max_speed_gts=links.speed(files.text(path + "/max_bus_speed")),
    )


def flag(value: int | None) -> bool | None:
    """0 or 1 as a truth value; None stays None."""
    return None if value is None else value != 0


def _by_name(item: tuple[str, str]) -> tuple[int, str]:
    """Slot 10 comes after slot 9; names need not be numbers (`2-1`)."""
    return (int(item[1]), "") if item[1].isdecimal() else (1 << 32, item[1])
