"""The result of a change of zones, connections or compositions: made, or refused with a message of the registries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drawbar.mocks.redfish import ends, memory, paths
from drawbar.mocks.redfish.configuration import Configuration
from drawbar.mocks.redfish.tree import Tree, reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(Exception):
    """The change is refused.

    Attributes:
        status: the HTTP status.
        key: the key of a message, with its registry, such as `Base.1.18.ResourceInUse`.
        text: the text of the message.
    """

    status: int
    key: str
    text: str


# A client's fields for a named connection.
_NAMED = ("@odata.id", "@odata.type", "Id", "Name")


class Rules:
    """The changes that a client may make."""

    def __init__(self, tree: Tree, configuration: Configuration) -> None:
        self._tree = tree
        self._configuration = configuration
        self._hosts = {paths.endpoint(host.id) for host in configuration.hosts}
        self._number = 0

    def change(self, method: str, path: str, body: Mapping[str, Any]) -> str | None:
        """Make the change, and return the URI of the resource that it created, if any.

        Raises:
            Refused: it cannot be made.
        """
        collection, _, name = path.rpartition("/")
        allowed = self.list_allowed_methods(path)
        if not allowed:
            raise make_not_found(path)
        if method not in allowed:
            raise make_not_allowed(method, path)
        if path == paths.ZONES:
            return self._create_zone(body)
        if path == paths.CONNECTIONS:
            return self._create_connection(body)
        if self._domain(path) is not None:
            return self._create_chunk(path, body)
        if self._domain(collection) is not None:
            self._delete_chunk(path)
        elif collection == paths.CONNECTIONS:
            self._end_connection(path)
        elif collection == paths.ZONES:
            self._change_zone(path, self._list_endpoints(body) if method == "PATCH" else None)
        elif collection == paths.SYSTEMS and self._configuration.constrained and "Links" not in body:
            self._request(path, body)
        elif collection == paths.SYSTEMS:
            blocks = _links(body, "ResourceBlocks")
            if self._configuration.constrained and not set(blocks) <= set(self._blocks(path)):
                raise Refused(
                    status=400,
                    key="Base.1.18.PropertyValueConflict",
                    text="Blocks are given by a count; the service chooses them.",
                )
            self._compose(path, blocks)
        else:
            self._act(collection.removesuffix("/Actions"), name, body)
        return None

    def list_allowed_methods(self, path: str) -> tuple[str, ...]:
        """Return the methods of HTTP that the resource has; none where there is no resource."""
        collection = path.rpartition("/")[0]
        if path not in self._tree:
            return ("POST",) if self._offers(path) else ()
        if path in {paths.ZONES, paths.CONNECTIONS} or self._domain(path) is not None:
            return ("GET", "HEAD", "POST")
        if collection == paths.CONNECTIONS or self._domain(collection) is not None:
            return ("GET", "HEAD", "DELETE")
        if collection == paths.ZONES:
            return ("GET", "HEAD", "PATCH", "DELETE")
        if collection == paths.SYSTEMS and self._configuration.method == "composition":
            return ("GET", "HEAD", "PATCH")
        return ("GET", "HEAD")

    def _offers(self, path: str) -> bool:
        uri = path.partition("/Actions/")[0]
        actions = self._tree[uri].get("Actions", {}) if uri in self._tree else {}
        return any(action["target"] == path for action in actions.values())

    def _act(self, uri: str, name: str, body: Mapping[str, Any]) -> None:
        etag = body.get("ZoneETag") or body.get("ComputerSystemETag")
        if etag is not None and etag != self._tree.etag(uri):
            raise make_precondition_failed(uri)
        kind = "Endpoint" if name.startswith("Zone.") else "ResourceBlock"
        links = "Endpoints" if kind == "Endpoint" else "ResourceBlocks"
        named = body.get(kind)
        target = named.get("@odata.id") if isinstance(named, dict) else None
        if not isinstance(target, str):
            raise Refused(
                status=400, key="Base.1.18.ActionParameterMissing", text=f"The action needs {kind}."
            )
        current = [entry["@odata.id"] for entry in self._tree[uri]["Links"][links]]
        wanted = [*current, target] if ".Add" in name else [entry for entry in current if entry != target]
        if kind == "Endpoint":
            self._change_zone(uri, wanted)
        else:
            self._compose(uri, wanted)

    # --- zones ---

    def _list_endpoints(self, body: Mapping[str, Any]) -> list[str]:
        return _links(body, "Endpoints")

    def _create_zone(self, body: Mapping[str, Any]) -> str:
        endpoints = _links(body, "Endpoints")
        self._check(endpoints)
        uri = self._free_uri(paths.ZONES)
        zone = ends.zone(str(self._number), endpoints, self._configuration, _texts(body))
        self._tree.put(uri, zone)
        return uri

    def _free_uri(self, collection: str) -> str:
        while True:
            self._number += 1
            uri = f"{collection}/{self._number}"
            if uri not in self._tree:
                return uri

    def _change_zone(self, uri: str, endpoints: list[str] | None) -> None:
        if endpoints is None:
            self._tree.remove(uri)
            return
        self._check(endpoints, zone=uri)
        links = {
            "Endpoints": [reference(endpoint) for endpoint in endpoints],
            "Endpoints@odata.count": len(endpoints),
        }
        self._tree.update(uri, Links=links)

    def _check(self, endpoints: list[str], *, chunks: Sequence[str] = (), zone: str = "") -> None:
        """Refuse unknown members, a second host, and members that another zone or connection has already."""
        for kind, uris in (("Endpoint", endpoints), ("MemoryChunks", chunks)):
            for uri in uris:
                if uri not in self._tree or not self._tree[uri]["@odata.type"].startswith(f"#{kind}."):
                    raise Refused(
                        status=400, key="Base.1.18.ResourceNotFound", text=f"There is no {kind} {uri}."
                    )
        if len(set(endpoints) & self._hosts) > 1:
            raise Refused(
                status=409,
                key="Base.1.18.PropertyValueResourceConflict",
                text="A zone or connection has one initiator.",
            )
        for host in self._hosts.intersection(endpoints):
            self._check_cables(host, [end for end in endpoints if end not in self._hosts])
        if not self._configuration.exclusive:
            return
        for other in (*self._tree.list_members(paths.ZONES), *self._tree.list_members(paths.CONNECTIONS)):
            taken = set(ends.ends(self._tree[other])) - self._hosts
            if other != zone and (conflicts := taken.intersection([*endpoints, *chunks])):
                raise Refused(
                    status=409,
                    key="Base.1.18.PropertyValueResourceConflict",
                    text=f"The endpoint {min(conflicts)} is in {other}.",
                )

    def _check_cables(self, host: str, ends: Sequence[str]) -> None:
        """Refuse devices of enclosures that the host is not cabled to; the URIs end in the ids."""
        cabled = set(self._configuration.enclosures_of(host.rpartition("/")[2]))
        for end in ends if self._configuration.is_divided else ():
            if cabled.isdisjoint(self._configuration.enclosures_of(end.rpartition("/")[2])):
                raise Refused(
                    status=409,
                    key="Base.1.18.PropertyValueResourceConflict",
                    text=f"{end} cannot be connected with {host}.",
                )

    # --- connections ---

    def _create_connection(self, body: Mapping[str, Any]) -> str:
        if self._configuration.is_appliance:
            return self._connect_port(body)
        initiators, targets = _links(body, "InitiatorEndpoints"), _links(body, "TargetEndpoints")
        chunks = _chunks(body)
        self._check([*initiators, *targets])
        behind = [
            entity["EntityLink"]["@odata.id"]
            for target in targets
            for entity in self._tree[target]["ConnectedEntities"]
            if entity["EntityType"] == "MemoryChunk"
        ]
        is_from_host = len(initiators) == 1 and self._hosts.issuperset(initiators)
        if not chunks or chunks != behind or not is_from_host:
            raise Refused(
                status=400,
                key="Base.1.18.PropertyValueConflict",
                text="A connection is of the type Memory, from one host to the memory chunks of one target.",
            )
        return self._put_connection(initiators, targets, chunks, _texts(body))

    def _connect_port(self, body: Mapping[str, Any]) -> str:
        """Connect memory chunks of an appliance with one of its ports; a port has one connection."""
        is_named = self._configuration.named_connections
        kind, own = ("CXL", _NAMED) if is_named else ("Memory", ())
        if missing_names := [name for name in own if not body.get(name)]:
            raise Refused(
                status=422,
                key="Base.1.18.PropertyMissing",
                text=f"required field '{missing_names[0]}' is zero value.",
            )
        targets, chunks = _links(body, "TargetEndpoints"), _chunks(body, kind)
        known = {"ConnectionType", "MemoryChunkInfo", "Links", "TargetEndpoints", *own}
        unknown = {*body, *body["Links"]} - known
        if unknown:
            raise Refused(
                status=400, key="Base.1.18.PropertyUnknown", text=f"A connection has no {min(unknown)}."
            )
        self._check(targets, chunks=chunks)
        if not chunks or len(targets) != 1:
            raise Refused(
                status=400,
                key="Base.1.18.PropertyValueConflict",
                text="A connection is of the type Memory, of memory chunks with the endpoint of one port.",
            )
        connected = {
            end for uri in self._tree.list_members(paths.CONNECTIONS) for end in ends.ends(self._tree[uri])
        }
        if self._configuration.exclusive and targets[0] in connected:
            raise Refused(
                status=409, key="Base.1.18.ResourceInUse", text=f"The port of {targets[0]} has a connection."
            )
        uri = self._put_connection([], targets, chunks, {})
        ends.show_connection(self._tree, uri, is_made=True)
        return uri

    def _end_connection(self, uri: str) -> None:
        if self._configuration.is_appliance:
            ends.show_connection(self._tree, uri, is_made=False)
        self._tree.remove(uri)

    def _put_connection(
        self, initiators: list[str], targets: list[str], chunks: list[str], texts: Mapping[str, str]
    ) -> str:
        uri = self._free_uri(paths.CONNECTIONS)
        self._tree.put(uri, ends.connection(str(self._number), initiators, targets, chunks, texts))
        return uri

    # --- memory chunks ---

    def _domain(self, chunks: str) -> Mapping[str, Any] | None:
        """Return the domain of a collection of chunks in which a client can make some, else None."""
        uri, _, name = chunks.rpartition("/")
        if name != "MemoryChunks" or uri not in self._tree:
            return None
        return self._tree[uri] if self._tree[uri].get("AllowsMemoryChunkCreation") else None

    def _create_chunk(self, chunks: str, body: Mapping[str, Any]) -> str:
        domain = self._tree[chunks.rpartition("/")[0]]
        size, step = body.get("MemoryChunkSizeMiB"), domain["MemoryChunkIncrementMiB"]
        if (
            not isinstance(size, int)
            or isinstance(size, bool)
            or not isinstance(body.get("AddressRangeType"), str)
        ):
            raise Refused(
                status=400,
                key="Base.1.18.PropertyMissing",
                text="The request needs MemoryChunkSizeMiB and AddressRangeType.",
            )
        if size < domain["MinMemoryChunkSizeMiB"] or size % step:
            raise Refused(
                status=400,
                key="Base.1.18.PropertyValueOutOfRange",
                text=f"The size {size} of a chunk is no multiple of {step}.",
            )
        used = sum(self._tree[uri]["MemoryChunkSizeMiB"] for uri in self._tree.list_members(chunks))
        if used + size > domain["MemorySizeMiB"]:
            raise Refused(
                status=507,
                key="Base.1.18.ResourceExhaustion",
                text=f"The memory domain has {domain['MemorySizeMiB'] - used} MiB left.",
            )
        uri = self._free_uri(chunks)
        memory.put_slice(self._tree, uri, size, _texts(body))
        return uri

    def _delete_chunk(self, uri: str) -> None:
        for other in self._tree.list_members(paths.CONNECTIONS):
            listed = self._tree[other]["MemoryChunkInfo"]
            if any(information["MemoryChunk"]["@odata.id"] == uri for information in listed):
                raise Refused(
                    status=409, key="Base.1.18.ResourceInUse", text=f"The chunk {uri} is in {other}."
                )
        memory.remove_slice(self._tree, uri)

    # --- composition ---

    def _request(self, uri: str, body: Mapping[str, Any]) -> None:
        """Give a system the asked number of described blocks, the last free ones first."""
        blocks = self._blocks(uri)
        for name, wanted in _requests(body):
            for _ in range(wanted["@Redfish.RequestedCount"]):
                free = (
                    block
                    for block in reversed(self._tree.list_members(paths.BLOCKS))
                    if block not in blocks and self._is_free(block) and self._matches(block, name, wanted)
                )
                chosen = next(free, None)
                if chosen is None:
                    raise Refused(
                        status=409,
                        key="Composition.1.1.NoResourceMatch",
                        text=f"There are not enough free {name} as described.",
                    )
                blocks.append(chosen)
        self._compose(uri, blocks)

    def _is_free(self, block: str) -> bool:
        return not self._tree[block]["Links"]["ComputerSystems"]

    def _matches(self, block: str, name: str, wanted: Mapping[str, Any]) -> bool:
        parts = [self._tree[part["@odata.id"]] for part in self._tree[block].get(name, ())]
        described = {key: value for key, value in wanted.items() if not key.startswith("@")}
        return any(all(part.get(key) == value for key, value in described.items()) for part in parts)

    def _blocks(self, uri: str) -> list[str]:
        return [entry["@odata.id"] for entry in self._tree[uri]["Links"]["ResourceBlocks"]]

    def _compose(self, uri: str, blocks: list[str]) -> None:
        current = self._blocks(uri)
        own = paths.block(uri.rpartition("/")[2])
        if own in current and own not in blocks:
            raise Refused(
                status=409,
                key="Composition.1.1.ResourceBlockInUse",
                text=f"The system is made of {own}, which cannot be removed.",
            )
        self._check_cables(uri, [block for block in blocks if block != own and block in self._tree])
        for block in blocks:
            if block not in self._tree or not block.startswith(f"{paths.BLOCKS}/"):
                raise Refused(
                    status=400, key="Base.1.18.ResourceNotFound", text=f"There is no block {block}."
                )
            users = [entry["@odata.id"] for entry in self._tree[block]["Links"]["ComputerSystems"]]
            if users and users != [uri] and self._configuration.exclusive:
                raise Refused(
                    status=409,
                    key="Composition.1.1.ResourceBlockInUse",
                    text=f"The resource block {block} is in use by {users[0]}.",
                )
        self._tree.update(
            uri, Links={"ResourceBlocks": [reference(block) for block in dict.fromkeys(blocks)]}
        )
        for block in {*current, *blocks}:
            is_used = block in blocks
            status = self._tree[block]["CompositionStatus"] | {
                "CompositionState": "Composed" if is_used else "Unused",
                "NumberOfCompositions": int(is_used),
            }
            links = {"ComputerSystems": [reference(uri)] if is_used else []}
            self._tree.update(block, CompositionStatus=status, Links=links)


def _requests(body: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the demand of a body: the name of the blocks' parts, with a description of each."""

    def members(collection: Any, name: str) -> list[Any]:
        listed = collection.get(name) if isinstance(collection, dict) else None
        return listed if isinstance(listed, list) else []

    wanted = [
        (name, member) for name in ("Processors", "Memory") for member in members(body.get(name), "Members")
    ]
    storages = members(body.get("Storage"), "Members")
    wanted += [("Drives", drive) for storage in storages for drive in members(storage, "Drives")]
    counts = [entry.get("@Redfish.RequestedCount") for _, entry in wanted if isinstance(entry, dict)]
    if not wanted or len(counts) < len(wanted) or not all(isinstance(count, int) for count in counts):
        raise Refused(
            status=400,
            key="Base.1.18.PropertyMissing",
            text="The request needs members with @Redfish.RequestedCount.",
        )
    return wanted


def make_not_found(uri: str) -> Refused:
    """Return the refusal of a request for nothing that is there."""
    return Refused(status=404, key="Base.1.18.ResourceMissingAtURI", text=f"There is no resource at {uri}.")


def make_not_allowed(method: str, uri: str) -> Refused:
    """Return the refusal of a method that the resource does not have."""
    return Refused(status=405, key="Base.1.18.OperationNotAllowed", text=f"{method} of {uri} is not allowed.")


def make_precondition_failed(uri: str) -> Refused:
    """Return the refusal of a change of a resource that is not as the client has read it."""
    return Refused(
        status=412, key="Base.1.18.PreconditionFailed", text=f"The ETag is not that of {uri} any more."
    )


def _texts(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of a client that a zone or connection keeps."""
    return {name: body[name] for name in ("Name", "Description") if isinstance(body.get(name), str)}


def _chunks(body: Mapping[str, Any], kind: str = "Memory") -> list[str]:
    """Return the URIs of the memory chunks of a connection; none of one that is of another type."""
    listed = body.get("MemoryChunkInfo")
    if body.get("ConnectionType") != kind or not isinstance(listed, list):
        return []
    chunks = [information.get("MemoryChunk") for information in listed if isinstance(information, dict)]
    uris = [chunk.get("@odata.id") for chunk in chunks if isinstance(chunk, dict)]
    return [str(uri) for uri in uris] if len(uris) == len(listed) else []


def _links(body: Mapping[str, Any], name: str) -> list[str]:
    links = body.get("Links")
    listed = links.get(name) if isinstance(links, dict) else None
    entries = listed if isinstance(listed, list) else [None]
    uris = [entry.get("@odata.id") if isinstance(entry, dict) else None for entry in entries]
    if not all(isinstance(uri, str) for uri in uris):
        raise Refused(
            status=400,
            key="Base.1.18.PropertyMissing",
            text=f"The request needs Links.{name}, an array of links.",
        )
    return [str(uri) for uri in uris]
