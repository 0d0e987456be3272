"""The common frame of the verbs that talk to a cluster: quiet logs, one deadline, one way to connect, one way to print."""

import argparse
import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from drawbar.driver import errors
from drawbar.driver.cli import command, documents, objects

if TYPE_CHECKING:
    from rich import console

    from drawbar.driver.kube import client, sessions

_UNANSWERED = "the API server has not answered; --timeout allows more"
Work = Callable[[argparse.Namespace], Coroutine[Any, Any, int]]


def add_action(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]",
    command_line: str,
    help_text: str,
    act: Work,
    examples: Sequence[str],
) -> argparse.ArgumentParser:
    """Add an action to a verb with actions, and return its parser.

    Args:
        actions: the actions of the verb.
        command_line: the program, the verb and the action, such as `drawbar taint list`.
        help_text: one line for the list of actions.
        act: the action's own work.
        examples: the verb's examples; the help shows those of this action.
    """
    own = "\n".join(f"  {line}" for line in examples if line.startswith(command_line))
    parser = actions.add_parser(
        command_line.rpartition(" ")[2],
        help=help_text,
        description=f"{help_text[:1].upper()}{help_text[1:]}.",
        epilog=f"examples:\n{own}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(act=act, parser=parser)
    return parser


class Late(errors.DrawbarError):
    """The work did not end in time."""

    exit_code = errors.ExitStatus.UNREAD


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A connection to the cluster.

    Attributes:
        namespace: the namespace of claims and pods, from the command line, else the context, else `default`.
    """

    api: "client.Client"
    namespace: str

    def target(
        self, words: Sequence[str], kinds: Sequence[str] = tuple(objects.KINDS), **options: Any
    ) -> objects.Target:
        """Return the object that the words name; see `objects.parse`."""
        return objects.parse(words, self.namespace, kinds, **options)


def run(work: Work, args: argparse.Namespace, *, late: str = "") -> int:
    """Run the work within `--timeout` and return the exit status. Logs are off: an error is one sentence.

    Args:
        work: the verb's own work.
        args: the parsed command line.
        late: the remedy if the time is over.

    Raises:
        errors.DrawbarError: the work failed, or did not end in time.
    """
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with command.printing():
            return asyncio.run(_run_bounded(work, args, late))
    finally:
        logging.disable(before)


async def _run_bounded(work: Work, args: argparse.Namespace, late: str) -> int:
    limit = getattr(args, "timeout", None)
    try:
        async with asyncio.timeout(limit) as deadline:
            return await work(args)
    except TimeoutError as error:
        if not deadline.expired():
            raise
        raise (errors.DrawbarError if late else Late)(
            f"not finished within {limit:g} s: {late or _UNANSWERED}"
        ) from error


class Allowance:
    """The time of a verb that asks the user in between. The wait for the answer does not count."""

    def __init__(self, seconds: float) -> None:
        self._seconds = self._left = seconds

    @contextlib.asynccontextmanager
    async def spend(self, late: errors.DrawbarError | None = None) -> AsyncIterator[None]:
        """Bound the block by the remaining time.

        Args:
            late: the error if the time is over; without one, the API server has not answered.

        Raises:
            errors.DrawbarError: the time is over.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(self._left) as deadline:
                yield
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise late or Late(f"not finished within {self._seconds:g} s: {_UNANSWERED}") from error
        finally:
            self._left = max(0.0, self._left - (loop.time() - began))


def connection(args: argparse.Namespace) -> "sessions.Connection":
    """Return the connection that the flags select.

    Raises:
        errors.DrawbarError: there is none, or its login failed.
    """
    from drawbar.driver.kube import config

    chosen = config.load(args.kubeconfig, context=args.context)
    if args.as_groups and not args.as_user:
        raise errors.UsageError("--as-group goes with --as USER")
    if args.as_user:
        groups = [("Impersonate-Group", group) for group in args.as_groups or ()]
        chosen = msgspec.structs.replace(chosen, impersonation=(("Impersonate-User", args.as_user), *groups))
    return chosen


@contextlib.asynccontextmanager
async def connecting(args: argparse.Namespace) -> AsyncIterator[Session]:
    """Yield a session with the cluster that the flags name."""
    from drawbar.driver.kube import client

    chosen = connection(args)
    namespace = getattr(args, "namespace", None) or chosen.namespace or "default"
    async with client.connecting(chosen) as api:
        yield Session(api=api, namespace=namespace)


def driver(args: argparse.Namespace) -> str:
    """Return the name of the DRA driver."""
    from drawbar.driver.api import drivers

    name: str = args.driver_name or drivers.DEFAULT
    return name


def show(
    args: argparse.Namespace,
    kind: str,
    content: Mapping[str, Any] | Sequence[Any],
    table: "Callable[[console.Console], None]",
    *,
    names: Sequence[str] = (),
) -> None:
    """Print the content in the form of `--output`.

    Args:
        args: the parsed command line.
        kind: the kind of the document for programs.
        content: the content of that document.
        table: prints the same for people.
        names: KIND/NAME of the objects.
    """
    if documents.is_document(args.output):
        documents.write(args.output, kind, content, names=names)
    else:
        command.print_tables(table)


def no_colours(args: argparse.Namespace) -> None:
    """Print without colours if the flag says so."""
    if getattr(args, "no_color", False):
        os.environ["NO_COLOR"] = "1"
