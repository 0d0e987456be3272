"""`drawbar mock sysfs`: write a ready-made or recorded /sys tree; with `--react`, stay and react to writes."""

import argparse
import asyncio
import contextlib
import json
import sys
from pathlib import Path

from drawbar.mocks import errors as mock_errors
from drawbar.mocks.sysfs import errors, nodes, recording, tree

_RECORDINGS = (".json", ".json.gz")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "tree",
        metavar="TREE",
        help="one of the trees below, or a recording: a folder from `drawbar discover --record`, or one snapshot "
        "(FILE.json or FILE.json.gz)",
    )
    parser.add_argument(
        "--root",
        type=Path,
        required=True,
        metavar="DIR",
        help="the folder to write to; it must be empty or not exist",
    )
    parser.add_argument(
        "--uevents",
        type=Path,
        metavar="SOCKET",
        help="the datagram socket for uevents of later changes; at most 107 bytes",
    )
    parser.add_argument(
        "--react",
        action="store_true",
        help="stay until Ctrl-C, and react to writes to the tree's files: power, unbind, remove, sriov_numvfs, ...",
    )
    lines = [f"  {name:12} {node.summary}" for name, node in nodes.NODES.items()]
    parser.epilog = "\n".join(
        (
            "trees:",
            *lines,
            "",
            "Any process can change a ready-made tree by drawbar.mocks.sysfs.SysfsTree.open(DIR): attach and detach cards,",
            "degrade links, count errors. A recorded tree never changes.",
        )
    )


async def serve(args: argparse.Namespace) -> int:
    """Write the tree; print one line of JSON with its path. With `--react`, serve until cancelled.

    Raises:
        ImpossibleWorld: there is no such tree, or it cannot be made at that path.
        errors.UsageError: the directory is not writable, or the recording is unreadable.
    """
    try:
        await asyncio.to_thread(_write, args)
    except OSError as error:
        raise mock_errors.UsageError(
            f"the tree {args.tree} cannot be written to {args.root}: {error.strerror} ({error.filename}); "
            f"choose another --root"
        ) from error
    async with contextlib.AsyncExitStack() as stack:
        if args.react:
            await stack.enter_async_context(tree.SysfsTree.open(args.root).reacting())
        ready = {"ready": True, "tree": args.tree, "root": str(args.root.absolute())}
        sys.stdout.write(json.dumps(ready) + "\n")
        sys.stdout.flush()
        if args.react:
            await asyncio.get_running_loop().create_future()
    return 0


def _write(args: argparse.Namespace) -> None:
    snapshot = Path(args.tree)
    if not args.tree.endswith(_RECORDINGS) and not (snapshot / recording.SNAPSHOT).is_file():
        nodes.build(args.tree, args.root, uevent_socket=args.uevents)
        return
    for option, is_set in (("--uevents", args.uevents is not None), ("--react", args.react)):
        if is_set:
            raise mock_errors.UsageError(f"a recorded tree never changes: leave {option} out")
    if not snapshot.exists():
        raise errors.ImpossibleWorld(
            f"there is no recording {snapshot}: name a file, or choose {', '.join(nodes.NODES)}"
        )
    if args.root.exists() and (not args.root.is_dir() or any(args.root.iterdir())):
        raise errors.ImpossibleWorld(f"{args.root} exists already: choose an empty directory")
    recording.load_recording(snapshot, args.root)
