"""`drawbar mock sysfs`: writes a ready-made /sys, or a recorded one, and ends."""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from drawbar.driver import errors as driver_errors
from drawbar.mocks.sysfs import errors, nodes, recording

HELP = "write a ready-made or recorded /sys tree for drawbar discover and drawbar node"
_RECORDINGS = (".json", ".json.gz")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds this command's arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "tree",
        metavar="TREE",
        help="one of the trees below, or a recorded snapshot (FILE.json or FILE.json.gz)",
    )
    parser.add_argument(
        "--root",
        type=Path,
        required=True,
        metavar="DIR",
        help="where to write it; must be empty or not exist",
    )
    parser.add_argument(
        "--uevents",
        type=Path,
        metavar="SOCKET",
        help="the datagram socket to which later changes of the tree send uevents; at most 107 bytes",
    )
    lines = [f"  {name:12} {node.summary}" for name, node in nodes.NODES.items()]
    parser.epilog = "\n".join(
        (
            "trees:",
            *lines,
            "",
            "A ready-made tree can be changed by drawbar.mocks.sysfs.SysfsTree.open(DIR), from any process: cards come",
            "and go, links degrade, errors count. A recorded one is only files.",
        )
    )


async def serve(args: argparse.Namespace) -> int:
    """Writes the tree; one line of JSON on stdout says where it is.

    Raises:
        ImpossibleWorld: there is no such tree, or it cannot be there.
        errors.UsageError: the directory cannot be written or the recording not be read.
    """
    try:
        await asyncio.to_thread(_write, args)
    except OSError as error:
        raise driver_errors.UsageError(
            f"the tree {args.tree} cannot be written to {args.root}: {error.strerror} ({error.filename}); "
            f"choose another --root"
        ) from error
    sys.stdout.write(json.dumps({"ready": True, "tree": args.tree, "root": str(args.root.absolute())}) + "\n")
    sys.stdout.flush()
    return 0


def _write(args: argparse.Namespace) -> None:
    if not args.tree.endswith(_RECORDINGS):
        nodes.build(args.tree, args.root, uevent_socket=args.uevents)
        return
    if args.uevents is not None:
        raise driver_errors.UsageError("a recorded tree never changes: leave --uevents out")
    snapshot = Path(args.tree)
    if not snapshot.is_file():
        raise errors.ImpossibleWorld(
            f"there is no recording {snapshot}: name a file, or choose {', '.join(nodes.NODES)}"
        )
    if args.root.exists() and (not args.root.is_dir() or any(args.root.iterdir())):
        raise errors.ImpossibleWorld(f"{args.root} exists already: choose an empty place")
    recording.load_recording(snapshot, args.root)
