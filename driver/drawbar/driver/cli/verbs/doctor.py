"""`drawbar doctor`: checks of a live cluster, or with `--node` of this node, with the remedies."""

import argparse
from pathlib import Path

from drawbar.driver import errors
from drawbar.driver.api import drivers
from drawbar.driver.cli import command, flags, shell
from drawbar.driver.cli.doctor import findings, observed
from drawbar.driver.configuration import loader
from drawbar.driver.controller import settings

TIMEOUT_SECONDS = 300.0
_NODE_ACCOUNT = "drawbar-node"
_CONTROLLER_ACCOUNT = "drawbar-controller"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--brief", action="store_true", help="leave out healthy objects")
    cluster = parser.add_argument_group("which Drawbar")
    flags.add_driver(cluster)
    flags.add_daemons(cluster)
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
        help="the host's root directory, such as / or /host, for the container runtime's configuration",
    )
    flags.add_output(parser)
    flags.add_timeout(parser, TIMEOUT_SECONDS)
    flags.add_cluster(parser)


def run(args: argparse.Namespace) -> int:
    """Print the report and return the exit status.

    Raises:
        DrawbarError: nothing could be checked, or the options are wrong.
    """
    return shell.run(_run, args)


async def _run(args: argparse.Namespace) -> int:
    listed, about = await (_node(args) if args.node else _cluster(args))
    from drawbar.driver.cli.doctor import report

    shell.show(
        args,
        "Diagnosis",
        report.document(listed, about),
        lambda out: report.show(out, listed, brief=args.brief),
        names=[finding.check.value for finding in listed],
    )
    return findings.exit_status(listed)


async def _cluster(args: argparse.Namespace) -> tuple[tuple[findings.Finding, ...], dict[str, str]]:
    from drawbar.driver.cli.doctor import observation, plan

    where = find_installation(args)
    cluster = await observation.observe(shell.connection(args), where)
    about = {"server": cluster.server, "version": cluster.version, "driver": where.driver}
    return plan.plan(cluster), about | {"namespace": where.namespace}


async def _node(args: argparse.Namespace) -> tuple[tuple[findings.Finding, ...], dict[str, str]]:
    """Return the findings on this node, with the settings of the node daemon.

    Raises:
        UsageError: the daemon's configuration cannot be read, or an option does not go with `--node`.
    """
    from drawbar.driver.cli.doctor import node_observation
    from drawbar.driver.cli.doctor.plans import host
    from drawbar.driver.node import settings as node_settings

    for option, value in (
        ("--daemons", args.daemons),
        ("--controller-account", args.controller_account),
        ("--node-account", args.node_account),
    ):
        if value is not None:
            raise errors.UsageError(f"{option} and --node do not go together: leave one out")
    chosen = argparse.Namespace(config=args.config, driverName=args.driver_name)
    loaded = loader.load(node_settings.Settings, chosen, problems=node_settings.problems)
    options = loaded.settings
    root = Path(args.host_root) if args.host_root is not None else None
    observed_node = await node_observation.observe(
        options, loaded.problems, kubeconfig=args.kubeconfig, root=root
    )
    return host.plan(observed_node), {"node": options.node_name, "driver": options.driver}


def find_installation(args: argparse.Namespace) -> observed.Where:
    """Return the installation of Drawbar that the options name.

    Raises:
        UsageError: a name is invalid.
    """
    options = settings.Settings(
        driver=args.driver_name or settings.DRIVER, lease_namespace=args.daemons or settings.NAMESPACE
    )
    loader.refuse(settings.problems(options))
    return observed.Where(
        driver=options.driver,
        namespace=options.lease_namespace,
        lease=options.lease,
        controller=getattr(args, "controller_account", None)
        or drivers.resource(_CONTROLLER_ACCOUNT, options.driver),
        node=getattr(args, "node_account", None) or drivers.resource(_NODE_ACCOUNT, options.driver),
    )


COMMAND = command.Command(
    name="doctor",
    help="check a live cluster or a node, and print the next steps",
    description=(
        "Checks a live cluster: API versions, features that the API server drops, CRDs, permissions of the daemons,\n"
        "the leader, clocks, nodes, fabrics and attachments. With --node it checks the node it runs on. Nothing is\n"
        "changed. Status 0 with warnings only, 1 with an error, 3 if something could not be read."
    ),
    examples=(
        "drawbar doctor",
        "drawbar doctor --kubeconfig ~/.kube/config --brief",
        "drawbar doctor --driver-name gpu.example.com --daemons gpu -o json",
        "drawbar doctor --node",
        "drawbar doctor --node --config /etc/drawbar/node.yaml --host-root /",
    ),
    configure=configure,
    run=run,
)
