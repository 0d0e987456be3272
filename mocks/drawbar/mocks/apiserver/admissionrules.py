"""The matching of a write by an admission policy: operations, resources, names, and selectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from drawbar.mocks.apiserver.strategies import Call

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A write in admission.

    Attributes:
        call: the request.
        operation: ``CREATE``, ``UPDATE`` or ``DELETE``.
        new: the object to store; None on a deletion.
        old: the stored object; None on a creation.
    """

    call: Call
    operation: str
    new: Json | None
    old: Json | None

    @property
    def name(self) -> str:
        """Return the name of the object."""
        item = self.new or self.old or {}
        return str(self.call.name or (item.get("metadata") or {}).get("name") or "")

    def variables(self) -> Json:
        """Return ``object``, ``oldObject`` and ``request`` for expressions; empty fields of the request are absent."""
        call = self.call
        resource, version = call.resource, call.version
        kind = {"group": resource.group, "version": version, "kind": resource.kind}
        names = {"group": resource.group, "version": version, "resource": resource.plural}
        user = {
            "username": call.user.name,
            "uid": call.user.uid,
            "groups": list(call.user.groups),
            "extra": {key: list(values) for key, values in call.user.extra.items()},
        }
        request: Json = {
            "kind": kind,
            "requestKind": kind,
            "resource": names,
            "requestResource": names,
            "subResource": call.subresource,
            "requestSubResource": call.subresource,
            "name": self.name,
            "namespace": call.namespace,
            "operation": self.operation,
            "userInfo": _drop_empty(user),
            "dryRun": call.dry_run,
            "options": {
                "apiVersion": "meta.k8s.io/v1",
                "kind": f"{self.operation.capitalize()}Options",
                **({"dryRun": ["All"]} if call.dry_run else {}),
            },
        }
        request = _drop_empty(request)
        shown = [
            None if item is None else resource.convert_to_version(item, version)
            for item in (self.new, self.old)
        ]
        return {"object": shown[0], "oldObject": shown[1], "request": request}


def _drop_empty(fields: Json) -> Json:
    """Return the fields that are not empty. An API server omits the others when it encodes a request."""
    return {key: value for key, value in fields.items() if value or value is False}


def fits(attempt: Attempt, match: Json, namespace_labels: dict[str, str] | None) -> bool:
    """Return true if ``matchConstraints`` or ``matchResources`` match the write."""
    selector = match.get("namespaceSelector")
    if selector and namespace_labels is not None and not selects(selector, namespace_labels):
        return False
    selector = match.get("objectSelector")
    if selector and not any(
        selects(selector, (item.get("metadata") or {}).get("labels") or {})
        for item in (attempt.new, attempt.old)
        if item is not None
    ):
        return False
    if any(_rule_fits(attempt, rule) for rule in match.get("excludeResourceRules") or ()):
        return False
    rules = match.get("resourceRules")
    return not rules or any(_rule_fits(attempt, rule) for rule in rules)


def selects(selector: Json, labels: dict[str, str]) -> bool:
    """Return true if a label selector object selects the labels."""
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    return all(_is_met(need, labels.get(need["key"])) for need in selector.get("matchExpressions") or ())


def _is_met(need: Json, held: str | None) -> bool:
    match need.get("operator"):
        case "In":
            return held is not None and held in (need.get("values") or ())
        case "NotIn":
            return held is None or held not in (need.get("values") or ())
        case "Exists":
            return held is not None
        case _:
            return held is None


def _rule_fits(attempt: Attempt, rule: Json) -> bool:
    call = attempt.call
    resource = call.resource
    scope = rule.get("scope") or "*"
    if scope not in ("*", "Namespaced" if resource.namespaced else "Cluster"):
        return False
    names = rule.get("resourceNames") or []
    if names and attempt.name not in names:
        return False
    versions = rule.get("apiVersions") or []
    return (
        _any(rule.get("operations"), attempt.operation)
        and _any(rule.get("apiGroups"), resource.group)
        and ("*" in versions or any(version in versions for version in resource.versions))
        and any(_resource_fits(pattern, call) for pattern in rule.get("resources") or ())
    )


def _any(allowed: list[str] | None, value: str) -> bool:
    return "*" in (allowed or ()) or value in (allowed or ())


def _resource_fits(pattern: str, call: Call) -> bool:
    """Match ``pods``, ``pods/status``, ``*`` (no subresources), ``pods/*`` and ``*/status``.

    ``*/*`` matches everything.
    """
    plural, slash, subresource = pattern.partition("/")
    if plural not in ("*", call.resource.plural):
        return False
    return subresource in ("*", call.subresource) if slash else not call.subresource
