"""The user of a request: its bearer token, and impersonation.

Only tokens from this server are known; they never expire. There are no client certificates. The ``Impersonate-*``
headers need the ``impersonate`` permission for each named user, group, uid and extra.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from urllib.parse import unquote

from aiohttp import web

from drawbar.mocks.apiserver import errors, rbac
from drawbar.mocks.apiserver.rbac import Attributes, User

_EXTRA = "impersonate-extra-"
_AUTHENTICATION = "authentication.k8s.io"


def caller(request: web.Request, tokens: Mapping[str, User], authorizer: rbac.Authorizer) -> User:
    """Return the user of a request, after impersonation.

    Raises:
        ApiError: 401, the token is unknown; 403, the caller may not act as that user; 400, impersonation
            names no user.
    """
    return _impersonate(request, _authenticate(request, tokens), authorizer)


def _authenticate(request: web.Request, tokens: Mapping[str, User]) -> User:
    header = request.headers.get("Authorization", "")
    if not header:
        return rbac.ANONYMOUS
    scheme, _, token = header.partition(" ")
    user = tokens.get(token.strip()) if scheme.lower() == "bearer" else None
    if user is None:
        raise errors.unauthorized_error()
    return user


def _impersonate(request: web.Request, user: User, authorizer: rbac.Authorizer) -> User:
    headers = request.headers
    extra: dict[str, tuple[str, ...]] = {}
    for key, value in headers.items():
        if key.lower().startswith(_EXTRA):
            name = unquote(key[len(_EXTRA) :]).lower()
            extra[name] = (*extra.get(name, ()), value)
    name, uid = headers.get("Impersonate-User", ""), headers.get("Impersonate-Uid", "")
    groups = tuple(headers.getall("Impersonate-Group", []))
    if not name:
        if uid or groups or extra:
            raise errors.bad_request("requested impersonation of something, but of no user")
        return user
    for wanted in _needed_permissions(name, uid, groups, extra):
        if not authorizer.allows(user, wanted):
            text = rbac.refusal(user, wanted)
            raise errors.forbidden_error(wanted.resource, wanted.group, wanted.name, text)
    account = rbac.account_of(name)
    if account and not groups:
        groups = rbac.service_account(*account).groups
    plain = () if name == rbac.ANONYMOUS.name else ("system:authenticated",)
    held = (*groups, *(group for group in plain if group not in groups))
    return User(name=name, uid=uid, groups=held, extra=MappingProxyType(extra))


def _needed_permissions(
    name: str, uid: str, groups: tuple[str, ...], extra: Mapping[str, tuple[str, ...]]
) -> Iterator[Attributes]:
    """Yield the permissions required by an impersonation."""
    account = rbac.account_of(name)
    if account:
        yield Attributes(
            verb="impersonate", resource="serviceaccounts", namespace=account[0], name=account[1]
        )
    else:
        yield Attributes(verb="impersonate", resource="users", name=name)
    for group in groups:
        yield Attributes(verb="impersonate", resource="groups", name=group)
    if uid:
        yield Attributes(verb="impersonate", group=_AUTHENTICATION, resource="uids", name=uid)
    for key, values in extra.items():
        for value in values:
            yield Attributes(
                verb="impersonate",
                group=_AUTHENTICATION,
                resource="userextras",
                subresource=key,
                name=value,
            )
