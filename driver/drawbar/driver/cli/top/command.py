"""`drawbar top`: the fabrics, live in a terminal."""

import argparse
import asyncio
import contextlib
import datetime
import logging
import sys
from typing import TYPE_CHECKING

from drawbar.driver import errors, output
from drawbar.driver.cli import command

if TYPE_CHECKING:
    from drawbar.driver.cli.status import live

# Ages are counted on without a change.
REDRAW_SECONDS = 1.0
EVENTS_MOST = 200


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "filter",
        metavar="WORD",
        nargs="*",
        help="show the devices whose row has all the words: names, models, states, nodes, claims, pods, taints",
    )
    parser.add_argument("--driver-name", metavar="NAME", help="the DRA driver's name (default: drawbar.dev)")
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="how to reach the API server (default: $KUBECONFIG, else the pod's service account, else ~/.kube/config)",
    )


def run(args: argparse.Namespace) -> int:
    """Show the view until it is left, and return the exit status.

    Raises:
        DrawbarError: there is no terminal, or the cluster is not reached.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise errors.DrawbarError(
            "drawbar top needs a terminal; use drawbar status --watch for a pipe or a file"
        )
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # What fails is in the last line of the screen.
    try:
        return asyncio.run(_run(args))
    finally:
        logging.disable(before)


async def _run(args: argparse.Namespace) -> int:
    from drawbar.driver.api import drivers
    from drawbar.driver.cli.status import live
    from drawbar.driver.kube import client, config

    wake = asyncio.Event()
    driver = args.driver_name or drivers.DEFAULT
    async with (
        client.connecting(config.load(args.kubeconfig)) as api,
        live.following(api, driver=driver, changed=lambda _old, _new: wake.set()) as cluster,
    ):
        await _show(cluster, wake, " ".join(args.filter))
    return 0


async def _show(cluster: "live.Live", wake: asyncio.Event, words: str) -> None:
    from rich import live as rich_live

    from drawbar.driver.cli.status import tree
    from drawbar.driver.cli.top import screen, terminal

    out = output.console()
    state = screen.State(filter=words)
    with (
        terminal.keys(wake.set) as pressed,
        rich_live.Live(console=out, screen=True, auto_refresh=False) as shown,
    ):
        while not state.is_done:
            wake.clear()
            content = tree.build(cluster.cluster())
            while pressed:
                listed = screen.rows(content, state.filter)
                state = screen.press(state, pressed.popleft(), listed, screen.page_rows(content, out.height))
            drawn = screen.render(
                state,
                content,
                screen.rows(content, state.filter),
                cluster.events(EVENTS_MOST),
                now=datetime.datetime.now(datetime.UTC),
                width=out.width,
                height=out.height,
            )
            shown.update(drawn, refresh=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REDRAW_SECONDS):
                    await wake.wait()


EXAMPLES = ("drawbar top", "drawbar top rack-1 gpu", "drawbar top Failed")
COMMAND = command.Command(
    name="top",
    help="a live view of fabrics, devices, attaches and Events in the terminal",
    description=(
        "Shows fabrics, devices (those that wait first) and the latest Events, and follows the cluster until q is pressed.\n"
        "keys: / filter, enter open a device, esc back, arrows and page keys move, q quit.\n"
        "exit status: 0 left; 1 no terminal, or the cluster is not reached; 2 the command line is wrong; 130 interrupted."
    ),
    examples=EXAMPLES,
    configure=configure,
    run=run,
)
