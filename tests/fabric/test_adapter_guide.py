"""The worked example of docs/adapters.md keeps the contract, also where answers are lost."""

import importlib.util
import re
import tomllib
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from drawbar.fabric import conformance, contract

EXAMPLES = Path(__file__).parents[2] / "docs/examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@asynccontextmanager
async def connecting():
    manager = load("shelf_manager").Manager()
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
        async with await load("shelf_adapter").ShelfAdapter.connect(config) as adapter:
            yield manager, adapter
    finally:
        await runner.cleanup()


async def test_the_example_keeps_the_contract():
    async with connecting() as (_, adapter):
        report = await conformance.check(adapter, check_seconds=30)
        assert [(outcome.name, outcome.detail) for outcome in report.failed + report.warned] == []
        assert [
            outcome.name
            for outcome in report.skipped
            if not {"slices", "reachability"} & {*outcome.detail.split()}
        ] == ["cancelling a finished operation changes nothing"]


async def test_an_attach_whose_answer_is_lost_is_made_once():
    async with connecting() as (manager, adapter):
        manager.lost_answers = 1
        request = contract.AttachRequest(request_id="r1", device_id="d1", host_id="h1", mark="m")
        operation = await adapter.attach(request)
        assert operation.succeeded
        assert manager.rows["d1"]["host"] == "h1"
        assert (await adapter.attach(request)).id == operation.id


def test_the_page_has_the_address_of_the_manager_and_a_whole_package(monkeypatch):
    page = (EXAMPLES.parent / "adapters.md").read_text()
    served = []
    monkeypatch.setattr(web, "run_app", lambda app, **where: served.append(where))
    load("shelf_manager").main()
    assert served == [{"host": "127.0.0.1", "port": 8080}]
    assert "endpoint: http://127.0.0.1:8080\n" in page
    project = tomllib.loads(re.search(r"```toml\n(.*?)```", page, re.DOTALL)[1])
    assert project["build-system"]["build-backend"] == "hatchling.build"
    assert project["project"]["entry-points"]["drawbar.fabric_adapters"] == {
        "shelf": "acme_shelf.adapter:ShelfAdapter"
    }
    assert "`acme_shelf/__init__.py`" in page
