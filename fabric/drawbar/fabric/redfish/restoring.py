"""The restoring of a shared array after a change that removed other members; pure.

A zone of a host port, or a computer system, has the devices of a host in one array. A service that misunderstands a
changed array drops members. They are restored by one further request, if the change itself caused the loss. If
another client may have removed them at the same moment, they stay out.
"""

from collections.abc import Set
from dataclasses import dataclass, replace

from drawbar.fabric.redfish.documents import Document, Json, references
from drawbar.fabric.redfish.profiles import ZoneBody

LINKS = "Links"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change of a whole array.

    Attributes:
        name: of the array, below the resource's `Links`.
        before: the URIs in the array before the change.
        wanted: the URIs in the array of the request.
        own: those without a device in the last reading: of the host itself, and of devices that cannot be read. A client that
            detaches a device leaves the host there.
        etag: of the request; None without one.
        zone_body: the form of the request; None for a resource with one form.
    """

    name: str
    before: tuple[str, ...]
    wanted: tuple[str, ...]
    own: frozenset[str] = frozenset()
    etag: str | None = None
    zone_body: ZoneBody | None = None

    def body(self) -> Json:
        """Return the body of the request."""
        array: Json = {self.name: references(self.wanted)}
        return array if self.zone_body is ZoneBody.ENDPOINTS else {LINKS: array}


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """No restoring.

    Attributes:
        reason: the end of a sentence.
    """

    reason: str


def plan(change: Change, answer: Document | None, after: Document, taken: Set[str]) -> Change | Leave:
    """Return the change that restores the lost members of a change, or the reason to leave them.

    Args:
        change: the change that was made.
        answer: the service's answer to the change; None if it showed no resource.
        after: the resource after the loss.
        taken: the URIs of devices that are now in use elsewhere, or no longer listed.
    """
    left = after.links(*after.find_links_path(change.name))
    if not set(left) <= {*change.before, *change.wanted}:
        return Leave(reason="another client changed the resource meanwhile")
    if not _is_doing_of(change, answer, after):
        return Leave(reason="another client may have removed them at the same moment")
    wanted = tuple(uri for uri in change.wanted if uri in left or uri not in taken)
    if set(wanted) <= set(left):
        return Leave(reason="they are in use elsewhere, or not listed any more")
    body = other_form(change, after) or change.zone_body
    return replace(change, wanted=wanted, zone_body=body, etag=after.etag)


def other_form(change: Change, after: Document) -> ZoneBody | None:
    """Return the other form of a zone's body if the form of the change has emptied the zone; else None."""
    if change.zone_body is None or not change.wanted or after.links(*after.find_links_path(change.name)):
        return None
    return ZoneBody.ENDPOINTS if change.zone_body is ZoneBody.LINKS else ZoneBody.LINKS


def _is_doing_of(change: Change, answer: Document | None, after: Document) -> bool:
    """Return whether the change itself caused the loss.

    The ETag of the answer shows it, if the resource still has it; else the array in the answer; else that the host is lost too,
    which a client that detaches devices leaves there.
    """
    left = set(after.links(*after.find_links_path(change.name)))
    if answer is not None and _shows_version(change, answer, after):
        return answer.etag == after.etag
    if answer is not None and isinstance(answer.value(*answer.find_links_path(change.name)), list):
        return set(answer.links(*answer.find_links_path(change.name))) == left
    return bool(change.own) and change.own.isdisjoint(left)


def _shows_version(change: Change, answer: Document, after: Document) -> bool:
    """Return whether the ETags tell one version of the resource from another: each change made a new one."""
    etags = {change.etag, answer.etag, after.etag}
    return None not in etags and change.etag not in {answer.etag, after.etag}
