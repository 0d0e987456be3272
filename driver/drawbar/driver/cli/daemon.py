"""The verbs that run a daemon, show its settings, or ask a running daemon for its state."""

import argparse
import functools
import importlib
import logging
import sys
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec

from drawbar.driver import errors, logs, supervision
from drawbar.driver.cli import command
from drawbar.driver.configuration import loader
from drawbar.driver.operation import address

log = logging.getLogger(__name__)


class Settings(Protocol):
    """The settings of a daemon."""

    @property
    def log(self) -> logs.Options:
        """Return the options of the log."""
        ...


T = TypeVar("T", bound=Settings)


class Probes(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The target of the request of `--check`.

    Attributes:
        endpoint: returns the address of probes and metrics, or None if none is served; raises `errors.UsageError`.
        located_by: the flags that determine the address.
    """

    endpoint: Callable[[T], address.Endpoint | None]
    located_by: str


class Daemon(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A daemon that a verb runs.

    Attributes:
        settings: the dataclass of its settings.
        problems: lists the mistakes in the settings.
        module: the module with the coroutine function `run(settings)`; imported late, since it takes 60 MB.
        probes: None for a daemon without `--check`.
        huge_pages: whether the kernel may give the process transparent huge pages, which take more memory.
    """

    settings: type[T]
    problems: Callable[[T], list[str]]
    module: str
    probes: Probes[T] | None = None
    huge_pages: bool = True


def verb(
    daemon: Daemon[T], name: str, *, summary: str, description: str, examples: tuple[str, ...]
) -> command.Command:
    """Return the verb that runs a daemon; `summary` is its line in the list of verbs."""
    return command.Command(
        name=name,
        help=summary,
        description=description,
        configure=functools.partial(_configure, daemon),
        run=functools.partial(_execute, daemon),
        examples=examples,
    )


def _configure(daemon: Daemon[T], parser: argparse.ArgumentParser) -> None:
    loader.add_flags(parser, daemon.settings)
    actions = parser.add_argument_group("instead of running")
    actions.add_argument(
        "--print-config", action="store_true", help="show each setting and where it comes from"
    )
    actions.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="of --print-config")
    if daemon.probes is not None:
        actions.add_argument(
            "--check",
            nargs="?",
            const="ready",
            choices=("ready", "alive"),
            help="ask the daemon with these settings whether it is ready (default) or alive; for exec probes",
        )


def _execute(daemon: Daemon[T], args: argparse.Namespace) -> int:
    loaded = loader.load(daemon.settings, args, problems=daemon.problems)
    if args.print_config:
        sys.stdout.write((loader.as_json if args.output == "json" else loader.as_yaml)(loaded.effective))
        loaded.validate()
        return 0
    if daemon.probes is not None and args.check:
        return _check(daemon.probes, loaded.settings, args.check)
    return _serve(daemon, loaded)


def _check(probes: Probes[T], options: T, what: str) -> int:
    # Only the address matters here; the daemon reports other mistakes.
    endpoint = probes.endpoint(options)
    if endpoint is None:
        raise errors.UsageError(
            "--http-address is off, so there is no address to ask: leave --check out, or serve probes"
        )
    page = "/readyz" if what == "ready" else "/healthz"
    verdict = address.ask(endpoint, page, settings=probes.located_by)
    sys.stdout.write(f"{verdict.text}\n")
    return 0 if verdict.good else 1


def _serve(daemon: Daemon[T], loaded: loader.Loaded[T]) -> int:
    options = loaded.validate()
    if not daemon.huge_pages:
        supervision.refuse_huge_pages()
    run = importlib.import_module(daemon.module).run
    logs.configure(options.log.format, options.log.level)
    for name in loaded.ignored:
        log.warning("an environment variable looks like a setting, but is not one", extra={"variable": name})
    return supervision.run(run(options))
