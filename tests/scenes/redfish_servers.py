"""A small Redfish service with a tree of resources, and hooks for the ways in which real services are odd."""

import asyncio
import json
from contextlib import asynccontextmanager

from aiohttp import web

from drawbar.fabric import contract
from drawbar.fabric.redfish.adapter import RedfishAdapter

ROOT = "/redfish/v1"
HTML = (200, "text/html", b"<html><title>Bad gateway</title></html>")
NOT_UTF8 = (200, "application/json", b'{"Id": \xff\xfe}')
NOTHING = (200, "application/json", b"")
BROKEN = (500, "application/json", b"{}")


def link(uri):
    return {"@odata.id": uri}


class Service:
    """Resources by URI, changed as the default rules of Redfish have it.

    Attributes:
        tree: the bodies by URI.
        hook: called with method, path and body; returns (status, content type, bytes) or a response, or None for the default.
        changes: the requests that change something: method, path and body.
        reads: the paths of GET.
        query: that of the request being answered.
        show_etag: returns the header of an ETag.
        delay_seconds: how long each answer takes, one after the other.
        stalls_after: after so many reads nothing is answered; None: never.
        ended: set when it stops to serve.
    """

    def __init__(self):
        self.tree = {ROOT: {"@odata.id": ROOT, "RedfishVersion": "1.18.0"}}
        self.hook = lambda method, path, body: None
        self.changes, self.reads = [], []
        self.show_etag = str
        self.url = self.query = ""
        self.delay_seconds = 0.0
        self.stalls_after = None
        self.ended = asyncio.Event()
        self._lock = asyncio.Lock()
        self._made = 0

    def put(self, uri, **properties):
        name = uri.rpartition("/")[2]
        self.tree[uri] = {"@odata.id": uri, "Id": name, "Name": name, **properties}
        return link(uri)

    def collect(self, uri, *names):
        members = [link(f"{uri}/{name}") for name in names]
        self.tree[uri] = {
            "@odata.id": uri,
            "Name": "Collection",
            "Members": members,
            "Members@odata.count": len(members),
        }
        return link(uri)

    def put_fabric(self, name, endpoints, zones=(), kind="PCIe", **properties):
        """Put a fabric; endpoints by name are the properties of their entity."""
        uri = f"{ROOT}/Fabrics/{name}"
        self.collect(f"{uri}/Endpoints", *endpoints)
        self.collect(f"{uri}/Zones", *map(str, range(len(zones))))
        own = {"FabricType": kind, "Endpoints": link(f"{uri}/Endpoints"), "Zones": link(f"{uri}/Zones")}
        self.put(uri, **{**own, **properties})
        for each, entity in endpoints.items():
            self.put(f"{uri}/Endpoints/{each}", EndpointProtocol=kind, ConnectedEntities=[entity])
        for number, ends in enumerate(zones):
            listed = [link(f"{uri}/Endpoints/{end}") for end in ends]
            self.put(f"{uri}/Zones/{number}", ZoneType="ZoneOfEndpoints", Links={"Endpoints": listed})
        fabrics = self.tree.get(f"{ROOT}/Fabrics", {"Members": []})["Members"]
        names = [each["@odata.id"].rpartition("/")[2] for each in fabrics]
        self.tree[ROOT]["Fabrics"] = self.collect(f"{ROOT}/Fabrics", *names, name)

    def put_blocks(self, blocks, systems):
        """Put a composition service: blocks by name are their properties; systems by name are names of blocks."""
        uri = f"{ROOT}/CompositionService"
        self.collect(f"{uri}/ResourceBlocks", *blocks)
        self.tree[ROOT]["CompositionService"] = self.put(uri, ResourceBlocks=link(f"{uri}/ResourceBlocks"))
        for name, properties in blocks.items():
            self.put(f"{uri}/ResourceBlocks/{name}", **properties)
        for name, listed in systems.items():
            members = [link(f"{uri}/ResourceBlocks/{each}") for each in listed]
            self.put(f"{ROOT}/Systems/{name}", HostName=name, Links={"ResourceBlocks": members})
        self.tree[ROOT]["Systems"] = self.collect(f"{ROOT}/Systems", *systems)

    async def answer(self, request):
        method, path = request.method, request.path.rstrip("/")
        raw = await request.read()
        if self.stalls_after is not None and len(self.reads) >= self.stalls_after:
            await self.ended.wait()
        async with self._lock:
            await asyncio.sleep(self.delay_seconds)
        body = json.loads(raw) if raw else None
        if method == "GET":
            self.reads.append(path)
        else:
            self.changes.append((method, path, body))
        self.query = request.query_string
        odd = self.hook(method, path, body)
        if isinstance(odd, web.Response):
            return odd
        if odd is not None:
            status, kind, content = odd
            return web.Response(status=status, body=content, headers={"Content-Type": kind})
        etag = self.etag(path)
        if etag and method in ("PATCH", "DELETE") and request.headers.get("If-Match") not in (None, etag):
            return web.json_response({}, status=412)
        response = self._default(method, path, body)
        if etag:
            response.headers["ETag"] = self.show_etag(etag)
        return response

    def etag(self, path):
        """Return the ETag of a resource, which its property shows."""
        return self.tree.get(path, {}).get("@odata.etag")

    def _default(self, method, path, body):
        resource = self.tree.get(path)
        if resource is None:
            return web.json_response({}, status=404)
        if method == "POST" and "Members" in resource:
            self._made += 1
            uri = f"{path}/made{self._made}"
            self.tree[uri] = {"@odata.id": uri, "Id": f"made{self._made}", **body}
            resource["Members"].append(link(uri))
            resource["Members@odata.count"] += 1
            return web.json_response(self.tree[uri], status=201, headers={"Location": uri})
        if method == "PATCH":
            resource.update(body)
        if method == "DELETE":
            del self.tree[path]
            collection = self.tree[path.rpartition("/")[0]]
            collection["Members"].remove(link(path))
            collection["Members@odata.count"] -= 1
            return web.Response(status=204)
        return web.json_response(resource)


def put_gpu(service, name="gpu-1", serial="S1"):
    """Put the PCIe device of a GPU, and return the entity of its endpoint."""
    uri = f"{ROOT}/Chassis/c/PCIeDevices/{name}"
    service.put(uri, Model="A100", Manufacturer="NVIDIA", SerialNumber=serial)
    return {
        "EntityType": "Processor",
        "EntityRole": "Target",
        "EntityLink": link(uri),
        "EntityPciId": {"ClassCode": "0x030200"},
    }


def put_host(service, name):
    """Put a computer system, and return the entity of its endpoint."""
    system = service.put(f"{ROOT}/Systems/{name}", HostName=name)
    return {"EntityType": "RootComplex", "EntityRole": "Initiator", "EntityLink": system}


@asynccontextmanager
async def serving(service):
    """Serve it on a port of the loopback interface."""
    runner = web.ServerRunner(web.Server(service.answer, access_log=None), shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        service.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield service
    finally:
        service.ended.set()
        await runner.cleanup()


@asynccontextmanager
async def adapting(service, *, timeout_seconds=10, **parameters):
    """Serve it, and connect an adapter."""
    async with serving(service):
        config = contract.AdapterConfig(
            name="fab", endpoint=service.url, timeout_seconds=timeout_seconds, parameters=parameters
        )
        async with await RedfishAdapter.connect(config) as adapter:
            yield adapter
