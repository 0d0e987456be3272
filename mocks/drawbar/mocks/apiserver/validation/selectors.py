"""Rules of device selectors: CEL expressions of requests, device classes and taint rules.

An expression must parse, and use only ``device``. Types and costs are not checked further.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver import celchecks, errors, expressions
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.validation import lists

Json = dict[str, Any]

DEVICE: Json = {
    "type": "object",
    "properties": {
        "driver": {"type": "string"},
        "attributes": {"additionalProperties": True},
        "capacity": {"additionalProperties": True},
        "allowMultipleAllocations": {"type": "boolean"},
    },
}
MAX_SELECTORS = 32
MAX_EXPRESSION_BYTES = 10 * 1024


def validate(items: list[Json], path: str) -> Iterator[Cause]:
    """Yield every rule broken by a list of selectors."""
    yield from lists.check_each(items, path, _selector, limit=MAX_SELECTORS)


def _selector(item: Json, path: str) -> Iterator[Cause]:
    if item.get("cel") is None:
        yield errors.required_value(f"{path}.cel")
        return
    yield from expression(item["cel"].get("expression") or "", f"{path}.cel.expression")


def expression(text: str, path: str) -> Iterator[Cause]:
    """Yield a problem if a CEL expression is too long or does not compile."""
    if len(text.encode()) > MAX_EXPRESSION_BYTES:
        yield errors.too_long(path, MAX_EXPRESSION_BYTES)
        return
    problem = expressions.problem(text) or celchecks.problem(text, {"device": DEVICE})
    if problem is not None:
        yield errors.invalid_value(path, text, f"compilation failed: {problem}")
