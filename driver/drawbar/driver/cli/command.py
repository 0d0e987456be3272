"""One verb of the `drawbar` program, as a value.

Each verb's module holds a `COMMAND`. The program's entry point builds its parser from these and calls
`run`; so a verb is found, described and tested without the others being imported.
"""

import argparse
import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A verb and how to run it.

    Attributes:
        name: what is typed after `drawbar`.
        help: one line for the list of verbs.
        configure: adds the verb's options to its parser; does no I/O.
        run: does the work and returns the exit status; raises `DrawbarError` for what a user can mend.
        description: a paragraph for the verb's own help; `help` stands in when it is empty.
        examples: command lines for the epilog, without a prompt.
    """

    name: str
    help: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    description: str = ""
    examples: tuple[str, ...] = ()
