"""`drawbar mock host`: the simulated hardware of a node of a real cluster, as a process next to its node daemon."""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from drawbar.mocks import errors as mock_errors
from drawbar.mocks import sysfs
from drawbar.mocks.host import server
from drawbar.mocks.kube import client, connections
from drawbar.mocks.sysfs import layouts

SLOTS = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `drawbar mock host`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--node-name", metavar="NAME", help="node whose hardware is simulated")
    parser.add_argument(
        "--root",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder for the mocked /sys; that of an earlier run is reused",
    )
    parser.add_argument("--uevents", type=Path, metavar="SOCKET", help="datagram socket of the node daemon")
    parser.add_argument(
        "--slots",
        type=int,
        default=SLOTS,
        metavar="N",
        help="number of slots: that of the host's fabric ports (default: %(default)s)",
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="kubeconfig of the API server (default: the pod's service account)",
    )
    parser.add_argument(
        "--ready",
        type=Path,
        metavar="FILE",
        help="file to create once the attached devices are in the tree, for a probe",
    )
    parser.add_argument(
        "--pull",
        type=int,
        metavar="SLOT",
        help="instead of serving, remove the card from a slot of the host at --root by surprise, and exit",
    )
    parser.epilog = (
        "A device is in the slot of its port while a DeviceAttachment of the node is Attached. Start it before the node\n"
        "daemon, which gets --sysfs DIR --uevents unix:SOCKET. Network interfaces are not simulated.\n\n"
        "examples:\n"
        "  drawbar mock host --node-name node-1 --root /run/simulation/sys --uevents /run/simulation/uevents\n"
        "  drawbar mock host --root /run/simulation/sys --pull 1"
    )


async def serve(args: argparse.Namespace) -> int:
    """Serve until cancelled; print a line of JSON on stdout when the attached devices are in the tree.

    Raises:
        errors.MockError: the options are wrong, the tree cannot be written, or no API server is configured.
    """
    if args.pull is not None:
        await asyncio.to_thread(lambda: sysfs.SysfsTree.open(args.root).surprise_remove(args.pull))
        return 0
    if args.node_name is None or args.uevents is None:
        raise mock_errors.UsageError("a simulated host needs --node-name and --uevents (or --pull SLOT)")
    if not 1 <= args.slots <= layouts.MOST_SLOTS:
        raise mock_errors.UsageError(f"--slots {args.slots} is not between 1 and {layouts.MOST_SLOTS}")
    try:
        if args.ready is not None:
            args.ready.unlink(missing_ok=True)
        tree = await asyncio.to_thread(
            server.tree_at, args.root, slots=args.slots, uevent_socket=args.uevents
        )
        async with (
            client.connecting(connections.load(args.kubeconfig)) as api,
            server.serving(api, args.node_name, tree, args.slots),
        ):
            if args.ready is not None:
                args.ready.touch()
            sys.stdout.write(json.dumps({"ready": True, "root": str(args.root)}) + "\n")
            sys.stdout.flush()
            await asyncio.get_running_loop().create_future()
    except OSError as error:
        raise mock_errors.UsageError(
            f"the tree {args.root} cannot be written: {error.strerror} ({error.filename}); choose another --root"
        ) from error
    return 0
