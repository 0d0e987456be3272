"""`drawbar controller`: publishes the fabrics' devices and attaches what claims were given."""

import argparse
import functools
from collections.abc import Callable, Coroutine
from typing import Any

from drawbar.driver.cli import command
from drawbar.driver.cli import daemon as cli_daemon
from drawbar.driver.controller import settings


def _imported() -> Callable[[settings.Settings], Coroutine[Any, Any, None]]:
    from drawbar.driver.controller import daemon

    return daemon.run


_DAEMON = cli_daemon.Daemon(
    settings=settings.Settings,
    problems=settings.problems,
    log=lambda options: options.log,
    run=_imported,
    probes=cli_daemon.Probes(
        problems=settings.http_problems, endpoint=settings.endpoint, located_by="--http-address"
    ),
)


def _run(args: argparse.Namespace) -> int:
    return cli_daemon.execute(_DAEMON, args)


COMMAND = command.Command(
    name="controller",
    help="the daemon of the cluster: pools, attach and detach",
    description=(
        "The daemon of the cluster: publishes the devices of all fabrics, attaches what claims were given, detaches\n"
        "what they let go of. Several may run; one of them leads.\n"
        "Every setting can stand in the file of --config (see --print-config for its keys), in the environment\n"
        "(the flag in capitals: DRAWBAR_BINDING_TIMEOUT), or be a flag; flags win over the environment, and that\n"
        "over the file."
    ),
    configure=functools.partial(cli_daemon.configure, _DAEMON),
    run=_run,
    examples=(
        "drawbar controller --kubeconfig ~/.kube/config",
        "drawbar controller --binding-timeout 1200 --log-format json",
        "drawbar controller --config /etc/drawbar/controller.yaml --print-config",
        "drawbar controller --check alive",
    ),
)
