"""`drawbar maintenance`: keeps further claims from devices, and further devices from nodes."""

import argparse
import asyncio
import json
import logging
import sys
from typing import Any

from drawbar.driver import errors
from drawbar.driver.cli import command

TIMEOUT_SECONDS = 60.0
REASON_CHARS = 256
KINDS = ("device", "enclosure", "node")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    for name, help_text in (
        ("on", "begin: no further claim, or no further device"),
        ("off", "end it"),
        ("list", "show what is in maintenance"),
    ):
        action = actions.add_parser(
            name,
            help=help_text,
            description=f"{help_text[:1].upper()}{help_text[1:]}.",
            epilog="examples:\n"
            + "\n".join(f"  {line}" for line in EXAMPLES if line.startswith(f"drawbar maintenance {name}"))
            + f"\n\n{STATUSES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name != "list":
            action.add_argument(
                "target",
                metavar="KIND/NAME",
                type=_target,
                help="device/NAME (with its pool in front where there are several), enclosure/FABRIC/NAME, or node/NAME",
            )
            if name == "on":
                action.add_argument(
                    "--reason",
                    metavar="TEXT",
                    type=_reason,
                    default="",
                    help="why, such as the number of a ticket; it is shown by list",
                )
            action.add_argument("--dry-run", action="store_true", help="print the changes, and make none")
            action.add_argument("--yes", action="store_true", help="do not ask before the change")
            action.add_argument(
                "--timeout",
                metavar="SECONDS",
                type=_seconds,
                default=TIMEOUT_SECONDS,
                help="the longest wait until it holds (default: %(default)g)",
            )
        action.add_argument(
            "--driver-name", metavar="NAME", help="the DRA driver's name (default: drawbar.dev)"
        )
        action.add_argument(
            "--kubeconfig",
            metavar="FILE",
            help="how to reach the API server (default: $KUBECONFIG, else the pod's service account, else ~/.kube/config)",
        )
        action.add_argument("-o", "--output", choices=("json", "yaml"), help="print a document for programs")


def _target(content: str) -> tuple[str, str]:
    kind, _, name = content.partition("/")
    if kind not in KINDS or not name:
        raise argparse.ArgumentTypeError(
            f"{content!r} is none: give device/NAME, enclosure/FABRIC/NAME or node/NAME"
        )
    return kind, name


def _reason(content: str) -> str:
    if len(content) > REASON_CHARS or not content.isprintable():
        raise argparse.ArgumentTypeError(f"give at most {REASON_CHARS} characters that can be printed")
    return content


def _seconds(content: str) -> float:
    seconds = float(content)
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError("give a number of seconds from 0 to 3600")
    return seconds


def run(args: argparse.Namespace) -> int:
    """Run an action and return the exit status.

    Raises:
        DrawbarError: the cluster refuses, fails or is not reached (status 1), or the options are wrong (2).
    """
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # What fails is one sentence.
    try:
        with command.printing():
            return asyncio.run(_list(args) if args.action == "list" else _change(args))
    finally:
        logging.disable(before)


def _driver(args: argparse.Namespace) -> str:
    from drawbar.driver.api import drivers

    return args.driver_name or drivers.DEFAULT


async def _change(args: argparse.Namespace) -> int:
    from drawbar.driver.cli import consent
    from drawbar.driver.cli.maintenance import execution, plan
    from drawbar.driver.kube import client, config

    kind, name = args.target
    target, on = plan.Target(kind=kind, name=name), args.action == "on"
    async with client.connecting(config.load(args.kubeconfig)) as api:
        cluster, labels = await execution.read(api, target, driver=_driver(args))
        planned = plan.plan(cluster, labels, target, on=on, reason=args.reason if on else "")
        sentences = plan.consequences(planned, target)
        document = {
            "target": f"{kind}/{name}",
            "maintenance": on,
            "fabrics": [
                {"name": change.fabric, "devices": sorted(change.devices), "nodes": sorted(change.nodes)}
                for change in planned.changes
            ],
            "consequences": list(sentences),
            "done": False,
        }
        if args.dry_run or not planned.changes:
            _print(args, document | {"done": not planned.changes and not args.dry_run})
            if args.output is None and not planned.changes:
                sys.stdout.write("nothing to change\n")
            return 0
        if args.output is None:
            _print(args, document)
        await consent.ask("Go on?", assumed=args.yes)
        await execution.write(api, planned)
        try:
            async with asyncio.timeout(args.timeout) as deadline:
                await execution.settle(api, planned, target, driver=_driver(args))
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise errors.DrawbarError(
                f"written, and not in effect after {args.timeout:g} s; does a controller lead, and is the Fabric connected? "
                "drawbar doctor looks"
            ) from error
    if args.output is not None:
        _print(args, document | {"done": True})
    else:
        sys.stdout.write(f"{target} is {'in' if on else 'back from'} maintenance.\n")
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


async def _list(args: argparse.Namespace) -> int:
    from drawbar.driver.api import maintenances, meta
    from drawbar.driver.cli import tables
    from drawbar.driver.kube import client, config, kinds

    async with client.connecting(config.load(args.kubeconfig)) as api:
        listing = await api.list_all(kinds.MAINTENANCE, into=maintenances.Maintenance)
    ours = [
        {
            "name": item.metadata.name,
            "fabric": item.spec.fabric,
            "devices": sorted(item.spec.devices),
            "nodes": sorted(item.spec.nodes),
            "reason": item.spec.reason,
            "applied": applied.status if applied is not None else "Unknown",
            "message": applied.message if applied is not None else "",
        }
        for item in sorted(listing.items, key=lambda item: (item.spec.fabric, item.metadata.name))
        for applied in (meta.find(item.status.conditions, maintenances.APPLIED),)
        if item.spec.driver == _driver(args)
    ]
    if args.output == "json":
        sys.stdout.write(json.dumps(ours, indent=2) + "\n")
    elif args.output == "yaml":
        import yaml

        sys.stdout.write(yaml.safe_dump(ours, sort_keys=False))
    else:
        lines = [
            (entry["fabric"], kind, name, entry["applied"], entry["name"], entry["reason"])
            for entry in ours
            for kind, names in (("device", entry["devices"]), ("node", entry["nodes"]))
            for name in names
        ]
        command.print_tables(
            lambda out: tables.rows(
                out,
                ("FABRIC", "KIND", "NAME", "APPLIED", "MAINTENANCE", "REASON"),
                lines,
                "Nothing is in maintenance.",
            )
        )
    return 0


STATUSES = (
    "exit status: 0 done, or nothing to do; 1 declined, there is nothing of that name, or the cluster refuses, fails or is not reached\n"
    "in time; 2 the command line is wrong; 130 interrupted. What was done and what not is printed on stderr."
)
EXAMPLES = (
    'drawbar maintenance on device/gpu-1 --reason "OPS-1234: new riser"',
    "drawbar maintenance on enclosure/rack-1/enc-1 --dry-run",
    "drawbar maintenance on node/worker-7 --yes",
    "drawbar maintenance off device/gpu-1",
    "drawbar maintenance list -o json",
)
COMMAND = command.Command(
    name="maintenance",
    help="keep further claims from devices, and further devices from nodes",
    description=(
        "Takes devices, the devices of an enclosure, or a node out of service without ending a pod: no further claim is given the\n"
        "devices, or no further device goes to the node. Who has a device keeps it. It stands in objects of the kind Maintenance."
    ),
    examples=EXAMPLES,
    configure=configure,
    run=run,
)
