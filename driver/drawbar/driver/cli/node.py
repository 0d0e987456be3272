"""`drawbar node`: the kubelet plugin of one node."""

import argparse
import os
from pathlib import Path

from drawbar.driver import logs, supervision
from drawbar.driver.cli import command
from drawbar.driver.node import settings


def _configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--node-name", default=os.environ.get("NODE_NAME", ""), help="this node's name (default: $NODE_NAME)")
    add("--driver-name", default=settings.DRIVER, help="the DRA driver's name (default: %(default)s)")
    add(
        "--pod-uid",
        default=os.environ.get("POD_UID", ""),
        help="keeps two instances apart (default: $POD_UID)",
    )
    add("--kubeconfig", help="default: $KUBECONFIG, else the pod's service account")
    add("--kubelet-dir", type=Path, default=Path("/var/lib/kubelet"), help="default: %(default)s")
    add("--cdi-dir", type=Path, default=Path("/var/run/cdi"), help="default: %(default)s")
    add("--sysfs", type=Path, default=Path("/sys"), help="default: %(default)s")
    add("--uevents", default="kernel", metavar="SOURCE", help="kernel, or unix:/path of a mocked tree")
    add("--visible-timeout", type=float, default=60.0, metavar="SECONDS", help="default: %(default)s")
    add("--log-format", choices=logs.FORMATS, default="text")


def _run(args: argparse.Namespace) -> int:
    # Imported here: gRPC and aiohttp are 60 MB that `drawbar --help` need not pay for.
    from drawbar.driver.node import daemon

    logs.configure(args.log_format)
    return supervision.run(
        daemon.run(
            settings.Settings(
                node_name=args.node_name,
                driver=args.driver_name,
                instance=args.pod_uid,
                kubeconfig=args.kubeconfig,
                kubelet_dir=args.kubelet_dir,
                cdi_dir=args.cdi_dir,
                sysfs=args.sysfs,
                uevents=args.uevents,
                visible_timeout_seconds=args.visible_timeout,
            )
        )
    )


COMMAND = command.Command(
    name="node",
    help="the daemon of one node: hot-plug, kubelet plugin",
    configure=_configure,
    run=_run,
    examples=("drawbar node --node-name worker-1 --kubeconfig ~/.kube/config",),
)
