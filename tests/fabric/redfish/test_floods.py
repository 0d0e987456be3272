"""A Redfish service whose stream of events never pauses costs its own connection, and its fabric is read all the same."""

import asyncio
import contextlib

import pytest
from aiohttp import web

from drawbar.fabric import budget, contract
from drawbar.fabric.redfish.adapter import RedfishAdapter

ROOT = "/redfish/v1"
FABRIC = {
    "@odata.id": f"{ROOT}/Fabrics/F",
    "Id": "F",
    "Zones": {"@odata.id": f"{ROOT}/Fabrics/F/Zones"},
    "Endpoints": {"@odata.id": f"{ROOT}/Fabrics/F/Endpoints"},
}
ENDPOINT = {
    "@odata.id": f"{ROOT}/Fabrics/F/Endpoints/1",
    "Id": "1",
    "ConnectedEntities": [{"EntityType": "Processor", "EntityRole": "Target"}],
}
TREE = {
    ROOT: {
        "@odata.id": ROOT,
        "RedfishVersion": "1.20.0",
        "Fabrics": {"@odata.id": f"{ROOT}/Fabrics"},
        "EventService": {"@odata.id": f"{ROOT}/EventService"},
    },
    f"{ROOT}/EventService": {"ServerSentEventUri": f"{ROOT}/sse"},
    f"{ROOT}/Fabrics": {"Members": [FABRIC]},
    f"{ROOT}/Fabrics/F/Zones": {"Members": []},
    f"{ROOT}/Fabrics/F/Endpoints": {"Members": [ENDPOINT]},
}


class Service:
    """The service.

    Attributes:
        junk: what its stream repeats forever; empty where it has none.
        streams: how many were opened.
    """

    def __init__(self, junk):
        self.junk, self.streams = junk, 0

    async def handle(self, request):
        path = request.path.rstrip("/")
        if path != f"{ROOT}/sse" or not self.junk:
            return web.json_response(TREE.get(path, {}), status=200 if path in TREE else 404)
        self.streams += 1
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(self.junk)
                await asyncio.sleep(0)
        return response


@contextlib.asynccontextmanager
async def connecting(service, **limits):
    """Yield an adapter of the service."""
    runner = web.ServerRunner(web.Server(service.handle), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        config = contract.AdapterConfig(
            name="rack-7",
            endpoint=f"http://127.0.0.1:{runner.addresses[0][1]}",
            timeout_seconds=10,
            parameters={"pollSeconds": "1"},
            limits=budget.Limits(**limits),
        )
        async with await RedfishAdapter.connect(config) as adapter:
            yield adapter
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("junk", [b"data: x\n\n" * 8192, b"d"], ids=["large", "byte by byte"])
async def test_a_flood_of_events_costs_its_connection_and_is_told_by_a_bookmark(junk):
    service = Service(junk)
    async with connecting(service, watch_events_per_second=16) as adapter, asyncio.timeout(120):
        version = (await adapter.devices()).version
        async with adapter.watch(version) as events:
            async for event in events:
                if isinstance(event, contract.Bookmark) and event.exceeded:
                    break
        assert "streams more than" in event.exceeded
        assert (
            "spec.policy.limits.watchEventsPerSecond of the Fabric (kubectl edit fabric rack-7)"
            in event.exceeded
        )
        opened = service.streams
        for _ in range(20):
            assert len((await adapter.devices()).devices) == 1
            await asyncio.sleep(0.1)
        assert service.streams - opened <= 1


async def test_more_devices_than_the_limit_are_no_listing_and_those_known_before_are_served_on():
    service = Service(b"")
    members = TREE[f"{ROOT}/Fabrics/F/Endpoints"]["Members"]
    async with connecting(service, devices=1) as adapter, asyncio.timeout(120):
        version = (await adapter.devices()).version
        second = ENDPOINT | {"@odata.id": f"{ROOT}/Fabrics/F/Endpoints/2", "Id": "2"}
        async with adapter.watch(version) as events:
            members.append(second)
            try:
                async for event in events:
                    assert not isinstance(event, contract.DeviceChanged | contract.DeviceGone)
                    if isinstance(event, contract.Bookmark) and event.exceeded:
                        break
                assert "lists 2 devices or more, and at most 1 are read" in event.exceeded
            finally:
                members.remove(second)
            async for event in events:
                if isinstance(event, contract.Bookmark) and not event.exceeded:
                    break
        assert len((await adapter.devices()).devices) == 1
