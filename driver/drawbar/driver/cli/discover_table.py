"""The inventory as tables for people, in 80 columns or more."""

from collections.abc import Mapping, Sequence
from typing import Literal

from rich import console, table, text

from drawbar.driver.cli import tables
from drawbar.driver.node.inventory import index, model, names, silences
from drawbar.fabric.contract import DeviceClass

_STYLES = {
    DeviceClass.BRIDGE: "dim",
    DeviceClass.STORAGE: "dim",
    DeviceClass.OTHER: "dim",
}
_OFFERED_STYLE = "bold cyan"
_WITH_LINK_COLUMNS = 100
_WIDE_COLUMNS = 120  # enough for NUMA node, slot and device nodes
_ELASTIC = ("DEVICE", "NODES")
_NARROWEST_DEVICE = 14
_NARROWEST_NODES = 19  # the length of /dev/dri/renderD128
_WIDEST = (
    32  # room for a serial number or a driver's name; keeps one device from taking the other columns' room
)
_GAP = 2
_MIB = 1024 * 1024


def show(out: console.Console, inventory: index.Inventory, database: names.Names) -> None:
    """Print the functions, the cards with several functions, the CXL memory devices, and remarks."""
    if inventory.functions:
        out.print(_function_table(inventory.functions, database, out.width))
    else:
        out.print("No such PCI function here.")
    cards = [card for card in inventory.cards if len(card.functions) > 1 and not _is_bridge(card)]
    if cards:
        out.print()
        out.print(_card_table(cards))
    shown = {function.address for function in inventory.functions}
    memdevs = [memdev for memdev in inventory.memdevs if memdev.pci_address in shown]
    if memdevs:
        out.print()
        out.print(_memdev_table(memdevs))
    rows = [row for card in inventory.cards for row in _identifier_rows(card)]
    if rows:
        out.print()
        out.print(_identifier_table(rows))
    for line in _remarks(inventory):
        out.print(line, style="yellow", soft_wrap=True)


def _function_table(
    functions: Sequence[model.PciFunction], database: names.Names, columns: int
) -> table.Table:
    """Return the table of functions with as many columns as fit; only device names and nodes may be cut."""
    cells = {
        "ADDRESS": [text.Text(function.address) for function in functions],
        "CLASS": [_class_name(function) for function in functions],
        "DEVICE": [_cell(device_name(function, database)) for function in functions],
        "DRIVER": [_cell(function.driver or "-") for function in functions],
        "SERIAL": [_cell(function.serial or "-") for function in functions],
    }
    if columns >= _WITH_LINK_COLUMNS:
        cells["LINK"] = [_link(function.link) for function in functions]
    if columns >= _WIDE_COLUMNS:
        cells["NUMA"] = [text.Text("-" if f.numa_node is None else str(f.numa_node)) for f in functions]
        cells["SLOT"] = [_cell(function.slot or "-") for function in functions]
        cells["NODES"] = [_cell(_nodes(function)) for function in functions]
    widths = _widths({heading: [len(cell) for cell in column] for heading, column in cells.items()}, columns)
    result = _table()
    for heading in cells:
        overflow: Literal["fold", "ellipsis"] = "fold" if heading == "NODES" else "ellipsis"
        result.add_column(heading, width=widths[heading], overflow=overflow, no_wrap=heading != "NODES")
    for row in zip(*cells.values(), strict=True):
        result.add_row(*row)
    return result


def _cell(content: str) -> text.Text:
    """Return foreign text as one line."""
    return text.Text(tables.clean(content))


def _table(title: str | None = None) -> table.Table:
    return table.Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")


def _widths(lengths: Mapping[str, Sequence[int]], columns: int) -> dict[str, int]:
    """Return a width for each heading: the width of its cells; DEVICE and NODES share the remaining columns."""
    widths = {
        heading: max(len(heading), *cells) if heading in _ELASTIC else min(max(len(heading), *cells), _WIDEST)
        for heading, cells in lengths.items()
    }
    fixed = sum(width for heading, width in widths.items() if heading not in _ELASTIC)
    spare = columns - fixed - _GAP * (len(widths) - 1)
    if "NODES" in widths:
        widths["NODES"] = min(widths["NODES"], max(_NARROWEST_NODES, spare // 2))
        spare -= widths["NODES"]
    widths["DEVICE"] = min(widths["DEVICE"], max(_NARROWEST_DEVICE, spare))
    return widths


def _class_name(function: model.PciFunction) -> text.Text:
    return text.Text(function.device_class.value, style=_STYLES.get(function.device_class, _OFFERED_STYLE))


def device_name(function: model.PciFunction, database: names.Names) -> str:
    """Return the names of maker and chip, or their ids if a name is not known."""
    vendor = database.vendor(function) or f"{function.vendor:04x}"
    return f"{vendor} {database.device(function) or f'{function.device:04x}'}"


def _link(link: model.Link) -> text.Text:
    """Return the link's speed and width, in yellow if the link could do better."""
    if link.speed_gts is None or link.width is None:
        return text.Text("-")
    now = f"{link.speed_gts:g}GT/s x{link.width}"
    slower = (link.max_speed_gts or 0) > link.speed_gts
    narrower = (link.max_width or 0) > link.width
    return text.Text(now, style="yellow" if slower or narrower else "")


def _nodes(function: model.PciFunction) -> str:
    return " ".join([*(node.path for node in function.device_nodes), *function.net_interfaces]) or "-"


def _is_bridge(card: model.Card) -> bool:
    return card.device_class is DeviceClass.BRIDGE


def _card_table(cards: Sequence[model.Card]) -> table.Table:
    """Return the table of cards with several functions; virtual functions are counted, not named."""
    result = _table("Cards of several functions")
    for heading in ("CARD", "CLASS", "SLOT", "VFS", "WITH"):
        result.add_column(heading, no_wrap=heading != "WITH", justify="right" if heading == "VFS" else "left")
    for card in cards:
        virtual = [function for function in card.functions if function.physical_function is not None]
        physical = [function.address for function in card.functions[1:] if function not in virtual]
        slot = tables.clean(card.slot.name) if card.slot is not None else "-"
        result.add_row(
            card.address, card.device_class.value, slot, str(len(virtual)), " ".join(physical) or "-"
        )
    return result


def _identifier_rows(card: model.Card) -> list[tuple[str, str, str, str]]:
    """Return a row for each identifier of a card, and for each kind that may still appear."""
    rows = [(card.address, each.kind.value, each.value, each.source) for each in card.identifiers]
    shown = {each.kind for each in card.identifiers}
    missing = {kind: why for function in card.functions for kind, why in silences.silences(function).items()}
    rows += [
        (card.address, kind.value, "-", why.value)
        for kind, why in sorted(missing.items())
        if kind not in shown
    ]
    return rows


def _identifier_table(rows: Sequence[tuple[str, str, str, str]]) -> table.Table:
    """Return the table of identifiers; a card without any has the reason."""
    result = _table("Identifiers")
    for heading in ("CARD", "KIND", "VALUE", "SOURCE"):
        result.add_column(heading, no_wrap=heading != "SOURCE", overflow="fold")
    for row in rows:
        result.add_row(*(text.Text(cell) for cell in row))
    return result


def _memdev_table(memdevs: Sequence[model.Memdev]) -> table.Table:
    result = _table("CXL memory")
    for heading in ("MEMDEV", "ADDRESS", "RAM MiB", "PMEM MiB", "SERIAL"):
        result.add_column(heading, no_wrap=True, justify="right" if "MiB" in heading else "left")
    for memdev in memdevs:
        serial = "-" if memdev.serial is None else f"{memdev.serial:#x}"
        result.add_row(
            memdev.name,
            memdev.pci_address or "-",
            _mebibytes(memdev.ram_bytes),
            _mebibytes(memdev.pmem_bytes),
            serial,
        )
    return result


def _mebibytes(size: int | None) -> str:
    return "-" if size is None else str(size // _MIB)


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
