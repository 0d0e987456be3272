"""Settings dataclasses as a flat list of options.

A field of a topic gives one option; a field that is a dataclass itself is a topic. Names follow one rule, so that
you know all of them by one:

    field     health.link.hold_down_seconds     of nested dataclasses
    key       health.link.holdDownSeconds       in the file, nested in the same way
    variable  DRAWBAR_HEALTH_LINK_HOLD_DOWN     in capitals, without the unit
    flag      --health-interval SECONDS         the same in small letters; the unit is the word for the value

Topics within topics have no flags: there are many of them, and the others would be lost in the help. `name_setting` makes
exceptions, for names that were there first. The help of an option is its sentence in the `Attributes:` section of its class.

A setting is a `str`, `int`, `float`, `bool`, `pathlib.Path`, an `enum.StrEnum`, any of these or None, or a tuple of any
number of one of these. Text is read by the setting's type, wherever it comes from, so `off` is text for a setting that
is text and false for one that is a switch.
"""

import dataclasses
import enum
import inspect
import re
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

TRUE = frozenset({"true", "yes", "on", "1"})
FALSE = frozenset({"false", "no", "off", "0"})
NONE = frozenset({"", "null", "~"})


def is_list(kind: Any) -> bool:
    """Return whether values of this type are lists."""
    return typing.get_origin(kind) is tuple


def element_kind(kind: Any) -> Any:
    """Return the type of one value of a list."""
    return typing.get_args(kind)[0]


def is_optional(kind: Any) -> bool:
    """Return whether None is a value of this type."""
    return typing.get_origin(kind) in (types.UnionType, typing.Union) and type(None) in typing.get_args(kind)


def plain_kind(kind: Any) -> Any:
    """Return the type without its None."""
    if not is_optional(kind):
        return kind
    (plain,) = (member for member in typing.get_args(kind) if member is not type(None))
    return plain


def check_kind(kind: Any) -> None:
    """Check that a setting can be of this type.

    Raises:
        TypeError: it cannot; the program is at fault, not its user.
    """
    plain = plain_kind(kind)
    if is_list(plain):
        arguments = typing.get_args(plain)
        if len(arguments) != 2 or arguments[1] is not Ellipsis:
            raise TypeError(f"a list of settings is written tuple[X, ...], not {kind}")
        plain = element_kind(plain)
    if plain not in (str, int, float, bool, Path) and not _is_enum(plain):
        raise TypeError(f"a setting cannot be of type {kind}")


def describe_type(kind: Any) -> str:
    """Return the description of a value of this type, for a sentence."""
    kind = plain_kind(kind)
    if is_list(kind):
        return f"a list, each of them {describe_type(element_kind(kind))}"
    if _is_enum(kind):
        return f"one of {', '.join(kind)}"
    words = {
        str: "text",
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        Path: "a path",
    }
    return words[kind]


def parse(text: str, kind: Any) -> Any:
    """Return the value of a text; a list is written with commas.

    Raises:
        ValueError: it stands for none; the message is a clause such as `'x' is not a whole number`.
    """
    if is_optional(kind):
        return None if text in NONE else parse(text, plain_kind(kind))
    if is_list(kind):
        parts = [part.strip() for part in text.split(",")]
        return tuple(parse(part, element_kind(kind)) for part in parts if part)
    if kind is str:
        return text
    if kind is bool:
        return _switch(text)
    if kind is Path and not text:
        raise ValueError("is empty, not a path")
    try:
        return kind(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not {describe_type(kind)}") from error


def builtin(value: Any) -> Any:
    """Return the value in JSON's types."""
    if isinstance(value, tuple):
        return [builtin(element) for element in value]
    if isinstance(value, enum.Enum | Path):
        return str(value)
    return value


def _switch(text: str) -> bool:
    lowered = text.lower()
    if lowered in TRUE | FALSE:
        return lowered in TRUE
    raise ValueError(f"{text!r} is not {describe_type(bool)}")


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, enum.StrEnum)


PREFIX = "DRAWBAR_"
UNITS = ("seconds", "bytes", "percent")
# A topic and its field.
FLAG_DEPTH = 2
_NAMES = "drawbar.driver.configuration"
_ATTRIBUTE = re.compile(r"(\w+): +(\S.*)")


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """Names that do not follow the rule; empty ones do.

    Attributes:
        variables: further environment variables, after the one of the rule.
    """

    key: str = ""
    flag: str = ""
    metavar: str = ""
    variables: tuple[str, ...] = ()


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """A dataclass of settings; the outermost has an empty path and key."""

    path: tuple[str, ...]
    key: str
    help: str


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One setting and its names.

    Attributes:
        path: the fields that lead to it, from the outermost dataclass.
        key: its keys in the file, joined by dots.
        flag: empty where it has none.
        variables: its environment variables, the strongest first.
        kind: its type; see `values`.
        help: a sentence without its first capital.
    """

    path: tuple[str, ...]
    key: str
    flag: str
    metavar: str
    variables: tuple[str, ...]
    kind: Any
    default: Any
    help: str
    topic: Topic


def name_setting(
    *, key: str = "", flag: str = "", metavar: str = "", variables: tuple[str, ...] = ()
) -> Mapping[str, Names]:
    """Return the metadata of a `dataclasses.field` whose setting has names of its own."""
    return {_NAMES: Names(key=key, flag=flag, metavar=metavar, variables=variables)}


def options(settings: type) -> tuple[Option, ...]:
    """Return all settings of a dataclass and of those nested in it, in the order of the fields.

    Raises:
        TypeError: a field has a type that no setting can have, or no default.
    """
    return tuple(_options(settings(), Topic(path=(), key="", help=_summary(settings))))


def _options(defaults: Any, topic: Topic) -> Iterator[Option]:
    kinds = typing.get_type_hints(type(defaults))
    helps = attributes(type(defaults))
    for field in dataclasses.fields(defaults):
        kind, names = kinds[field.name], field.metadata.get(_NAMES, Names())
        path, key = (*topic.path, field.name), _join_key(topic.key, names.key or _camel(field.name))
        default = getattr(defaults, field.name)
        if dataclasses.is_dataclass(kind):
            # The owner of a topic sets its default, not the topic's class.
            nested = Topic(path=path, key=key, help=_summary(type(default)))
            yield from _options(default, nested)
            continue
        check_kind(kind)
        bare, unit = _split_unit(path)
        flag = names.flag or f"--{bare.replace('_', '-')}"
        variable = PREFIX + flag.removeprefix("--").replace("-", "_").upper()
        yield Option(
            path=path,
            key=key,
            flag=flag if len(path) <= FLAG_DEPTH else "",
            metavar=names.metavar or unit or _metavar(kind),
            variables=(variable, *names.variables),
            kind=kind,
            default=default,
            help=helps.get(field.name, ""),
            topic=topic,
        )


def _metavar(kind: Any) -> str:
    kind = plain_kind(kind)
    if is_list(kind):
        return f"{_metavar(element_kind(kind))},..."
    words = {str: "TEXT", int: "N", float: "NUMBER", bool: "BOOL"}
    return words.get(kind) or ("PATH" if not hasattr(kind, "__members__") else "{" + ",".join(kind) + "}")


def _join_key(topic: str, key: str) -> str:
    return f"{topic}.{key}" if topic else key


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _split_unit(path: tuple[str, ...]) -> tuple[str, str]:
    joined = "_".join(path)
    for unit in UNITS:
        if joined.endswith(f"_{unit}"):
            return joined.removesuffix(f"_{unit}"), unit.upper()
    return joined, ""


def _summary(settings: type) -> str:
    return (inspect.getdoc(settings) or "").split("\n", 1)[0]


def attributes(documented: type) -> dict[str, str]:
    """Return the texts in the `Attributes:` section of a Google-style docstring, by name."""
    _, heading, section = (inspect.getdoc(documented) or "").partition("Attributes:\n")
    texts: dict[str, str] = {}
    name = ""
    for line in section.splitlines() if heading else ():
        if line and not line.startswith("    "):
            break
        match = _ATTRIBUTE.fullmatch(line.removeprefix("    "))
        if match is not None:
            name, texts[match[1]] = match[1], match[2]
        elif line.strip() and name:
            texts[name] += f" {line.strip()}"
    return {name: text.rstrip(".") for name, text in texts.items()}
