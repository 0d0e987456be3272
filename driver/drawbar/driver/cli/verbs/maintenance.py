"""`drawbar maintenance`: no further claims for devices, and no further devices for nodes."""

import argparse
import datetime
import sys
from typing import Any

from drawbar.driver import errors
from drawbar.driver.cli import command, documents, flags, objects, selectors, shell

TIMEOUT_SECONDS = 60.0
REASON_CHARS = 256


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    for name, help_text, act in (
        ("on", "begin: no further claim, or no further device", _change),
        ("off", "end it", _change),
        ("list", "show all maintenance", _list),
    ):
        action = shell.add_action(actions, f"drawbar maintenance {name}", help_text, act, EXAMPLES)
        if name != "list":
            objects.add_target(
                action,
                help_text="a device, with its pool in front if several have its name; enclosure/FABRIC/NAME",
            )
            if name == "on":
                action.add_argument(
                    "--reason",
                    metavar="TEXT",
                    type=_reason,
                    default="",
                    help="why, such as the number of a ticket; it is shown by list",
                )
            flags.add_change(action)
        flags.add_timeout(action, TIMEOUT_SECONDS, "the longest wait for the effect")
        if name == "list":
            flags.add_listing(action, "objects of the kind Maintenance with these labels")
        else:
            flags.add_output(action)
        flags.add_driver(action)
        flags.add_cluster(action)


def _reason(content: str) -> str:
    if len(content) > REASON_CHARS or not content.isprintable():
        raise argparse.ArgumentTypeError(f"give at most {REASON_CHARS} characters that can be printed")
    return content


def run(args: argparse.Namespace) -> int:
    """Run an action and return the exit status.

    Raises:
        DrawbarError: the cluster refuses, fails or is not reached, or the options are wrong.
    """
    if args.act is _change:
        # The wait for the user's consent does not count.
        args.limit, args.timeout = args.timeout, None
    return shell.run(args.act, args)


async def _change(args: argparse.Namespace) -> int:
    from drawbar.driver.cli import consent
    from drawbar.driver.cli.maintenance import entries, execution

    on, driver = args.action == "on", shell.driver(args)
    async with shell.connecting(args) as session:
        if not args.target:
            raise errors.UsageError("name the object: KIND/NAME")
        target = session.target(args.target)
        api, allowance = session.api, shell.Allowance(args.limit)
        async with allowance.spend():
            cluster, labels = await execution.read(api, target, driver=driver)
        planned = entries.plan(cluster, labels, target, on=on, reason=args.reason if on else "")
        sentences = entries.consequences(planned, target)
        document = {
            "target": str(target),
            "maintenance": on,
            "fabrics": [
                {"name": change.fabric, "devices": sorted(change.devices), "nodes": sorted(change.nodes)}
                for change in planned.changes
            ],
            "consequences": list(sentences),
            "done": False,
        }
        is_dry, is_document = args.dry_run != "none", documents.is_document(args.output)
        if is_dry or not planned.changes:
            if args.dry_run == "server":
                async with allowance.spend():
                    await execution.write(api, planned, dry_run=True)
            _print(args, document | {"done": not planned.changes and not is_dry})
            if not is_document and not planned.changes:
                sys.stdout.write("nothing to change\n")
            return 0
        if not is_document:
            _print(args, document)
        await consent.ask("Go on?", assumed=args.yes)
        async with allowance.spend():
            await execution.write(api, planned)
        late = errors.DrawbarError(
            f"written, and not in effect after {args.limit:g} s: drawbar doctor shows whether a controller leads and the Fabric is connected"
        )
        async with allowance.spend(late):
            await execution.settle(api, planned, target, driver=driver)
    if is_document:
        _print(args, document | {"done": True})
    else:
        sys.stdout.write(f"{target.kind} {target.name} is {'in' if on else 'back from'} maintenance.\n")
    return 0


def _print(args: argparse.Namespace, document: dict[str, Any]) -> None:
    if documents.is_document(args.output):
        names = [f"device/{name}" for change in document["fabrics"] for name in change["devices"]]
        names += [f"node/{name}" for change in document["fabrics"] for name in change["nodes"]]
        documents.write(args.output, "MaintenanceChange", document, names=names)
    else:
        sys.stdout.write("".join(f"{sentence}\n" for sentence in document["consequences"]))
    sys.stdout.flush()


async def _list(args: argparse.Namespace) -> int:
    from drawbar.driver.api import maintenances, meta, taintrules
    from drawbar.driver.cli import tables
    from drawbar.driver.cli.status import views
    from drawbar.driver.kube import kinds

    async with shell.connecting(args) as session:
        listing = await session.api.list_all(kinds.MAINTENANCE, into=maintenances.Maintenance)
    ours = [
        {
            "name": item.metadata.name,
            "fabric": item.spec.fabric,
            "devices": sorted(item.spec.devices),
            "nodes": sorted(item.spec.nodes),
            "reason": item.spec.reason,
            "createdBy": item.metadata.annotations.get(taintrules.CREATED_BY_ANNOTATION, ""),
            "since": item.metadata.creation_timestamp or "",
            "applied": applied.status if applied is not None else "Unknown",
            "message": applied.message if applied is not None else "",
        }
        for item in sorted(listing.items, key=lambda item: (item.spec.fabric, item.metadata.name))
        for applied in (meta.find(item.status.conditions, maintenances.APPLIED),)
        if item.spec.driver == shell.driver(args) and selectors.matches(args.selector, item.metadata.labels)
    ]
    now = datetime.datetime.now(datetime.UTC)
    lines = [
        (
            entry["fabric"],
            kind,
            name,
            entry["applied"],
            entry["createdBy"],
            views.age(str(entry["since"]), now),
            entry["name"],
            entry["reason"],
        )
        for entry in ours
        for kind, names in (("device", entry["devices"]), ("node", entry["nodes"]))
        for name in names
    ]
    shell.show(
        args,
        "MaintenanceList",
        ours,
        lambda out: tables.rows(
            out,
            ("FABRIC", "KIND", "NAME", "APPLIED", "BY", "SINCE", "MAINTENANCE", "REASON"),
            lines,
            "Nothing is in maintenance.",
        ),
        names=[f"maintenance/{entry['name']}" for entry in ours],
    )
    return 0


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
        "devices, or no further device goes to the node. Claims keep their devices. Objects of the kind Maintenance hold the state."
    ),
    examples=EXAMPLES,
    configure=configure,
    run=run,
)
