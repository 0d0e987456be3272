"""`drawbar ui`: the fabrics, live in a browser."""

import argparse
import asyncio
import logging
import sys

from drawbar.driver.cli import command

PORT_MOST = 65535


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--port",
        type=_port,
        default=0,
        metavar="PORT",
        help="of 127.0.0.1, on which the page is served (default: any that is free)",
    )
    parser.add_argument("--driver-name", metavar="NAME", help="the DRA driver's name (default: drawbar.dev)")
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="how to reach the API server (default: $KUBECONFIG, else the pod's service account, else ~/.kube/config)",
    )


def _port(content: str) -> int:
    if not (content.isascii() and content.isdecimal() and 0 <= int(content[:6]) <= PORT_MOST):
        raise argparse.ArgumentTypeError(f"{content!r} is no port: give a number from 0 to {PORT_MOST}")
    return int(content)


def run(args: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C.

    Raises:
        DrawbarError: the cluster is not reached, or the port cannot be used.
    """
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # What fails is on the page.
    try:
        with command.printing():
            return asyncio.run(_run(args))
    finally:
        logging.disable(before)


async def _run(args: argparse.Namespace) -> int:
    from drawbar.driver.api import drivers
    from drawbar.driver.cli.ui import following, server
    from drawbar.driver.kube import client, config

    with server.listening(args.port) as bound:
        async with (
            client.connecting(config.load(args.kubeconfig)) as api,
            following.following(api, driver=args.driver_name or drivers.DEFAULT) as latest,
            server.serving(latest, bound) as url,
        ):
            sys.stdout.write(f"{url}\n")
            sys.stdout.flush()
            sys.stderr.write("open it in a browser of this machine; Ctrl-C ends it\n")
            await asyncio.get_running_loop().create_future()
    return 0


EXAMPLES = ("drawbar ui", "drawbar ui --port 8765", "kubectl drawbar ui")
COMMAND = command.Command(
    name="ui",
    help="a live, read-only page of fabrics, devices, attaches and Events, for a browser of this machine",
    description=(
        "Serves a page on 127.0.0.1 with your own rights, prints its URL, and follows the cluster until Ctrl-C.\n"
        "The URL has a random token: who has it, and can reach this machine's loopback, sees what you see.\n"
        "exit status: 1 the cluster is not reached, or the port cannot be used; 2 the command line is wrong; 130 interrupted."
    ),
    examples=EXAMPLES,
    configure=configure,
    run=run,
)
