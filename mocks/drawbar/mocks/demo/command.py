"""`drawbar demo`: the whole way of a device from the pool to a container and back, on this machine alone."""

import argparse
import asyncio
import contextlib
import importlib.util
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from drawbar.driver import errors, logs
from drawbar.driver.cli.command import Command

if TYPE_CHECKING:
    from drawbar.mocks.demo import demonstration as demonstration_types

INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--nodes", type=int, default=3, metavar="N", help="how many nodes (default: %(default)s)")
    add("--pods", type=int, default=4, metavar="N", help="how many pods (default: %(default)s)")
    add(
        "--attach-seconds",
        type=float,
        default=2.0,
        metavar="SECONDS",
        help="what the simulated fabric takes to attach a device (default: %(default)s)",
    )
    add(
        "--detach-seconds",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="what it takes to detach one (default: %(default)s)",
    )
    add(
        "--deadline",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="how long the run may take after set-up (default: %(default)s)",
    )
    add("--keep", action="store_true", help="leave everything running, and say how to look at it")
    add("--json", action="store_true", help="print a JSON object per event, and the summary last")


def _run(args: argparse.Namespace) -> int:
    # Imported here: gRPC, aiohttp and rich take a second that `drawbar --help` need not wait.
    from drawbar.mocks.demo import demonstration

    # What goes wrong is said once, by the error; everything else is in the children's logs.
    logs.configure("text", level="ERROR")
    options = demonstration.Options(
        pods=args.pods,
        nodes=args.nodes,
        attach_seconds=args.attach_seconds,
        detach_seconds=args.detach_seconds,
        deadline_seconds=args.deadline,
        keep=args.keep,
    )
    demonstration.validate(options)
    if importlib.util.find_spec("cel") is None:
        raise errors.UsageError(
            "the scheduler double cannot read selectors without its CEL library: install drawbar[mocks]"
        )
    try:
        return asyncio.run(_until_signal(args, options))
    except* BrokenPipeError:
        # Whoever read our output has had enough; what is left in the buffer must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


async def _until_signal(args: argparse.Namespace, options: "demonstration_types.Options") -> int:
    from drawbar.mocks.demo import demonstration, pods, screens, table

    began = time.monotonic()

    def clock() -> float:
        return time.monotonic() - began

    with contextlib.ExitStack() as stack:
        screen: screens.Screen
        if args.json:
            screen = screens.JsonLines(clock)
        elif sys.stdout.isatty():
            shown = {name: kind.value for name, kind in pods.wanted(options.pods).items()}
            screen = stack.enter_context(table.LiveTable(shown, clock))
        else:
            screen = screens.PlainLines(clock)
        demo = demonstration.Demonstration(options, screen, clock)
        _cancel_on_signals()
        try:
            return 0 if await demo.run() else 1
        except asyncio.CancelledError:
            return 0 if demo.kept else INTERRUPTED


def _cancel_on_signals() -> None:
    """The first signal cancels this task; later ones do not disturb the clean-up, which is bounded."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in _SIGNALS:
        if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue  # nohup asked for this
        loop.add_signal_handler(number, lambda: None if task.cancelling() else task.cancel())


COMMAND = Command(
    name="demo",
    help="show a device's whole way from the pool to a container and back, on this machine alone",
    description=(
        "Starts doubles of the API server, the scheduler and the kubelets, a simulated fabric, the real controller "
        "and real node daemons; creates pods that claim devices; shows each step; deletes the pods and shows that "
        "every device comes back. Needs no cluster, no hardware and no privilege."
    ),
    configure=_configure,
    run=_run,
    examples=(
        "drawbar demo",
        "drawbar demo --nodes 2 --pods 12 --attach-seconds 5",
        "drawbar demo --keep",
        "drawbar demo --json | tail -n 1",
    ),
)
