"""`drawbar completion`: the script for a shell, and the words that it offers. `names` finds the names of objects."""

import argparse
import sys
from collections.abc import Collection, Sequence

import msgspec

from drawbar.driver.cli import command, flags, objects

PROGRAM = "kubectl_complete-drawbar"
"""The program that prints the words for a command line; kubectl calls it by this name for its plugin `drawbar`."""
NO_FILES, NO_FILES_NO_SPACE = ":4", ":6"
"""The last line of its output, which tells kubectl to add no names of files, and no space either."""
_BASH = f"""\
_drawbar() {{
    local words
    words=$({PROGRAM} "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null | sed '$d')
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
    [[ ${{#COMPREPLY[@]}} != 1 || ${{COMPREPLY[0]}} != */ ]] || compopt -o nospace 2>/dev/null
}}
complete -o default -F _drawbar drawbar
"""
SCRIPTS = {
    "bash": _BASH,
    "zsh": f"autoload -U +X bashcompinit && bashcompinit\n{_BASH}",
    "fish": (
        f"complete -c drawbar -a '({PROGRAM} (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null | string match -v "
        '":*")\'\n'
    ),
}


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The objects whose names are offered for the last word.

    Attributes:
        kind: one of `objects.KINDS` and `objects.SPECIAL_KINDS`.
        before: the part of the word in front of the name, such as `pod/`.
        start: the typed part of the name.
    """

    kind: str
    before: str
    start: str


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """A command line that is being typed.

    Attributes:
        known: the actions of the innermost parser.
        expects_value: the flag whose value is the last word.
        objects: the typed words that name objects.
        current: the last word.
    """

    known: Sequence[argparse.Action]
    expects_value: argparse.Action | None
    objects: Sequence[str]
    current: str

    @property
    def kinds(self) -> Collection[str]:
        """Return the kinds of objects that the verb accepts."""
        return next((action.kinds for action in self.known if isinstance(action, objects.TargetAction)), ())


def _read(parser: argparse.ArgumentParser, words: Sequence[str]) -> _Line:
    *typed, current = words or ("",)
    known = actions(parser)
    expects_value: argparse.Action | None = None
    named: list[str] = []
    for word in typed:
        is_value, expects_value = expects_value is not None, None
        if word.startswith("-"):
            flag = next((action for action in known if word in action.option_strings), None)
            expects_value = flag if flag is not None and flag.nargs not in (0, "?") else None
            continue
        below = [
            action.choices[word]
            for action in known
            if isinstance(action, argparse._SubParsersAction) and word in action.choices  # noqa: SLF001 - there is no public name
        ]
        if below and not is_value:
            known = actions(below[0])
        elif not is_value:
            named.append(word)
    return _Line(known=known, expects_value=expects_value, objects=named, current=current)


def candidates(parser: argparse.ArgumentParser, words: Sequence[str]) -> tuple[str, ...]:
    """Return the candidates for the last word, without the names of objects.

    Args:
        parser: the program's parser.
        words: the words after the program's name; the last is being typed and may be empty.
    """
    line = _read(parser, words)
    if line.expects_value is not None:
        choices = line.expects_value.choices or (flags.FORMS if line.expects_value.dest == "output" else ())
        offered = [str(choice) for choice in choices]
    else:
        offered = [
            str(choice)
            for action in line.known
            if not action.option_strings
            for choice in action.choices or ()
        ]
        if len(line.kinds) > 1 and "/" not in line.current and not line.objects:
            offered += [f"{kind}/" for kind in line.kinds]
        is_object = line.kinds and not line.objects
        if line.current.startswith("-") or not (offered or is_object):
            offered += [
                option for action in line.known for option in action.option_strings if len(option) > 2
            ]
    return tuple(dict.fromkeys(word for word in offered if word.startswith(line.current)))


def find_wanted(parser: argparse.ArgumentParser, words: Sequence[str]) -> Wanted | None:
    """Return the objects whose names are offered for the last word, as KIND/NAME, KIND NAME or NAME; None for no names."""
    line = _read(parser, words)
    current = line.current
    if line.expects_value is not None:
        is_fabric = line.expects_value.dest == "fabric"
        return Wanted(kind="fabric", before="", start=current) if is_fabric else None
    if current.startswith("-"):
        return None
    word, slash, start = current.partition("/")
    kind = objects.find_kind(word if slash else line.objects[-1] if line.objects else "")
    if kind in line.kinds:
        before = f"{word}/" if slash else ""
        return Wanted(kind=kind, before=before, start=start if slash else current)
    if len(line.kinds) == 1:
        return Wanted(kind=next(iter(line.kinds)), before="", start=current)
    return None


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
    help="print the completion script for a shell",
    description=(
        "Prints a script for a shell, in which Tab then completes verbs, options, their values, and KIND/NAME from the cluster.\n"
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
