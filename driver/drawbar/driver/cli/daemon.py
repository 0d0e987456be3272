"""What every verb that runs a daemon can do: run it, show its settings, ask the one that runs how it is."""

import argparse
import logging
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from drawbar.driver import errors, logs, supervision
from drawbar.driver.configuration import loader
from drawbar.driver.operation import address

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes(Generic[T]):
    """Where `--check` asks a daemon how it is.

    Attributes:
        problems: judges the address of probes and metrics.
        endpoint: that address, once it is known to be right; None where nobody is to be asked.
        located_by: the flags that decide on it.
    """

    problems: Callable[[T], list[str]]
    endpoint: Callable[[T], address.Endpoint | None]
    located_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon(Generic[T]):
    """A daemon as its verb sees it.

    Attributes:
        settings: the dataclass of its settings.
        problems: judges them all.
        log: how the log is to be.
        run: imports the daemon, which is 60 MB that `drawbar --help` need not pay for, and gives its work.
        probes: None for one that cannot be asked.
    """

    settings: type[T]
    problems: Callable[[T], list[str]]
    log: Callable[[T], logs.Options]
    run: Callable[[], Callable[[T], Coroutine[Any, Any, None]]]
    probes: Probes[T] | None = None


def configure(daemon: Daemon[T], parser: argparse.ArgumentParser) -> None:
    """Adds a flag for every setting, and what can be done instead of running."""
    loader.add_flags(parser, daemon.settings)
    actions = parser.add_argument_group("instead of running")
    actions.add_argument(
        "--print-config", action="store_true", help="show each setting and where it comes from"
    )
    actions.add_argument("--json", action="store_true", help="show them as JSON")
    if daemon.probes is not None:
        actions.add_argument(
            "--check",
            nargs="?",
            const="ready",
            choices=("ready", "alive"),
            help="ask the daemon that runs with these settings how it is (default: whether it is ready); "
            "for exec probes",
        )


def execute(daemon: Daemon[T], args: argparse.Namespace) -> int:
    """Does what the command line asks for and gives the exit status.

    Raises:
        errors.DrawbarError: something a user can mend.
    """
    loaded = loader.load(daemon.settings, args, problems=daemon.problems)
    if args.print_config:
        sys.stdout.write((loader.as_json if args.json else loader.as_yaml)(loaded.effective))
        loaded.checked()
        return 0
    if daemon.probes is not None and args.check:
        return _check(daemon.probes, loaded.settings, args.check)
    return _serve(daemon, loaded)


def _check(probes: Probes[T], options: T, what: str) -> int:
    # An address that is wrong, or no address at all, is said here; what else is wrong the daemon says.
    loader.refuse(probes.problems(options))
    endpoint = probes.endpoint(options)
    if endpoint is None:
        raise errors.UsageError(
            "--http-address is off, so nobody can be asked: leave --check out, or serve probes"
        )
    page = "/readyz" if what == "ready" else "/healthz"
    verdict = address.ask(endpoint, page, settings=probes.located_by)
    sys.stdout.write(f"{verdict.text}\n")
    return 0 if verdict.good else 1


def _serve(daemon: Daemon[T], loaded: loader.Loaded[T]) -> int:
    options = loaded.checked()
    run = daemon.run()
    form = daemon.log(options)
    logs.configure(form.format, form.level)
    for name in loaded.ignored:
        log.warning("an environment variable looks like a setting and is none", extra={"variable": name})
    return supervision.run(run(options))
