"""The pages of a collection in the forms in which services send them, and the query that expands members; pure."""

import urllib.parse
from collections.abc import Iterable

from drawbar.fabric.redfish import documents
from drawbar.fabric.redfish.documents import Document

COUNT = "Members@odata.count"
# The second is OData's own.
_NEXT = ("Members@odata.nextLink", "@odata.nextLink")


def find_members(page: Document) -> tuple[Document, ...] | None:
    """Return the members in a page, links or resources; None if it has no array of them.

    Some services send null for an empty array or member, empty links among the members, and URIs in place of links.
    Other members without a URI have an empty one.
    """
    listed = page.value("Members")
    if listed is None and "Members" in page.body and page.value(COUNT) == 0:
        return ()
    if not isinstance(listed, list):
        return None
    bodies = (
        {documents.ID: entry} if is_uri(entry) else entry
        for entry in listed
        if entry not in documents.NOTHING
    )
    return tuple(Document.from_json(body if isinstance(body, dict) else {}) for body in bodies)


def is_uri(entry: object) -> bool:
    """Return whether a value is the URI of a resource, and no link to it."""
    return isinstance(entry, str) and documents.link(entry) is not None


def find_next(page: Document) -> str | None:
    """Return the URI of the next page, with its query; None on the last page, and an empty text for no URI."""
    link = next((shown for name in _NEXT if (shown := page.value(name))), None)
    uri = link.get(documents.ID) if isinstance(link, dict) else link
    if link is None or not isinstance(uri, str):
        return None if link is None else ""
    if uri.casefold().startswith("redfish/"):
        return f"/{uri}"
    is_relative = not uri.startswith("/") and "://" not in uri
    return urllib.parse.urljoin(page.uri, uri) if is_relative else uri


def drop_repeated(listed: Iterable[Document]) -> list[Document]:
    """Return the members, each once."""
    return list({document.uri: document for document in listed}.values())


def expands(root: Document) -> bool:
    """Return whether the service expands the members of a collection."""
    return root.value("ProtocolFeaturesSupported", "ExpandQuery", "NoLinks") is True


def build_query(root: Document, levels: int) -> str:
    """Return the query that expands a collection (DSP0266, "$expand"); an empty one if the service has none."""
    offered = root.value("ProtocolFeaturesSupported", "ExpandQuery")
    if not expands(root) or not isinstance(offered, dict):
        return ""
    if offered.get("Levels") is not True:
        return "$expand=."
    most = offered.get("MaxLevels")
    return f"$expand=.($levels={min(levels, most) if isinstance(most, int) and most > 0 else 1})"
