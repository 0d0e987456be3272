"""The doubles' verbs of the program `drawbar`, which finds them by the entry point group `drawbar.commands`."""

import argparse
import functools
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass

from drawbar.mocks import errors

Run = Callable[[argparse.Namespace], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A verb, with the attributes that the program reads.

    Attributes:
        name: the word after `drawbar`.
        help: one line for the list of verbs.
        configure: adds the verb's options to its parser.
        run: does the work and returns the exit status.
        description: a paragraph for the verb's own help; if empty, `help` is shown.
        examples: command lines, without a prompt.
        modules: modules of the extra `mocks` without which the verb does not work.
    """

    name: str
    help: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Run
    description: str = ""
    examples: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()

    def is_installed(self) -> bool:
        """Return true if the verb's modules are installed."""
        return all(importlib.util.find_spec(name) is not None for name in self.modules)


def explain_errors(run: Run) -> Run:
    """Return the function, with each MockError printed as one sentence on stderr and turned into its exit status."""

    @functools.wraps(run)
    def run_verb(args: argparse.Namespace) -> int:
        try:
            return run(args)
        except errors.MockError as error:
            sys.stderr.write(f"error: {error}\n")
            return error.exit_code

    return run_verb
