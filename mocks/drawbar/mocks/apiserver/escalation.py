"""The checks against escalation on writes of roles and bindings: no user may grant a permission without holding it.

A role may contain only rules held by its author, unless the author may ``escalate`` roles. A binding may name only a
role whose rules its author holds, unless the author may ``bind`` it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver import errors, rbac
from drawbar.mocks.apiserver.rbac import Attributes
from drawbar.mocks.apiserver.resources import RBAC_GROUP
from drawbar.mocks.apiserver.strategies import Call

Json = dict[str, Any]
_ROLES = ("roles", "clusterroles")
_BINDINGS = ("rolebindings", "clusterrolebindings")


def check(authorizer: rbac.Authorizer, call: Call, item: Json, old: Json | None) -> None:
    """Refuse a role or binding that grants more than its author holds; other kinds pass.

    Raises:
        ApiError: 403.
    """
    resource = call.resource
    if resource.group != RBAC_GROUP or rbac.MASTERS in call.user.groups:
        return
    if resource.plural in _ROLES:
        if old is not None and item.get("rules") == old.get("rules"):
            return
        wanted = Attributes(
            verb="escalate",
            group=RBAC_GROUP,
            resource=resource.plural,
            namespace=call.namespace,
            name=call.name,
        )
        _demand(authorizer, call, wanted, item.get("rules") or [])
    elif resource.plural in _BINDINGS:
        if old is not None and all(item.get(key) == old.get(key) for key in ("subjects", "roleRef")):
            return
        reference = item.get("roleRef") or {}
        plural = "clusterroles" if reference.get("kind") == "ClusterRole" else "roles"
        wanted = Attributes(
            verb="bind",
            group=RBAC_GROUP,
            resource=plural,
            namespace=call.namespace,
            name=reference.get("name", ""),
        )
        _demand(authorizer, call, wanted, authorizer.role_rules(call.namespace, reference))


def _demand(authorizer: rbac.Authorizer, call: Call, wanted: Attributes, rules: list[Json]) -> None:
    if authorizer.allows(call.user, wanted):
        return
    held = authorizer.rules(call.user, call.namespace)
    missing = [rule for rule in rules if not all(_is_covered(held, piece) for piece in _pieces(rule))]
    if not missing:
        return
    groups = " ".join(f'"{group}"' for group in call.user.groups)
    listed = "\n".join(_format_rule(rule) for rule in missing)
    text = (
        f'user "{call.user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently '
        f"held:\n{listed}"
    )
    raise errors.forbidden_error(call.resource.plural, RBAC_GROUP, call.name, text)


def _pieces(rule: Json) -> Iterator[Json]:
    """Yield the rule in pieces of one verb, group, resource and name each."""
    for verb in rule.get("verbs") or ():
        for url in rule.get("nonResourceURLs") or ():
            yield {"verbs": [verb], "nonResourceURLs": [url]}
        kinds = itertools.product(
            rule.get("apiGroups") or (), rule.get("resources") or (), rule.get("resourceNames") or [""]
        )
        for group, resource, name in kinds:
            yield {"verbs": [verb], "apiGroups": [group], "resources": [resource], "resourceNames": [name]}


def _is_covered(held: list[Json], piece: Json) -> bool:
    return any(_covers(rule, piece) for rule in held)


def _covers(rule: Json, piece: Json) -> bool:
    """Return true if a held rule includes one piece of another."""
    if not _has_value(rule.get("verbs"), piece["verbs"][0]):
        return False
    if "nonResourceURLs" in piece:
        url = piece["nonResourceURLs"][0]
        return any(
            held == url or (held.endswith("*") and url.startswith(held[:-1]))
            for held in rule.get("nonResourceURLs") or ()
        )
    names, resource = rule.get("resourceNames") or [], piece["resources"][0]
    anywhere = f"*/{resource.partition('/')[2]}" if "/" in resource else "*"
    return (
        _has_value(rule.get("apiGroups"), piece["apiGroups"][0])
        and (_has_value(rule.get("resources"), resource) or anywhere in (rule.get("resources") or ()))
        and (not names or piece["resourceNames"][0] in names)
    )


def _has_value(held: list[str] | None, value: str) -> bool:
    return "*" in (held or ()) or value in (held or ())


def _format_rule(rule: Json) -> str:
    labels = (
        ("APIGroups", "apiGroups"),
        ("Resources", "resources"),
        ("ResourceNames", "resourceNames"),
        ("NonResourceURLs", "nonResourceURLs"),
        ("Verbs", "verbs"),
    )
    parts = [
        f"{label}:[{' '.join(f'{chr(34)}{value}{chr(34)}' for value in rule[key])}]"
        for label, key in labels
        if rule.get(key)
    ]
    return "{" + ", ".join(parts) + "}"
