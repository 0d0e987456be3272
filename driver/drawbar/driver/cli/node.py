"""`drawbar node`: the kubelet plugin of one node."""

import argparse
import functools
from collections.abc import Callable, Coroutine
from typing import Any

from drawbar.driver.cli import command
from drawbar.driver.cli import daemon as cli_daemon
from drawbar.driver.node import settings


def _imported() -> Callable[[settings.Settings], Coroutine[Any, Any, None]]:
    from drawbar.driver.node import daemon

    return daemon.run


_DAEMON = cli_daemon.Daemon(
    settings=settings.Settings,
    problems=settings.problems,
    log=lambda options: options.log,
    run=_imported,
    probes=cli_daemon.Probes(
        problems=lambda options: settings.http_problems(options.http),
        endpoint=lambda options: settings.parse_endpoint(
            options.http.address, options.data_dir, options.instance
        ),
        located_by="--http-address, --kubelet-dir, --driver-name and --pod-uid",
    ),
)


def _run(args: argparse.Namespace) -> int:
    return cli_daemon.execute(_DAEMON, args)


COMMAND = command.Command(
    name="node",
    help="the daemon of one node: hot-plug, kubelet plugin",
    description=(
        "The daemon of one node: hears of hot-plugged devices, reports them, and prepares them for containers.\n"
        "Every setting can stand in the file of --config (see --print-config for its keys), in the environment\n"
        "(the flag in capitals: DRAWBAR_KUBELET_DIR), or be a flag; flags win over the environment, and that over\n"
        "the file."
    ),
    configure=functools.partial(cli_daemon.configure, _DAEMON),
    run=_run,
    examples=(
        "drawbar node --node-name worker-1 --kubeconfig ~/.kube/config",
        "drawbar node --config /etc/drawbar/node.yaml --log-format json",
        "drawbar node --config /etc/drawbar/node.yaml --print-config",
        "drawbar node --check alive",
    ),
)
