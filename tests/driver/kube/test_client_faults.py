"""The API server's client against servers that misbehave."""

import asyncio
import contextlib
import json

import pytest
from aiohttp import web
from tests.scenes import apiservers
from tests.scenes.apiservers import Thing

from drawbar.driver.kube import answers, client, errors, kinds, sessions


@contextlib.asynccontextmanager
async def raw_server(*chunks):
    """Yield a client of a server that reads a request, sends these bytes, and hangs up."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        for chunk in chunks:
            writer.write(chunk)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with client.connecting(apiservers.connection(url)) as api:
            yield api


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
EVENT = b'{"type":"ADDED","object":{"metadata":{"name":"one","resourceVersion":"7"}}}\n'


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param([], id="hangs-up-at-once"),
        pytest.param([b"HTTP/1.1 200"], id="in-the-head"),
        pytest.param([OK, b'Content-Length: 500\r\n\r\n{"metadata"'], id="in-the-body"),
        pytest.param([OK, b"Transfer-Encoding: chunked\r\n\r\n", chunk(b'{"meta')], id="between-chunks"),
        pytest.param([OK, b'Connection: close\r\n\r\n{"metadata": {"na'], id="without-a-length"),
        pytest.param([OK, b"Content-Length: 6\r\n\r\n<html>"], id="another-language"),
        pytest.param([OK, b'Content-Length: 15\r\n\r\n{"metadata": 5}'], id="another-object"),
        pytest.param([b"220 smtp ready\r\n"], id="another-protocol"),
        pytest.param([b"HTTP/1.1 503 Gone\r\nContent-Length: 0\r\n\r\n"], id="5xx"),
    ],
)
async def test_a_server_that_gives_no_usable_answer_is_unreachable(answer):
    async with raw_server(*answer) as api:
        with pytest.raises(errors.Unreachable, match="GET /api/v1/nodes/n") as refused:
            await api.read(kinds.NODE, "n", into=Thing)
    assert "\n" not in str(refused.value)


async def collect(api, names):
    async for event in api.watch(kinds.NODE, into=Thing, resource_version="1"):
        names.append(event.item.metadata.name)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param([OK, b"Transfer-Encoding: chunked\r\n\r\n", chunk(EVENT)], id="between-events"),
        pytest.param(
            [OK, b"Transfer-Encoding: chunked\r\n\r\n", chunk(EVENT + EVENT[:20])], id="within-an-event"
        ),
        pytest.param([OK, b"Connection: close\r\n\r\n", EVENT + EVENT[:20]], id="without-a-length"),
        pytest.param([OK, b"Connection: close\r\n\r\n", EVENT, b"<html>\n"], id="another-language"),
        pytest.param([OK, b"Connection: close\r\n\r\n", EVENT, b'{"type":"ADDED"}\n'], id="another-object"),
    ],
)
async def test_a_broken_watch_yields_complete_events_and_fails(answer):
    names = []
    async with raw_server(*answer) as api:
        with pytest.raises(errors.Unreachable):
            await collect(api, names)
    assert names == ["one"]


async def test_a_watch_that_the_server_ends_just_ends():
    async with raw_server(OK, b"Transfer-Encoding: chunked\r\n\r\n", chunk(EVENT), b"0\r\n\r\n") as api:
        events = [event async for event in api.watch(kinds.NODE, into=Thing, resource_version="1")]
    assert [event.resource_version for event in events] == ["7"]


def encode_nested_object(name, levels):
    value = b"[" * levels + b"]" * levels
    return b'{"metadata":{"name":"%s","resourceVersion":"7"},"spec":%s}' % (name, value)


async def test_an_object_that_is_nested_deeply_does_not_keep_back_the_others():
    items = [
        encode_nested_object(b"one", 1),
        encode_nested_object(b"two", 5000),
        encode_nested_object(b"three", 1),
    ]
    page = b'{"metadata":{"resourceVersion":"9"},"items":[%s]}' % b",".join(items)
    async with raw_server(OK, b"Content-Length: %d\r\n\r\n" % len(page), page) as api:
        listing = await api.list_all(kinds.NODE, into=Thing)
    assert [item.metadata.name for item in listing.items] == ["one", "two", "three"]
    names = []
    lines = [b'{"type":"ADDED","object":%s}\n' % item for item in items]
    async with raw_server(OK, b"Connection: close\r\n\r\n", *lines) as api:
        await collect(api, names)
    assert names == ["one", "two", "three"]


def node(name, rest=b'"spec":{}'):
    return b'{"metadata":{"name":"%s","uid":"u-%s","resourceVersion":"7"},%s}' % (name, name, rest)


ODD = [
    node(b"one"),
    node(b"escape", b'"spec":{"a":"\\ud800"}'),
    node(b"byte", b'"spec":{"\xff":"\xff"}'),
    node(b"nested", b'"spec":%s' % (b"[" * 2000 + b"]" * 2000)),
    node(b"digits", b'"spec":%s' % (b"9" * 5000)),
    b'{"metadata":{"name":"other","uid":"u-other","resourceVersion":"7","labels":5}}',
    node(b"three"),
]
READ = ["one", "escape", "byte", "nested", "digits", "three"]


async def test_an_object_that_cannot_be_read_is_left_out_of_a_list_alone():
    page = b'{"metadata":{"resourceVersion":"9"},"items":[%s]}' % b",".join(ODD)
    async with raw_server(OK, b"Content-Length: %d\r\n\r\n" % len(page), page) as api:
        listing = await api.list_all(kinds.NODE, into=Thing)
    assert [item.metadata.name for item in listing.items] == READ
    (left,) = listing.unreadable
    assert (left.metadata.name, left.metadata.uid, left.cause) == ("other", "u-other", "Malformed")
    assert str(left) == (
        "Node other is left out, since it is no Node of v1 that this release knows: "
        "Expected `object`, got `int` - at `$.metadata.labels`; correct the field, or delete the object"
    )


async def test_an_object_that_cannot_be_read_is_left_out_of_a_watch_alone():
    lines = [b'{"type":"ADDED","object":%s}\n' % item for item in ODD]
    async with raw_server(OK, b"Connection: close\r\n\r\n", *lines) as api:
        events = [event async for event in api.watch(kinds.NODE, into=Thing, resource_version="1")]
    assert [event.item.metadata.name for event in events if event.item is not None] == READ
    (left,) = [event.unreadable for event in events if event.unreadable is not None]
    assert (left.metadata.name, left.metadata.uid, left.cause) == ("other", "u-other", "Malformed")
    assert {event.resource_version for event in events} == {"7"}


async def test_a_list_item_without_identity_is_an_error():
    page = b'{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"labels":5}}]}'
    async with raw_server(OK, b"Content-Length: %d\r\n\r\n" % len(page), page) as api:
        with pytest.raises(errors.Unreachable, match="GET /api/v1/nodes"):
            await api.list_all(kinds.NODE, into=Thing)


def object_of(name, size):
    """Return an object whose JSON has `size` bytes, nearly all of them the escapes of `<`."""
    head = b'{"metadata":{"name":"%s","uid":"%s","resourceVersion":"7"},"data":"' % (name, name)
    escapes, rest = divmod(size - len(head) - 2, 6)
    return head + b"\\u003c" * escapes + b"x" * rest + b'"}'


async def test_a_watch_line_as_long_as_an_api_server_can_send_is_read():
    # 2 MiB is the most that an API server hands to etcd.
    large = object_of(b"large", 6 * 2 * 1024**2)
    lines = [b'{"type":"ADDED","object":%s}\n' % body for body in (large, object_of(b"one", 100))]
    names = []
    async with raw_server(OK, b"Connection: close\r\n\r\n", *lines) as api:
        await collect(api, names)
    assert names == ["large", "one"]


async def test_a_line_beyond_that_ends_the_watch_with_an_error_of_its_own():
    line = b'{"type":"ADDED","object":%s}\n' % object_of(b"large", answers.LIMIT_BYTES + 1)
    names = []
    async with raw_server(OK, b"Connection: close\r\n\r\n", EVENT, line) as api:
        with pytest.raises(errors.TooLarge, match=r"WATCH .*16 MiB"):
            await collect(api, names)
    assert names == ["one"]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param([b"HTTP/1.1 200 OK\r\nA: " + b"a" * 20_000 + b"\r\n\r\n"], id="header-too-long"),
        pytest.param([OK, b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"], id="no-chunk"),
        pytest.param([OK, b"Content-Length: two\r\n\r\n"], id="no-length"),
        pytest.param([OK, b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nzzzz"], id="no-gzip"),
    ],
)
async def test_a_protocol_error_is_reported_as_unreachable(answer):
    async with raw_server(*answer) as api:
        with pytest.raises(errors.Unreachable):
            await collect(api, [])
        with pytest.raises(errors.Unreachable):
            await api.read(kinds.NODE, "n", into=Thing)
        with pytest.raises(errors.Unreachable):
            await api.list_all(kinds.NODE, into=Thing)


@contextlib.asynccontextmanager
async def collection(*sizes):
    """Yield a client of a server of such objects, and the server's requests: (limit, only metadata)."""
    asked = []

    async def page(request):
        limit, first = int(request.query["limit"]), int(request.query.get("continue", 0))
        partial = "PartialObjectMetadataList" in request.headers["Accept"]
        asked.append((limit, partial))
        last = min(first + limit, len(sizes))
        metadata = {"resourceVersion": "9"} | ({"continue": str(last)} if last < len(sizes) else {})
        items = [
            object_of(b"n%d" % number, 100 if partial else sizes[number]) for number in range(first, last)
        ]
        body = b'{"items":[%s],"metadata":%s}' % (b",".join(items), json.dumps(metadata).encode())
        return web.Response(body=body, content_type="application/json")

    async with (
        apiservers.answering(page) as url,
        client.connecting(apiservers.connection(url)) as api,
    ):
        yield api, asked


async def test_a_list_asks_for_fewer_objects_where_they_are_large():
    sizes = [answers.LIMIT_BYTES // 2 - 500] * 5
    async with collection(*sizes) as (api, asked):
        listing = await api.list_all(kinds.NODE, into=Thing)
    assert [item.metadata.name for item in listing.items] == [f"n{number}" for number in range(5)]
    assert (listing.resource_version, listing.unreadable) == ("9", ())
    limits = [limit for limit, _ in asked]
    assert limits == [client.PAGE_FIRST, 12, 3, 1, 1, 1, 1, 1]


async def test_a_list_asks_for_more_objects_where_they_are_small():
    async with collection(*[100] * 1000) as (api, asked):
        listing = await api.list_all(kinds.NODE, into=Thing)
    assert len(listing.items) == 1000
    assert [limit for limit, _ in asked] == [50, 200, 500, 500]


async def test_a_list_names_oversized_objects_and_reads_all_others():
    async with collection(100, answers.LIMIT_BYTES + 1, 100, 100) as (api, asked):
        listing = await api.list_all(kinds.NODE, into=Thing)
    assert [item.metadata.name for item in listing.items] == ["n0", "n2", "n3"]
    (left,) = listing.unreadable
    assert (left.metadata.name, left.metadata.uid, left.cause) == ("n1", "n1", "TooLarge")
    assert str(left) == "Node n1 is left out, since it is larger than 16 MiB as JSON; shorten it"
    assert asked.count((1, True)) == 1


async def test_an_oversized_object_is_reported_with_the_limit():
    body = object_of(b"n", answers.LIMIT_BYTES + 1)
    async with raw_server(OK, b"Content-Length: %d\r\n\r\n" % len(body), body) as api:
        with pytest.raises(errors.TooLarge, match=r"GET /api/v1/nodes/n: .*16 MiB"):
            await api.read(kinds.NODE, "n", into=Thing)


async def test_an_error_within_a_watch_is_recognized_by_its_code():
    for code, expected in ((410, errors.Expired), (500, errors.Unreachable)):
        line = json.dumps({"type": "ERROR", "object": {"code": code, "message": "too old"}}).encode() + b"\n"
        async with raw_server(OK, b"Connection: close\r\n\r\n", line) as api:
            with pytest.raises(expected, match="too old"):
                async for _ in api.watch(kinds.NODE, into=Thing, resource_version="1"):
                    pass


async def test_a_port_without_a_listener_is_unreachable_and_the_server_is_named():
    async with raw_server() as api:
        url = api.server
    async with client.connecting(apiservers.connection(url, "Bearer s3cr3t")) as api:
        with pytest.raises(errors.Unreachable, match=url) as refused:
            await api.read(kinds.NODE, "n", into=Thing)
    assert "s3cr3t" not in str(refused.value)


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (400, "", errors.Invalid),
        (401, "", errors.Unauthenticated),
        (403, "", errors.Denied),
        (404, "", errors.NotFound),
        (409, "", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "", errors.Expired),
        (422, "", errors.Invalid),
        (429, "", errors.Throttled),
        # All of them say Retry-After, as an API server that shuts down does.
        (500, "", errors.Throttled),
        (503, "", errors.Throttled),
        (504, "", errors.Throttled),
    ],
)
async def test_each_status_has_an_error_by_the_callers_options(status, reason, expected):
    content = json.dumps({"message": "words " * 500, "reason": reason, "code": status}).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\nRetry-After: 3\r\n\r\n".encode()
    async with raw_server(head, content) as api:
        with pytest.raises(errors.KubeError) as refused:
            await api.read(kinds.NODE, "n", into=Thing)
    assert type(refused.value) is expected
    assert len(str(refused.value)) < answers.MESSAGE_LIMIT_CHARS + 100
    if isinstance(refused.value, errors.Throttled):
        assert refused.value.retry_after_seconds == 3.0


async def test_a_page_of_html_is_quoted_as_one_line():
    page = b"<html>\n  <h1>Bad gateway</h1>\n</html>"
    head = f"HTTP/1.1 502 X\r\nContent-Length: {len(page)}\r\n\r\n".encode()
    async with raw_server(head, page) as api:
        with pytest.raises(errors.Unreachable, match="Bad gateway") as refused:
            await api.read(kinds.NODE, "n", into=Thing)
    assert "\n" not in str(refused.value)


async def test_an_answer_that_never_comes_ends_at_the_deadline(monkeypatch):
    monkeypatch.setattr(sessions, "REQUEST_TIMEOUT_SECONDS", 0.05)

    async def never(request):
        await asyncio.Event().wait()

    async with (
        apiservers.answering(never) as url,
        client.connecting(apiservers.connection(url)) as api,
    ):
        with pytest.raises(errors.Unreachable, match="no answer"):
            await api.read(kinds.NODE, "n", into=Thing)


async def test_no_cookie_of_a_server_is_kept():
    sent = []

    async def answer(request):
        sent.append(request.headers.get("Cookie"))
        return web.json_response({"metadata": {"name": "n"}}, headers={"Set-Cookie": "a=b"})

    # Of an address alone no cookie is ever kept.
    async with (
        apiservers.answering(answer) as url,
        client.connecting(apiservers.connection(url.replace("127.0.0.1", "localhost"))) as api,
    ):
        for _ in range(2):
            await api.read(kinds.NODE, "n", into=Thing)
    assert sent == [None, None]
