"""`drawbar move`: restart the pods of a claim on another device."""

import argparse
import sys
from typing import Any

from drawbar.driver import errors
from drawbar.driver.cli import command, documents, flags, objects, shell

TIMEOUT_SECONDS = 300.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    objects.add_target(
        parser,
        KINDS,
        help_text="a ResourceClaim: NAME, NAMESPACE/NAME or claim/NAME; or pod/NAME",
        metavar="CLAIM",
        is_required=True,
    )
    parser.add_argument(
        "--force", action="store_true", help="evict also pods that no controller replaces: they are lost"
    )
    flags.add_change(parser)
    flags.add_output(parser)
    flags.add_timeout(parser, TIMEOUT_SECONDS, "the longest wait until the next pods run")
    flags.add_driver(parser)
    flags.add_cluster(parser)


def run(args: argparse.Namespace) -> int:
    """Move the claim and return the exit status.

    Raises:
        DrawbarError: the cluster refuses, fails or is not reached, or the options are wrong.
    """
    limit, args.timeout = args.timeout, None
    args.limit = limit
    return shell.run(_move, args)


async def _move(args: argparse.Namespace) -> int:
    from drawbar.driver.cli import consent
    from drawbar.driver.cli.move import claim_moves, execution

    driver = shell.driver(args)
    async with shell.connecting(args) as session:
        target = session.target(args.target, KINDS, default="claim", hints=HINTS)
        allowance = shell.Allowance(args.limit)
        async with allowance.spend():
            cluster, claims, pods = await execution.read(session.api, target, driver=driver)
        planned = claim_moves.plan(cluster, claims, pods)
        document = {
            "claims": list(planned.claims),
            "devices": [{"pool": device.pool, "device": device.name} for device in planned.devices],
            "pods": [pod.metadata.name for pod in planned.pods],
            "consequences": list(claim_moves.consequences(planned)),
            "done": False,
            "result": "",
        }
        claim_moves.check(planned, force=args.force)
        mover = execution.Mover(session.api, planned, target.namespace, driver=driver)
        if args.dry_run != "none":
            if args.dry_run == "server":
                async with allowance.spend():
                    await mover.try_out()
            _print(args, document)
            return 0
        if not documents.is_document(args.output):
            _print(args, document)
        await consent.ask("Go on?", assumed=args.yes)
        late = errors.DrawbarError(
            f"not done after {args.limit:g} s: drawbar explain pod/NAME -n {target.namespace} names the reason of a longer wait"
        )
        with execution.reporting(mover):
            async with allowance.spend(late):
                await mover.run(frozenset(pod.metadata.uid for pod in pods))
        result = claim_moves.outcome(planned, mover.successors)
    if documents.is_document(args.output):
        _print(args, document | {"done": result.is_moved, "result": result.sentence})
    else:
        sys.stdout.write(f"{result.sentence}\n")
    return errors.ExitStatus.FINE if result.is_moved else errors.ExitStatus.FOUND


def _print(args: argparse.Namespace, document: dict[str, Any]) -> None:
    if documents.is_document(args.output):
        names = [f"pod/{name}" for name in document["pods"]]
        documents.write(args.output, "Move", document, names=names)
    else:
        sys.stdout.write("".join(f"{sentence}\n" for sentence in document["consequences"]))
    sys.stdout.flush()


KINDS = ("claim", "pod")
HINTS = dict.fromkeys(
    ("fabric", "enclosure", "device", "attachment", "node"),
    "drawbar status KIND/NAME shows its claims; drawbar maintenance on keeps further claims away",
)
EXAMPLES = (
    "drawbar move train-gpu",
    "drawbar move team-a/train-gpu --dry-run",
    "kubectl drawbar move train-gpu -n team-a --yes",
)
COMMAND = command.Command(
    name="move",
    help="restart the pods of a claim on another device",
    description=(
        "Puts the claim's devices into maintenance and evicts its pods within their disruption budgets. Waits until their controllers' new\n"
        "pods run, then ends the maintenance. Earlier maintenance stays. A pod without a controller is lost: it needs --force.\n"
        "Status 1: no pod runs in its place."
    ),
    examples=EXAMPLES,
    configure=configure,
    run=run,
)
