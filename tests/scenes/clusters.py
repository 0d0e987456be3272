"""A cluster as its users and controllers act on it: objects through the API server double, and waiting for their changes."""

import asyncio
import contextlib

from drawbar.driver.kube import client, config, kinds
from drawbar.mocks import apiserver

PATIENCE_SECONDS = 120


class Cluster:
    """Objects of namespaced kinds are in the namespace `default`, and all of them are plain documents.

    Attributes:
        api: a client that may do everything.
        connection: the same caller's, for the doubles.
        server: the API server double.
    """

    def __init__(self, api, connection=None, server=None):
        self.api, self.connection, self.server = api, connection, server

    async def create(self, kind, name, *, metadata=None, **content):
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, **(metadata or {})},
            **content,
        }
        return await self.api.create(kind, body, into=dict, namespace=_namespace(kind))

    async def patch(self, kind, name, body, subresource=None):
        return await self.api.patch(
            kind,
            name,
            body,
            content=client.Patch.MERGE,
            into=dict,
            namespace=_namespace(kind),
            subresource=subresource,
        )

    async def set_status(self, kind, name, status):
        return await self.patch(kind, name, {"status": status}, "status")

    async def list(self, kind):
        return (await self.api.list_all(kind, into=dict, namespace=_namespace(kind))).items

    async def list_devices(self, driver="drawbar.dev"):
        """Return the driver's published devices by name."""
        return {
            device["name"]: device
            for entry in await self.list(kinds.SLICE)
            if entry["spec"]["driver"] == driver
            for device in entry["spec"].get("devices", ())
        }

    async def until(self, kind, holds):
        """Call `holds` with all objects of the kind after every change until it is true; return its result."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                listing = await self.api.list_all(kind, into=dict, namespace=_namespace(kind))
                if value := holds(list(listing.items)):
                    return value
                changes = self.api.watch(
                    kind, into=dict, resource_version=listing.resource_version, namespace=_namespace(kind)
                )
                async for event in changes:
                    if event.item is not None:
                        break

    async def wait_for(self, kind, name, holds=lambda item: True):
        """Wait until the object of that name exists and `holds` is true of it; return the object."""

        def list_matches(items):
            return [item for item in items if item["metadata"]["name"] == name and holds(item)]

        return (await self.until(kind, list_matches))[0]

    async def wait_until_gone(self, kind, name):
        await self.until(kind, lambda items: all(item["metadata"]["name"] != name for item in items))

    async def node(self, name, **labels):
        """Make a Node that is Ready."""
        await self.create(kinds.NODE, name, metadata={"labels": labels})
        await self.set_status(kinds.NODE, name, {"conditions": [{"type": "Ready", "status": "True"}]})

    async def claim(self, name, device_class="any", **request):
        """Make a claim with one request for a device of that class."""
        wanted = {"name": "one", "exactly": {"deviceClassName": device_class, **request}}
        return await self.create(kinds.CLAIM, name, spec={"devices": {"requests": [wanted]}})

    async def pod(self, name, *claims, **spec):
        """Make a pod that uses these claims."""
        fields = {
            "containers": [{"name": "main", "image": "none"}],
            "resourceClaims": [{"name": claim, "resourceClaimName": claim} for claim in claims],
        }
        return await self.create(kinds.POD, name, spec=fields | spec)

    async def set_condition(self, claim, condition, reason="Testing", message="set by a test"):
        """Set a condition of the claim's first device to True."""
        stored = await self.api.read(kinds.CLAIM, claim, into=dict, namespace="default")
        result = stored["status"]["allocation"]["devices"]["results"][0]
        device = {key: result[key] for key in ("driver", "pool", "device", "shareID") if key in result}
        device["conditions"] = [
            {
                "type": condition,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ]
        await self.set_status(kinds.CLAIM, claim, {"devices": [device]})

    async def event(self, reason, words=""):
        """Return the Event with that reason and these words in its note."""

        def list_matches(items):
            return [item for item in items if item["reason"] == reason and words in item["note"]]

        return (await self.until(kinds.EVENT, list_matches))[0]


def _namespace(kind):
    return "default" if kind.namespaced else None


@contextlib.asynccontextmanager
async def serving(folder, made=Cluster, **options):
    """Yield an empty cluster of this class; `options` are those of the API server double."""
    async with apiserver.serving(**options) as server:
        connection = config.from_kubeconfig(server.kubeconfig(folder / "kubeconfig"))
        async with client.connecting(connection) as api:
            yield made(api, connection, server)
