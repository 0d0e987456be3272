"""Rules of node selectors (``v1.NodeSelector``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver import errors
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.validation import lists, names

Json = dict[str, Any]


def selector(value: Json, path: str) -> Iterator[Cause]:
    """Yield every rule broken by a node selector."""
    terms = value.get("nodeSelectorTerms") or []
    here = f"{path}.nodeSelectorTerms"
    if not terms:
        yield errors.required_value(here, "must have at least one node selector term")
    yield from lists.check_each(terms, here, _term)


def _term(term: Json, path: str) -> Iterator[Cause]:
    yield from lists.check_each(term.get("matchExpressions") or [], f"{path}.matchExpressions", _expression)
    yield from lists.check_each(term.get("matchFields") or [], f"{path}.matchFields", _field)


def _expression(need: Json, path: str) -> Iterator[Cause]:
    values, operator = need.get("values") or [], need.get("operator") or ""
    match operator:
        case "In" | "NotIn":
            if not values:
                text = "must be specified when `operator` is 'In' or 'NotIn'"
                yield errors.required_value(f"{path}.values", text)
        case "Exists" | "DoesNotExist":
            if values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield errors.forbidden_value(f"{path}.values", text)
        case "Gt" | "Lt":
            if len(values) != 1:
                text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                yield errors.required_value(f"{path}.values", text)
        case _:
            yield errors.invalid_value(f"{path}.operator", operator, "not a valid selector operator")
    yield from names.label_name(need.get("key") or "", f"{path}.key")
    for index, value in enumerate(values):
        yield from names.label_value(value, f"{path}.values[{index}]")


def _field(need: Json, path: str) -> Iterator[Cause]:
    """Yield the problems of a requirement on a node's fields; only the name can be selected."""
    values, operator = need.get("values") or [], need.get("operator") or ""
    if operator in ("In", "NotIn"):
        if len(values) != 1:
            text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            yield errors.required_value(f"{path}.values", text)
    else:
        yield errors.invalid_value(f"{path}.operator", operator, "not a valid selector operator")
    if need.get("key") != "metadata.name":
        yield errors.invalid_value(f"{path}.key", need.get("key") or "", "not a valid field selector key")
        return
    for index, value in enumerate(values):
        yield from names.subdomain(value, f"{path}.values[{index}]")
