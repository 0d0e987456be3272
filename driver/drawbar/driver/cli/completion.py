"""`drawbar completion`: the script for a shell, and the words that it offers. No cluster is asked."""

import argparse
import sys
from collections.abc import Sequence

from drawbar.driver.cli import command, flags, objects

PROGRAM = "kubectl_complete-drawbar"
"""The program that prints the words for a command line; kubectl calls it by this name for its plugin `drawbar`."""
NO_FILES = ":4"
"""The last line of its output, which tells kubectl to add no names of files."""
_BASH = f"""\
_drawbar() {{
    local words
    words=$({PROGRAM} "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null | sed '$d')
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _drawbar drawbar
"""
SCRIPTS = {
    "bash": _BASH,
    "zsh": f"autoload -U +X bashcompinit && bashcompinit\n{_BASH}",
    "fish": (
        f"complete -c drawbar -a '({PROGRAM} (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null | string match -v "
        f'"{NO_FILES}")\'\n'
    ),
}


def candidates(parser: argparse.ArgumentParser, words: Sequence[str]) -> tuple[str, ...]:
    """Return the candidates for the last word.

    Args:
        parser: the program's parser.
        words: the words after the program's name; the last is being typed and may be empty.
    """
    *typed, current = words or ("",)
    known = actions(parser)
    expects_value: argparse.Action | None = None
    for word in typed:
        expects_value = next((action for action in known if word in action.option_strings), None)
        for action in known:
            if isinstance(action, argparse._SubParsersAction) and word in action.choices:  # noqa: SLF001 - there is no public name
                known = actions(action.choices[word])
    if expects_value is not None and expects_value.nargs not in (0, "?"):
        choices = expects_value.choices or (flags.FORMS if expects_value.dest == "output" else ())
        offered = [str(choice) for choice in choices]
    else:
        offered = [
            str(choice) for action in known if not action.option_strings for choice in action.choices or ()
        ]
        if any(action.dest == "target" for action in known) and "/" not in current:
            offered += [f"{kind}/" for kind in objects.KINDS]
        if current.startswith("-") or not offered:
            offered += [option for action in known for option in action.option_strings if len(option) > 2]
    return tuple(dict.fromkeys(word for word in offered if word.startswith(current)))


def actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the actions of the parser."""
    return parser._actions  # noqa: SLF001 - argparse has no public list of them


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="for which shell")


def run(args: argparse.Namespace) -> int:
    """Print the script and return the exit status."""
    with command.printing():
        sys.stdout.write(SCRIPTS[args.shell])
    return 0


COMMAND = command.Command(
    name="completion",
    help="print what completes the words of drawbar in a shell",
    description=(
        "Prints a script for a shell, in which Tab then completes verbs, options and their values; names of objects are not completed.\n"
        f"It calls {PROGRAM}, which is installed beside drawbar and which kubectl calls for `kubectl drawbar`."
    ),
    examples=(
        "source <(drawbar completion bash)",
        "drawbar completion zsh > ~/.drawbar-completion.zsh",
        "drawbar completion fish > ~/.config/fish/completions/drawbar.fish",
    ),
    configure=configure,
    run=run,
)
