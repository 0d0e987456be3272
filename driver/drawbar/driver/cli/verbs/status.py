"""`drawbar status`: who has which device, and what each waits for, in one call."""

import argparse
import asyncio
import datetime
import gc
import logging
import sys
from typing import Any

from drawbar.driver import errors, output
from drawbar.driver.cli import command

TIMEOUT_SECONDS = 60.0
WATCH_SECONDS = 2.0
KINDS = ("fabric", "node", "claim", "pod")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "target",
        metavar="KIND/NAME",
        nargs="?",
        type=_target,
        default=("", ""),
        help="fabric/NAME, node/NAME, claim/NAME or pod/NAME; the whole cluster without one",
    )
    parser.add_argument(
        "-n",
        "--namespace",
        metavar="NAME",
        default="default",
        help="of a claim or pod (default: %(default)s)",
    )
    parser.add_argument("--all", action="store_true", help="list each free device, too")
    parser.add_argument(
        "--watch",
        "-w",
        action="store_true",
        help="follow the cluster: a live view in a terminal, else a new status after each change",
    )
    parser.add_argument("--driver-name", metavar="NAME", help="the DRA driver's name (default: drawbar.dev)")
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="how to reach the API server (default: $KUBECONFIG, else the pod's service account, else ~/.kube/config)",
    )
    parser.add_argument("-o", "--output", choices=("json", "yaml"), help="print a document for programs")


def _target(content: str) -> tuple[str, str]:
    kind, _, name = content.partition("/")
    if kind not in KINDS or not name:
        raise argparse.ArgumentTypeError(
            f"{content!r} is none: give fabric/NAME, node/NAME, claim/NAME or pod/NAME"
        )
    return kind, name


def run(args: argparse.Namespace) -> int:
    """Print the status and return the exit status.

    Raises:
        DrawbarError: the cluster is not reached, or what was named is not there.
    """
    before, collects = logging.root.manager.disable, gc.isenabled()
    logging.disable(logging.CRITICAL)  # What fails is one sentence.
    if not args.watch:
        # Nearly half of the time goes into looking for garbage among objects that are all needed to the end.
        gc.disable()
    try:
        with command.printing():
            return asyncio.run(_run(args))
    finally:
        logging.disable(before)
        if collects:
            gc.enable()


async def _run(args: argparse.Namespace) -> int:
    from drawbar.driver.api import drivers
    from drawbar.driver.cli import progress
    from drawbar.driver.cli.status import reading, tree
    from drawbar.driver.kube import client, config

    kind, name = args.target
    target = reading.Target(kind=kind, name=name, namespace=args.namespace)
    driver = args.driver_name or drivers.DEFAULT
    printed: Any = None
    async with client.connecting(config.load(args.kubeconfig)) as api:
        if args.watch and args.output is None and sys.stdin.isatty() and sys.stdout.isatty():
            from drawbar.driver.cli.terminal import view

            await view.show(api, driver=driver, words=name)
            return 0
        while True:
            async with progress.shown("reading the cluster"):
                try:
                    async with asyncio.timeout(TIMEOUT_SECONDS):
                        shown = tree.build(await reading.read(api, target, driver=driver))
                except TimeoutError as error:
                    raise errors.DrawbarError(
                        f"the API server has not answered within {TIMEOUT_SECONDS:g} s; name a fabric, node, claim or pod"
                    ) from error
            if shown != printed:
                _print(args, shown)
                printed = shown
            if not args.watch:
                return 0
            await _pause()


async def _pause() -> None:
    await asyncio.sleep(WATCH_SECONDS)


def _print(args: argparse.Namespace, shown: Any) -> None:
    import msgspec

    from drawbar.driver.cli.status import views

    if args.watch:
        output.console().clear()
    if args.output == "json":
        raw = msgspec.json.encode(shown)
        sys.stdout.write(output.ascii_json(raw if args.watch else msgspec.json.format(raw)) + "\n")
    elif args.output == "yaml":
        import yaml

        document = yaml.safe_dump(msgspec.to_builtins(shown), sort_keys=False)
        sys.stdout.write("---\n" * args.watch + document)
    else:
        now = datetime.datetime.now(datetime.UTC)
        command.print_tables(lambda out: views.show(out, shown, now=now, every=args.all))
    sys.stdout.flush()
    for sentence in shown.unread:
        sys.stderr.write(f"warning: {sentence}\n")


EXAMPLES = (
    "drawbar status",
    "drawbar status fabric/rack-1 --all",
    "drawbar status node/worker-7",
    "drawbar status claim/training -n team-a",
    "drawbar status pod/training-0 -n team-a --watch",
    "drawbar status -o json",
)
COMMAND = command.Command(
    name="status",
    help="who has which device of which fabric, and what each waits for",
    description=(
        "Shows fabric, enclosure, device, node, claim and pod as a tree, with the state of each, since when, and what it waits for.\n"
        "What may not be read is named on stderr, and the rest is shown.\n"
        "keys of --watch in a terminal: / filter, s states, arrows and page keys move, enter opens a device, esc back, q quit.\n"
        "exit status: 0 shown; 1 the cluster is not reached, or there is no object of that name; 2 the command line is wrong; 130 interrupted."
    ),
    examples=EXAMPLES,
    configure=configure,
    run=run,
)
