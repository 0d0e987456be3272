"""Errors of a CEL expression that are found before it is evaluated: names that do not exist.

A real server checks the types of a whole expression.  Here only what people get wrong is found: a variable
that is not declared, a field that the schema does not have, and an expression that is plainly one field of
another type than the one wanted.  Everything else shows when the expression is evaluated.
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
    """What is wrong with an expression over some variables, or None.

    Args:
        text: the expression, known to parse.
        variables: each variable's schema (as in a CustomResourceDefinition); an empty one tells nothing.
        wanted: the type that the expression must have; empty for any.
        components: what the schemas refer to, as in an OpenAPI document.
    """
    tokens = list(optionals.tokens(text))
    bound = set(_bound(tokens))
    for index, token in enumerate(tokens):
        if not _is_variable(tokens, index) or token in bound:
            continue
        if token not in variables:
            return f"ERROR: <input>:1:1: undeclared reference to '{token}' (in container '')"
        chain = list(_chain(tokens, index))
        schema, missing = _followed(variables[token], chain, components)
        if missing:
            return f"ERROR: <input>:1:1: undefined field '{missing}'"
        kind = _SCALARS.get(str(schema.get("type") or ""), "")
        if wanted and index == 0 and len(tokens) == 1 + 2 * len(chain) and kind not in ("", wanted):
            return f"must evaluate to {wanted}"
    return None


def _bound(tokens: list[str]) -> Iterator[str]:
    """The variables that macros bring in: the first argument of ``x.all(i, ...)``."""
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
    """The fields selected from a variable, up to the first call or index."""
    while tokens[index + 1 : index + 2] in (["."], [".?"]) and index + 2 < len(tokens):
        if tokens[index + 3 : index + 4] == ["("]:
            return
        yield tokens[index + 2]
        index += 2


def _followed(schema: Json, chain: list[str], components: Mapping[str, Json]) -> tuple[Json, str]:
    """The schema at the end of a chain, and the first field that does not exist."""
    for name in chain:
        schema = _resolved(schema, components)
        properties = schema.get("properties")
        if schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("additionalProperties"):
            return {}, ""
        if properties is None:
            return {}, name if schema.get("type") == "object" else ""
        if name not in properties:
            return {}, name
        schema = properties[name]
    return _resolved(schema, components), ""


def _resolved(schema: Json, components: Mapping[str, Json]) -> Json:
    """What a schema refers to, with or without words of its own beside it."""
    (only,) = schema.get("allOf") or [schema]
    return components[only["$ref"].rpartition("/")[2]] if "$ref" in only else schema
