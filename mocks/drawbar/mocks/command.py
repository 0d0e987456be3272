"""`drawbar mock NAME`: run one double as a process of its own.

Without Drawbar's driver, `drawbar-mock NAME` does the same. A double is a package here whose module `command` has `add_arguments` and `serve`.
"""

import argparse
import asyncio
import importlib
import logging
import signal
import sys
from collections.abc import Sequence
from typing import Any

from drawbar.mocks import verbs

DOUBLES = {
    "apiserver": "run an in-memory Kubernetes API server",
    "cluster": "run a cluster of doubles: API server, scheduler, kubelets and fabric; with --daemons also Drawbar's own daemons",
    "fabric": "run a simulated fabric manager behind a UNIX socket",
    "host": "emulate the hardware of a cluster's node: a /sys with its attached devices",
    "kubelet": "run the kubelet double of one or more nodes: register plugins, prepare devices, report pods as running",
    "redfish": "run a Redfish service: a PCIe fabric with zones of endpoints, or composition by resource blocks",
    "scheduler": "run the scheduler double: schedule pods with claims, make claims from templates, evict pods from tainted devices",
    "sysfs": "write a ready-made or recorded /sys tree for drawbar discover and drawbar node",
}


INTERRUPTED = 130
"""The exit status after Ctrl-C."""


class _Double(argparse.ArgumentParser):
    """The options of one double; parsing imports the module of that double only."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._module = f"drawbar.mocks.{self.prog.rpartition(' ')[2]}.command"

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Add the double's options, then parse."""
        module = importlib.import_module(self._module)
        module.add_arguments(self)
        self.set_defaults(serve=module.serve)
        return super().parse_known_args(args, namespace)


def _configure(parser: argparse.ArgumentParser) -> None:
    doubles = parser.add_subparsers(title="doubles", metavar="NAME", required=True, parser_class=_Double)
    for name, text in DOUBLES.items():
        doubles.add_parser(name, help=text, description=text)


@verbs.explain_errors
def _run(args: argparse.Namespace) -> int:
    return asyncio.run(_until_terminated(args))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the double that the arguments name, and return the exit status."""
    parser = argparse.ArgumentParser(prog="drawbar mock", description=COMMAND.help)
    _configure(parser)
    args = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        return _run(args)
    except KeyboardInterrupt:
        return INTERRUPTED


async def _until_terminated(args: argparse.Namespace) -> int:
    serving = asyncio.current_task()
    assert serving is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    try:
        return int(await args.serve(args))
    except asyncio.CancelledError:
        return 0


MODULES = ("asyncinotify",)
"""The module of the extra `mocks` that the image of a simulation has, too; the API server double needs trustme besides."""
COMMAND = verbs.Verb(
    name="mock",
    help="run a double: API server, scheduler, kubelet, fabric, or a whole cluster",
    configure=_configure,
    run=_run,
    modules=MODULES,
    examples=(
        "drawbar mock cluster --nodes 2 --kubeconfig-dir /tmp/drawbar",
        "drawbar mock apiserver --kubeconfig-dir /tmp/drawbar --profile 1.36",
    ),
)


if __name__ == "__main__":
    sys.exit(main())
