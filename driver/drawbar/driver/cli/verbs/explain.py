"""`drawbar explain`: why an object waits or fails; without one, `drawbar doctor`."""

import argparse
import asyncio
import logging

from drawbar.driver import errors
from drawbar.driver.cli import command
from drawbar.driver.cli.doctor import findings
from drawbar.driver.cli.verbs import doctor

TIMEOUT_SECONDS = 120.0
KINDS = ("device", "claim", "pod", "node")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "target",
        metavar="KIND/NAME",
        nargs="?",
        type=_target,
        help="device/NAME, claim/NAME, pod/NAME or node/NAME; the whole cluster without one, as drawbar doctor",
    )
    parser.add_argument(
        "-n",
        "--namespace",
        metavar="NAME",
        default="default",
        help="of a claim or pod (default: %(default)s)",
    )
    parser.add_argument("--daemons", metavar="NAME", help="the namespace of the daemons (default: drawbar)")
    parser.add_argument("--driver-name", metavar="NAME", help="the DRA driver's name (default: drawbar.dev)")
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="how to reach the API server (default: $KUBECONFIG, else the pod's service account, else ~/.kube/config)",
    )
    parser.add_argument("--brief", action="store_true", help="leave out what is well")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _target(content: str) -> tuple[str, str]:
    kind, _, name = content.partition("/")
    if kind not in KINDS or not name:
        raise argparse.ArgumentTypeError(
            f"{content!r} is none: give device/NAME, claim/NAME, pod/NAME or node/NAME"
        )
    return kind, name


def run(args: argparse.Namespace) -> int:
    """Print the findings and return the exit status.

    Raises:
        DrawbarError: the cluster is not reached, or there is no object of that name.
    """
    where = argparse.Namespace(
        kubeconfig=args.kubeconfig,
        driver_name=args.driver_name,
        namespace=args.daemons,
        controller_account=None,
        node_account=None,
    )
    if args.target is None:
        return doctor.run(argparse.Namespace(**vars(where), json=args.json, brief=args.brief, node=False))
    kind, name = args.target
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # What fails is one sentence.
    try:
        listed, about = asyncio.run(_explain(args, doctor.located(where).namespace))
    finally:
        logging.disable(before)
    doctor.report_findings(args, listed, about | {"object": f"{kind}/{name}"})
    return findings.exit_status(listed)


async def _explain(
    args: argparse.Namespace, namespace: str
) -> tuple[tuple[findings.Finding, ...], dict[str, str]]:
    from drawbar.driver.api import drivers
    from drawbar.driver.cli import progress
    from drawbar.driver.cli.explain import plan, reading
    from drawbar.driver.cli.status import reading as status_reading
    from drawbar.driver.kube import client, config

    kind, name = args.target
    target = status_reading.Target(kind=kind, name=name, namespace=args.namespace)
    driver = args.driver_name or drivers.DEFAULT
    async with client.connecting(config.load(args.kubeconfig)) as api, progress.shown("reading the cluster"):
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                world = await reading.read(api, target, driver=driver, namespace=namespace)
        except TimeoutError as error:
            raise errors.DrawbarError(
                f"the API server has not answered within {TIMEOUT_SECONDS:g} s; look at it, or at the network"
            ) from error
        return plan.plan(world), {"server": api.server, "driver": driver}


EXAMPLES = (
    "drawbar explain pod/train-0 -n team-a",
    "drawbar explain claim/train -n team-a",
    "drawbar explain device/gpu-1",
    "drawbar explain node/worker-7 --json",
    "drawbar explain",
)
COMMAND = command.Command(
    name="explain",
    help="why a device, claim, pod or node waits or fails, and the next step",
    description=(
        "Goes from a pod to its claims, their devices, attachments, fabrics and nodes, and prints what is wrong, the worst first, each\n"
        "with the next step. Without an object it checks the whole cluster, as drawbar doctor. Nothing is changed.\n"
        "exit status: 0 nothing is wrong (it may wait); 1 something is, or there is no object of that name; 2 not everything could be\n"
        "looked at, or the command line is wrong; 130 interrupted."
    ),
    examples=EXAMPLES,
    configure=configure,
    run=run,
)
