"""CEL expressions: cached compilation, and evaluation with Kubernetes' extensions.

The evaluator supports plain CEL. This module adds Kubernetes' extensions: optional fields and indexes
(``object.?spec.?nodeName.orValue('')``, rewritten by ``optionals``), the string, list, set and math functions,
``quantity`` and its comparisons, ``semver`` and ``isSemver``, ``find`` and ``findAll``.

Limits: no ``authorizer``, ``ip``, ``cidr`` and ``url`` libraries, two-variable comprehensions, ``cel.bind`` and
``optMap``, no check of types before evaluation, no budget of costs. An expression with an unsupported function fails
at evaluation, with a message that names it.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from drawbar.mocks.apiserver import optionals, quantities
from drawbar.mocks.cellibrary import cel, stdlib

Json = dict[str, Any]
_FAILURES = (KeyError, TypeError, ValueError, RuntimeError, OverflowError, IndexError, ZeroDivisionError)
_SEMVER = re.compile(
    r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z.-]+)?$"
)


class EvaluationError(Exception):
    """An expression cannot be evaluated with these variables; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A program, the words of its text, and the extension functions among them."""

    program: Any
    words: frozenset[str]
    functions: Mapping[str, Callable[..., Any]]


@functools.lru_cache(maxsize=2048)
def _compile(text: str) -> _Compiled:
    plain = optionals.rewrite_optionals(text)
    words = frozenset(re.findall(r"[A-Za-z_]\w*", plain))
    functions = {**stdlib.STDLIB_FUNCTIONS, **_FUNCTIONS}
    called = {name: functions[name] for name in functions if name.rpartition(".")[2] in words}
    return _Compiled(cel.compile(plain), words, MappingProxyType(called))


def problem(text: str) -> str | None:
    """Return the problem of an expression's syntax, or None."""
    try:
        _compile(text)
    except ValueError as error:
        return str(error).splitlines()[0]
    return None


class Scope:
    """The variables of several expressions.

    The library converts the variables of each evaluation, which takes the most time of it. Here expressions that need
    the same ones share the conversion.
    """

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self.variables = variables
        self._contexts: dict[tuple[frozenset[str], frozenset[str]], Any] = {}

    def evaluate(self, text: str) -> Any:
        """Return the value of an expression.

        Raises:
            EvaluationError: it does not parse, or fails with these variables.
        """
        try:
            compiled = _compile(text)
            return compiled.program.execute(self._context(compiled))
        except KeyError as error:
            raise EvaluationError(f"no such key: {error.args[0] if error.args else error}") from error
        except _FAILURES as error:
            raise EvaluationError(
                str(error).splitlines()[0] if str(error) else type(error).__name__
            ) from error

    def _context(self, compiled: _Compiled) -> Any:
        needed = compiled.words.intersection(self.variables)
        key = needed, frozenset(compiled.functions)
        if key not in self._contexts:
            named = {name: self.variables[name] for name in needed}
            self._contexts[key] = cel.Context(named, {**compiled.functions})
        return self._contexts[key]


def evaluate(text: str, variables: Mapping[str, Any]) -> Any:
    """Return the value of one expression; see `Scope.evaluate`."""
    return Scope(variables).evaluate(text)


def _number(amount: Fraction) -> float | int:
    return amount.numerator if amount.denominator == 1 else float(amount)


def _quantity(text: str) -> float | int:
    """Return a quantity as a plain number, so that comparisons are those of numbers."""
    return _number(quantities.value(text))


def _is_quantity(text: Any) -> bool:
    try:
        quantities.value(text)
    except ValueError:
        return False
    return True


def _semver_key(text: str) -> tuple[int, int, int]:
    match = _SEMVER.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no semantic version")
    return int(match.group(1)), int(match.group(2)), int(match.group(3))


def _compare(left: Any, right: Any) -> int:
    if isinstance(left, str) and isinstance(right, str):
        left, right = _semver_key(left), _semver_key(right)
    return int(left > right) - int(left < right)


def _semver(text: str) -> str:
    _semver_key(text)
    return text


def _format_text(text: str, values: list[Any]) -> str:
    return re.sub(r"%[sd]", "{}", text.replace("{", "{{").replace("}", "}}")).format(*values)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    optionals.SELECT: optionals.select,
    "find": lambda text, pattern: (re.search(pattern, text) or [""])[0],
    "findAll": lambda text, pattern: [match.group(0) for match in re.finditer(pattern, text)],
    "sum": sum,
    "isSorted": lambda items: all(a <= b for a, b in itertools.pairwise(items)),
    "lastIndexOf": lambda text, part: text.rfind(part),
    "includes": lambda items, item: item in items,
    "format": _format_text,
    "quantity": _quantity,
    "isQuantity": _is_quantity,
    "isInteger": lambda number: float(number).is_integer(),
    "asInteger": int,
    "asApproximateFloat": float,
    "sign": lambda number: (number > 0) - (number < 0),
    "isGreaterThan": lambda left, right: _compare(left, right) > 0,
    "isLessThan": lambda left, right: _compare(left, right) < 0,
    "compareTo": _compare,
    "semver": _semver,
    "isSemver": lambda text: bool(_SEMVER.match(text)),
    "major": lambda text: _semver_key(text)[0],
    "minor": lambda text: _semver_key(text)[1],
    "patch": lambda text: _semver_key(text)[2],
}
