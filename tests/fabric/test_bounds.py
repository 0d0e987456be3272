"""What an adapter's process needs at most, whatever a fabric manager lists: measured in a process of its own."""

import asyncio
import contextlib
import itertools
import json
import sys

import pytest
from aiohttp import web
from tests.scenes import sidecars

from drawbar.fabric import errors

# The chart gives the controller 512 MiB, of which it needs 60 to 180.
GROWTH_MIB = 150
LIST = """
import asyncio, json, pathlib, sys
from drawbar.fabric import contract, errors, registry

def peak():
    # Of this program; what getrusage shows is also that of the one that started it.
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

async def main(name, endpoint):
    config = contract.AdapterConfig(name="rack-7", endpoint=endpoint, timeout_seconds=120)
    adapter_class, before, reason = registry.adapter_class(name), peak(), ""
    try:
        async with await adapter_class.connect(config) as adapter:
            await adapter.devices()
    except errors.FabricError as error:
        reason = error.reason
    print(json.dumps({"reason": reason, "grown": peak() - before}))

asyncio.run(main(*sys.argv[1:]))
"""


async def run_listing(adapter, endpoint):
    """Return how a listing ended in a process of its own, and by how much that grew."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LIST, adapter, endpoint, stdout=asyncio.subprocess.PIPE
    )
    reported, _ = await child.communicate()
    return json.loads(reported)


@pytest.mark.parametrize("mode", ["pages", "empty"])
async def test_a_plugin_that_lists_without_end_costs_little_memory(endpoint, mode):
    async with sidecars.serving(endpoint, mode):
        outcome = await run_listing("grpc", endpoint)
    assert outcome["reason"] == errors.Reason.LIMIT_EXCEEDED
    assert outcome["grown"] < GROWTH_MIB


ROOT = "/redfish/v1"
ENDPOINTS = f"{ROOT}/Fabrics/F/Endpoints"
FABRIC = {
    "@odata.id": f"{ROOT}/Fabrics/F",
    "Id": "F",
    "Zones": {"@odata.id": f"{ROOT}/Fabrics/F/Zones"},
    "Endpoints": {"@odata.id": ENDPOINTS},
}
TREE = {
    ROOT: {
        "@odata.id": ROOT,
        "RedfishVersion": "1.20.0",
        "Id": "Root",
        "Fabrics": {"@odata.id": f"{ROOT}/Fabrics"},
        "ProtocolFeaturesSupported": {"ExpandQuery": {"NoLinks": True}},
    },
    f"{ROOT}/Fabrics": {"Members": [FABRIC]},
    f"{ROOT}/Fabrics/F/Zones": {"Members": []},
}


def make_endpoint(fill):
    """Return an endpoint of a device with `fill` as a further property."""
    entity = '{"EntityType":"Processor","EntityRole":"Target"}'
    return f'{{"@odata.id":"{ENDPOINTS}/1","Id":"1","Fill":{fill},"ConnectedEntities":[{entity}]}}'


def page(*members):
    """Return a page with another one behind it; the service counts them, because a repeated page ends a listing."""
    return f'{{"Members":[{",".join(members)}],"Members@odata.nextLink":"{ENDPOINTS}?page=NUMBER"}}'


def references(number):
    return ",".join(f'{{"@odata.id":"{ENDPOINTS}/{index}"}}' for index in range(number))


# Made for each test: together they are 100 MB.
HOSTILE = {
    "pages of values": lambda: page(
        make_endpoint("[" + ",".join(f'"{index:x}"' for index in range(480_000)) + "]")
    ),
    "pages of objects": lambda: page(make_endpoint("[" + ",".join(['{"a":{"a":{}}}'] * 100_000) + "]")),
    "pages of wide text": lambda: page(make_endpoint('"\U0001f600' + "x" * 4_000_000 + '"')),
    "large pages": lambda: page(make_endpoint('"' + "x" * 30_000_000 + '"')),
    "empty pages": page,
    "a page of links": lambda: f'{{"Members":[{references(400_000)}]}}',
    "links to large answers": lambda: f'{{"Members":[{references(100)}]}}',
    "an entity with many links": lambda: (
        page(make_endpoint(f"[{references(300_000)}]").replace("Fill", "Oem"), make_endpoint("[]"))
        .replace('"Oem"', '"ConnectedEntities"')
        .replace('{"@odata.id"', '{"EntityLink":{"@odata.id":"/x"},"@odata.id"')
    ),
}


@contextlib.asynccontextmanager
async def service(answer):
    """Run a Redfish service with this answer for its endpoints and large single endpoints; yield its URL."""
    large, numbers = make_endpoint('"' + "x" * 8_000_000 + '"'), itertools.count()

    async def handle(request):
        path = request.path.rstrip("/")
        if path == ENDPOINTS:
            text = answer.replace("?page=NUMBER", f"?page={next(numbers)}")
            return web.Response(text=text, content_type="application/json")
        if path.startswith(ENDPOINTS):
            return web.Response(text=large, content_type="application/json")
        return web.json_response(TREE.get(path, {}), status=200 if path in TREE else 404)

    runner = web.ServerRunner(web.Server(handle), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_redfish_service_that_lists_too_much_costs_little_memory(name):
    async with service(HOSTILE[name]()) as url:
        outcome = await run_listing("redfish", url)
    assert outcome["reason"] == errors.Reason.LIMIT_EXCEEDED
    assert outcome["grown"] < GROWTH_MIB
