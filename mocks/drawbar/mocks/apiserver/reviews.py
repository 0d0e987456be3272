"""Reviews: objects that are answered and never stored.

They answer questions about the caller, about permissions, and about tokens. TokenRequests issue a service account's
token. A token for a pod names the pod's node, as the kubelet's tokens do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from drawbar.mocks.apiserver import errors, outcomes, rbac
from drawbar.mocks.apiserver.rbac import User

Json = dict[str, Any]
Mint = Callable[[User], str]

AUTHORIZATION, AUTHENTICATION = "authorization.k8s.io/v1", "authentication.k8s.io/v1"
DEFAULT_TOKEN_SECONDS = 3600
MIN_TOKEN_SECONDS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """The answers to reviews: the rules, the known tokens, and the function for a new one."""

    authorizer: rbac.Authorizer
    tokens: Mapping[str, User]
    mint: Mint

    def review(self, user: User, plural: str, body: Json) -> Json:
        """Return the answer to a review: the body with its status.

        Raises:
            ApiError: 400, the body has no valid question.
        """
        spec = body.get("spec") or {}
        if not isinstance(spec, dict):
            raise errors.bad_request("the spec of a review must be an object")
        match plural:
            case "selfsubjectaccessreviews":
                answer = _access(self.authorizer, user, spec)
                return _make_review("SelfSubjectAccessReview", AUTHORIZATION, spec, answer)
            case "subjectaccessreviews":
                answer = _access(self.authorizer, _subject(spec), spec)
                return _make_review("SubjectAccessReview", AUTHORIZATION, spec, answer)
            case "tokenreviews":
                return _make_review("TokenReview", AUTHENTICATION, spec, self._token(spec))
            case _:
                return {
                    "kind": "SelfSubjectReview",
                    "apiVersion": AUTHENTICATION,
                    "metadata": {},
                    "status": {"userInfo": _info(user)},
                }

    def token(self, account: Json, pod: Json | None, body: Json, *, now: str) -> Json:
        """Return the answer to a TokenRequest for a service account, bound to a pod or unbound.

        Raises:
            ApiError: 422, the requested lifetime is too short.
        """
        spec = body.get("spec") or {}
        seconds = spec.get("expirationSeconds") or DEFAULT_TOKEN_SECONDS
        if seconds < MIN_TOKEN_SECONDS:
            text = "may not specify a duration less than 10 minutes"
            cause = errors.invalid_value("spec.expirationSeconds", seconds, text)
            raise errors.invalid_error("TokenRequest", "authentication.k8s.io", "", [cause])
        metadata = account["metadata"]
        node = ((pod or {}).get("spec") or {}).get("nodeName") or ""
        user = rbac.service_account(metadata["namespace"], metadata["name"], node=node)
        status = {"token": self.mint(user), "expirationTimestamp": outcomes.add_seconds(now, seconds)}
        spec = {"audiences": ["https://kubernetes.default.svc"], **spec, "expirationSeconds": seconds}
        names = {"name": metadata["name"], "namespace": metadata["namespace"], "creationTimestamp": now}
        return {**_make_review("TokenRequest", AUTHENTICATION, spec, status), "metadata": names}

    def _token(self, spec: Json) -> Json:
        user = self.tokens.get(str(spec.get("token") or ""))
        if user is None:
            return {"user": {}, "error": "[invalid bearer token, unknown]"}
        return {"authenticated": True, "user": _info(user), "audiences": ["https://kubernetes.default.svc"]}


def _make_review(kind: str, version: str, spec: Json, status: Json) -> Json:
    return {"kind": kind, "apiVersion": version, "metadata": {}, "spec": spec, "status": status}


def _info(user: User) -> Json:
    info: Json = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        info["uid"] = user.uid
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra.items()}
    return info


def _subject(spec: Json) -> User:
    groups = spec.get("groups") or []
    if not isinstance(groups, list) or not (spec.get("user") or groups):
        raise errors.bad_request("a review of another's access names a user or groups")
    return User(name=str(spec.get("user") or ""), groups=tuple(str(group) for group in groups))


def _access(authorizer: rbac.Authorizer, user: User, spec: Json) -> Json:
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
