"""`drawbar status`: the users of the devices, the troubles, and the reason of each wait, in one call."""

import argparse
import asyncio
import datetime
import gc
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from drawbar.driver import errors, output
from drawbar.driver.cli import command, documents, flags, objects, selectors, shell

if TYPE_CHECKING:
    from drawbar.driver.cli.status import observed, tree

TIMEOUT_SECONDS = 60.0
WATCH_SECONDS = 2.0
LATE = "name a fabric, node, claim or pod, or give a longer --timeout"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    objects.add_target(parser, help_text="one object; the whole cluster without one")
    parser.add_argument("--all", action="store_true", help="list each device, also those that are fine")
    parser.add_argument(
        "--watch",
        "-w",
        action="store_true",
        help="follow the cluster: a live view in a terminal, else a new status after each change",
    )
    flags.add_listing(parser, "claims with these labels, such as app=train")
    flags.add_timeout(parser, TIMEOUT_SECONDS, "the longest wait for the API server")
    flags.add_driver(parser)
    flags.add_cluster(parser)


def run(args: argparse.Namespace) -> int:
    """Print the status and return the exit status.

    Raises:
        DrawbarError: the cluster is not reached, or there is no object of that name.
    """
    collects = gc.isenabled()
    if not args.watch:
        # Nearly half of the time would go into garbage collection among objects that all live to the end.
        gc.disable()
    limit, args.timeout = args.timeout, None if args.watch else args.timeout
    args.limit = limit
    try:
        return shell.run(_run, args)
    finally:
        if collects:
            gc.enable()


def _has_terminal() -> bool:
    """Return true if keys can be read and the screen can be drawn; Windows has no termios."""
    is_unix = importlib.util.find_spec("termios") is not None
    return is_unix and sys.stdin.isatty() and sys.stdout.isatty()


async def _run(args: argparse.Namespace) -> int:
    from drawbar.driver.cli import progress
    from drawbar.driver.cli.explain import pending
    from drawbar.driver.cli.status import building, narrowing, reading

    printed: Any = None
    async with shell.connecting(args) as session:
        target = session.target(args.target)
        if args.watch and args.output == "table" and _has_terminal():
            from drawbar.driver.cli.terminal import view

            await view.show(session.api, driver=shell.driver(args), words=target.name)
            return errors.ExitStatus.FINE
        while True:
            async with progress.show_activity("reading the cluster"):
                try:
                    async with asyncio.timeout(args.limit):
                        cluster = await reading.read(session.api, target, driver=shell.driver(args))
                        whole = building.build(cluster)
                        shown = narrowing.narrow(whole, target, _select_claims(args, target, cluster))
                        if target.kind in reading.OF_ONE_OBJECT and pending.has_waiting(shown):
                            cluster = await reading.read(
                                session.api, objects.Target(), driver=shell.driver(args)
                            )
                            whole = building.build(cluster)
                        shown = await pending.add_reasons(session.api, shown, whole, cluster)
                except TimeoutError as error:
                    raise shell.Late(
                        f"the API server has not answered within {args.limit:g} s: {LATE}"
                    ) from error
            if shown != printed:
                _print(args, shown)
                printed = shown
            if not args.watch:
                return errors.ExitStatus.UNREAD if shown.unread else errors.ExitStatus.FINE
            await _pause()


def _select_claims(
    args: argparse.Namespace, target: objects.Target, cluster: "observed.Cluster"
) -> frozenset[tuple[str, str]] | None:
    """Return the namespaces and names of the claims that `-n` and `-l` select; None for all."""
    namespace = "" if args.all_namespaces or target.name else args.namespace
    if not namespace and not args.selector:
        return None
    return frozenset(
        (claim.metadata.namespace, claim.metadata.name)
        for claim in cluster.claims
        if namespace in ("", None, claim.metadata.namespace)
        and selectors.matches(args.selector, claim.metadata.labels)
    )


async def _pause() -> None:
    await asyncio.sleep(WATCH_SECONDS)


def _print(args: argparse.Namespace, shown: "tree.Tree") -> None:
    from drawbar.driver.cli.status import document, views

    now = datetime.datetime.now(datetime.UTC)
    if args.watch and not documents.is_document(args.output):
        output.console().clear()
    if documents.is_document(args.output):
        if args.watch and args.output in ("json", "yaml"):
            documents.write_event(args.output, "Status", document.describe(shown, now), name="")
        else:
            names = [
                *(f"fabric/{fabric.name}" for fabric in shown.fabrics),
                *(f"device/{device.pool}/{device.name}" for device in shown.devices),
                *(f"claim/{claim.namespace}/{claim.name}" for claim in shown.claims),
            ]
            documents.write(args.output, "Status", document.describe(shown, now), names=names)
    else:
        command.print_tables(
            lambda out: views.show(out, shown, now=now, every=args.all, wide=args.output == "wide")
        )
    sys.stdout.flush()
    for sentence in shown.unread:
        sys.stderr.write(f"warning: {sentence}\n")


EXAMPLES = (
    "drawbar status",
    "drawbar status fabric/rack-1 --all",
    "drawbar status node worker-7",
    "drawbar status claim/training -n team-a",
    "drawbar status pod/training-0 -n team-a --watch",
    "drawbar status -o jsonpath='{.fabrics[*].name}'",
)
COMMAND = command.Command(
    name="status",
    help="show which claim has which device, every fault, and the cause of each wait",
    description=(
        "Begins with a summary and the faults, then shows fabric, enclosure, device, node, claim and pod as a tree.\n"
        "Healthy devices are counted; --all lists each. Keys of --watch in a terminal: / filter, s states, enter opens, q quits.\n"
        "A missing right is named on stderr, and the rest is shown (status 3)."
    ),
    examples=EXAMPLES,
    configure=configure,
    run=run,
)
