"""The check of a caller's permission for a request."""

from __future__ import annotations

from drawbar.mocks.apiserver import errors, listing, rbac
from drawbar.mocks.apiserver.registry import Registry
from drawbar.mocks.apiserver.visits import Visit

SILENT_UNTIL = 31
"""The last minor release without a reason in the refusal of such an apply; 1.34 has one."""


def check(authorizer: rbac.Authorizer, visit: Visit, verb: str = "") -> None:
    """Refuse a request without permission from RBAC; ``verb`` replaces the request's own verb.

    Raises:
        ApiError: 403.
    """
    target = visit.target
    name = target.name
    if not name and visit.verb in ("list", "watch", "deletecollection"):
        name = listing.selector(visit.resource, visit.query).exact_name() or ""
    wanted = rbac.Attributes(
        verb=verb or visit.verb,
        group=target.group,
        resource=target.plural,
        subresource=target.subresource,
        namespace=target.namespace,
        name=name,
    )
    if not authorizer.allows(visit.user, wanted):
        text = rbac.refusal(visit.user, wanted)
        raise errors.forbidden_error(target.plural, target.group, name, text)


def check_create(registry: Registry, visit: Visit) -> None:
    """Refuse an apply that would create an object without the permission to create; until 1.31 without a reason.

    Raises:
        ApiError: 403.
    """
    try:
        check(registry.authorizer, visit, verb="create")
    except errors.ApiError as error:
        if registry.profile.minor > SILENT_UNTIL:
            raise
        target = visit.target
        raise errors.forbidden_error(target.plural, target.group, target.name, "") from error
