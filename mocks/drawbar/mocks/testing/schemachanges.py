"""Whether a CustomResourceDefinition may follow another one: what of the change an upgrade or a rollback would not survive.

Drawbar promises both between one version and the next (docs/install.md). Helm leaves the CRDs of an upgrade in place when
it rolls back, so the newer definition must do for both programs:

- every object that the older one let in must be let in by the newer one, keep all its fields, and mean the same;
- every object that the newer one lets in must be readable by a program that was written for the older one.

The judgement is by the words of the schemas and errs on the strict side: a pattern or a rule that is merely another one
counts as narrower, since they cannot be compared. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Json = Mapping[str, Any]

# By word whether more lets in more.
_LIMITS = {
    "maximum": 1,
    "maxLength": 1,
    "maxItems": 1,
    "maxProperties": 1,
    "minimum": -1,
    "minLength": -1,
    "minItems": -1,
    "minProperties": -1,
}
# What narrows by being there, and cannot be compared with another of its kind.
_CHECKS = ("pattern", "format", "multipleOf", "uniqueItems", "exclusiveMinimum", "exclusiveMaximum", "not")
_CHECKS_OF_MANY = ("allOf", "anyOf", "oneOf")
# What decides how an object is kept and merged; in the words of the API and what their absence means.
_KEEPING = {
    "x-kubernetes-list-type": "atomic",
    "x-kubernetes-list-map-keys": None,
    "x-kubernetes-map-type": "granular",
    "x-kubernetes-preserve-unknown-fields": False,
    "x-kubernetes-int-or-string": False,
    "x-kubernetes-embedded-resource": False,
}


def incompatible(before: Json, after: Json) -> tuple[str, ...]:
    """What of a change would break, each in a sentence with its place; empty where one may follow the other.

    Args:
        before: a CustomResourceDefinition, as in a file.
        after: the one of the next version.
    """
    return tuple(_of_definition(before["spec"], after["spec"]))


def _of_definition(before: Json, after: Json) -> Iterator[str]:
    for word in ("group", "scope"):
        if before[word] != after[word]:
            yield f"{word} was {before[word]}, is {after[word]}"
    for word in ("kind", "plural"):
        if before["names"][word] != after["names"][word]:
            yield f"{word} was {before['names'][word]}, is {after['names'][word]}"
    versions = {version["name"]: version for version in after["versions"]}
    for old in before["versions"]:
        new = versions.get(old["name"])
        if new is None:
            yield f"version {old['name']} is gone, and objects are stored in it"
        else:
            yield from (f"{old['name']}: {text}" for text in _of_version(old, new))


def _of_version(before: Json, after: Json) -> Iterator[str]:
    if before["served"] and not after["served"]:
        yield "is not served any more"
    for name in before.get("subresources", {}).keys() - after.get("subresources", {}).keys():
        yield f"the subresource {name} is gone"
    selectable = [
        {field["jsonPath"] for field in side.get("selectableFields", ())} for side in (before, after)
    ]
    for path in sorted(selectable[0] - selectable[1]):
        yield f"{path} cannot be selected any more"
    yield from _of_schema(before["schema"]["openAPIV3Schema"], after["schema"]["openAPIV3Schema"], "")


def _of_schema(before: Json, after: Json, path: str) -> Iterator[str]:
    """Of one place of the schema and everything below it."""
    for text in (*_kinds(before, after), *_values(before, after), *_rules(before, after)):
        yield f"{path or 'the object'}: {text}"
    yield from _members(before, after, path)
    if "items" in before and "items" in after:
        yield from _of_schema(before["items"], after["items"], f"{path}[]")
    yield from _others(before, after, path)


def _kinds(before: Json, after: Json) -> Iterator[str]:
    if before.get("type") != after.get("type"):
        yield f"type was {before.get('type')}, is {after.get('type')}"
    if before.get("nullable", False) != after.get("nullable", False):
        yield "may be null in one of the two alone"
    for word, usual in _KEEPING.items():
        if before.get(word, usual) != after.get(word, usual):
            yield f"{word} was {before.get(word, usual)}, is {after.get(word, usual)}"
    if before.get("default") != after.get("default"):
        yield f"an absent one meant {before.get('default')!r}, means {after.get('default')!r}"


def _values(before: Json, after: Json) -> Iterator[str]:
    for word, direction in _LIMITS.items():
        old, new = before.get(word), after.get(word)
        if new is not None and (old is None or (new - old) * direction < 0):
            yield f"{word} was {old}, is {new}"
    old, new = before.get("enum"), after.get("enum")
    if old is None or new is None:
        if old != new:
            yield "the list of values is in one of the two alone"
        return
    for value in old:
        if value not in new:
            yield f"the value {value} is refused now"
    for value in new:
        if value not in old:
            yield f"the value {value} is new, and the version before does not know it"


def _rules(before: Json, after: Json) -> Iterator[str]:
    for word in _CHECKS:
        if word in after and after[word] != before.get(word):
            yield f"{word} was {before.get(word)}, is {after[word]}"
    for word in _CHECKS_OF_MANY:
        if after.get(word) != before.get(word):
            yield f"{word} is another one"
    present = {" ".join(rule["rule"].split()) for rule in before.get("x-kubernetes-validations", ())}
    for rule in after.get("x-kubernetes-validations", ()):
        if " ".join(rule["rule"].split()) not in present:
            yield f"the rule is new: {rule['rule']}"


def _members(before: Json, after: Json, path: str) -> Iterator[str]:
    properties = after.get("properties", {})
    for name, old in before.get("properties", {}).items():
        here = f"{path}.{name}"
        if name in properties:
            yield from _of_schema(old, properties[name], here)
        else:
            yield f"{here}: it is gone, and what is stored in it would be dropped"
    required = [set(side.get("required", ())) for side in (before, after)]
    for name in sorted(required[1] - required[0]):
        if "default" not in properties.get(name, {}):
            yield f"{path}.{name}: it is required now, and stored objects may lack it"
    for name in sorted(required[0] - required[1]):
        yield f"{path}.{name}: it may be absent now, and the version before needs it"


def _others(before: Json, after: Json, path: str) -> Iterator[str]:
    """The members of a map: any name, one schema."""
    old, new = (side.get("additionalProperties", False) for side in (before, after))
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        yield from _of_schema(old, new, f"{path}.*")
    elif old != new:
        yield f"{path or 'the object'}: other members are allowed in one of the two alone"
