"""CEL's optional syntax, rewritten into calls of one function.

The evaluator parses neither ``a.?b`` nor ``a[?b]``. Both give an optional value: the field or item, or none if it is
absent. Later selections are optional too, until ``orValue``, ``hasValue``, ``value`` or ``or`` ends the chain.
``a.?b.c[0].orValue('')`` becomes ``optSelect(optSelect(optSelect(a, "b"), "c"), 0).orValue('')``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from drawbar.mocks.cellibrary import cel

SELECT = "optSelect"
_TOKEN = re.compile(
    r"""\s*(?P<text>[rRbB]{0,2}(?:'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")
    |//[^\n]*|\.\?|\[\?|[A-Za-z_]\w*|\d[\w.]*(?:[eE][+-]?\d+)?|&&|\|\||[<>=!]=|.)""",
    re.VERBOSE | re.DOTALL,
)
_CLOSERS = (")", "]", "}")
_WORDS = frozenset(["in"])
_CLOSING = {"(": ")", "[": "]", "{": "}", "[?": "]"}


def select(value: Any, key: Any) -> Any:
    """Return a field or item as an optional value; for an optional value, that of its content."""
    if isinstance(value, cel.OptionalValue):
        if not value.has_value():
            return value
        value = value.value()
    if isinstance(value, dict) and key in value:
        return cel.OptionalValue.of(value[key])
    if isinstance(value, list) and isinstance(key, int) and 0 <= key < len(value):
        return cel.OptionalValue.of(value[key])
    return cel.OptionalValue.none()


def rewrite_optionals(text: str) -> str:
    """Return the expression without optional syntax; other text is unchanged.

    Raises:
        ValueError: brackets do not match.
    """
    if ".?" not in text and "[?" not in text:
        return text
    reader = _Reader(list(tokens(text)))
    result = reader.expression(until=())
    if reader.position < len(reader.tokens):
        raise ValueError(f"Syntax error: unexpected {reader.tokens[reader.position]!r}")
    return result


def tokens(text: str) -> Iterator[str]:
    """Yield the tokens of an expression, without comments."""
    for match in _TOKEN.finditer(text.strip()):
        token = match.group("text")
        if not token.startswith("//") and not token.isspace():
            yield token


class _Reader:
    """A reader of tokens that rewrites optional selections only."""

    def __init__(self, read: list[str]) -> None:
        """Start at the first token."""
        self.tokens = read
        self.position = 0

    def expression(self, *, until: tuple[str, ...]) -> str:
        """Return the text up to one of the closing tokens, which is not consumed."""
        parts: list[str] = []
        while self.position < len(self.tokens) and self.tokens[self.position] not in until:
            token = self.tokens[self.position]
            if token in _CLOSERS:
                break
            parts.append(self._operand() if self._starts_operand(token) else self._next())
        return " ".join(parts)

    def _starts_operand(self, token: str) -> bool:
        if token in ("(", "[", "{"):
            return True
        return token not in _WORDS and (token[0].isalnum() or token[0] in "_'\"")

    def _next(self) -> str:
        token = self.tokens[self.position]
        self.position += 1
        return token

    def _peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def _read_enclosed_text(self, opening: str) -> str:
        """Return the text between brackets; the opening one is already consumed."""
        inner = self.expression(until=(_CLOSING[opening],))
        if self._peek() != _CLOSING[opening]:
            raise ValueError(f"Syntax error: missing {_CLOSING[opening]!r}")
        self._next()
        return inner

    def _operand(self) -> str:
        token = self._next()
        text = f"{token}{self._read_enclosed_text(token)}{_CLOSING[token]}" if token in _CLOSING else token
        optional = False
        while True:
            match self._peek():
                case ".?":
                    self._next()
                    text, optional = f'{SELECT}({text}, "{self._name()}")', True
                case "[?":
                    text, optional = f"{SELECT}({text}, {self._read_enclosed_text(self._next())})", True
                case ".":
                    self._next()
                    name = self._name()
                    if self._peek() == "(":
                        text, optional = f"{text}.{name}({self._read_enclosed_text(self._next())})", False
                    else:
                        text = f'{SELECT}({text}, "{name}")' if optional else f"{text}.{name}"
                case "[":
                    inner = self._read_enclosed_text(self._next())
                    text = f"{SELECT}({text}, {inner})" if optional else f"{text}[{inner}]"
                case "(" | "{" as opening if token[0].isalpha() or token[0] == "_":
                    text = f"{text}{self._next()}{self._read_enclosed_text(opening)}{_CLOSING[opening]}"
                case _:
                    return text

    def _name(self) -> str:
        name = self._next() if self._peek() else ""
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise ValueError(f"Syntax error: {name!r} is no field name")
        return name
