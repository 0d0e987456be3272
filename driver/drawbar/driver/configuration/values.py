"""The types a setting may have, and how text becomes a value of one of them.

A setting is a `str`, `int`, `float`, `bool`, `pathlib.Path`, an `enum.StrEnum`, any of these or None, or a tuple of any
number of one of these. Text is read by the setting's type, wherever it comes from, so `off` is text for a setting that
is text and false for one that is a switch.
"""

import enum
import types
import typing
from pathlib import Path
from typing import Any

TRUE = frozenset({"true", "yes", "on", "1"})
FALSE = frozenset({"false", "no", "off", "0"})
NONE = frozenset({"", "null", "~"})


def is_list(kind: Any) -> bool:
    """Whether values of this type hold several."""
    return typing.get_origin(kind) is tuple


def element(kind: Any) -> Any:
    """The type of one value of a list."""
    return typing.get_args(kind)[0]


def is_optional(kind: Any) -> bool:
    """Whether None is a value of this type."""
    return typing.get_origin(kind) in (types.UnionType, typing.Union) and type(None) in typing.get_args(kind)


def plain(kind: Any) -> Any:
    """The type without its None."""
    if not is_optional(kind):
        return kind
    (found,) = (one for one in typing.get_args(kind) if one is not type(None))
    return found


def check(kind: Any) -> None:
    """Sees to it that a setting can be of this type.

    Raises:
        TypeError: it cannot; the program is at fault, not its user.
    """
    one = plain(kind)
    if is_list(one):
        arguments = typing.get_args(one)
        if len(arguments) != 2 or arguments[1] is not Ellipsis:
            raise TypeError(f"a list of settings is written tuple[X, ...], not {kind}")
        one = element(one)
    if one not in (str, int, float, bool, Path) and not _is_enum(one):
        raise TypeError(f"a setting cannot be of type {kind}")


def described(kind: Any) -> str:
    """What a value of this type is, for a sentence."""
    kind = plain(kind)
    if is_list(kind):
        return f"a list, each of them {described(element(kind))}"
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
    """The value that a piece of text stands for; a list is written with commas.

    Raises:
        ValueError: it stands for none; the message is a clause such as `'x' is not a whole number`.
    """
    if is_optional(kind):
        return None if text in NONE else parse(text, plain(kind))
    if is_list(kind):
        parts = [part.strip() for part in text.split(",")]
        return tuple(parse(part, element(kind)) for part in parts if part)
    if kind is str:
        return text
    if kind is bool:
        return _switch(text)
    if kind is Path and not text:
        raise ValueError("is empty, not a path")
    try:
        return kind(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not {described(kind)}") from error


def builtin(value: Any) -> Any:
    """The value as JSON has it."""
    if isinstance(value, tuple):
        return [builtin(one) for one in value]
    if isinstance(value, enum.Enum | Path):
        return str(value)
    return value


def _switch(text: str) -> bool:
    lowered = text.lower()
    if lowered in TRUE | FALSE:
        return lowered in TRUE
    raise ValueError(f"{text!r} is not {described(bool)}")


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, enum.StrEnum)
