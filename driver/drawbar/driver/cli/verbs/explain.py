"""`drawbar explain`: why an object waits or fails; without an object, `drawbar doctor`."""

import argparse

from drawbar.driver.cli import command, flags, objects, shell
from drawbar.driver.cli.doctor import findings
from drawbar.driver.cli.verbs import doctor

TIMEOUT_SECONDS = 120.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    objects.add_target(parser, help_text="one object; the whole cluster without one, as drawbar doctor")
    parser.add_argument("--brief", action="store_true", help="leave out healthy objects")
    flags.add_daemons(parser)
    flags.add_output(parser)
    flags.add_timeout(parser, TIMEOUT_SECONDS)
    flags.add_driver(parser)
    flags.add_cluster(parser)


def run(args: argparse.Namespace) -> int:
    """Print the findings and return the exit status.

    Raises:
        DrawbarError: the cluster is not reached, or there is no object of that name.
    """
    if not args.target:
        return doctor.run(
            argparse.Namespace(
                **vars(args) | {"node": False, "controller_account": None, "node_account": None}
            )
        )
    return shell.run(_explain, args)


async def _explain(args: argparse.Namespace) -> int:
    from drawbar.driver.cli import progress
    from drawbar.driver.cli.explain import diagnosis, reading, report

    where = doctor.find_installation(args)
    async with shell.connecting(args) as session, progress.show_activity("reading the cluster"):
        target = session.target(args.target)
        world = await reading.read(session.api, target, driver=where.driver, namespace=where.namespace)
        explained = diagnosis.explain(world)
        about = {"server": session.api.server, "driver": where.driver, "object": str(target)}
    shell.show(
        args,
        "Explanation",
        report.document(explained, about),
        lambda out: report.show(out, explained, target, brief=args.brief),
        names=[str(target)],
    )
    return findings.exit_status(explained.findings)


EXAMPLES = (
    "drawbar explain pod/train-0 -n team-a",
    "drawbar explain claim/train -n team-a",
    "drawbar explain device/gpu-1",
    "drawbar explain node/worker-7 -o json",
    "drawbar explain",
)
COMMAND = command.Command(
    name="explain",
    help="why an object waits or fails, and the next step",
    description=(
        "Goes from a pod to its claims, their devices, attachments, fabrics and nodes, and prints the cause first, with the next step.\n"
        "Without an object it checks the whole cluster, as drawbar doctor. Nothing is changed."
    ),
    examples=EXAMPLES,
    configure=configure,
    run=run,
)
