"""`drawbar doctor`: checks a live cluster, or with `--node` the node it runs on, and prints what to do."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from drawbar.driver import errors
from drawbar.driver.api import drivers
from drawbar.driver.cli import command
from drawbar.driver.cli.doctor import findings, observed
from drawbar.driver.controller import settings

_NODE_ACCOUNT = "drawbar-node"
_CONTROLLER_ACCOUNT = "drawbar-controller"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="how to reach the API server (default: $KUBECONFIG, else the pod's service account, else ~/.kube/config)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--brief", action="store_true", help="leave out of the table what is well")
    cluster = parser.add_argument_group("which Drawbar is meant")
    cluster.add_argument(
        "--driver-name", metavar="NAME", help=f"the DRA driver's name (default: {settings.DRIVER})"
    )
    cluster.add_argument(
        "--namespace", metavar="NAME", help=f"that of its daemons (default: {settings.NAMESPACE})"
    )
    cluster.add_argument(
        "--controller-account",
        metavar="NAME",
        help=f"the controller's service account (default: {_CONTROLLER_ACCOUNT})",
    )
    cluster.add_argument(
        "--node-account", metavar="NAME", help=f"the node daemons' service account (default: {_NODE_ACCOUNT})"
    )
    node = parser.add_argument_group("on a node")
    node.add_argument(
        "--node",
        action="store_true",
        help="check this node instead: the pod's privileges, sockets, CDI, the node daemon itself, the clock",
    )
    node.add_argument(
        "--config", metavar="FILE", help="the node daemon's configuration; its DRAWBAR_… variables count too"
    )
    node.add_argument(
        "--host-root",
        metavar="DIR",
        help="where the host's own files are, for the container runtime's configuration, such as / or /host",
    )


def run(args: argparse.Namespace) -> int:
    """Prints the report and gives the exit status.

    Raises:
        DrawbarError: nothing could be looked at, or the options are wrong; status 2.
    """
    if args.node:
        listed, about = _node(args)
    else:
        listed, about = _cluster(args)
    report_findings(args, listed, about)
    return findings.exit_status(listed)


def _cluster(args: argparse.Namespace) -> tuple[tuple[findings.Finding, ...], dict[str, str]]:
    from drawbar.driver.cli.doctor import observation, plan
    from drawbar.driver.kube import config

    where = located(args)
    cluster = asyncio.run(observation.observe(config.load(args.kubeconfig), where))
    about = {"server": cluster.server, "version": cluster.version, "driver": where.driver}
    return plan.plan(cluster), about | {"namespace": where.namespace}


def _node(args: argparse.Namespace) -> tuple[tuple[findings.Finding, ...], dict[str, str]]:
    """Check this node, with the settings that the node daemon would read.

    Raises:
        UsageError: the daemon's configuration cannot be read at all, or an option has no place here.
    """
    from drawbar.driver.cli.doctor import node_observation
    from drawbar.driver.cli.doctor.plans import host
    from drawbar.driver.configuration import loader
    from drawbar.driver.node import settings as node_settings

    for option, value in (
        ("--namespace", args.namespace),
        ("--controller-account", args.controller_account),
        ("--node-account", args.node_account),
    ):
        if value is not None:
            raise errors.UsageError(f"{option} and --node do not go together: leave one out")
    chosen = argparse.Namespace(config=args.config, driverName=args.driver_name)
    loaded = loader.load(node_settings.Settings, chosen, problems=node_settings.problems)
    options = loaded.settings
    root = Path(args.host_root) if args.host_root is not None else None
    observed_node = asyncio.run(
        node_observation.observe(options, loaded.problems, kubeconfig=args.kubeconfig, root=root)
    )
    return host.plan(observed_node), {"node": options.node_name, "driver": options.driver}


def located(args: argparse.Namespace) -> observed.Where:
    """Which Drawbar the options mean.

    Raises:
        UsageError: a name is none.
    """
    options = settings.Settings(
        driver=args.driver_name or settings.DRIVER, lease_namespace=args.namespace or settings.NAMESPACE
    )
    settings.validate(options)
    return observed.Where(
        driver=options.driver,
        namespace=options.lease_namespace,
        lease=options.lease,
        controller=args.controller_account or drivers.resource(_CONTROLLER_ACCOUNT, options.driver),
        node=args.node_account or drivers.resource(_NODE_ACCOUNT, options.driver),
    )


def report_findings(
    args: argparse.Namespace, listed: Sequence[findings.Finding], about: dict[str, str]
) -> None:
    """Print findings as the options ask for it."""
    from drawbar.driver.cli.doctor import report

    with command.printing():
        if args.json:
            sys.stdout.write(json.dumps(report.document(listed, about), indent=2) + "\n")
        else:
            command.print_tables(lambda out: report.show(out, listed, brief=args.brief))


COMMAND = command.Command(
    name="doctor",
    help="check a live cluster, or a node, and say what to do",
    description=(
        "Checks a live cluster: API versions, features that the API server drops, CRDs, permissions of the daemons,\n"
        "the leader, clocks, nodes, fabrics and attachments. With --node it checks the node it runs on. Nothing is\n"
        "changed. Ends with 0 when nothing is wrong (warnings may be there), with 1 when something is, and with 2 when\n"
        "nothing is known to be wrong but not everything could be looked at."
    ),
    examples=(
        "drawbar doctor",
        "drawbar doctor --kubeconfig ~/.kube/config --brief",
        "drawbar doctor --driver-name gpu.example.com --namespace gpu --json",
        "drawbar doctor --node",
        "drawbar doctor --node --config /etc/drawbar/node.yaml --host-root /",
    ),
    configure=configure,
    run=run,
)
