"""`drawbar controller`: publishes the fabrics' devices and attaches what claims were given."""

import argparse
import os

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
    add(
        "--no-leader-election",
        action="store_true",
        help="do not wait for the lease; then only one controller may run",
    )
    add(
        "--lease-namespace",
        default=os.environ.get("POD_NAMESPACE", settings.NAMESPACE),
        metavar="NAME",
        help=f"where the lease {settings.LEASE} is (default: $POD_NAMESPACE, else {settings.NAMESPACE})",
    )
    add(
        "--identity",
        default=os.environ.get("POD_NAME"),
        metavar="NAME",
        help="who this is in the lease (default: $POD_NAME, else host name and process id)",
    )
    add(
        "--api-writes-per-second",
        type=float,
        default=settings.WRITES_PER_SECOND,
        metavar="NUMBER",
        help="the most writes to the API server, sustained (default: %(default)s)",
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
                leader_election=not args.no_leader_election,
                lease_namespace=args.lease_namespace,
                writes_per_second=args.api_writes_per_second,
                identity=args.identity or settings.own_identity(),
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
