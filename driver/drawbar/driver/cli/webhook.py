"""`drawbar webhook`: checks opaque parameters when they are written."""

import argparse
import functools
from collections.abc import Callable, Coroutine
from typing import Any

from drawbar.driver.cli import command
from drawbar.driver.cli import daemon as cli_daemon
from drawbar.driver.webhook import settings


def _imported() -> Callable[[settings.Settings], Coroutine[Any, Any, None]]:
    from drawbar.driver.webhook import daemon

    return daemon.run


_DAEMON = cli_daemon.Daemon(
    settings=settings.Settings,
    problems=settings.problems,
    log=lambda options: options.log,
    run=_imported,
)


def _run(args: argparse.Namespace) -> int:
    return cli_daemon.execute(_DAEMON, args)


COMMAND = command.Command(
    name="webhook",
    help="the admission webhook: checks opaque parameters",
    description=(
        "Answers the API server over HTTPS whether the opaque parameters of a DeviceClass, ResourceClaim or\n"
        "ResourceClaimTemplate can be obeyed. It holds no rights in the cluster and talks to nobody. What it says\n"
        "early, the controller and the node daemon say again, so it may be left out."
    ),
    configure=functools.partial(cli_daemon.configure, _DAEMON),
    run=_run,
    examples=(
        "drawbar webhook --tls-certificate tls.crt --tls-key tls.key",
        "drawbar webhook --listen-address 10.1.2.3 --listen-port 9443 --log-format json",
    ),
)
