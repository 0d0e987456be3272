"""The one request of an attach or detach; pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from drawbar.fabric import errors
from drawbar.fabric.redfish import documents, restoring


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action of a resource; it carries the ETag in its body.

    Attributes:
        etag_parameter: the name of the parameter.
    """

    resource_uri: str
    etag_parameter: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request that changes the fabric.

    Attributes:
        method: of HTTP.
        uri: of the resource, collection or action.
        body: None without one.
        etag: the ETag of the reading; the resource must not have changed since.
        is_shared: whether other devices of the host are in the resource too; then they are checked afterwards.
        hint: the probable reason if the service refuses it; empty if unknown.
        change: the array that the request sets; None for a request without one, after which nothing is restored.
        action: the action of the request; None for a change of the resource itself.
    """

    method: str
    uri: str
    body: documents.Json | None = None
    etag: str | None = None
    is_shared: bool = False
    hint: str = ""
    change: restoring.Change | None = None
    action: Action | None = None

    def prepare_change(self, etag: str | None) -> tuple[documents.Json | None, str | None]:
        """Return the body and the header If-Match of the request that carries this ETag."""
        if self.action is None or self.body is None:
            return self.body, etag
        return ({**self.body, self.action.etag_parameter: etag} if etag else self.body), None


def set_array(document: documents.Document, change: restoring.Change, unread: Mapping[str, str]) -> Call:
    """Return the request that sets an array which several devices share.

    Args:
        document: with the array.
        change: of the array.
        unread: see `views.View`.

    Raises:
        Unavailable: the array is not shown whole, so the request would drop the others.
    """
    if document.uri in unread:
        raise errors.Unavailable(
            f"{unread[document.uri]}, and a change of the part would drop the others; look at the service",
            reason="NOT_READ",
        )
    return Call(
        method="PATCH",
        uri=document.uri,
        body=change.body(),
        etag=document.etag,
        is_shared=True,
        change=change,
    )


def build_gone_error(kind: str, name: str) -> errors.Aborted:
    """Return the error of a device or host that was removed while an operation for it began."""
    return errors.Aborted(f"the {kind} {name} was removed from the fabric meanwhile; read the fabric again")
