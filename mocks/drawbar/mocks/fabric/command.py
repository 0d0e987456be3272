"""`drawbar mock fabric`: the simulated fabric as a process of its own, behind a UNIX socket."""

import argparse
import asyncio
import json
import logging
import signal
import sys
from importlib import metadata
from pathlib import Path

from drawbar.fabric import errors
from drawbar.fabric.grpc import server
from drawbar.mocks.fabric import configuration
from drawbar.mocks.fabric.simulation import SimulatedFabric

HELP = "a simulated fabric manager behind a UNIX socket"
PLUGIN_NAME = "simulated.fabric.drawbar.dev"

_logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="hosts, enclosures and times, as JSON"
    )
    parser.add_argument(
        "--listen", required=True, metavar="unix:/PATH", help="where to serve; the path has at most 107 bytes"
    )
    parser.add_argument(
        "--journal", type=Path, metavar="FILE", help="append a JSON line per operation start and finish"
    )
    parser.add_argument(
        "--state", type=Path, metavar="FILE", help="keep attachments and operations over a restart"
    )


async def serve(args: argparse.Namespace) -> int:
    """Serves until SIGTERM, SIGINT or cancellation; 1 if it cannot start."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    reasons: list[BaseException] = []
    try:
        await _serve_until(stop, args)
    except* (errors.FabricError, OSError) as group:
        # The fabric runs in a task group, so what ends it arrives in a group.
        reasons = _leaves(group)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    for reason in reasons:
        _logger.error("the simulated fabric ends: %s", reason)
    return 1 if reasons else 0


async def _serve_until(stop: asyncio.Event, args: argparse.Namespace) -> None:
    described = await asyncio.to_thread(configuration.load, args.config)
    async with (
        SimulatedFabric.running(described, journal=args.journal, state=args.state) as fabric,
        server.serving(fabric, args.listen, name=PLUGIN_NAME, version=metadata.version("drawbar")),
    ):
        sys.stdout.write(json.dumps({"ready": True, "endpoint": args.listen}) + "\n")
        sys.stdout.flush()
        await stop.wait()


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """The errors in a group, however deep."""
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
