"""The inventory as tables for people."""

from collections.abc import Sequence

from rich import console

from drawbar.driver.cli import tables
from drawbar.driver.node.inventory import index, model, names, silences
from drawbar.fabric.contract import DeviceClass

_MIB = 1024 * 1024
_Row = Sequence[object]


def show(out: console.Console, inventory: index.Inventory, database: names.Names) -> None:
    """Print the functions, the cards with several functions, the CXL memory devices, and remarks."""
    tables.rows(
        out,
        ("ADDRESS", "CLASS", "DEVICE", "DRIVER", "SERIAL", "LINK", "NUMA", "SLOT", "NODES"),
        [_function_row(function, database) for function in inventory.functions],
        "No such PCI function here.",
    )
    cards = [card for card in inventory.cards if len(card.functions) > 1 and not _is_bridge(card)]
    rows = [_card_row(card) for card in cards]
    _show_more(out, "Cards of several functions", ("CARD", "CLASS", "SLOT", "VFS", "WITH"), rows)
    shown = {function.address for function in inventory.functions}
    rows = [_memdev_row(memdev) for memdev in inventory.memdevs if memdev.pci_address in shown]
    _show_more(out, "CXL memory", ("MEMDEV", "ADDRESS", "RAM MiB", "PMEM MiB", "SERIAL"), rows)
    rows = [row for card in inventory.cards for row in _identifier_rows(card)]
    _show_more(out, "Identifiers", ("CARD", "KIND", "VALUE", "SOURCE"), rows)
    for line in _remarks(inventory):
        out.print(line, style="yellow", soft_wrap=True)


def _show_more(out: console.Console, title: str, head: Sequence[str], rows: Sequence[_Row]) -> None:
    """Print a further table with its title, if it has a row."""
    if rows:
        out.print(f"\n{title}")
        tables.rows(out, head, rows, "")


def _function_row(function: model.PciFunction, database: names.Names) -> _Row:
    return (
        function.address,
        function.device_class.value,
        device_name(function, database),
        function.driver,
        function.serial,
        _link(function.link),
        function.numa_node,
        function.slot,
        " ".join([*(node.path for node in function.device_nodes), *function.net_interfaces]),
    )


def device_name(function: model.PciFunction, database: names.Names) -> str:
    """Return the names of maker and chip, or their ids if a name is not known."""
    vendor = database.vendor(function) or f"{function.vendor:04x}"
    return f"{vendor} {database.device(function) or f'{function.device:04x}'}"


def _link(link: model.Link) -> str:
    """Return the link's speed and width, and its best ones if it could do better."""
    if link.speed_gts is None or link.width is None:
        return ""
    best = max(link.max_speed_gts or 0, link.speed_gts), max(link.max_width or 0, link.width)
    now = f"{link.speed_gts:g}GT/s x{link.width}"
    return now if best == (link.speed_gts, link.width) else f"{now} (max {best[0]:g}GT/s x{best[1]})"


def _is_bridge(card: model.Card) -> bool:
    return card.device_class is DeviceClass.BRIDGE


def _card_row(card: model.Card) -> _Row:
    """Return the row of a card with several functions; virtual functions are counted, not named."""
    virtual = [function for function in card.functions if function.physical_function is not None]
    physical = [function.address for function in card.functions[1:] if function not in virtual]
    slot = card.slot.name if card.slot is not None else None
    return card.address, card.device_class.value, slot, len(virtual), " ".join(physical)


def _identifier_rows(card: model.Card) -> list[_Row]:
    """Return a row for each identifier of a card, and for each kind that may still appear."""
    rows: list[_Row] = [(card.address, each.kind.value, each.value, each.source) for each in card.identifiers]
    shown = {each.kind for each in card.identifiers}
    missing = {kind: why for function in card.functions for kind, why in silences.silences(function).items()}
    rows += [
        (card.address, kind.value, "", why.value)
        for kind, why in sorted(missing.items())
        if kind not in shown
    ]
    return rows


def _memdev_row(memdev: model.Memdev) -> _Row:
    return (
        memdev.name,
        memdev.pci_address,
        _mebibytes(memdev.ram_bytes),
        _mebibytes(memdev.pmem_bytes),
        None if memdev.serial is None else f"{memdev.serial:#x}",
    )


def _mebibytes(size: int | None) -> int | None:
    return None if size is None else size // _MIB


def _remarks(inventory: index.Inventory) -> list[str]:
    remarks = [
        f"Slot {tables.clean(slot.name)} holds a card that is not powered; write 1 to bus/pci/slots/{slot.name}/power to power it."
        for slot in inventory.slots
        if slot.present and slot.powered is False
    ]
    remarks += [
        f"Slot {tables.clean(slot.name)} has several possible ports at {tables.clean(slot.address)}; run drawbar discover "
        "as root, which reads the ports' slot numbers."
        for slot in inventory.slots
        if slot.is_ambiguous
    ]
    names = {slot.name for slot in inventory.slots}
    remarks += [
        f"Slot {tables.clean(slot.name)} has a number from the kernel, for firmware gave its name twice: do not name it in a "
        "configuration, since it may be another slot's after a reboot."
        for slot in inventory.slots
        if "-" in slot.name and slot.name.rpartition("-")[0] in names
    ]
    remarks += [
        f"{function.address} is not ready: {tables.clean(function.defect)}."
        for function in inventory.functions
        if function.defect is not None
    ]
    hidden = sum(function.dsn_hidden for function in inventory.functions)
    if hidden:
        remarks.append(
            f"The Device Serial Numbers of {hidden} functions can be read by root only (CAP_SYS_ADMIN)."
        )
    return remarks
