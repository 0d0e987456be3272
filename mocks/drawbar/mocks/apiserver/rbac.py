"""Authorization by the stored RBAC objects, and the callers.

``Authorizer`` resolves a user's rules once and keeps them until one of the four RBAC collections changes. Limits: no
aggregated ClusterRoles, and no checks against escalation, so a user who may write roles may grant any right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from drawbar.mocks.apiserver.resources import RBAC_GROUP
from drawbar.mocks.apiserver.storage import Store

Json = dict[str, Any]
NODE_NAME = "authentication.kubernetes.io/node-name"
MASTERS = "system:masters"
_COLLECTIONS = ("clusterroles", "clusterrolebindings", "roles", "rolebindings")
_CACHE_LIMIT = 20_000  # users with cached rules; beyond this the cache is cleared
_ASKED_LIMIT = 10_000  # different permissions in the record


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """An authenticated caller."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}), hash=False)

    @property
    def node(self) -> str:
        """Return the node that a service account token is bound to, or an empty string."""
        names = self.extra.get(NODE_NAME, ())
        return names[0] if len(names) == 1 and self.name.startswith("system:serviceaccount:") else ""


ANONYMOUS = User(name="system:anonymous", groups=("system:unauthenticated",))
ADMIN = User(name="kubernetes-admin", groups=(MASTERS, "system:authenticated"))


def service_account(namespace: str, name: str, *, node: str = "") -> User:
    """Return the caller of a service account's token; ``node`` is its pod's node."""
    extra = {NODE_NAME: (node,)} if node else {}
    return User(
        name=f"system:serviceaccount:{namespace}:{name}",
        groups=("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"),
        extra=MappingProxyType(extra),
    )


def account_of(name: str) -> tuple[str, str] | None:
    """Return the namespace and name of a user name's service account, or None."""
    parts = name.split(":")
    if len(parts) != 4 or parts[:2] != ["system", "serviceaccount"]:
        return None
    return parts[2], parts[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A permission required by a caller, regardless of the object's name and namespace."""

    user: str
    verb: str
    group: str
    resource: str
    allowed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """A caller's intended action; ``path`` replaces the resource for non-resource URLs."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def full_resource(self) -> str:
        """Return ``resource/subresource``, or the bare resource."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def refusal(user: User, wanted: Attributes) -> str:
    """Return the reason of a refusal, in the words of the real server."""
    if wanted.path:
        return f'User "{user.name}" cannot {wanted.verb} path "{wanted.path}"'
    scope = f'in the namespace "{wanted.namespace}"' if wanted.namespace else "at the cluster scope"
    return (
        f'User "{user.name}" cannot {wanted.verb} resource "{wanted.full_resource}" '
        f'in API group "{wanted.group}" {scope}'
    )


def rule_allows(rule: Json, wanted: Attributes) -> bool:
    """Return true if one rule of a role allows the action."""
    verbs = rule.get("verbs") or ()
    if "*" not in verbs and wanted.verb not in verbs:
        return False
    if wanted.path:
        return any(_url_matches(url, wanted.path) for url in rule.get("nonResourceURLs") or ())
    groups = rule.get("apiGroups") or ()
    if "*" not in groups and wanted.group not in groups:
        return False
    full = wanted.full_resource
    if not any(_resource_matches(name, full, wanted.subresource) for name in rule.get("resources") or ()):
        return False
    names = rule.get("resourceNames") or ()
    return not names or wanted.name in names


def _resource_matches(name: str, full: str, subresource: str) -> bool:
    return name in ("*", full) or (bool(subresource) and name == f"*/{subresource}")


def _url_matches(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


class Authorizer:
    """Decisions by the stored roles and bindings.

    Attributes:
        asked: the permissions required so far by callers other than administrators, and the decisions.
    """

    def __init__(self, store: Store) -> None:
        """Use the rules in ``store`` at the time of each decision."""
        self.asked: set[Asked] = set()
        self._store = store
        self._seen: tuple[int, ...] = ()
        self._rules: dict[tuple[User, str], list[Json]] = {}

    def allows(self, user: User, wanted: Attributes) -> bool:
        """Return true if the caller may do it."""
        if MASTERS in user.groups:
            return True
        allowed = any(rule_allows(rule, wanted) for rule in self.rules(user, wanted.namespace))
        if len(self.asked) < _ASKED_LIMIT and not wanted.path:
            self.asked.add(
                Asked(
                    user=user.name,
                    verb=wanted.verb,
                    group=wanted.group,
                    resource=wanted.full_resource,
                    allowed=allowed,
                )
            )
        return allowed

    def rules(self, user: User, namespace: str) -> list[Json]:
        """Return every rule of a caller in a namespace (empty: cluster-wide only)."""
        seen = tuple(self._store.collection((RBAC_GROUP, name)).changed for name in _COLLECTIONS)
        if seen != self._seen or len(self._rules) >= _CACHE_LIMIT:
            self._seen, self._rules = seen, {}
        resolved = self._rules.get((user, namespace))
        if resolved is None:
            resolved = self._rules[user, namespace] = list(self._resolve(user, namespace))
        return resolved

    def _resolve(self, user: User, namespace: str) -> Iterable[Json]:
        for binding in self._items("clusterrolebindings"):
            if _binds(binding, user, ""):
                yield from self._role_rules("", binding["roleRef"])
        if namespace:
            for binding in self._items("rolebindings"):
                if binding["metadata"]["namespace"] == namespace and _binds(binding, user, namespace):
                    yield from self._role_rules(namespace, binding["roleRef"])

    def _items(self, plural: str) -> list[Json]:
        return list(self._store.collection((RBAC_GROUP, plural)).items.values())

    def _role_rules(self, namespace: str, reference: Json) -> list[Json]:
        cluster = reference.get("kind") == "ClusterRole"
        plural, where = ("clusterroles", "") if cluster else ("roles", namespace)
        role = self._store.collection((RBAC_GROUP, plural)).items.get((where, reference.get("name", "")))
        return list(role.get("rules") or ()) if role is not None else []


def _binds(binding: Json, user: User, namespace: str) -> bool:
    for subject in binding.get("subjects") or ():
        match subject.get("kind"):
            case "User" if subject.get("name") == user.name:
                return True
            case "Group" if subject.get("name") in user.groups:
                return True
            case "ServiceAccount":
                home = subject.get("namespace") or namespace
                if user.name == f"system:serviceaccount:{home}:{subject.get('name')}":
                    return True
    return False


def _bootstrap_role(name: str, *rules: Json) -> Json:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
        "rules": list(rules),
    }


def _bootstrap_binding(name: str, *groups: str) -> Json:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "Group", "apiGroup": RBAC_GROUP, "name": group} for group in groups],
    }


_INFO = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_EVERYTHING = (
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
)
BOOTSTRAP_ROLES = (
    _bootstrap_role("cluster-admin", *_EVERYTHING),
    _bootstrap_role(
        "system:discovery",
        {
            "nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_INFO],
            "verbs": ["get"],
        },
    ),
    _bootstrap_role("system:public-info-viewer", {"nonResourceURLs": _INFO, "verbs": ["get"]}),
    _bootstrap_role(
        "system:basic-user",
        {
            "apiGroups": ["authorization.k8s.io"],
            "resources": ["selfsubjectaccessreviews"],
            "verbs": ["create"],
        },
        {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
    ),
)
BOOTSTRAP_BINDINGS = (
    _bootstrap_binding("cluster-admin", MASTERS),
    _bootstrap_binding("system:discovery", "system:authenticated"),
    _bootstrap_binding("system:basic-user", "system:authenticated"),
    _bootstrap_binding("system:public-info-viewer", "system:authenticated", "system:unauthenticated"),
)
