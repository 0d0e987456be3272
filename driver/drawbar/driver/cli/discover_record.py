"""`drawbar discover --record`: a recording of this host in a folder, to attach to a bug report."""

import argparse
import asyncio
import json
import math
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drawbar.driver import errors
from drawbar.driver.node.recording import recorder, tree

_KIB = 1024
_NAMES_MOST, _PATHS_MOST = 6, 2
_SECONDS_MOST = 7 * 86_400.0

_CONTENTS = {
    "pciFunctions": "PCI functions",
    "slots": "slots",
    "cxlMemoryDevices": "CXL memory devices",
    "daxDevices": "dax devices",
    "memoryBlocks": "memory blocks",
    "iommuGroups": "IOMMU groups",
}
_REASONS = {
    tree.Reason.NEVER_READ: "never read, for reading could disturb a device or shows a key",
    tree.Reason.NOT_KNOWN: "not read, for they are not known to be harmless",
    tree.Reason.ASLEEP: "not read, for that would power the device up",
    tree.Reason.TOO_LARGE: "too large",
    tree.Reason.NO_ROOM: "left out, for the recording is full",
    tree.Reason.REFUSED: "refused by the kernel",
    tree.Reason.HANGS: "not finished by the kernel, or beside such a file; look at its log (dmesg)",
    tree.Reason.VANISHED: "vanished meanwhile",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group("recording")
    group.add_argument(
        "--record",
        type=Path,
        metavar="DIR",
        help="write the tree and its uevents to this new folder, for a bug report",
    )
    group.add_argument(
        "--record-seconds",
        type=float,
        metavar="N",
        help="how long to record uevents; 0 records only the tree (default: until Ctrl-C)",
    )
    group.add_argument(
        "--mask-serials",
        action="store_true",
        help="replace serial numbers, MAC addresses, WWNs and UUIDs by pseudonyms",
    )


def run(args: argparse.Namespace) -> int:
    """Record the host, print the files written, and return the exit status.

    Raises:
        UsageError: the options do not go together, or the folder cannot be used.
        SysfsError: there is no readable tree.
        UeventError: the kernel's events cannot be received.
    """
    check(args)
    settings = recorder.Settings(
        folder=args.record,
        sysfs=args.sysfs,
        source=args.uevents,
        seconds=args.record_seconds,
        masked=args.mask_serials,
    )
    document = asyncio.run(_record(settings))
    lines = (
        [json.dumps({"folder": str(args.record), **document}, indent=2)]
        if args.output == "json"
        else _describe_files(args.record, document)
    )
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def check(args: argparse.Namespace) -> None:
    """Raise UsageError unless the options go together."""
    if args.record is None:
        for option, is_set in (
            ("--record-seconds", args.record_seconds is not None),
            ("--mask-serials", args.mask_serials),
        ):
            if is_set:
                raise errors.UsageError(f"{option} is about a recording: add --record DIR")
        return
    if args.watch or args.classes:
        raise errors.UsageError(
            "--record writes everything and prints no devices: leave --watch and --class out"
        )
    seconds = args.record_seconds
    if seconds is not None and not (math.isfinite(seconds) and 0 <= seconds <= _SECONDS_MOST):
        raise errors.UsageError(f"--record-seconds {seconds:g}: give 0 to {_SECONDS_MOST:.0f}")


async def _record(settings: recorder.Settings) -> dict[str, Any]:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def ready() -> None:
        wait = (
            "Ctrl-C ends"
            if settings.seconds is None
            else f"for {settings.seconds:g} s; Ctrl-C ends it before"
        )
        sys.stderr.write(f"Recording events, {wait}.\n")
        sys.stderr.flush()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)  # a second signal is harmless
    try:
        return await recorder.record(settings, stop, ready)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _describe_files(folder: Path, document: dict[str, Any]) -> list[str]:
    events = document["uevents"]
    files = [*document["trees"], *([events] if events is not None else [])]
    summary = folder / recorder.SUMMARY
    size = sum(each["bytes"] for each in files) + summary.stat().st_size
    lines = [f"Written to {folder}, {_size(size)}:"]
    lines += [f"  {each['file']:<18} {_size(each['bytes']):>9}  {_tree(each)}" for each in document["trees"]]
    if events is not None:
        lines.append(f"  {events['file']:<18} {_size(events['bytes']):>9}  {_events(events)}")
    lines.append(
        f"  {recorder.SUMMARY:<18} {_size(summary.stat().st_size):>9}  the omissions, with their reasons"
    )
    lines += _describe_omissions(document["leftOut"])
    lines += _remarks(document)
    return lines


def _tree(each: dict[str, Any]) -> str:
    contents = ", ".join(f"{each[key]} {words}" for key, words in _CONTENTS.items() if each[key])
    return f"{contents or 'no PCI function'}; {each['files']} files, {each['links']} links"


def _events(each: dict[str, Any]) -> str:
    lost = f", {each['dropped']} dropped" if each["dropped"] else ""
    lost += ", some lost (overflow)" if each["overflows"] else ""
    not_kept = f" ({each['ofOtherDevices']} of other devices not kept)" if each["ofOtherDevices"] else ""
    return f"{each['events']} events in {each['seconds']} s{lost}{not_kept}"


def _describe_omissions(left_out: dict[str, Any]) -> Iterator[str]:
    for reason, words in _REASONS.items():
        if reason not in left_out:
            continue
        count, names = left_out[reason]["count"], left_out[reason]["names"]
        most = _PATHS_MOST if "/" in names[0] else _NAMES_MOST
        more = ", ..." if len(names) > most else ""
        yield f"{count} {'file' if count == 1 else 'files'} {words}: {', '.join(names[:most])}{more}"


def _remarks(document: dict[str, Any]) -> Iterator[str]:
    if document["uevents"] is not None and document["uevents"]["broken"]:
        yield f"The events ended early: {document['uevents']['broken']}"
    cut = max(each["configurationsCut"] for each in document["trees"])
    if cut:
        yield f"{cut} PCI functions have no Device Serial Number here: run it as root to read it."
    if document["masked"]:
        replaced = ", ".join(f"{count} {kind}" for kind, count in document["replaced"].items())
        yield f"Replaced by pseudonyms: {replaced or 'nothing'}. Look through the files before you hand them on."
    else:
        yield "Serial numbers, MAC addresses and UUIDs are in it as they are: --mask-serials replaces them."


def _size(count: int) -> str:
    return (
        f"{count} B"
        if count < _KIB
        else f"{count / _KIB:.1f} KiB"
        if count < _KIB * _KIB
        else f"{count / _KIB / _KIB:.1f} MiB"
    )
