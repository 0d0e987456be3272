"""`drawbar demo`: an end-to-end demo on an emulated cluster, on this machine."""

import argparse
import asyncio
import contextlib
import importlib.util
import logging
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from drawbar.mocks import errors, verbs
from drawbar.mocks.command import MODULES

if TYPE_CHECKING:
    from drawbar.mocks.claims import dialects
    from drawbar.mocks.demo import demonstration as demonstration_types
    from drawbar.mocks.demo import stages

INTERRUPTED = 130
SIMULATED, QEMU = "simulated", "qemu"
DOUBLES = (SIMULATED, "redfish", "redfish-composition", "redfish-connections")
DEADLINE_SECONDS, DEADLINE_QEMU_SECONDS = 120.0, 300.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--adapter",
        choices=(*DOUBLES, QEMU),
        default=SIMULATED,
        help=(
            "the fabric. With mocked kernels: simulated, or an emulated Redfish manager with zones of endpoints (redfish), "
            "composition (redfish-composition) or connections of memory (redfish-connections). With a real kernel: qemu, "
            "a virtual machine with NVMe disks; it needs a checkout on Debian and takes minutes (docs/lab.md). "
            "(default: %(default)s)"
        ),
    )
    add(
        "--profile",
        metavar="NAME",
        help=(
            "the Kubernetes release to imitate, as in `drawbar mock apiserver --help`; with 1.30-classic and 1.31-classic "
            "Drawbar's controller allocates (default: 1.36)"
        ),
    )
    add("--nodes", type=int, metavar="N", help="the number of nodes (default: 3; qemu has one)")
    add("--pods", type=int, metavar="N", help="the number of pods (default: 4; with qemu 1)")
    add(
        "--attach-seconds",
        type=float,
        metavar="SECONDS",
        help="the fabric's time to attach a device; with redfish, to detach one, too (default: 2)",
    )
    add(
        "--detach-seconds",
        type=float,
        metavar="SECONDS",
        help="the simulated fabric's time to detach a device (default: 1)",
    )
    add(
        "--deadline",
        type=float,
        metavar="SECONDS",
        help="the time limit of the run after set-up (default: 120; with qemu 300)",
    )
    add("--keep", action="store_true", help="keep everything running, and print commands to look at it")
    add("--json", action="store_true", help="print a JSON object per event, and the summary at the end")


@verbs.explain_errors
def _run(args: argparse.Namespace) -> int:
    # The error reports a failure once; the children's logs have the rest.
    logging.basicConfig(level=logging.ERROR, force=True)
    is_qemu = args.adapter == QEMU
    usual_seconds = DEADLINE_QEMU_SECONDS if is_qemu else DEADLINE_SECONDS
    deadline_seconds = usual_seconds if args.deadline is None else args.deadline
    stage, dialect = (_make_qemu_stage if is_qemu else _make_simulated_stage)(args, deadline_seconds)
    # Imported late: gRPC, aiohttp and rich take a second, and `drawbar --help` and refusals do not need them.
    from drawbar.mocks.demo import demonstration

    options = demonstration.Options(deadline_seconds=deadline_seconds, keep=args.keep, dialect=dialect)
    if importlib.util.find_spec("cel") is None:
        raise errors.UsageError(
            "the scheduler double cannot read selectors without its CEL library: install drawbar[mocks]"
        )
    try:
        return asyncio.run(_until_signal(args, stage, options))
    except* BrokenPipeError:
        # The reader closed the pipe; the rest of the buffer must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _make_simulated_stage(
    args: argparse.Namespace, deadline_seconds: float
) -> "tuple[stages.Stage, dialects.Dialect]":
    from drawbar.mocks.demo import simulated

    if args.adapter != SIMULATED and args.detach_seconds is not None:
        raise errors.UsageError(
            f"--detach-seconds is for the simulated fabric alone, {args.adapter} takes --attach-seconds for both: "
            f"leave it out"
        )
    arguments = {
        "double": args.adapter,
        "pods": args.pods,
        "profile": args.profile,
        "nodes": args.nodes,
        "attach_seconds": args.attach_seconds,
        "detach_seconds": args.detach_seconds,
    }
    chosen = {name: value for name, value in arguments.items() if value is not None}
    options = simulated.Options(deadline_seconds=deadline_seconds, **chosen)
    simulated.validate(options)
    return simulated.Stage(options), options.dialect


def _make_qemu_stage(
    args: argparse.Namespace, deadline_seconds: float
) -> "tuple[stages.Stage, dialects.Dialect]":
    from drawbar.mocks.claims import dialects
    from drawbar.mocks.demo import laboratory

    pods = 1 if args.pods is None else args.pods
    arguments = {
        "--profile": args.profile,
        "--nodes": args.nodes,
        "--attach-seconds": args.attach_seconds,
        "--detach-seconds": args.detach_seconds,
    }
    laboratory.validate(pods=pods, options=arguments, deadline_seconds=deadline_seconds)
    return laboratory.stage(pods), dialects.MODERN


async def _until_signal(
    args: argparse.Namespace, stage: "stages.Stage", options: "demonstration_types.Options"
) -> int:
    from drawbar.mocks.demo import demonstration, screens, table

    began = time.monotonic()

    def clock() -> float:
        return time.monotonic() - began

    with contextlib.ExitStack() as stack:
        screen: screens.Screen
        if args.json:
            screen = screens.JsonLines(clock)
        elif sys.stdout.isatty():
            shown = {name: kind.value for name, kind in stage.wanted.items()}
            screen = stack.enter_context(table.LiveTable(shown, clock, stage.steps))
        else:
            screen = screens.PlainLines(clock)
        demo = demonstration.Demonstration(stage, options, screen, clock)
        _cancel_on_signals()
        try:
            return 0 if await demo.run() else 1
        except asyncio.CancelledError:
            return 0 if demo.kept else INTERRUPTED


def _cancel_on_signals() -> None:
    """Cancel this task on the first signal; ignore later ones, because the clean-up is bounded."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in _SIGNALS:
        if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue  # nohup asked for this
        loop.add_signal_handler(number, lambda: None if task.cancelling() else task.cancel())


COMMAND = verbs.Verb(
    name="demo",
    help="run an end-to-end demo on an emulated cluster",
    description=(
        "Run an end-to-end demo on an emulated cluster: start doubles of the API server, the scheduler and the kubelets, "
        "a simulated fabric, the real controller and real node daemons. Create pods with device claims, show each "
        "step, delete the pods, and show the return of every device. The demo needs no cluster, no hardware and no "
        "privileges. With --adapter qemu, the node is a virtual machine with Debian's kernel, the fabric is QEMU's "
        "hot-plug, and a container reads its disk. With --adapter redfish, an emulated manager speaks DMTF Redfish "
        "to the same adapter as real managers do."
    ),
    configure=_configure,
    run=_run,
    modules=(*MODULES, "trustme"),
    examples=(
        "drawbar demo",
        "drawbar demo --nodes 2 --pods 12 --attach-seconds 5",
        "drawbar demo --keep",
        "drawbar demo --profile 1.31-classic",
        "drawbar demo --adapter redfish",
        "drawbar demo --adapter redfish-composition --pods 10",
        "drawbar demo --adapter qemu",
        "drawbar demo --json | tail -n 1",
    ),
)
