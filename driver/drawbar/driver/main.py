"""The `drawbar` program: one verb, one module.

`GROUPS` lists the driver's verbs. Others (`mock`) are found through the entry point group `drawbar.commands`, so
that the driver never imports them and an image without them works. Only the chosen verb's module is imported,
except for `drawbar --help`, which needs a line of each.
"""

import argparse
import importlib
import logging
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from drawbar.driver import errors, output
from drawbar.driver.cli import command, completion, flags, shell

if TYPE_CHECKING:
    from importlib import metadata

GROUP = "drawbar.commands"
GROUPS: Mapping[str, Mapping[str, str]] = {
    "Look": {
        "status": "drawbar.driver.cli.verbs.status",
        "explain": "drawbar.driver.cli.verbs.explain",
        "doctor": "drawbar.driver.cli.verbs.doctor",
        "report": "drawbar.driver.cli.verbs.report",
        "ui": "drawbar.driver.cli.verbs.ui",
    },
    "Take out of service": {
        "maintenance": "drawbar.driver.cli.verbs.maintenance",
        "taint": "drawbar.driver.cli.verbs.taint",
        "move": "drawbar.driver.cli.verbs.move",
    },
    "Fabrics and hosts": {
        "fabric": "drawbar.driver.cli.verbs.fabric",
        "discover": "drawbar.driver.cli.discover",
    },
    "Daemons": {
        "controller": "drawbar.driver.cli.controller",
        "node": "drawbar.driver.cli.node",
        "webhook": "drawbar.driver.cli.webhook",
        "health-monitor": "drawbar.driver.cli.health_monitor",
    },
    "This program": {"completion": "drawbar.driver.cli.completion"},
}
DOUBLES = "Try it out"
"""The group of the verbs of other packages."""
VERBS = {name: module for verbs in GROUPS.values() for name, module in verbs.items()}
INTRODUCTION = """\
drawbar attaches PCIe and CXL devices of a fabric to the Kubernetes node that needs them.

usage: drawbar VERB [KIND/NAME] [flags]
"""
SHARED = """\
drawbar VERB --help shows the flags of a verb. Flags that verbs share may stand before the verb, too.

exit status of every verb: 0 fine; 1 trouble was found, or something was refused; 2 wrong usage; 3 not everything could be read;
130 interrupted.
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors end with the usage of the verb."""

    def error(self, message: str) -> NoReturn:
        """Print the error, the usage, the actions if none was named, and where help is; end with status 2."""
        choices = "".join(
            f"{action.metavar} is one of: {', '.join(action.choices)}\n"
            for action in completion.actions(self)
            if isinstance(action, argparse._SubParsersAction) and message.endswith(f": {action.metavar}")  # noqa: SLF001 - there is no public name
        )
        sys.stderr.write(f"error: {message}\n{self.format_usage()}{choices}{self.prog} --help shows more\n")
        self.exit(errors.ExitStatus.USAGE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit status. An error is one sentence on stderr."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with output.guard_output():
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        try:
            return _run(words)
        except errors.DrawbarError as error:
            sys.stderr.write(f"error: {_sentence(error)}\n")
            return error.exit_code
        except KeyboardInterrupt:
            return errors.ExitStatus.INTERRUPTED


def _run(words: Sequence[str]) -> int:
    words = verb_first(words)
    first = words[0] if words else "help"
    if first in ("version", "--version"):
        from importlib import metadata

        sys.stdout.write(f"drawbar {metadata.version('drawbar')}\n")
        return 0
    if first in ("help", "-h", "--help"):
        if named := [word for word in words[1:] if not word.startswith("-")]:
            return _run([*named, "--help"])
        sys.stdout.write(overview())
        return 0
    chosen, left = parser(words).parse_known_args(words)
    target = getattr(chosen, "target", None)
    if left and isinstance(target, list) and not any(word.startswith("-") for word in left):
        # argparse takes only adjacent words.
        target += left
    elif left:
        chosen.parser.error(f"unknown flag or word: {' '.join(left)}")
    shell.no_colours(chosen)
    verb: command.Command = chosen.command
    try:
        return verb.run(chosen)
    except errors.UsageError as error:
        # A daemon has too many flags for a usage line.
        if "context" not in chosen:
            raise
        raise errors.UsageError(f"{error}\n{chosen.parser.format_usage().strip()}") from error


def _sentence(error: errors.DrawbarError) -> str:
    """Return the error with its remedy."""
    from drawbar.driver.cli import remedies
    from drawbar.driver.kube import errors as kube_errors

    return remedies.sentence(error) if isinstance(error, kube_errors.KubeError) else str(error)


def verb_first(words: Sequence[str]) -> list[str]:
    """Return the words with the flags before the verb, or before its action, after these."""
    leading, rest = _split_flags(words)
    if not rest or any(flag in ("--version", "--help", "-h") for flag in leading):
        return list(words)
    verb, *rest = rest
    if _has_actions(verb):
        before, rest = _split_flags(rest)
        leading += before
        if rest and not any(flag in ("--help", "-h") for flag in before):
            return [verb, rest[0], *leading, *rest[1:]]
    return [verb, *leading, *rest]


def _split_flags(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the shared flags at the begin of the words, with their values, and the other words."""
    if not words or not words[0].startswith("-"):
        return [], list(words)
    shared = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for add in (flags.add_cluster, flags.add_driver, flags.add_daemons):
        add(shared)
    flags.add_listing(shared, "")
    flags.add_timeout(shared, 0.0)
    with_value = {
        option
        for action in completion.actions(shared)
        for option in action.option_strings
        if action.nargs != 0
    }
    index = 0
    while index < len(words) and words[index].startswith("-"):
        index += 2 if words[index] in with_value else 1
    return list(words[:index]), list(words[index:])


def _has_actions(verb: str) -> bool:
    """Return whether the word is a verb with actions."""
    if verb not in VERBS and verb not in _plugins():
        return False
    (verbs,) = (action for action in completion.actions(parser([verb])) if action.dest == "verb")
    own = completion.actions(dict(verbs.choices or {})[verb])
    return any(isinstance(action, argparse._SubParsersAction) for action in own)  # noqa: SLF001 - there is no public name


def overview() -> str:
    """Return the help of the program: its verbs in groups."""
    groups: dict[str, list[command.Command]] = {
        title: [verb for name in verbs if (verb := _find(name)) is not None]
        for title, verbs in GROUPS.items()
    }
    plugins = [verb for name in _plugins() if (verb := _find(name)) is not None]
    if plugins:
        groups[DOUBLES] = sorted(plugins, key=lambda verb: verb.name)
    width = max(len(verb.name) for verbs in groups.values() for verb in verbs)
    sections = [
        "".join([f"{title}:\n", *(f"  {verb.name:<{width}}  {verb.help}\n" for verb in verbs)])
        for title, verbs in groups.items()
    ]
    return "\n".join([INTRODUCTION, *sections, SHARED])


def complete(arguments: Sequence[str] | None = None) -> int:
    """Print the completions of the last word, for a shell or kubectl, and return the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    program = parser(words)
    offered = completion.candidates(program, words)
    wanted = completion.find_wanted(program, words)
    if wanted is not None:
        from drawbar.driver.cli import names

        offered += tuple(f"{wanted.before}{name}" for name in names.find(wanted, words[:-1]))
    is_open = bool(offered) and all(word.endswith("/") for word in offered)
    lines = (*offered, completion.NO_FILES_NO_SPACE if is_open else completion.NO_FILES)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of the verb that `words` begin with, or of all verbs."""
    top = _Parser(prog="drawbar", add_help=False)
    verbs = top.add_subparsers(title="verbs", metavar="VERB", dest="verb", required=True)
    if words and (words[0] in VERBS or words[0] in _plugins()):
        _add(verbs, _load(words[0]))
        return top
    for name in (*VERBS, *sorted(_plugins())):
        if (verb := _find(name)) is not None:
            _add(verbs, verb)
    return top


def _plugins() -> "dict[str, metadata.EntryPoint]":
    """Return the verbs of other packages by name."""
    # It takes tens of milliseconds, which the driver's own verbs do not need.
    from importlib import metadata

    return {point.name: point for point in metadata.entry_points(group=GROUP)}


def _find(name: str) -> command.Command | None:
    """Return a verb, or None if it does not work here."""
    try:
        return _load(name)
    except errors.UsageError:
        return None


def _load(name: str) -> command.Command:
    """Import the module of a verb and return the verb.

    Raises:
        errors.UsageError: the verb does not work here; the message names the remedy.
    """
    try:
        verb: command.Command = (
            importlib.import_module(VERBS[name]).COMMAND if name in VERBS else _plugins()[name].load()
        )
    except ModuleNotFoundError as error:
        if (error.name or "drawbar").partition(".")[0] == "drawbar":
            raise
        raise errors.UsageError(
            f"drawbar {name} works on Linux only; here Python has no module {error.name}: run it on a node"
        ) from error
    if not verb.is_installed():
        raise errors.UsageError(
            f"drawbar {name} needs packages that are not installed: pip install 'drawbar[mocks]'"
        )
    return verb


def _add(verbs: "argparse._SubParsersAction[_Parser]", verb: command.Command) -> None:
    examples = "\n".join(f"  {line}" for line in verb.examples)
    sub = verbs.add_parser(
        verb.name,
        help=verb.help,
        description=verb.description or verb.help,
        epilog=f"examples:\n{examples}" if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    sub.set_defaults(command=verb, parser=sub)
    verb.configure(sub)


if __name__ == "__main__":
    sys.exit(main())
