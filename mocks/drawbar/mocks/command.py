"""`drawbar mock NAME`: runs one double as a process of its own.

A double is a package here with a `command` module that offers `HELP`, `add_arguments` and `serve`.
"""

import argparse
import asyncio
import importlib
import signal

from drawbar.driver.cli.command import Command

DOUBLES = ("apiserver", "cluster", "fabric", "kubelet", "scheduler", "sysfs")


def _configure(parser: argparse.ArgumentParser) -> None:
    doubles = parser.add_subparsers(title="doubles", metavar="NAME", required=True)
    for name in DOUBLES:
        module = importlib.import_module(f"drawbar.mocks.{name}.command")
        sub = doubles.add_parser(name, help=module.HELP, description=module.HELP)
        module.add_arguments(sub)
        sub.set_defaults(serve=module.serve)


def _run(args: argparse.Namespace) -> int:
    return asyncio.run(_until_terminated(args))


async def _until_terminated(args: argparse.Namespace) -> int:
    serving = asyncio.current_task()
    assert serving is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    try:
        return int(await args.serve(args))
    except asyncio.CancelledError:
        return 0


COMMAND = Command(
    name="mock",
    help="run one of the doubles: API server, scheduler, kubelet, fabric, or a whole cluster of them",
    configure=_configure,
    run=_run,
    examples=(
        "drawbar mock cluster --nodes 2 --kubeconfig-dir /tmp/drawbar",
        "drawbar mock apiserver --kubeconfig-dir /tmp/drawbar --profile 1.36",
    ),
)
