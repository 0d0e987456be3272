"""Label and field selectors: parsing and matching, without I/O.

Labels support ``=``, ``==``, ``!=``, ``<``, ``>``, ``in``, ``notin``, existence and ``!``. Fields support ``=``,
``==`` and ``!=``, on a resource's declared fields. ``Selector.pin`` names one exact requirement, so that the watch hub
finds the interested watchers without asking every one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from drawbar.mocks.apiserver import errors

Json = dict[str, Any]
Operator = Literal["=", "!=", "in", "notin", "exists", "!", ">", "<"]
Pin = tuple[Literal["label", "field"], str, str]

_TOKEN = re.compile(r"\s*(==|!=|=|,|\(|\)|!|<|>|[^\s,()=!<>]+)")
_WHOLE = re.compile(r"^[+-]?\d{1,19}$")
_KEY = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
_VALUE = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One condition on one label or field; ``values`` is empty for ``exists`` and ``!``."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, value: str | None) -> bool:
        """Return true if a label's or field's value (None: absent) meets the condition."""
        match self.operator:
            case "=" | "in":
                return value is not None and value in self.values
            case "!=" | "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "!":
                return value is None
            case ">" | "<":
                return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        """Return true if a value is a whole number on the right side of the limit."""
        if value is None or not _WHOLE.match(value):
            return False
        limit = int(next(iter(self.values)))
        return int(value) > limit if self.operator == ">" else int(value) < limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """A conjunction of requirements on labels and on fields; a field's key is its dotted path."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, item: Json) -> bool:
        """Return true if an object fulfils every requirement."""
        if self.labels:
            labels = item["metadata"].get("labels") or {}
            if not all(need.matches(labels.get(need.key)) for need in self.labels):
                return False
        return all(need.matches(field_value(item, need.key)) for need in self.fields)

    @property
    def pin(self) -> Pin | None:
        """Return one requirement for a single value, fields first; None if there is none."""
        for need in self.fields:
            if need.operator == "=":
                return ("field", need.key, next(iter(need.values)))
        for need in self.labels:
            if need.operator == "=":
                return ("label", need.key, next(iter(need.values)))
        return None

    def exact_name(self) -> str | None:
        """Return the object name required by the field selector, or None."""
        for need in self.fields:
            if need.key == "metadata.name" and need.operator == "=":
                return next(iter(need.values))
        return None


def field_value(item: Json, path: str) -> str:
    """Return a selectable field's value by its dotted path; an empty string if it is absent."""
    value: Any = item
    for key in path.split("."):
        if not isinstance(value, dict):
            return ""
        value = value.get(key)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Parse a label selector.

    Raises:
        ApiError: 400, the selector is malformed.
    """
    tokens = _tokens(text)
    requirements: list[Requirement] = []
    position = 0
    while position < len(tokens):
        need, position = _label_requirement(text, tokens, position)
        requirements.append(need)
        if position < len(tokens):
            if tokens[position] != "," or position + 1 == len(tokens):
                raise _make_syntax_error(text)
            position += 1
    return tuple(requirements)


def parse_fields(text: str, paths: Mapping[str, str]) -> tuple[Requirement, ...]:
    """Parse a field selector; ``paths`` has each selectable field's dotted path in stored objects.

    Raises:
        ApiError: 400, the selector is malformed or names a field that cannot be selected.
    """
    requirements: list[Requirement] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = re.fullmatch(r"([^=!]+?)\s*(==|!=|=)\s*(.*)", part)
        if match is None:
            raise errors.bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        key, sign, value = match.groups()
        if key not in paths:
            raise errors.bad_request(f'field label not supported: "{key}"')
        operator: Operator = "!=" if sign == "!=" else "="
        requirements.append(Requirement(key=paths[key], operator=operator, values=frozenset([value])))
    return tuple(requirements)


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    stripped = text.rstrip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None:
            raise _make_syntax_error(text)
        tokens.append(match.group(1))
        position = match.end()
    return tokens


def _label_requirement(text: str, tokens: list[str], position: int) -> tuple[Requirement, int]:
    if tokens[position] == "!":
        if position + 1 >= len(tokens):
            raise _make_syntax_error(text)
        return Requirement(key=_key(text, tokens[position + 1]), operator="!"), position + 2
    key = _key(text, tokens[position])
    position += 1
    if position == len(tokens) or tokens[position] == ",":
        return Requirement(key=key, operator="exists"), position
    word = tokens[position]
    if word in ("=", "==", "!="):
        position += 1
        value = "" if position == len(tokens) or tokens[position] == "," else tokens[position]
        position += 1 if value else 0
        operator: Operator = "!=" if word == "!=" else "="
        return Requirement(key=key, operator=operator, values=frozenset([_value(text, value)])), position
    if word in ("<", ">"):
        value = tokens[position + 1] if position + 1 < len(tokens) else ""
        if not _WHOLE.match(value):
            raise _make_syntax_error(text)
        limit: Operator = "<" if word == "<" else ">"
        return Requirement(key=key, operator=limit, values=frozenset([value])), position + 2
    if word in ("in", "notin"):
        values, position = _value_set(text, tokens, position + 1)
        return Requirement(key=key, operator="in" if word == "in" else "notin", values=values), position
    raise _make_syntax_error(text)


def _value_set(text: str, tokens: list[str], position: int) -> tuple[frozenset[str], int]:
    if position >= len(tokens) or tokens[position] != "(" or ")" not in tokens[position:]:
        raise _make_syntax_error(text)
    end = tokens.index(")", position)
    inner = tokens[position + 1 : end]
    values = frozenset(_value(text, word) for word in inner[::2])
    if len(inner) % 2 == 0 or any(word != "," for word in inner[1::2]):
        raise _make_syntax_error(text)
    return values, end + 1


def _key(text: str, token: str) -> str:
    if not _KEY.match(token):
        raise _make_syntax_error(text)
    return token


def _value(text: str, token: str) -> str:
    if len(token) > 63 or not _VALUE.match(token):
        raise _make_syntax_error(text)
    return token


def _make_syntax_error(text: str) -> errors.ApiError:
    return errors.bad_request(
        f"unable to parse requirement: couldn't parse the selector string {errors.format_value(text)}"
    )
