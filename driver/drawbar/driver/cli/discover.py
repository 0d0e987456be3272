"""`drawbar discover`: the PCI and CXL devices of this host, and their changes.

In JSON, keys are camelCase, names hold units, and ids are hexadecimal strings. `--watch` follows hot-plug events and
prints their changes, one function at a time.
"""

import argparse
import asyncio
import dataclasses
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from drawbar.driver import errors, output
from drawbar.driver.cli import command, discover_record, documents, flags
from drawbar.driver.node import uevents
from drawbar.driver.node.discovery import devices, reader
from drawbar.driver.node.inventory import index, model, names, pci, silences
from drawbar.fabric import witnesses
from drawbar.fabric.contract import DeviceClass

VITAL_SECONDS = 5.0
"""The wait for Vital Product Data; a card may take seconds to answer."""
_UNDERSCORE = re.compile(r"_([a-z])")


def document(inventory: index.Inventory, database: names.Names) -> dict[str, Any]:
    """Return the whole inventory as JSON values."""
    return {
        "cards": [card_document(each) for each in inventory.cards],
        "functions": [function_document(each, database) for each in inventory.functions],
        "slots": [_plain(each) for each in inventory.slots],
        "cxl": {
            "memdevs": [_plain(each) for each in inventory.memdevs],
            "ports": [_plain(each) for each in inventory.ports],
            "decoders": [_plain(each) for each in inventory.decoders],
            "regions": [_plain(each) for each in inventory.regions],
        },
        "dax": [_plain(each) for each in inventory.dax],
    }


def card_document(each: model.Card) -> dict[str, Any]:
    """Return a card as JSON values: the addresses of its functions, the primary one first."""
    return {
        "address": each.address,
        "deviceClass": each.device_class.value,
        "serial": each.serial,
        "slot": each.slot.name if each.slot is not None else None,
        "identifiers": [_describe_identifier(identifier) for identifier in each.identifiers],
        "functions": [function.address for function in each.functions],
        "memdevs": [memdev.name for memdev in each.memdevs],
    }


def function_document(each: model.PciFunction, database: names.Names) -> dict[str, Any]:
    """Return a PCI function as JSON values, with names if its ids are known."""
    sriov = each.sriov
    return {
        "address": each.address,
        "deviceClass": each.device_class.value,
        "classCode": f"0x{each.class_code:06x}",
        "className": database.class_name(each.class_code),
        "vendorID": _identifier(each.vendor),
        "vendorName": database.vendor(each),
        "deviceID": _identifier(each.device),
        "deviceName": database.device(each),
        "subsystemVendorID": _identifier(each.subsystem_vendor),
        "subsystemDeviceID": _identifier(each.subsystem_device),
        "subsystemName": database.subsystem(each),
        "driver": each.driver,
        "serial": each.serial,
        "deviceSerialNumber": each.dsn,
        "identifiers": [_describe_identifier(identifier) for identifier in each.identifiers],
        "missingIdentifiers": {
            kind.value: why.value for kind, why in sorted(silences.silences(each).items())
        },
        "numaNode": each.numa_node,
        "pcieRoot": each.pcie_root,
        "linkSpeedGTs": each.link.speed_gts,
        "linkWidth": each.link.width,
        "maxLinkSpeedGTs": each.link.max_speed_gts,
        "maxLinkWidth": each.link.max_width,
        "slot": each.slot,
        "iommuGroup": each.iommu_group,
        "sriov": None
        if sriov is None
        else {
            "totalVFs": sriov.total_vfs,
            "numVFs": sriov.num_vfs,
            "virtualFunctions": list(sriov.virtual_functions),
        },
        "physicalFunction": each.physical_function,
        "ari": each.ari,
        "defect": each.defect,
        "deviceNodes": [_device_node(node) for node in each.device_nodes],
        "networkInterfaces": list(each.net_interfaces),
        "secondaryBus": each.secondary_bus,
        "nvmeControllers": [_plain(controller) for controller in each.nvme],
        "fpgaManagers": [_plain(manager) for manager in each.fpga_managers],
        "path": each.path,
    }


def _identifier(value: int | None) -> str | None:
    return None if value is None else f"0x{value:04x}"


def _describe_identifier(identifier: witnesses.Identifier) -> dict[str, str]:
    return {"kind": identifier.kind.value, "value": identifier.value, "source": identifier.source}


def _device_node(node: model.DeviceNode) -> dict[str, Any]:
    return {
        "path": node.path,
        "type": "block" if node.block else "char",
        "major": node.major,
        "minor": node.minor,
        "subsystem": node.subsystem,
    }


_Described = (
    model.Slot
    | model.Memdev
    | model.Port
    | model.Decoder
    | model.Region
    | model.DaxDevice
    | model.NvmeController
    | model.FpgaManager
)


def _plain(value: _Described) -> dict[str, Any]:
    """Return a struct as a dictionary whose keys are the field names."""
    return {_key(name): _plain_value(content) for name, content in msgspec.structs.asdict(value).items()}


def _plain_value(content: Any) -> Any:
    if isinstance(content, model.DeviceNode):
        return _device_node(content)
    return list(content) if isinstance(content, tuple) else content


def _key(name: str) -> str:
    """Return the camelCase key of a field, such as `maxSpeedGTs` for `max_speed_gts`."""
    return _UNDERSCORE.sub(lambda match: match[1].upper(), name.replace("_gts", "_g_ts"))


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of an event on a function.

    Attributes:
        action: the event's action; `add` or `remove` for a change found after an overflow.
        subsystem: `pci` for an event of the function itself; `nvme`, `drm`, ... for one of its children.
        address: the function's address.
        function: the present state of the function; the last known state if it is gone.
        device: the last component of the device's path, e.g. `nvme0n1`.
    """

    action: str
    subsystem: str
    address: str
    function: model.PciFunction | None
    device: str


class Watch:
    """The functions of the host, kept current by events."""

    def __init__(self, known: devices.Devices) -> None:
        self._known = known
        self._functions = {function.address: function for function in known.inventory.functions}

    async def take(self, event: uevents.Uevent | uevents.Overflow) -> list[Change]:
        """Return the changes that an event makes; empty if it is not about a PCI function."""
        if isinstance(event, uevents.Overflow):
            return await self._reread()
        address = address_of(event.devpath)
        if address is None:
            return []
        return [
            Change(
                action=event.action,
                subsystem=event.subsystem,
                address=address,
                function=await self._function(
                    address, gone=event.action == "remove" and event.subsystem == "pci"
                ),
                device=event.devpath.rpartition("/")[2],
            )
        ]

    async def _function(self, address: str, *, gone: bool) -> model.PciFunction | None:
        """Return the function's present state, or its last known state.

        Events arrive late. When the first child is removed, the whole function may be gone already. The following
        events still need its last state.
        """
        card = await self._known.refresh(address)
        if gone:
            return self._functions.pop(address, None)
        for function in card.functions if card is not None else ():
            if function.address == address:
                self._functions[address] = function
        return self._functions.get(address)

    async def _reread(self) -> list[Change]:
        before = self._functions
        await self._known.read()
        self._functions = {function.address: function for function in self._known.inventory.functions}
        return [
            *_differences("remove", before, self._functions),
            *_differences("add", self._functions, before),
        ]


def address_of(devpath: str) -> str | None:
    """Return the address of the PCI function that is the device or its nearest parent, or None."""
    parts = reversed(devpath.split("/"))
    return next((part for part in parts if pci.ADDRESS.fullmatch(part)), None)


def _differences(
    action: str, these: Mapping[str, model.PciFunction], those: Mapping[str, model.PciFunction]
) -> list[Change]:
    return [
        Change(action=action, subsystem="pci", address=address, function=function, device=address)
        for address, function in these.items()
        if address not in those
    ]


async def follow(sysfs: Path, source: str, ready: Callable[[], None], tell: Callable[[Change], None]) -> None:
    """Call `tell` for every change until the source ends, and `ready` once no further change can be missed.

    Raises:
        SysfsError: there is no readable tree.
        UeventError: the source cannot be opened, or failed.
    """
    async with uevents.listening(source) as subscription:
        known = devices.Devices(sysfs)
        await known.read()
        _report_hanging(known)
        watch = Watch(known)
        ready()
        async for event in subscription.events():
            for change in await watch.take(event):
                tell(change)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--sysfs",
        type=Path,
        default=reader.SYSFS,
        metavar="DIR",
        help="the sysfs tree to read (default: /sys)",
    )
    flags.add_output(parser)
    parser.add_argument(
        "--class",
        dest="classes",
        action="append",
        choices=[kind.value for kind in DeviceClass],
        metavar="CLASS",
        help="show only this class; may be repeated (%(choices)s)",
    )
    parser.add_argument("--watch", action="store_true", help="print changes as they happen, until Ctrl-C")
    parser.add_argument(
        "--uevents",
        default=uevents.KERNEL,
        metavar="SOURCE",
        help="where --watch and --record read changes: kernel (default), or unix:/path for a mocked tree",
    )
    discover_record.configure(parser)


def run(args: argparse.Namespace) -> int:
    """Print the inventory or its changes, or record it, and return the exit status.

    Raises:
        UsageError: the options do not go together, or the folder for a recording cannot be used.
        SysfsError: there is no readable tree.
        UeventError: the kernel's events cannot be received.
    """
    discover_record.check(args)
    with command.printing():
        if args.record is not None:
            return discover_record.run(args)
        if args.watch:
            return _watch(args)
        inventory = read(args.sysfs)
        wanted = tuple(function for function in inventory.functions if _is_wanted(args, function))
        _print(args, dataclasses.replace(inventory, functions=wanted, prebuilt=None))
    return 0


def read(sysfs: Path, seconds: float = VITAL_SECONDS) -> index.Inventory:
    """Return the tree's inventory, with the Vital Product Data that arrives in time. Name hanging devices on stderr.

    Raises:
        SysfsError: there is no readable tree.
    """

    async def complete() -> devices.Devices:
        known = devices.Devices(sysfs)
        await known.read()
        await known.complete(seconds)
        return known

    known = asyncio.run(complete())
    _report_hanging(known)
    return known.inventory


def _report_hanging(known: devices.Devices) -> None:
    for name in known.hanging:
        sys.stderr.write(
            f"{name} is left out: the kernel does not finish reading it; look at its log (dmesg)\n"
        )


def _is_wanted(args: argparse.Namespace, function: model.PciFunction) -> bool:
    return not args.classes or function.device_class.value in args.classes


def _print(args: argparse.Namespace, inventory: index.Inventory) -> None:
    database = names.load(inventory.functions, names.find_database())
    if documents.is_document(args.output):
        addresses = [f"function/{function.address}" for function in inventory.functions]
        documents.write(args.output, "Inventory", document(inventory, database), names=addresses)
        return
    from drawbar.driver.cli import discover_table

    is_wide = args.output == "wide"
    command.print_tables(lambda out: discover_table.show(out, inventory, database), wide=is_wide)


def _watch(args: argparse.Namespace) -> int:
    def ready() -> None:
        print("Watching for changes; Ctrl-C ends.", file=sys.stderr, flush=True)  # noqa: T201 - a command's output

    try:
        asyncio.run(follow(args.sysfs, args.uevents, ready, _teller(args)))
    except KeyboardInterrupt:
        return errors.ExitStatus.INTERRUPTED
    return errors.ExitStatus.FINE


def _teller(args: argparse.Namespace) -> Callable[[Change], None]:
    database = names.find_database()

    def tell(change: Change) -> None:
        function = change.function
        if args.classes and (function is None or not _is_wanted(args, function)):
            return
        loaded = names.load((function,), database) if function is not None else names.Names()
        if documents.is_document(args.output):
            content = _as_json(change, loaded)
            name = f"function/{change.address}"
            documents.write_event(args.output, "InventoryChange", content, name=name)
        else:
            sys.stdout.write(_as_text(change, loaded) + "\n")
            sys.stdout.flush()

    return tell


def _as_json(change: Change, database: names.Names) -> dict[str, Any]:
    function = change.function
    return {
        "action": change.action,
        "subsystem": change.subsystem,
        "address": change.address,
        "device": change.device,
        "function": None if function is None else function_document(function, database),
    }


def _as_text(change: Change, database: names.Names) -> str:
    function = change.function
    what = change.device if change.subsystem != "pci" else "function"
    words = [f"{change.action:<7}", change.address, f"{change.subsystem} {what}"]
    if function is not None:
        words += [f"({function.device_class.value}, {database.vendor(function) or 'unknown vendor'}"]
        words[-1] += f", serial {function.serial})" if function.serial else ")"
    return output.one_line(" ".join(words))


COMMAND = command.Command(
    name="discover",
    help="show the PCI and CXL devices of this host",
    description=(
        "Reads sysfs and shows every PCI function and CXL device, with its driver, link, serial number and "
        "device nodes. Needs no privilege, but serial numbers of most PCI cards are shown to root only."
    ),
    examples=(
        "drawbar discover",
        "drawbar discover --class gpu --class nvme -o json",
        "drawbar discover --watch --class cxl-memory",
        "drawbar discover --record bug-report --mask-serials",
    ),
    configure=configure,
    run=run,
)
