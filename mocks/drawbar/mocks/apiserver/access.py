"""Whether the caller of a request may do what it asks."""

from __future__ import annotations

from drawbar.mocks.apiserver import errors, listing, rbac
from drawbar.mocks.apiserver.visits import Visit


def check(authorizer: rbac.Authorizer, visit: Visit, verb: str = "") -> None:
    """Refuse what RBAC does not allow; ``verb`` asks for another verb than the request's own.

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
        raise errors.forbidden(target.plural, target.group, name, text)
