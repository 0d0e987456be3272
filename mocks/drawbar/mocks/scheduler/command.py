"""`drawbar mock scheduler`: the scheduler double in one process with its two required controllers.

These are the claim controller double and the device taint eviction double. The latter is omitted if the API server's
release has no device taints (classic DRA).
"""

import argparse
import asyncio
import contextlib
import json

from drawbar.mocks.claims import discovery
from drawbar.mocks.claims import server as claims
from drawbar.mocks.eviction import server as eviction
from drawbar.mocks.kube import client, connections
from drawbar.mocks.scheduler import server, settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    times = settings.Settings()
    parser.add_argument("--kubeconfig", metavar="FILE", help="the file for access to the API server")
    parser.add_argument(
        "--poll-seconds",
        type=float,
        default=times.poll_seconds,
        help="the pause between two checks of a claim's binding conditions (default: %(default)s)",
    )
    parser.add_argument(
        "--binding-timeout-seconds",
        type=float,
        default=times.binding_timeout_seconds,
        help="the time limit of a pod's wait for its devices (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        help="the seed of random choices (classic DRA), to repeat a run",
    )


async def serve(args: argparse.Namespace) -> int:
    """Run until cancelled; print one line of JSON once it is ready."""
    connection = connections.load(args.kubeconfig)
    times = settings.Settings(
        poll_seconds=args.poll_seconds,
        binding_timeout_seconds=args.binding_timeout_seconds,
        seed=args.seed,
    )
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(claims.serving(connection))
        if await _has_taints(connection):
            await stack.enter_async_context(eviction.serving(connection))
        # Last, so that the controllers work before the first pod gets its node.
        await stack.enter_async_context(server.serving(connection, times))
        print(json.dumps({"ready": True, "server": connection.server}), flush=True)  # noqa: T201 - the ready line
        await asyncio.get_running_loop().create_future()
    return 0


async def _has_taints(connection: connections.Connection) -> bool:
    async with client.connecting(connection) as api:
        return (await discovery.dialect(api)).context is None
