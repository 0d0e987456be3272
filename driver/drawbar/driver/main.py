"""The `drawbar` program: one verb, one module.

Verbs of the driver stand in `VERBS`; others (`mock`) are found through the entry point group `drawbar.commands`, so
that the driver never imports them and an image without them stays whole. Only the chosen verb's module is imported,
except for `drawbar --help`, which needs a line of each.
"""

import argparse
import importlib
import logging
import sys
from collections.abc import Sequence
from importlib import metadata

from drawbar.driver import errors, output
from drawbar.driver.cli import command, completion

GROUP = "drawbar.commands"
VERBS = {
    "attach": "drawbar.driver.cli.verbs.fabric:ATTACH",
    "completion": "drawbar.driver.cli.completion",
    "controller": "drawbar.driver.cli.controller",
    "detach": "drawbar.driver.cli.verbs.fabric:DETACH",
    "discover": "drawbar.driver.cli.discover",
    "doctor": "drawbar.driver.cli.verbs.doctor",
    "explain": "drawbar.driver.cli.verbs.explain",
    "fabric": "drawbar.driver.cli.verbs.fabric",
    "health-monitor": "drawbar.driver.cli.health_monitor",
    "maintenance": "drawbar.driver.cli.verbs.maintenance",
    "move": "drawbar.driver.cli.verbs.move",
    "node": "drawbar.driver.cli.node",
    "status": "drawbar.driver.cli.verbs.status",
    "taint": "drawbar.driver.cli.verbs.taint",
    "ui": "drawbar.driver.cli.ui.command",
    "webhook": "drawbar.driver.cli.webhook",
}
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one verb and gives the exit status. An error that a user can mend is one sentence on stderr."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with output.guarded():
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        try:
            chosen = parser(words).parse_args(words)
            run: command.Command = chosen.command
            return run.run(chosen)
        except errors.DrawbarError as error:
            sys.stderr.write(f"error: {error}\n")
            return error.exit_code
        except KeyboardInterrupt:
            return INTERRUPTED


def complete(arguments: Sequence[str] | None = None) -> int:
    """Print what may stand in place of the last word, for a shell or kubectl, and return the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    lines = (*completion.candidates(parser(words), words), completion.NO_FILES)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the verb that `words` begin with, or of all verbs."""
    top = argparse.ArgumentParser(
        prog="drawbar",
        description="Couples fabric-attached PCIe and CXL devices to the Kubernetes node that needs them.",
    )
    top.add_argument("--version", action="version", version=f"drawbar {metadata.version('drawbar')}")
    verbs = top.add_subparsers(title="verbs", metavar="VERB", required=True)
    plugins = {point.name: point for point in metadata.entry_points(group=GROUP)}
    listed = sorted(VERBS | dict.fromkeys(plugins))
    for name in [words[0]] if words and words[0] in listed else listed:
        _add(verbs, plugins[name].load() if name in plugins else _load(VERBS[name]))
    return top


def _load(place: str) -> command.Command:
    """Import `module:NAME`, or the `COMMAND` of a module."""
    module, _, name = place.partition(":")
    verb: command.Command = getattr(importlib.import_module(module), name or "COMMAND")
    return verb


def _add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", verb: command.Command) -> None:
    examples = "\n".join(f"  {line}" for line in verb.examples)
    sub = verbs.add_parser(
        verb.name,
        help=verb.help,
        description=verb.description or verb.help,
        epilog=f"examples:\n{examples}" if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verb.configure(sub)
    sub.set_defaults(command=verb)


if __name__ == "__main__":
    sys.exit(main())
