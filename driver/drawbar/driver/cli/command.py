"""The verbs of the `drawbar` program as values, and their output.

Each verb's module holds a `COMMAND`. The program's entry point builds its parser from these and calls `run`. So a verb
can be described and tested without importing the others.
"""

import argparse
import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from drawbar.driver import output


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A verb of the program.

    Attributes:
        name: the word after `drawbar`.
        help: one line for the list of verbs.
        configure: adds the verb's options to its parser; does no I/O.
        run: does the work and returns the exit status; raises `DrawbarError` for mistakes of the user.
        description: a paragraph for the verb's own help; if empty, `help` is shown.
        examples: command lines for the epilog, without a prompt.
        modules: modules of the extra `mocks` without which the verb does not work.
    """

    name: str
    help: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    description: str = ""
    examples: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()

    def is_installed(self) -> bool:
        """Return true if the verb's modules are installed."""
        return all(importlib.util.find_spec(name) is not None for name in self.modules)


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """Flush the output at the end, and ignore that its reader has closed it."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # This keeps the interpreter from flushing the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_tables(show: Callable[[Any], None], *, wide: bool = False) -> None:
    """Call `show` with a `rich` console as wide as the terminal, or as a file if `wide`, and print its output."""
    from drawbar.driver.cli import tables

    is_narrow = sys.stdout.isatty() or "COLUMNS" in os.environ
    out = output.console(width=None if is_narrow and not wide else tables.WIDTH_IF_NO_TERMINAL)
    with out.capture() as shown:  # rich would end the process when the reader is gone
        show(out)
    out.file.write(shown.get())
