"""Self reviews: what ``kubectl auth can-i`` and ``kubectl auth whoami`` ask."""

from __future__ import annotations

from typing import Any

from drawbar.mocks.apiserver import errors, rbac

Json = dict[str, Any]


def review(authorizer: rbac.Authorizer, user: rbac.User, plural: str, body: Json) -> Json:
    """The answer to a self review: the body with its status.

    Raises:
        ApiError: 400, the body names neither or both kinds of attributes.
    """
    spec = body.get("spec") or {}
    rest = {"metadata": {}, "spec": spec}
    match plural:
        case "selfsubjectaccessreviews":
            return {
                "kind": "SelfSubjectAccessReview",
                "apiVersion": "authorization.k8s.io/v1",
                **rest,
                "status": _access(authorizer, user, spec),
            }
        case "selfsubjectrulesreviews":
            return {
                "kind": "SelfSubjectRulesReview",
                "apiVersion": "authorization.k8s.io/v1",
                **rest,
                "status": _rules(authorizer, user, str(spec.get("namespace") or "")),
            }
        case _:
            info: Json = {"username": user.name, "groups": list(user.groups)}
            if user.extra:
                info["extra"] = {key: list(values) for key, values in user.extra.items()}
            return {
                "kind": "SelfSubjectReview",
                "apiVersion": "authentication.k8s.io/v1",
                "metadata": {},
                "status": {"userInfo": info},
            }


def _access(authorizer: rbac.Authorizer, user: rbac.User, spec: Json) -> Json:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if isinstance(resource, dict) == isinstance(path, dict):
        raise errors.bad_request("exactly one of resourceAttributes and nonResourceAttributes is required")
    if isinstance(resource, dict):
        wanted = rbac.Attributes(
            verb=str(resource.get("verb") or ""),
            group=str(resource.get("group") or ""),
            resource=str(resource.get("resource") or ""),
            subresource=str(resource.get("subresource") or ""),
            namespace=str(resource.get("namespace") or ""),
            name=str(resource.get("name") or ""),
        )
    else:
        assert isinstance(path, dict)
        wanted = rbac.Attributes(verb=str(path.get("verb") or ""), path=str(path.get("path") or ""))
    return {"allowed": authorizer.allows(user, wanted)}


def _rules(authorizer: rbac.Authorizer, user: rbac.User, namespace: str) -> Json:
    held = [rule for rule in authorizer.rules(user, namespace) if rule.get("verbs")]
    if rbac.MASTERS in user.groups:
        held = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    return {
        "resourceRules": [rule for rule in held if rule.get("resources")],
        "nonResourceRules": [rule for rule in held if rule.get("nonResourceURLs")],
        "incomplete": False,
    }
