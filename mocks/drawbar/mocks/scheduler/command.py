"""`drawbar mock scheduler`: the scheduler double and the claim controller double in one process."""

import argparse
import asyncio
import json

from drawbar.driver.kube import config
from drawbar.mocks.claims import server as claims
from drawbar.mocks.scheduler import server, settings

HELP = "schedule pods with device claims, and make claims from templates"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds this command's arguments."""
    times = settings.Settings()
    parser.add_argument("--kubeconfig", metavar="FILE", help="how to reach the API server")
    parser.add_argument(
        "--poll-seconds",
        type=float,
        default=times.poll_seconds,
        help="pause between two looks at a claim's binding conditions (default: %(default)s)",
    )
    parser.add_argument(
        "--binding-timeout-seconds",
        type=float,
        default=times.binding_timeout_seconds,
        help="how long a pod waits for its devices (default: %(default)s)",
    )


async def serve(args: argparse.Namespace) -> int:
    """Runs until cancelled; one line of JSON on stdout says that it is ready."""
    connection = config.load(args.kubeconfig)
    times = settings.Settings(
        poll_seconds=args.poll_seconds, binding_timeout_seconds=args.binding_timeout_seconds
    )
    async with claims.serving(connection), server.serving(connection, times):
        print(json.dumps({"ready": True, "server": connection.server}), flush=True)  # noqa: T201 - the ready line
        await asyncio.get_running_loop().create_future()
    return 0
