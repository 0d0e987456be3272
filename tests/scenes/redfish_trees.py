"""Resources of a Redfish service as a method reads them, without a service."""

import contextlib

from drawbar.fabric import errors
from drawbar.fabric.redfish import documents

ROOT = "/redfish/v1"
FABRIC = f"{ROOT}/Fabrics/F"


class Tree:
    """In place of `redfish.reading.Reader`: resources by URI, read without $expand.

    Attributes:
        expands: as the service would offer it.
        reads: the URIs that were read, in order.
    """

    expands = False

    def __init__(self, *resources):
        self.resources = {resource["@odata.id"]: resource for resource in resources}
        self.reads = []
        self.unread = {}
        self.dangling = set()

    @property
    def root(self):
        return documents.Document.from_json(self.resources[ROOT])

    async def get(self, uri):
        self.reads.append(uri)
        if uri not in self.resources:
            raise errors.NotFound(f"there is no {uri}")
        return documents.Document.from_json(self.resources[uri])

    get_detail = get

    async def members(self, uri, *, levels=1, may_be_remembered=False, needs=""):
        collection = await self.get(uri)
        return await self.fetch_listed(
            tuple(documents.Document.from_json(entry) for entry in collection.objects("Members"))
        )

    available_members = current_members = members

    @contextlib.contextmanager
    def noticing(self):
        yield set

    def forget_unread(self, uris):
        """Do nothing, as everything can be read."""

    async def newest(self, uri, most):
        return (await self.members(uri))[-most:]

    async def details(self, uris):
        return await self.fetch_listed(tuple(documents.Document(uri=uri) for uri in sorted(uris)))

    async def resolve(self, listed):
        return await self.fetch_listed(listed)

    async def fetch_listed(self, listed):
        return tuple([await self.get(document.uri) for document in listed if document.uri in self.resources])


def link(uri):
    return {"@odata.id": uri}


def links(*uris):
    return [link(uri) for uri in uris]


def collection(uri, *names):
    return {"@odata.id": uri, "Members": links(*(f"{uri}/{name}" for name in names))}


def endpoint(name, *entities, **properties):
    """Return an endpoint of the fabric `F`."""
    return {
        "@odata.id": f"{FABRIC}/Endpoints/{name}",
        "Id": name,
        "ConnectedEntities": list(entities),
        **properties,
    }


def initiator(name, system=""):
    entity = {"EntityType": "RootComplex", "EntityRole": "Initiator"}
    return endpoint(name, entity | ({"EntityLink": link(f"{ROOT}/Systems/{system}")} if system else {}))


def target(name, *entity_links, kind="PCIeDevice"):
    entities = [{"EntityType": kind, "EntityRole": "Target", "EntityLink": link(uri)} for uri in entity_links]
    return endpoint(name, *(entities or [{"EntityType": kind, "EntityRole": "Target"}]))


def zone(name, *endpoints, **properties):
    return {
        "@odata.id": f"{FABRIC}/Zones/{name}",
        "@odata.etag": f'"{name}"',
        "Id": name,
        "ZoneType": "ZoneOfEndpoints",
        "Links": {"Endpoints": links(*(f"{FABRIC}/Endpoints/{end}" for end in endpoints))},
        **properties,
    }


def chunk(name, owner="Chassis/c", **properties):
    """Return a memory chunk of the domain `d` of a chassis or system."""
    return {
        "@odata.id": f"{ROOT}/{owner}/MemoryDomains/d/MemoryChunks/{name}",
        "@odata.type": "#MemoryChunks.v1_6_2.MemoryChunks",
        "Id": name,
        "Name": f"Chunk {name}",
        "MemoryChunkSizeMiB": 1024,
        **properties,
    }


def memory(name, *chunks):
    """Return the endpoint of these memory chunks."""
    return target(name, *(chunk(each)["@odata.id"] for each in chunks), kind="MemoryChunk")


def connection(name, *, initiators=(), targets=(), chunks=(), **properties):
    """Return a connection of endpoints by name and chunks by URI."""
    ends = {"InitiatorEndpoints": initiators, "TargetEndpoints": targets}
    return {
        "@odata.id": f"{FABRIC}/Connections/{name}",
        "@odata.etag": f'"{name}"',
        "Id": name,
        "ConnectionType": "Memory",
        "MemoryChunkInfo": [{"MemoryChunk": link(uri)} for uri in chunks],
        "Links": {key: links(*(f"{FABRIC}/Endpoints/{end}" for end in ends[key])) for key in ends},
        **properties,
    }


def appliance(*resources, owner="Systems/blade"):
    """Return a service of memory chunks, which belong to this system or chassis, and of a fabric with Connections."""
    kind, name = owner.split("/")
    uri = f"{ROOT}/{owner}"
    names = [
        resource["Id"] for resource in resources if resource["@odata.id"].startswith(f"{uri}/MemoryDomains/")
    ]
    tree = fabric(
        *resources,
        collection(f"{ROOT}/{kind}", name),
        {"@odata.id": uri, "Id": name, "MemoryDomains": link(f"{uri}/MemoryDomains")},
        collection(f"{uri}/MemoryDomains", "d"),
        {
            "@odata.id": f"{uri}/MemoryDomains/d",
            "Id": "d",
            "MemoryChunks": link(f"{uri}/MemoryDomains/d/MemoryChunks"),
        },
        collection(f"{uri}/MemoryDomains/d/MemoryChunks", *names),
        connects="Connections",
    )
    tree.resources[ROOT][kind] = link(f"{ROOT}/{kind}")
    return tree


def fabric(*resources, connects="Zones"):
    """Return a service with one fabric of these endpoints and zones or connections, and these other resources."""
    names = {
        kind: [
            resource["Id"] for resource in resources if resource["@odata.id"].startswith(f"{FABRIC}/{kind}/")
        ]
        for kind in ("Endpoints", connects)
    }
    return Tree(
        {"@odata.id": ROOT, "Fabrics": link(f"{ROOT}/Fabrics")},
        collection(f"{ROOT}/Fabrics", "F"),
        {"@odata.id": FABRIC, "Id": "F", **{kind: link(f"{FABRIC}/{kind}") for kind in names}},
        *(collection(f"{FABRIC}/{kind}", *listed) for kind, listed in names.items()),
        *resources,
    )


def block(name, *kinds, **properties):
    return {
        "@odata.id": f"{ROOT}/CompositionService/ResourceBlocks/{name}",
        "Id": name,
        "Name": f"Block {name}",
        "ResourceBlockType": list(kinds),
        **properties,
    }


def system(name, *blocks, **properties):
    uris = (f"{ROOT}/CompositionService/ResourceBlocks/{entry}" for entry in blocks)
    return {
        "@odata.id": f"{ROOT}/Systems/{name}",
        "@odata.etag": f'"{name}"',
        "Id": name,
        "Links": {"ResourceBlocks": links(*uris)},
        **properties,
    }


def composition(*resources):
    """Return a service with these resource blocks and systems, and these other resources."""
    service = f"{ROOT}/CompositionService"
    names = {
        uri: [
            name
            for resource in resources
            for parent, _, name in [resource["@odata.id"].rpartition("/")]
            if parent == uri
        ]
        for uri in (f"{service}/ResourceBlocks", f"{ROOT}/Systems")
    }
    return Tree(
        {
            "@odata.id": ROOT,
            "CompositionService": link(service),
            "Systems": link(f"{ROOT}/Systems"),
        },
        {"@odata.id": service, "ResourceBlocks": link(f"{service}/ResourceBlocks")},
        *(collection(uri, *listed) for uri, listed in names.items()),
        *resources,
    )
