"""`drawbar discover`: shows the PCI and CXL devices of this host, and how they change."""

import argparse
import asyncio
import dataclasses
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from drawbar.driver.cli import command, discover_json, discover_record, discover_watch
from drawbar.driver.node import uevents
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import index, model, names
from drawbar.fabric.contract import DeviceClass

_WIDTH_IF_NO_TERMINAL = 160  # a file or a pipe has no edge; this leaves room for every column


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument(
        "--sysfs",
        type=Path,
        default=reader.SYSFS,
        metavar="DIR",
        help="the sysfs tree to read (default: /sys)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON; with --watch one object a line")
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
        help="where --watch and --record hear of changes: kernel (default), or unix:/path for a mocked tree",
    )
    discover_record.configure(parser)


def run(args: argparse.Namespace) -> int:
    """Prints what there is, or what changes, or records it.

    Raises:
        UsageError: the options do not go together, or the folder for a recording cannot be used.
        SysfsError: there is no readable tree.
        UeventError: events cannot be heard.
    """
    discover_record.check(args)
    try:
        if args.record is not None:
            return discover_record.run(args)
        if args.watch:
            return _watch(args)
        found = reader.read(args.sysfs)
        wanted = tuple(function for function in found.functions if _wanted(args, function))
        _print(args, dataclasses.replace(found, functions=wanted))
        sys.stdout.flush()
    except BrokenPipeError:
        _abandon_output()
    return 0


def _wanted(args: argparse.Namespace, function: model.PciFunction) -> bool:
    return not args.classes or function.device_class.value in args.classes


def _print(args: argparse.Namespace, found: index.Inventory) -> None:
    known = names.load(found.functions, names.find_database())
    if args.json:
        _write_line(json.dumps(discover_json.document(found, known), indent=2))
        return
    from rich import console

    from drawbar.driver.cli import discover_table

    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDTH_IF_NO_TERMINAL
    out = console.Console(width=wide, highlight=False)
    with out.capture() as shown:  # rich would end the process itself when the reader is gone
        discover_table.show(out, found, known)
    sys.stdout.write(shown.get())


def _watch(args: argparse.Namespace) -> int:
    def ready() -> None:
        print("Watching for changes; Ctrl-C ends.", file=sys.stderr, flush=True)  # noqa: T201 - a command's output

    try:
        asyncio.run(discover_watch.follow(args.sysfs, args.uevents, ready, _teller(args)))
    except KeyboardInterrupt:
        return 0
    return 0


def _teller(args: argparse.Namespace) -> Callable[[discover_watch.Change], None]:
    database = names.find_database()

    def tell(change: discover_watch.Change) -> None:
        function = change.function
        if args.classes and (function is None or not _wanted(args, function)):
            return
        known = names.load((function,), database) if function is not None else names.Names()
        _write_line(json.dumps(_as_json(change, known)) if args.json else _as_text(change, known))
        sys.stdout.flush()

    return tell


def _as_json(change: discover_watch.Change, known: names.Names) -> dict[str, Any]:
    function = change.function
    return {
        "action": change.action,
        "subsystem": change.subsystem,
        "address": change.address,
        "device": change.device,
        "function": None if function is None else discover_json.function(function, known),
    }


def _as_text(change: discover_watch.Change, known: names.Names) -> str:
    function = change.function
    what = change.device if change.subsystem != "pci" else "function"
    words = [f"{change.action:<7}", change.address, f"{change.subsystem} {what}"]
    if function is not None:
        words += [f"({function.device_class.value}, {known.vendor(function) or 'unknown vendor'}"]
        words[-1] += f", serial {function.serial})" if function.serial else ")"
    return " ".join(words)


def _write_line(line: str) -> None:
    sys.stdout.write(line + "\n")


def _abandon_output() -> None:
    """Whoever read our output has had enough: keeps the interpreter from flushing the rest at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


COMMAND = command.Command(
    name="discover",
    help="show the PCI and CXL devices of this host",
    description=(
        "Reads sysfs and shows every PCI function and CXL device, with its driver, link, serial number and "
        "device nodes. Needs no privilege, but serial numbers of most PCI cards are shown to root only."
    ),
    examples=(
        "drawbar discover",
        "drawbar discover --class gpu --class nvme --json",
        "drawbar discover --watch --class cxl-memory",
        "drawbar discover --record bug-report --mask-serials",
    ),
    configure=configure,
    run=run,
)
