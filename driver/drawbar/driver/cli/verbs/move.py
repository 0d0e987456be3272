"""`drawbar move`: has the pods of a claim started anew, on another device."""

import argparse
import asyncio
import json
import logging
import sys
from typing import Any

from drawbar.driver import errors
from drawbar.driver.cli import command

TIMEOUT_SECONDS = 300.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("claim", metavar="CLAIM", help="the name of a ResourceClaim, or NAMESPACE/NAME")
    parser.add_argument(
        "-n", "--namespace", metavar="NAME", default="default", help="of the claim (default: %(default)s)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be done, and change nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask before the change")
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        default=TIMEOUT_SECONDS,
        help="the longest wait until the next pods run (default: %(default)g)",
    )
    parser.add_argument("--driver-name", metavar="NAME", help="the DRA driver's name (default: drawbar.dev)")
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="how to reach the API server (default: $KUBECONFIG, else the pod's service account, else ~/.kube/config)",
    )
    parser.add_argument("-o", "--output", choices=("json", "yaml"), help="print a document for programs")


def _seconds(content: str) -> float:
    seconds = float(content)
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError("give a number of seconds from 0 to 3600")
    return seconds


def run(args: argparse.Namespace) -> int:
    """Move the claim and return the exit status.

    Raises:
        DrawbarError: the cluster refuses, fails or is not reached (status 1), or the options are wrong (2).
    """
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # What fails is one sentence.
    try:
        with command.printing():
            return asyncio.run(_move(args))
    finally:
        logging.disable(before)


async def _move(args: argparse.Namespace) -> int:
    from drawbar.driver.api import drivers
    from drawbar.driver.cli import consent
    from drawbar.driver.cli.move import execution, plan
    from drawbar.driver.kube import client, config

    namespace, _, name = args.claim.rpartition("/")
    namespace, driver = namespace or args.namespace, args.driver_name or drivers.DEFAULT
    async with client.connecting(config.load(args.kubeconfig)) as api:
        cluster, claim, pods = await execution.read(api, namespace, name, driver=driver)
        planned = plan.plan(cluster, claim, pods)
        document = {
            "claim": planned.claim,
            "devices": [{"pool": device.pool, "device": device.name} for device in planned.devices],
            "pods": [pod.metadata.name for pod in planned.pods],
            "consequences": list(plan.consequences(planned)),
            "done": False,
        }
        if args.dry_run:
            _print(args, document)
            return 0
        if args.output is None:
            _print(args, document)
        await consent.ask("Go on?", assumed=args.yes)
        mover = execution.Mover(api, planned, namespace, driver=driver)
        with execution.said(mover):
            try:
                async with asyncio.timeout(args.timeout) as deadline:
                    await mover.run(frozenset(pod.metadata.uid for pod in pods))
            except TimeoutError as error:
                if not deadline.expired():
                    raise
                raise errors.DrawbarError(
                    f"not done after {args.timeout:g} s; drawbar explain pod/NAME names what the next pod waits for"
                ) from error
    if args.output is not None:
        _print(args, document | {"done": True})
    else:
        sys.stdout.write(
            f"moved; claims are given {', '.join(device.name for device in planned.devices)} again.\n"
        )
    return 0


def _print(args: argparse.Namespace, document: dict[str, Any]) -> None:
    if args.output == "json":
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    elif args.output == "yaml":
        import yaml

        sys.stdout.write(yaml.safe_dump(document, sort_keys=False))
    else:
        sys.stdout.write("".join(f"{sentence}\n" for sentence in document["consequences"]))
    sys.stdout.flush()


EXAMPLES = (
    "drawbar move train-gpu",
    "drawbar move team-a/train-gpu --dry-run",
    "kubectl drawbar move train-gpu -n team-a --yes",
)
COMMAND = command.Command(
    name="move",
    help="start the pods of a claim anew, on another device",
    description=(
        "Puts the claim's devices into maintenance, evicts the pods that use it as their disruption budgets allow, waits until the pods that\n"
        "their controllers make in their place run, and ends that maintenance. Maintenance that was there before stays.\n"
        "exit status: 0 done; 1 declined, there is nothing to move, the cluster refuses, fails or is not reached, or it took too long; 2 the\n"
        "command line is wrong; 130 interrupted. What was done and what not is printed on stderr."
    ),
    examples=EXAMPLES,
    configure=configure,
    run=run,
)
