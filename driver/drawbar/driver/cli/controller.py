"""`drawbar controller`: publishes the fabrics' devices and attaches what claims were given."""

import argparse

from drawbar.driver import logs, supervision
from drawbar.driver.cli import command
from drawbar.driver.controller import settings


def _configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--driver-name", default=settings.DRIVER, help="the DRA driver's name (default: %(default)s)")
    add("--kubeconfig", help="default: $KUBECONFIG, else the pod's service account")
    add(
        "--binding-timeout",
        type=float,
        default=settings.BINDING_TIMEOUT_SECONDS,
        metavar="SECONDS",
        help="the scheduler's bindingTimeout; the controller gives up before it (default: %(default)s)",
    )
    add("--log-format", choices=logs.FORMATS, default="text")


def _run(args: argparse.Namespace) -> int:
    # Imported here: gRPC and aiohttp are 60 MB that `drawbar --help` need not pay for.
    from drawbar.driver.controller import daemon

    logs.configure(args.log_format)
    return supervision.run(
        daemon.run(
            settings.Settings(
                driver=args.driver_name,
                kubeconfig=args.kubeconfig,
                binding_timeout_seconds=args.binding_timeout,
            )
        )
    )


COMMAND = command.Command(
    name="controller",
    help="the daemon of the cluster: pools, attach and detach",
    configure=_configure,
    run=_run,
    examples=(
        "drawbar controller --kubeconfig ~/.kube/config",
        "drawbar controller --binding-timeout 1200 --log-format json",
    ),
)
