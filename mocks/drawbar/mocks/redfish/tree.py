"""The resources of a Redfish service: documents by URI, their ETags, and the result of a GET with `$expand`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

Body = dict[str, Any]

ROOT = "/redfish/v1"


class Tree:
    """All resources.

    Attributes:
        on_change: called with the URI and `ResourceCreated`, `ResourceChanged` or `ResourceRemoved` after each change.
    """

    def __init__(self) -> None:
        self._resources: dict[str, Body] = {}
        self._versions: dict[str, int] = {}
        self._version = 0
        self.on_change: Callable[[str, str], None] = lambda _uri, _key: None

    def __contains__(self, uri: str) -> bool:
        return uri in self._resources

    def __iter__(self) -> Iterator[str]:
        return iter(self._resources)

    def __getitem__(self, uri: str) -> Mapping[str, Any]:
        return self._resources[uri]

    def etag(self, uri: str) -> str:
        """Return the ETag of the resource as it is now."""
        return f'"{self._versions[uri]}"'

    def put(self, uri: str, body: Body) -> None:
        """Add a resource, or replace it; a collection above it gets it as a member."""
        is_new = uri not in self._resources
        self._resources[uri] = {"@odata.id": uri, **body}
        self._bump_version(uri)
        collection = uri.rpartition("/")[0]
        if is_new and "Members" in self._resources.get(collection, {}):
            members = self._resources[collection]["Members"]
            members.append({"@odata.id": uri})
            self._resources[collection]["Members@odata.count"] = len(members)
            self._bump_version(collection)
        self.on_change(uri, "ResourceCreated" if is_new else "ResourceChanged")

    def collection(self, uri: str, kind: str, name: str) -> None:
        """Add a collection without members."""
        body = {
            "@odata.type": f"#{kind}Collection.{kind}Collection",
            "Name": name,
            "Members@odata.count": 0,
            "Members": [],
        }
        self.put(uri, body)

    def update(self, uri: str, **properties: Any) -> None:
        """Replace properties of a resource."""
        self._resources[uri].update(properties)
        self._bump_version(uri)
        self.on_change(uri, "ResourceChanged")

    def remove(self, uri: str) -> None:
        """Remove a resource, and it from the collection above it."""
        del self._resources[uri]
        collection = uri.rpartition("/")[0]
        members = self._resources.get(collection, {}).get("Members")
        if members is not None:
            self._resources[collection]["Members"] = [
                member for member in members if member["@odata.id"] != uri
            ]
            self._resources[collection]["Members@odata.count"] = len(members) - 1
            self._bump_version(collection)
        self.on_change(uri, "ResourceRemoved")

    def list_members(self, uri: str) -> tuple[str, ...]:
        """Return the URIs of the members of a collection."""
        return tuple(member["@odata.id"] for member in self._resources.get(uri, {}).get("Members", ()))

    def body(self, uri: str, *, levels: int = 0) -> Body:
        """Return the answer to a GET: with so many levels below it in full (DSP0266, "$expand", NoLinks)."""
        # A caller may change it. This copies eight times as fast as `copy.deepcopy`.
        body: Body = msgspec.json.decode(msgspec.json.encode(self._resources[uri]))
        body["@odata.etag"] = self.etag(uri)
        if levels > 0:
            for name, value in body.items():
                if isinstance(value, list):
                    body[name] = [
                        self._expand_reference(entry, levels) if isinstance(entry, dict) else entry
                        for entry in value
                    ]
                elif isinstance(value, dict) and name != "Links":
                    body[name] = self._expand_reference(value, levels)
        return body

    def _expand_reference(self, value: Body, levels: int) -> Body:
        is_reference = set(value) == {"@odata.id"} and value["@odata.id"] in self._resources
        return self.body(value["@odata.id"], levels=levels - 1) if is_reference else value

    def _bump_version(self, uri: str) -> None:
        self._version += 1
        self._versions[uri] = self._version


def reference(uri: str) -> Body:
    """Return a link to a resource."""
    return {"@odata.id": uri}
