"""CEL expressions: cached compilation, and evaluation with Kubernetes' extensions.

The evaluator supports plain CEL. This module adds Kubernetes' extensions: optional fields and indexes
(``object.?spec.?nodeName.orValue('')``, rewritten by ``optionals``), the string, set and math functions, and ``sum``.

Limits: no libraries of quantities, versions, addresses and regular expressions, two-variable comprehensions,
``cel.bind`` and ``optMap``, no check of types before evaluation, no budget of costs. An expression with an unsupported
function fails at evaluation, with a message that names it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from drawbar.mocks.apiserver import optionals
from drawbar.mocks.cellibrary import cel, stdlib

Json = dict[str, Any]
_FAILURES = (KeyError, TypeError, ValueError, RuntimeError, OverflowError, IndexError, ZeroDivisionError)


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


# Of Kubernetes' extensions, those in policies and definitions of the tests. An evaluation with another one fails.
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {optionals.SELECT: optionals.select, "sum": sum}
