"""`drawbar mock NAME`: runs one double as a process of its own.

A double is a package here with a `command` module that offers `add_arguments` and `serve`.
"""

import argparse
import asyncio
import importlib
import signal
from typing import Any

from drawbar.driver.cli.command import Command

DOUBLES = {
    "apiserver": "an in-memory Kubernetes API server",
    "cluster": "everything at once: API server, scheduler, kubelets, fabric, and with --daemons our driver",
    "fabric": "a simulated fabric manager behind a UNIX socket",
    "host": "the pretended hardware of a node of a cluster: a /sys with the devices that are attached to it",
    "kubelet": "play the kubelet of one or more nodes: register plugins, prepare devices, run pods on paper",
    "redfish": "a Redfish service: a PCIe fabric with zones of endpoints, or composition by resource blocks",
    "scheduler": "schedule pods with device claims, make claims from templates, evict pods from tainted devices",
    "sysfs": "write a ready-made or recorded /sys tree for drawbar discover and drawbar node",
}


class _Double(argparse.ArgumentParser):
    """The options of one double; its module is imported when they are asked for, and the others' modules are not."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._module = f"drawbar.mocks.{self.prog.rpartition(' ')[2]}.command"

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Adds its options first."""
        module = importlib.import_module(self._module)
        module.add_arguments(self)
        self.set_defaults(serve=module.serve)
        return super().parse_known_args(args, namespace)


def _configure(parser: argparse.ArgumentParser) -> None:
    doubles = parser.add_subparsers(title="doubles", metavar="NAME", required=True, parser_class=_Double)
    for name, text in DOUBLES.items():
        doubles.add_parser(name, help=text, description=text)


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
