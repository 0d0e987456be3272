"""The API server's reviews: a user's identity and rights. Nothing is stored.

Source: Kubernetes "Authenticating" (TokenReview, SelfSubjectReview), "Authorization Overview" (SubjectAccessReview,
SelfSubjectAccessReview).
"""

import re
from collections.abc import Mapping
from typing import Any

from drawbar.driver.api import meta
from drawbar.driver.kube import client, kinds

TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,16384}")
"""A bearer token; RFC 6750, section 2.1."""


class User(meta.Struct, frozen=True):
    """A user of the API server."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class Verdict(meta.Struct, frozen=True):
    """The status of a review.

    Attributes:
        allowed: of an access review.
        authenticated: of a TokenReview.
        user: of a TokenReview.
        user_info: of a SelfSubjectReview.
    """

    allowed: bool = False
    authenticated: bool = False
    user: User = User()
    user_info: User = User()


class _Review(meta.Struct, frozen=True):
    status: Verdict = Verdict()


async def ask(api: client.Client, kind: kinds.Kind, spec: Mapping[str, Any] | None = None) -> Verdict:
    """Return the API server's verdict.

    Args:
        api: the client.
        kind: the kind of review.
        spec: the question; None for a kind without one.

    Raises:
        errors.KubeError: there is none.
    """
    body: dict[str, Any] = {"apiVersion": kind.api_version, "kind": kind.kind}
    if spec is not None:
        body["spec"] = spec
    return (await api.create(kind, body, into=_Review)).status


async def find_username(api: client.Client) -> str:
    """Return the client's user by the API server's name; empty if there is none.

    Raises:
        errors.KubeError: the API server does not tell.
    """
    return (await ask(api, kinds.SELF_REVIEW)).user_info.username


async def may(api: client.Client, attributes: Mapping[str, str]) -> bool:
    """Return whether the client's user may do something, given as the resource attributes of an access review.

    Raises:
        errors.KubeError: the API server does not tell.
    """
    return (await ask(api, kinds.SELF_ACCESS_REVIEW, {"resourceAttributes": attributes})).allowed
