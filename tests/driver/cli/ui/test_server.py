"""The server of the page: who gets what, by which headers, and what a browser receives that reads late."""

import asyncio
import contextlib
import json
import urllib.parse

import aiohttp
import pytest
from tests.scenes import waiting

from drawbar.driver import errors
from drawbar.driver.cli.status import tree
from drawbar.driver.cli.ui import device_rows, explaining, following, model, server
from drawbar.driver.operation import server as bounded

SECONDS = 60


def page(count, state="Free"):
    rows = [
        device_rows.describe_row(
            tree.Device(pool="rack-1/e", name=f"gpu-{number}", state=state), fabric="rack-1", enclosure="e"
        )
        for number in range(count)
    ]
    return model.Page(rows={row.key: row for row in rows})


async def explain(target):
    return explaining.Explanation(error=f"{target.kind} {target.namespace} {target.name}")


@contextlib.asynccontextmanager
async def asking(first=None):
    latest = following.Latest()
    if first is not None:
        latest.publish(first)
    with server.listening() as bound:
        async with server.serving(latest, bound, explain) as url, aiohttp.ClientSession() as session:
            yield latest, url, session
    # aiohttp closes its transports in the next turn of the loop.
    await asyncio.sleep(0)


async def read_update(response):
    """Return the next update of a stream."""
    async with asyncio.timeout(SECONDS):
        while True:
            line = await response.content.readuntil(b"\n\n", max_size=2**24)
            if line.startswith(b"data: "):
                return json.loads(line.removeprefix(b"data: "))


@pytest.mark.parametrize("name", ["", "page.css", "page.js", "icon.svg", "updates"])
async def test_each_answer_has_the_headers_that_keep_others_out(name):
    async with asking() as (_, url, session), session.get(url + name) as answer:
        assert answer.status == 200
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        assert "http" not in policy
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/page.js",
        "/updates",
        "/x/",
        "/x/updates",
        "/{token}x/",
        "/%7B/",
        "/\u00e9/updates",
        "/{token}/../page.html",
        "/{token}/command.py",
    ],
)
async def test_without_the_token_or_beside_its_files_there_is_nothing(path):
    async with asking() as (_, url, session):
        base, token = url.rstrip("/").rsplit("/", 1)
        async with session.get(base + path.replace("{token}", token)) as answer:
            assert answer.status == 404
            assert token not in await answer.text()


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?kind=secret&name=x",
        "?kind=claim&name=x",
        "?kind=claim&namespace=a/b&name=x",
        "?kind=device&namespace=rack-1&name=..%2Fx",
        "?kind=device&name=x",
        "?kind=device&name=" + "x" * 254,
    ],
)
async def test_only_objects_of_the_page_are_explained(query):
    async with asking() as (_, url, session), session.get(url + "explain" + query) as answer:
        assert answer.status == 400


@pytest.mark.parametrize(
    ("query", "target"),
    [
        ("?kind=claim&namespace=team-a&name=train", "claim team-a train"),
        ("?kind=device&namespace=rack-1%2Fchassis-1&name=gpu-1", "device  rack-1/chassis-1/gpu-1"),
        ("?kind=fabric&name=rack-1", "fabric  rack-1"),
    ],
)
async def test_an_explanation_is_for_the_named_object(query, target):
    async with asking() as (_, url, session), session.get(url + "explain" + query) as answer:
        assert (answer.status, await answer.json()) == (200, {"findings": [], "error": target})


async def test_every_start_has_a_token_of_its_own():
    async with asking() as (_, first, _), asking() as (_, second, _):
        tokens = {url.rstrip("/").rpartition("/")[2] for url in (first, second)}
        assert len(tokens) == 2
        assert all(len(token) >= 43 for token in tokens)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:9000", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:80", 200),
        ("attacker.example", 421),
        ("127.0.0.1.attacker.example", 421),
        ("localhost.attacker.example:80", 421),
        ("[::2]:80", 421),
        ("[::1", 421),
        ("", 421),
    ],
)
async def test_a_request_that_names_another_host_is_refused(host, status):
    async with asking() as (_, url, session), session.get(url, headers={"Host": host}) as answer:
        assert answer.status == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_nothing_can_be_written(method):
    async with asking() as (_, url, session), session.request(method, url) as answer:
        assert answer.status == 405


async def test_a_stream_begins_with_all_rows_and_continues_with_changes():
    async with asking(page(3)) as (latest, url, session), session.get(url + "updates") as stream:
        first = await read_update(stream)
        assert (first["isWhole"], len(first["rows"])) == (True, 3)
        kept = dict(latest.page.rows)
        kept.update(list(page(1, "Failed").rows.items()))
        latest.publish(model.Page(rows=kept))
        second = await read_update(stream)
        assert second["isWhole"] is False
        assert [(row["device"]["name"], row["device"]["state"]) for row in second["rows"]] == [
            ("gpu-0", "Failed")
        ]
        assert second["events"] is None


async def test_a_browser_that_reads_late_gets_few_updates_and_the_last_state():
    count = 5000
    # They take longer than a write may, so they are made before.
    pages = [page(count, f"state-{number}") for number in range(20)]
    async with asking(page(count)) as (latest, url, session), session.get(url + "updates") as stream:
        for each in pages:
            latest.publish(each)
            # So that the server may send.
            await asyncio.sleep(0)
        updates = [await read_update(stream)]
        while updates[-1]["isPartial"] or updates[-1]["rows"][0]["device"]["state"] != "state-19":
            updates.append(await read_update(stream))
        assert len(updates) < 20
        first, rest = updates[-2:]
        assert (first["isWhole"], first["isPartial"], rest["isWhole"]) == (True, True, False)
        assert len(first["rows"]) + len(rest["rows"]) == count


async def test_more_streams_than_may_be_are_refused_until_one_ends():
    async with asking() as (_, url, session), contextlib.AsyncExitStack() as streams:
        opened = [
            await streams.enter_async_context(session.get(url + "updates"))
            for _ in range(server.STREAMS_LIMIT)
        ]
        other = await streams.enter_async_context(aiohttp.ClientSession())
        async with other.get(url + "updates") as answer:
            assert answer.status == 503
            assert "close one" in await answer.text()
        opened[0].close()

        async def is_answered():
            async with other.get(url + "updates") as answer:
                return answer.status == 200

        # Before the next heartbeat.
        await waiting.eventually(is_answered, seconds=server.HEARTBEAT_SECONDS / 2)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: "], ids=["nothing", "half a request"])
async def test_silent_connections_do_not_keep_the_user_out(sent, monkeypatch):
    async with asking(page(1)) as (_, url, session), contextlib.AsyncExitStack() as stack:
        opened = []
        for _ in range(server.CONNECTIONS_LIMIT + 8):
            reader, writer = await asyncio.open_connection(server.ADDRESS, urllib.parse.urlsplit(url).port)
            stack.callback(writer.close)
            writer.write(sent)
            opened.append(reader)
        async with asyncio.timeout(SECONDS / 2):
            await asyncio.gather(*(reader.read() for reader in opened[:8]))
        monkeypatch.setattr(bounded, "REQUEST_TIMEOUT_SECONDS", 0.05)
        async with session.get(url + "updates") as stream:
            assert (await read_update(stream))["isWhole"] is True
            async with asyncio.timeout(SECONDS):
                await asyncio.gather(*(reader.read() for reader in opened))
            assert not stream.content.at_eof()


def test_a_port_in_use_is_one_sentence():
    with server.listening() as bound:
        bound.listen()
        port = bound.getsockname()[1]
        sentence = f"port {port} of 127.0.0.1 is in use; name another one by --port"
        with pytest.raises(errors.DrawbarError, match=sentence), server.listening(port):
            pass
