"""The worked example of docs/adapters.md keeps the contract, also where answers are lost."""

import importlib.util
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from drawbar.fabric import conformance, contract

EXAMPLE = Path(__file__).parents[2] / "docs/examples/shelf_adapter.py"


def load():
    spec = importlib.util.spec_from_file_location("shelf_adapter", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Manager:
    """The manager of the example; it loses the answers of so many changes."""

    def __init__(self):
        self.rows = {
            name: {"id": name, "model": "M", "serial": f"S{name}", "host": None, "note": ""}
            for name in ("d1", "d2")
        }
        self.lost_answers = 0

    async def handle(self, request):
        if request.method == "GET":
            return web.json_response(list(self.rows.values()))
        row = self.rows[request.path.split("/")[2]]
        body = await request.json() if request.method == "PUT" else {"host": None, "note": ""}
        if row["host"] not in {None, body["host"]} and request.method == "PUT":
            return web.Response(status=409)
        row.update(body)
        if self.lost_answers > 0:
            self.lost_answers -= 1
            request.transport.abort()
        return web.Response(status=204)


@asynccontextmanager
async def connected():
    manager = Manager()
    runner = web.ServerRunner(web.Server(manager.handle), shutdown_timeout=0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        config = contract.AdapterConfig(
            name="shelf",
            endpoint=f"http://127.0.0.1:{runner.addresses[0][1]}",
            parameters={"hosts": "h1,h2"},
            timeout_seconds=20,
        )
        async with await load().ShelfAdapter.connect(config) as adapter:
            yield manager, adapter
    finally:
        await runner.cleanup()


async def test_the_example_keeps_the_contract():
    async with connected() as (_, adapter):
        report = await conformance.check(adapter, check_seconds=30)
        assert [(outcome.name, outcome.detail) for outcome in report.failed + report.warned] == []
        assert [
            outcome.name
            for outcome in report.skipped
            if not {"slices", "reachability"} & {*outcome.detail.split()}
        ] == ["cancelling a finished operation changes nothing"]


async def test_an_attach_whose_answer_is_lost_is_made_once():
    async with connected() as (manager, adapter):
        manager.lost_answers = 1
        request = contract.AttachRequest(request_id="r1", device_id="d1", host_id="h1", mark="m")
        operation = await adapter.attach(request)
        assert operation.succeeded
        assert manager.rows["d1"]["host"] == "h1"
        assert (await adapter.attach(request)).id == operation.id
