"""Errors in a CEL expression found before its evaluation: unknown names.

A real server checks the types of a whole expression. This module finds only common mistakes: an undeclared variable, a
field outside the schema, and a single field of the wrong type. The evaluation finds the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from drawbar.mocks.apiserver import optionals

Json = dict[str, Any]
_MACROS = frozenset(
    ["all", "bind", "exists", "exists_one", "existsOne", "filter", "map", "optFlatMap", "optMap", "sortBy"]
)
_NAMESPACES = frozenset(["base64", "cel", "format", "lists", "math", "optional", "sets", "strings"])
_LITERALS = frozenset(["true", "false", "null", "in"])
_TYPES = frozenset(
    ["bool", "bytes", "double", "dyn", "int", "list", "map", "null_type", "string", "type", "uint"]
)
_NAME = re.compile(r"^[A-Za-z_]\w*$")
_SCALARS = {"string": "string", "integer": "int", "number": "double", "boolean": "bool"}


def _record(**fields: Json) -> Json:
    return {"type": "object", "properties": fields}


_STRING: Json = {"type": "string"}
_KIND = _record(group=_STRING, version=_STRING, kind=_STRING)
_RESOURCE = _record(group=_STRING, version=_STRING, resource=_STRING)
_USER = _record(username=_STRING, uid=_STRING, groups={"type": "array"}, extra={"additionalProperties": True})
ADMISSION: Mapping[str, Json] = MappingProxyType(
    {
        **{name: {} for name in ("authorizer", "namespaceObject", "object", "oldObject", "params")},
        "request": _record(
            kind=_KIND,
            resource=_RESOURCE,
            subResource=_STRING,
            requestKind=_KIND,
            requestResource=_RESOURCE,
            requestSubResource=_STRING,
            name=_STRING,
            namespace=_STRING,
            operation=_STRING,
            userInfo=_USER,
            dryRun={"type": "boolean"},
            options={},
        ),
    }
)
"""The variables of admission policies. A request has no `object`, `oldObject` and `uid` there."""


def problem(
    text: str,
    variables: Mapping[str, Json],
    *,
    wanted: str = "bool",
    components: Mapping[str, Json] = MappingProxyType({}),
) -> str | None:
    """Return the problem of an expression over some variables, or None.

    Args:
        text: the expression, known to parse.
        variables: each variable's schema (as in a CustomResourceDefinition); an empty one allows everything.
        wanted: the required type of the expression; empty for any.
        components: the referenced schemas, as in an OpenAPI document.
    """
    tokens = list(optionals.tokens(text))
    bound = set(_find_macro_variables(tokens))
    for index, token in enumerate(tokens):
        if not _is_variable(tokens, index) or token in bound:
            continue
        if token not in variables:
            return f"ERROR: <input>:1:1: undeclared reference to '{token}' (in container '')"
        chain = list(_chain(tokens, index))
        schema, missing = _follow_chain(variables[token], chain, components)
        if missing:
            return f"ERROR: <input>:1:1: undefined field '{missing}'"
        kind = _SCALARS.get(str(schema.get("type") or ""), "")
        if wanted and index == 0 and len(tokens) == 1 + 2 * len(chain) and kind not in ("", wanted):
            return f"must evaluate to {wanted}"
    return None


def _find_macro_variables(tokens: list[str]) -> Iterator[str]:
    """Yield the variables of macros: the first argument of ``x.all(i, ...)``, and a second one if there is any."""
    for index, token in enumerate(tokens[:-2]):
        if token in _MACROS and tokens[index + 1] == "(" and _NAME.match(tokens[index + 2]):
            yield tokens[index + 2]
            if tokens[index + 3 : index + 6 : 2] == [",", ","]:
                yield tokens[index + 4]  # the second variable of a two-variable macro


def _is_variable(tokens: list[str], index: int) -> bool:
    token = tokens[index]
    if not _NAME.match(token) or token in _LITERALS | _TYPES | _NAMESPACES:
        return False
    before = tokens[index - 1] if index else ""
    after = tokens[index + 1] if index + 1 < len(tokens) else ""
    if before in (".", ".?") or after in ("(", "{"):
        return False
    return not (before in ("{", ",") and after == ":")  # a field of a message literal


def _chain(tokens: list[str], index: int) -> Iterator[str]:
    """Yield the fields selected from a variable, up to the first call or index."""
    while tokens[index + 1 : index + 2] in (["."], [".?"]) and index + 2 < len(tokens):
        if tokens[index + 3 : index + 4] == ["("]:
            return
        yield tokens[index + 2]
        index += 2


def _follow_chain(schema: Json, chain: list[str], components: Mapping[str, Json]) -> tuple[Json, str]:
    """Return the schema at the end of a chain, and the first missing field (empty if there is none)."""
    for name in chain:
        schema = _resolve_reference(schema, components)
        properties = schema.get("properties")
        if schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("additionalProperties"):
            return {}, ""
        if properties is None:
            return {}, name if schema.get("type") == "object" else ""
        if name not in properties:
            return {}, name
        schema = properties[name]
    return _resolve_reference(schema, components), ""


def _resolve_reference(schema: Json, components: Mapping[str, Json]) -> Json:
    """Return the schema behind a reference, with or without ``allOf`` around it; others unchanged."""
    (only,) = schema.get("allOf") or [schema]
    return components[only["$ref"].rpartition("/")[2]] if "$ref" in only else schema
