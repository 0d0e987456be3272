"""Puts the settings together: default, then file, then environment, then flags; the later wins."""

import argparse
import dataclasses
import os
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from drawbar.driver import errors
from drawbar.driver.configuration import filetree, schema, values

T = TypeVar("T")

DEFAULT = "default"
FILE_VARIABLE = f"{schema.PREFIX}CONFIG"
# What Kubernetes puts into every container for a Service named drawbar-something.
_OF_A_SERVICE = re.compile(rf"{schema.PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT|PORT)(_\w+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One effective setting.

    Attributes:
        source: `default`, `FILE:LINE`, the name of a variable, or a flag.
    """

    option: schema.Option
    value: Any
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Generic[T]):
    """All settings of a daemon.

    Attributes:
        settings: the dataclass that was asked for.
        effective: each setting with its source, in the order of the fields.
        problems: a sentence for each value that is of the right type and still wrong; see `checked`.
        ignored: variables that look like settings and are none.
    """

    settings: T
    effective: tuple[Setting, ...]
    problems: tuple[str, ...]
    ignored: tuple[str, ...]

    def checked(self) -> T:
        """The settings.

        Raises:
            errors.UsageError: something is wrong; the message lists all of it.
        """
        refuse(self.problems)
        return self.settings


def refuse(problems: Sequence[str]) -> None:
    """Ends with all problems at once, if there are any.

    Raises:
        errors.UsageError: there are.
    """
    if len(problems) == 1:
        raise errors.UsageError(problems[0])
    if problems:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise errors.UsageError(f"{len(problems)} settings are wrong:{listed}")


def load(
    settings: type[T],
    arguments: argparse.Namespace,
    *,
    problems: Callable[[T], Sequence[str]],
    environ: Mapping[str, str] = os.environ,
) -> Loaded[T]:
    """Reads file, environment and flags.

    Args:
        settings: a dataclass whose fields all have defaults.
        arguments: parsed by a parser that `flags.add` has completed.
        problems: judges the values once all are of the right type.
        environ: the process's environment.

    Raises:
        errors.UsageError: a value is of the wrong type, a key is unknown, or the file cannot be read.
    """
    options = schema.options(settings)
    wrong: list[str] = []
    effective = {
        option.key: Setting(option=option, value=option.default, source=DEFAULT) for option in options
    }
    for source in (
        _from_file(options, arguments, environ, wrong),
        _from_environment(options, environ, wrong),
    ):
        effective |= {found.option.key: found for found in source}
    effective |= {found.option.key: found for found in _from_flags(options, arguments, wrong)}
    refuse(wrong)
    made: T = _made(settings, {setting.option.path: setting.value for setting in effective.values()}, ())
    return Loaded(
        settings=made,
        effective=tuple(effective.values()),
        problems=tuple(_located(sentence, tuple(effective.values())) for sentence in problems(made)),
        ignored=tuple(_ignored(options, environ)),
    )


def _from_file(
    options: Sequence[schema.Option],
    arguments: argparse.Namespace,
    environ: Mapping[str, str],
    wrong: list[str],
) -> Iterator[Setting]:
    name = getattr(arguments, "config", None) or environ.get(FILE_VARIABLE)
    if not name:
        return
    found, problems = filetree.read(Path(name), options)
    wrong += problems
    for option in options:
        if option.key in found:
            one = found[option.key]
            yield Setting(option=option, value=one.value, source=f"{name}:{one.line}")


def _from_environment(
    options: Sequence[schema.Option], environ: Mapping[str, str], wrong: list[str]
) -> Iterator[Setting]:
    for option in options:
        # An empty variable is one that is not set: manifests often leave them so.
        name = next((name for name in option.variables if environ.get(name)), None)
        if name is not None:
            yield from _parsed(option, environ[name], name, wrong)


def _from_flags(
    options: Sequence[schema.Option], arguments: argparse.Namespace, wrong: list[str]
) -> Iterator[Setting]:
    for option in options:
        given = getattr(arguments, option.key, None)
        if isinstance(given, bool):
            yield Setting(option=option, value=given, source=option.flag)
        elif given is not None:
            text = ",".join(given) if isinstance(given, list) else given
            yield from _parsed(option, text, option.flag, wrong)


def _parsed(option: schema.Option, text: str, source: str, wrong: list[str]) -> Iterator[Setting]:
    try:
        yield Setting(option=option, value=values.parse(text, option.kind), source=source)
    except ValueError as error:
        wrong.append(f"{source}: {error}")


def _made(settings: Any, found: Mapping[tuple[str, ...], Any], path: tuple[str, ...]) -> Any:
    kinds = typing.get_type_hints(settings)
    content = {}
    for field in dataclasses.fields(settings):
        here = (*path, field.name)
        content[field.name] = found[here] if here in found else _made(kinds[field.name], found, here)
    return settings(**content)


def _located(sentence: str, effective: Sequence[Setting]) -> str:
    """The sentence, with where the value comes from if the name in it does not say so."""
    words = set(re.findall(r"[\w.-]+", sentence))
    for setting in effective:
        if _names(setting.option) & words:
            known = setting.source == DEFAULT or setting.source in words
            return sentence if known else f"{sentence} (set by {setting.source})"
    return sentence


def _names(option: schema.Option) -> set[str]:
    """What a sentence may call it; a field's name only if it is no plain word."""
    field = option.path[-1]
    names = {option.flag, option.key if option.topic.key else "", field if "_" in field else ""}
    return names - {""}


def _ignored(options: Sequence[schema.Option], environ: Mapping[str, str]) -> Iterator[str]:
    known = {name for option in options for name in option.variables} | {FILE_VARIABLE}
    for name in sorted(environ):
        if name.startswith(schema.PREFIX) and name not in known and not _OF_A_SERVICE.fullmatch(name):
            yield name
