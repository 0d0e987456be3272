"""A running server and a small client that speaks plain HTTP to it."""

import io
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from drawbar.mocks import apiserver

Json = dict[str, Any]
ROLES = "/apis/rbac.authorization.k8s.io/v1"
RESOURCE = "/apis/resource.k8s.io/v1"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: its code and its body."""

    code: int
    body: Json

    @property
    def version(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])


class Client:
    """Requests of one caller."""

    def __init__(
        self, server: apiserver.ApiServer, session: aiohttp.ClientSession, token: str | None
    ) -> None:
        self.server = server
        self.session = session
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def acting_as(self, user: str, *, node: str | None = None) -> "Client":
        return Client(self.server, self.session, self.server.token_for(user, node=node))

    async def send(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json", **query: Any
    ) -> Reply:
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        data = io.BytesIO(raw)
        accept = query.pop("accept", "application/json")
        headers = {**self.headers, "Content-Type": kind, "Accept": accept}
        params = {key: str(value) for key, value in query.items()}
        url = self.server.url + path
        async with self.session.request(method, url, data=data, headers=headers, params=params) as response:
            return Reply(response.status, json.loads(await response.read()))

    async def get(self, path: str, **query: Any) -> Reply:
        return await self.send("GET", path, **query)

    async def post(self, path: str, body: Any, **query: Any) -> Reply:
        return await self.send("POST", path, body, **query)

    async def put(self, path: str, body: Any, **query: Any) -> Reply:
        return await self.send("PUT", path, body, **query)

    async def delete(self, path: str, body: Any = None, **query: Any) -> Reply:
        return await self.send("DELETE", path, body, **query)

    async def merge(self, path: str, body: Any, **query: Any) -> Reply:
        return await self.send("PATCH", path, body, kind=MERGE, **query)

    async def apply(self, path: str, body: Any, *, manager: str = "tester", **query: Any) -> Reply:
        return await self.send("PATCH", path, body, kind=APPLY, fieldManager=manager, **query)

    async def allow(self, user: str, *rules: Json) -> None:
        """Give a user, or a service account ``NAMESPACE:NAME``, rights on the whole cluster."""
        name = user.replace(":", "-")
        subject = {"kind": "User", "name": f"system:serviceaccount:{user}" if ":" in user else user}
        reference = {"kind": "ClusterRole", "name": name}
        for plural, body in (
            ("clusterroles", {"rules": list(rules)}),
            ("clusterrolebindings", {"roleRef": reference, "subjects": [subject]}),
        ):
            reply = await self.post(f"{ROLES}/{plural}", {"metadata": {"name": name}, **body})
            assert reply.code == 201, reply.body

    def watch(self, path: str, **query: Any) -> Any:
        params = {"watch": "true"} | {key: str(value) for key, value in query.items()}
        return self.session.get(self.server.url + path, headers=self.headers, params=params)


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Any]]:
    """Start a server with options; it stops after the test."""
    from contextlib import AsyncExitStack

    async with AsyncExitStack() as stack:

        async def begin(**options: Any) -> Client:
            server = await stack.enter_async_context(apiserver.serving(**options))
            session = await stack.enter_async_context(aiohttp.ClientSession())
            return Client(server, session, server.token_for())

        yield begin


@pytest.fixture
async def api(start: Callable[..., Any]) -> Client:
    """Return a client of a default server, as its administrator."""
    client: Client = await start()
    return client


def config_map(name: str = "one", **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


@pytest.fixture
def make_config_map() -> Callable[..., Json]:
    return config_map


@pytest.fixture
def definition() -> Json:
    """Return a CustomResourceDefinition with the features that ours use."""
    condition = {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
    }
    spec = {
        "type": "object",
        "required": ["nodeName"],
        "properties": {
            "nodeName": {
                "type": "string",
                "pattern": "^[a-z0-9-]+$",
                "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "nodeName is immutable"}],
            },
            "size": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
            "mode": {"type": "string", "enum": ["fast", "safe"]},
        },
    }
    status = {
        "type": "object",
        "properties": {
            "phase": {"type": "string"},
            "conditions": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
                "items": condition,
            },
        },
    }
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": "Node", "type": "string", "jsonPath": ".spec.nodeName"},
            {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        ],
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "required": ["spec"],
                "properties": {"spec": spec, "status": status},
            }
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.drawbar.dev"},
        "spec": {
            "group": "drawbar.dev",
            "scope": "Cluster",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [version],
        },
    }


@pytest.fixture
def make_slice() -> Callable[..., Json]:
    """Return a function that builds a valid ResourceSlice, with some fields of its spec replaced."""

    def build(**spec: Any) -> Json:
        base = {
            "driver": "drawbar.dev",
            "pool": {"name": "chassis-1", "generation": 1, "resourceSliceCount": 1},
            "allNodes": True,
            "devices": [{"name": "slot-1", "attributes": {"model": {"string": "H100"}}}],
        }
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": "s1"},
            "spec": {key: value for key, value in (base | spec).items() if value is not None},
        }

    return build


@pytest.fixture
def make_allocation() -> Callable[..., Json]:
    """Return a function that builds an allocation of devices on one node."""

    def build(*devices: str, node: str = "node-a") -> Json:
        results = [
            {
                "request": "dev",
                "driver": "drawbar.dev",
                "pool": "chassis-1",
                "device": device,
                "bindingConditions": ["drawbar.dev/attached"],
                "bindingFailureConditions": ["drawbar.dev/attach-failed"],
            }
            for device in devices
        ]
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        return {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [term]}}

    return build


@pytest.fixture
def make_device_status() -> Callable[..., Json]:
    """Return a function that builds an applied claim status with one condition of one device."""

    def build(kind: str, *, device: str = "slot-1", status: str = "True", **metadata: str) -> Json:
        condition = {
            "type": kind,
            "status": status,
            "reason": "Done",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        entry = {"driver": "drawbar.dev", "pool": "chassis-1", "device": device, "conditions": [condition]}
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "c1", "namespace": "default", **metadata},
            "status": {"devices": [entry]},
        }

    return build


@pytest.fixture
async def allocate(api: Client, make_allocation: Callable[..., Json]) -> Callable[..., Any]:
    """Create claim ``default/c1`` and allocate devices to it."""

    async def run(*devices: str, client: Client = api, node: str = "node-a") -> Reply:
        claim = {
            "metadata": {"name": "c1"},
            "spec": {"devices": {"requests": [{"name": "dev", "exactly": {"deviceClassName": "gpu"}}]}},
        }
        made = await client.post(f"{RESOURCE}/namespaces/default/resourceclaims", claim)
        assert made.code == 201, made.body
        status = {"status": {"allocation": make_allocation(*devices, node=node)}}
        path = f"{RESOURCE}/namespaces/default/resourceclaims/c1/status"
        done = await client.merge(path, status)
        assert done.code == 200, done.body
        return done

    return run
