"""Watches over HTTP: order, selection, resuming, bookmarks and their end."""

import asyncio
import json
from typing import Any

MAPS = "/api/v1/namespaces/default/configmaps"


async def events(response: Any, count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(120):
        return [json.loads(await response.content.readline()) for _ in range(count)]


async def test_a_watch_from_a_forgotten_version_is_told_410(api: Any, make_config_map: Any) -> None:
    first = await api.post(MAPS, make_config_map("a"))
    await api.post(MAPS, make_config_map("b"))
    api.server.store.compact()
    async with api.watch(MAPS, resourceVersion=first.version) as stream:
        body = await asyncio.wait_for(stream.content.read(), 10)
    event = json.loads(body)
    assert stream.status == 200
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_the_history_is_bounded(start: Any, make_config_map: Any) -> None:
    api = await start(history=2)
    first = await api.post(MAPS, make_config_map("a"))
    for name in ("b", "c", "d"):
        await api.post(MAPS, make_config_map(name))
    async with api.watch(MAPS, resourceVersion=first.version) as stream:
        assert [event["type"] for event in await events(stream, 1)] == ["ERROR"]


async def test_idle_watches_get_bookmarks_when_they_ask(start: Any) -> None:
    api = await start(bookmark_seconds=0.05)
    current = (await api.get(MAPS)).version
    async with api.watch(MAPS, resourceVersion=current, allowWatchBookmarks="true") as stream:
        received = await events(stream, 1)
    assert received[0]["type"] == "BOOKMARK"
    assert received[0]["object"]["metadata"]["resourceVersion"] == current


async def test_a_stopping_server_ends_its_watches(start: Any) -> None:
    from aiohttp import ClientSession

    from drawbar.mocks import apiserver

    async with ClientSession() as session:
        async with apiserver.serving() as server:
            headers = {"Authorization": f"Bearer {server.token_for()}"}
            stream = await session.get(f"{server.url}{MAPS}?watch=true", headers=headers)
        assert await asyncio.wait_for(stream.content.read(), 10) == b""
        stream.close()


async def test_a_last_bookmark_comes_before_a_watch_ends(api: Any, make_config_map: Any) -> None:
    made = await api.post(MAPS, make_config_map())
    query = {"resourceVersion": made.version, "timeoutSeconds": 3, "allowWatchBookmarks": "true"}
    async with api.watch(MAPS, **query, fieldSelector="metadata.name=none") as stream:
        seen = [json.loads(line)["type"] async for line in stream.content]
    assert seen == ["BOOKMARK"]
