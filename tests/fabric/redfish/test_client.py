"""The client against answers that the emulator never gives."""

import asyncio
from contextlib import AsyncExitStack, aclosing

import pytest
from aiohttp import web

from drawbar.fabric import budget, contract, errors
from drawbar.fabric.redfish import client, monitors, pages, reading, transport

ROOT = {
    "@odata.id": "/redfish/v1",
    "RedfishVersion": "1.9.0",
    "SessionService": {"@odata.id": "/redfish/v1/SessionService"},
}
TASK = "/redfish/v1/TaskService/Tasks/1"
pytestmark = pytest.mark.sockets


class Script:
    """A service that answers each method and path with what is next in a list, the last one forever."""

    def __init__(self):
        self.answers = {("GET", "/redfish/v1/"): [(200, ROOT, {})]}
        self.requests = []
        self.compressed = False
        # Of this loop, at any request.
        self.most_tasks = 0

    def set_answers(self, method, path, *answers):
        self.answers[method, path] = [
            (answer if isinstance(answer, tuple) else (200, answer, {})) for answer in answers
        ]

    async def handle(self, request):
        self.requests.append((request.method, request.path, request.headers))
        self.most_tasks = max(self.most_tasks, len(asyncio.all_tasks()))
        listed = self.answers.get((request.method, request.path)) or [(404, {}, {})]
        status, body, headers = listed.pop(0) if len(listed) > 1 else listed[0]
        if not status:
            request.transport.close()
        answer = (
            web.Response(status=status or 500, text=body, headers=headers)
            if isinstance(body, str)
            else web.json_response(body, status=status or 500, headers=headers)
        )
        if self.compressed:
            answer.enable_compression(web.ContentCoding.gzip)
        return answer


@pytest.fixture
async def script(monkeypatch):
    monkeypatch.setattr(monitors, "PAUSE_SECONDS_MIN", 0.0)
    script = Script()
    async with AsyncExitStack() as stack:
        runner = web.ServerRunner(web.Server(script.handle), shutdown_timeout=0.1)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()

        async def connect(*, host="127.0.0.1", **changes):
            config = contract.AdapterConfig(
                name="f", endpoint=f"http://{host}:{runner.addresses[0][1]}", timeout_seconds=5, **changes
            )
            connection = await client.Client.connect(config)
            stack.push_async_callback(connection.close)
            return connection

        script.connect = connect
        yield script


# --- what is no Redfish service ---

QUOTED = "s3cret-of-another-service"
ERROR = {"error": {"message": QUOTED, "@Message.ExtendedInfo": [{"MessageId": QUOTED, "Message": QUOTED}]}}


@pytest.mark.parametrize(
    "answer",
    [
        *((status, ERROR, {}) for status in (400, 401, 403, 404, 409, 429, 500, 503)),
        (200, {"name": QUOTED, "error": QUOTED}, {}),
        (200, {"@odata.type": QUOTED, "Links": {"Sessions": {"@odata.id": f"/{QUOTED}"}}}, {}),
        (200, f"<html>{QUOTED}", {"Content-Type": f"text/{QUOTED}"}),
        (302, QUOTED, {"Location": f"http://{QUOTED}/"}),
        (302, QUOTED, {"Location": f"/{QUOTED}"}),
        (304, "", {"ETag": QUOTED}),
    ],
    ids=lambda answer: f"{answer[0]} {type(answer[1]).__name__}",
)
async def test_nothing_is_quoted_and_nothing_is_told_before_the_service_is_one_of_redfish(script, answer):
    """Otherwise the error would show an attacker the answers of services that only the controller reaches."""
    script.set_answers("GET", "/redfish/v1/", answer)
    script.set_answers("GET", f"/{QUOTED}", answer)
    credentials = contract.Credentials(username="admin", password="correct horse")
    with pytest.raises(errors.FabricError) as raised:
        await script.connect(credentials=credentials)
    assert QUOTED not in raised.value.message + str(raised.value.vendor) + raised.value.reason
    assert {method for method, _, _ in script.requests} == {"GET"}
    assert not [headers for _, _, headers in script.requests if "Authorization" in headers]


@pytest.mark.parametrize(
    "named",
    [
        "127.0.0.1",
        "localhost",
        "127.1",
        "2130706433",
        "0x7f000001",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
    ],
)
async def test_an_address_that_is_not_permitted_is_not_connected_to_however_it_is_written(script, named):
    with pytest.raises(errors.Unavailable) as raised:
        await script.connect(host=named, networks=contract.Networks())
    assert script.requests == []
    if named == "127.0.0.1":
        assert "fabricNetworks" in raised.value.message
    allowed = contract.Networks.parse(["127.0.0.0/8"])
    await script.connect(networks=allowed)


def _members(*names, following=None):
    page = {"Members": [{"@odata.id": f"/c/{name}", "Id": name, "Model": "M"} for name in names]}
    return page | ({"Members@odata.nextLink": following} if following else {})


# --- reading ---


async def test_pages_are_followed_to_the_last_one(script):
    script.set_answers("GET", "/c", _members("1", "2", following="/c2?$skip=2"))
    script.set_answers("GET", "/c2", _members("3"))
    connection = await script.connect()
    assert [member.id for member in await reading.Reader(connection).members("/c")] == ["1", "2", "3"]


async def test_a_listing_without_end_is_refused(script):
    script.set_answers(
        "GET", "/c", *(_members("1", following=f"/c?$skip={number}") for number in range(1, 9))
    )
    connection = await script.connect(limits=budget.Limits(devices=10, hosts=10))
    with pytest.raises(errors.Unavailable, match="and at most 160 are read") as caught:
        await reading.Reader(connection).members("/c")
    assert caught.value.reason == errors.Reason.LIMIT_EXCEEDED
    assert "raise spec.policy.limits.devices of the Fabric (kubectl edit fabric f)" in caught.value.message


async def test_a_listing_that_is_too_long_is_refused(script):
    script.set_answers("GET", "/c", _members(*map(str, range(200))))
    connection = await script.connect(limits=budget.Limits(devices=10, hosts=10))
    with pytest.raises(errors.Unavailable, match="201 resources or more, and at most 160"):
        await reading.Reader(connection).members("/c")


async def test_collections_pages_and_links_of_one_listing_count_together(script):
    script.set_answers("GET", "/c", _members("1", "2", "3"))
    script.set_answers("GET", "/d", {"Members": [{"@odata.id": f"/d/{number}"} for number in range(3)]})
    for number in range(3):
        script.set_answers("GET", f"/d/{number}", {"@odata.id": f"/d/{number}", "Id": str(number)})
    connection = await script.connect(limits=budget.Limits(devices=1, hosts=1))
    reader = reading.Reader(connection)
    await reader.members("/c")
    await reader.members("/d")
    await reader.get("/d/0")
    with pytest.raises(errors.Unavailable, match="resources"):
        await reader.members("/d")
    # Another listing begins from zero.
    assert len(await reading.Reader(connection).members("/d")) == 3


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("[" + "1," * 30_000 + "1]", "JSON values"),
        ("{" + '"' + "x" * 1024 * 1024 + '":1}', "bytes"),
    ],
)
async def test_an_answer_of_too_many_values_or_bytes_is_refused(script, body, words):
    script.set_answers("GET", "/c", body)
    connection = await script.connect(limits=budget.Limits(listing_mebibytes=1))
    with pytest.raises(errors.Unavailable, match=words) as caught:
        await connection.get("/c")
    assert "listingMebibytes" in caught.value.message


async def test_a_change_with_an_oversized_answer_has_unknown_effects(script):
    script.set_answers("POST", "/c", "[" + "1," * 30_000 + "1]")
    connection = await script.connect(limits=budget.Limits(listing_mebibytes=1))
    with pytest.raises(errors.Unavailable) as caught:
        await connection.change("POST", "/c", {})
    assert caught.value.side_effects_unknown


async def test_however_many_links_a_listing_has_few_are_followed_at_once(script):
    script.set_answers("GET", "/c", {"Members": [{"@odata.id": f"/c/{number}"} for number in range(500)]})
    connection = await script.connect()
    assert await reading.Reader(connection).members("/c") == ()
    # The client's own, and the service's two for each connection.
    assert script.most_tasks <= 4 * transport.PARALLEL


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_on_the_same_host_is_followed(script, status):
    script.set_answers("GET", "/a", (status, {}, {"Location": "/b"}))
    script.set_answers("GET", "/b", {"@odata.id": "/b", "Id": "b"})
    connection = await script.connect()
    assert (await connection.get("/a")).id == "b"


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_change_is_sent_again_to_the_same_path_with_a_slash(script, method, status):
    script.set_answers(method, "/z", (status, "<html>Moved", {"Location": "/z/"}))
    script.set_answers(method, "/z/", (204, "", {}))
    connection = await script.connect()
    await connection.change(method, "/z", {"a": 1})
    assert [(method, path) for method, path, _ in script.requests[1:]] == [(method, "/z"), (method, "/z/")]


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_change_that_names_its_result_is_sent_once(script, status):
    script.set_answers("POST", "/z", (status, {}, {"Location": "/z/1"}))
    script.set_answers("GET", "/z/1", {"Id": "1"})
    connection = await script.connect()
    await connection.change("POST", "/z", {"a": 1})
    assert [(method, path) for method, path, _ in script.requests[1:]] == [("POST", "/z"), ("GET", "/z/1")]


async def test_a_path_that_the_service_writes_with_a_slash_is_asked_for_with_it(script):
    script.set_answers("GET", "/c", {"Members": [{"@odata.id": "/c/1/"}]})
    script.set_answers(
        "GET", "/c/1/", {"@odata.id": "/c/1/", "Id": "1", "Actions": {"#Z.Add": {"target": "/c/1/add/"}}}
    )
    script.set_answers("POST", "/c/1/add/", (204, "", {}))
    connection = await script.connect()
    (member,) = await reading.Reader(connection).members("/c")
    await connection.change("POST", member.action("#Z.Add"), {})
    assert [path for _, path, _ in script.requests[1:]] == ["/c", "/c/1/", "/c/1/add/"]


async def test_a_further_page_is_asked_for_by_its_query(script):
    script.set_answers(
        "GET",
        "/c",
        _members("1", "2", following="/c?$skip=2"),
        _members("3", following="/c?$skip=3"),
        _members("4"),
    )
    connection = await script.connect()
    assert [member.id for member in await reading.Reader(connection).members("/c")] == ["1", "2", "3", "4"]


@pytest.mark.parametrize("name", ["http://bmc.internal:8443", "https://10.0.0.1", "//bmc"])
async def test_another_name_of_the_service_stands_for_its_endpoint(script, name):
    script.set_answers("POST", "/z", (202, {}, {"Location": f"{name}/redfish/v1/T/1?a=b"}))
    script.set_answers("GET", "/redfish/v1/T/1", (204, "", {}))
    connection = await script.connect()
    await connection.change("POST", "/z", {})
    assert [path for _, path, _ in script.requests[1:]] == ["/z", "/redfish/v1/T/1"]


async def test_a_change_that_the_service_does_not_answer_is_reported_as_such(script):
    """Sunfish closes the connection if an agent of it fails."""
    script.set_answers("DELETE", "/z", (0, {}, {}))
    connection = await script.connect()
    with pytest.raises(errors.Unavailable, match="it closed the connection without an answer") as caught:
        await connection.change("DELETE", "/z")
    assert caught.value.side_effects_unknown


async def test_a_change_uses_no_connection_that_the_service_may_have_closed():
    async def serve(reader, writer):
        request = await reader.readuntil(b"\r\n\r\n")
        methods.append(request.split()[0])
        body = b'{"RedfishVersion": "1.9.0"}'
        # It is closed against this promise.
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: %d\r\n\r\n" % len(body))
        writer.write(body)
        writer.close()

    methods = []
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        config = contract.AdapterConfig(name="f", endpoint=f"http://127.0.0.1:{port}", timeout_seconds=5)
        connection = await client.Client.connect(config)
        for _ in range(3):
            await connection.change("POST", "/z", {})
        await connection.close()
    assert methods == [b"GET", b"POST", b"POST", b"POST"]


async def test_a_redirect_to_another_host_is_refused(script):
    script.set_answers("GET", "/a", (307, {}, {"Location": "https://elsewhere.invalid/redfish/v1"}))
    connection = await script.connect()
    with pytest.raises(errors.Unavailable, match="another host"):
        await connection.get("/a")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"Members": {"@odata.id": "/c/1"}},
        {"Members": None},
        {"Links": {"Members": [{"@odata.id": "/c/1"}]}},
        {"error": {"message": "starting up"}},
        {"Members@odata.count": 2, "Members": []},
        {"Members@odata.count": "2", "Members": []},
    ],
    ids=repr,
)
async def test_a_collection_that_contradicts_itself_is_no_empty_one(script, body):
    script.set_answers("GET", "/c", body)
    connection = await script.connect()
    with pytest.raises(errors.Unavailable) as caught:
        await reading.Reader(connection).members("/c")
    assert caught.value.reason == "MALFORMED_ANSWER"


@pytest.mark.parametrize("count", [2, "2"])
async def test_a_collection_that_counts_more_than_it_shows_is_in_doubt(script, count):
    script.set_answers("GET", "/c", _members("1") | {"Members@odata.count": count})
    reader = reading.Reader(await script.connect())
    assert [member.id for member in await reader.members("/c")] == ["1"]
    assert reader.unread == {
        "/c": "/c cannot be read whole (MALFORMED_ANSWER): it counts 2 members and shows 1"
    }


async def test_an_expansion_that_leaves_members_out_is_not_used(script):
    offered = {"NoLinks": True, "Levels": True}
    script.set_answers("GET", "/redfish/v1/", ROOT | {"ProtocolFeaturesSupported": {"ExpandQuery": offered}})
    whole = [{"@odata.id": "/c/1"}, {"@odata.id": "/c/2"}]
    script.set_answers(
        "GET",
        "/c",
        {"Members@odata.count": 2, "Members": [{"@odata.id": "/c/1", "Id": "1"}]},
        {"Members@odata.count": 2, "Members": whole},
    )
    for name in "12":
        script.set_answers("GET", f"/c/{name}", {"@odata.id": f"/c/{name}", "Id": name})
    reader = reading.Reader(await script.connect())
    assert [member.id for member in await reader.members("/c")] == ["1", "2"]
    assert reader.unread == {}


@pytest.mark.parametrize(
    "refusal", [(400, {}, {}), (500, {}, {}), (501, {}, {}), (200, "<html>", {})], ids=repr
)
async def test_a_collection_that_is_not_expanded_is_read_member_by_member(script, refusal):
    offered = {"NoLinks": True, "Levels": True}
    script.set_answers("GET", "/redfish/v1/", ROOT | {"ProtocolFeaturesSupported": {"ExpandQuery": offered}})
    script.set_answers("GET", "/c", refusal, {"Members": [{"@odata.id": "/c/1"}]})
    script.set_answers("GET", "/c/1", {"@odata.id": "/c/1", "Id": "1"})
    connection = await script.connect()
    assert [member.id for member in await reading.Reader(connection).members("/c")] == ["1"]


async def test_the_newest_members_are_those_of_the_last_page(script):
    script.set_answers("GET", "/c", _members("1", "2", following="/c2"))
    script.set_answers("GET", "/c2", _members("3"))
    reader = reading.Reader(await script.connect())
    assert [member.id for member in await reader.newest("/c", 2)] == ["2", "3"]


@pytest.mark.parametrize("refusal", [(400, {}, {}), (500, {}, {})], ids=repr)
async def test_the_newest_members_are_read_where_an_expansion_is_refused(script, refusal):
    offered = {"NoLinks": True, "Levels": True}
    script.set_answers("GET", "/redfish/v1/", ROOT | {"ProtocolFeaturesSupported": {"ExpandQuery": offered}})
    script.set_answers("GET", "/c", refusal, _members("1", "2"))
    reader = reading.Reader(await script.connect())
    assert [member.id for member in await reader.newest("/c", 1)] == ["2"]


async def test_a_compressed_answer_is_unpacked(script):
    script.set_answers("GET", "/a", {"Id": "a"})
    script.compressed = True
    connection = await script.connect()
    assert (await connection.get("/a")).id == "a"


async def test_a_compressed_answer_counts_with_its_unpacked_size(script):
    script.set_answers("GET", "/a", {"Id": "a" * (2 * 1024 * 1024)})
    script.compressed = True
    connection = await script.connect(limits=budget.Limits(listing_mebibytes=1))
    with pytest.raises(errors.Unavailable, match="bytes"):
        await connection.get("/a")


async def test_a_root_without_a_slash_is_read_too(script):
    script.answers[("GET", "/redfish/v1")] = script.answers.pop(("GET", "/redfish/v1/"))
    connection = await script.connect()
    assert connection.root.text("RedfishVersion") == "1.9.0"


@pytest.mark.parametrize(
    "root",
    [
        {"@odata.type": "#serviceroot.v1_5_0.serviceroot"},
        {"@odata.type": "ServiceRoot.v1_5_0.ServiceRoot"},
        {"RedfishVersion": 1.6},
    ],
    ids=repr,
)
async def test_a_root_is_known_in_any_form(script, root):
    script.set_answers("GET", "/redfish/v1/", root)
    assert (await script.connect()).root.body == root


async def test_a_long_header_is_read(script):
    script.set_answers("GET", "/a", (200, {"Id": "a"}, {"Link": "x" * 20_000}))
    assert (await (await script.connect()).get("/a")).id == "a"


async def test_a_redirect_without_end_is_refused(script):
    script.set_answers("GET", "/a", (307, {}, {"Location": "/a"}))
    connection = await script.connect()
    with pytest.raises(errors.Unavailable, match="redirected"):
        await connection.get("/a")


@pytest.mark.parametrize("link", ["//elsewhere.invalid/a", "http://u:p@127.0.0.1/a", "http://[", "ftp://x/"])
async def test_a_link_that_leads_elsewhere_is_refused(script, link):
    connection = await script.connect()
    with pytest.raises(errors.Unavailable, match="sent one"):
        await connection.get(link)


async def test_an_answer_that_is_none_of_a_reading_is_refused(script):
    script.set_answers("GET", "/a", (202, {}, {}))
    connection = await script.connect()
    with pytest.raises(errors.Unavailable, match="status 202"):
        await connection.get("/a")


async def test_a_member_that_cannot_be_read_is_noted_and_one_that_is_gone_is_not(script):
    script.set_answers("GET", "/c", {"Members": [{"@odata.id": "/c/1"}, {"@odata.id": "/c/gone"}]})
    script.set_answers("GET", "/c/1", {"@odata.id": "/c/1", "Id": "1"})
    connection = await script.connect()
    reader = reading.Reader(connection)
    assert [member.id for member in await reader.members("/c")] == ["1"]
    assert (reader.unread, reader.dangling) == ({}, {"/c/gone"})
    script.set_answers("GET", "/c/1", (403, {}, {}))
    assert await reader.members("/c") == ()
    assert reader.unread == {"/c/1": "/c/1 cannot be read: the service answers with 403"}
    script.set_answers("GET", "/c", (503, {}, {}))
    with pytest.raises(errors.Unavailable):
        await reader.members("/c")


@pytest.mark.parametrize(
    ("offered", "query"),
    [
        ({"NoLinks": True, "Levels": True, "MaxLevels": 2}, "$expand=.($levels=2)"),
        ({"NoLinks": True, "Levels": True}, "$expand=.($levels=1)"),
        ({"NoLinks": True}, "$expand=."),
        ({"NoLinks": False}, ""),
    ],
)
async def test_a_listing_is_expanded_as_the_service_offers_it(script, offered, query):
    script.set_answers("GET", "/redfish/v1/", ROOT | {"ProtocolFeaturesSupported": {"ExpandQuery": offered}})
    connection = await script.connect()
    assert pages.build_query(connection.root, 3) == query


async def test_a_closed_client_reads_nothing(script):
    connection = await script.connect()
    await connection.close()
    with pytest.raises(errors.Unavailable, match="closed"):
        await connection.get("/a")


async def test_a_close_that_is_cancelled_leaves_no_session_open(script, monkeypatch):
    async def wait_for_ever():
        await asyncio.Event().wait()

    connection = await script.connect()
    reading_session, changing_session = connection._wire._session, connection._wire._changing
    close = reading_session.close
    # As while a connection with TLS says goodbye.
    monkeypatch.setattr(reading_session, "close", wait_for_ever)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await connection.close()
    assert changing_session.closed
    await close()


# --- changing ---


async def _collect_progress(script, *states, monitor=TASK):
    script.set_answers(
        "POST", "/z", (202, {"@odata.id": TASK, "TaskState": "New"}, {"Location": monitor} if monitor else {})
    )
    script.set_answers("GET", TASK, *states)
    connection = await script.connect()
    progress = []
    await connection.change("POST", "/z", {}, on_progress=progress.append)
    return progress


@pytest.mark.parametrize(
    "end",
    [
        (204, {}, {}),
        (201, {"Id": "z"}, {}),
        (200, {"Id": "z"}, {}),
        (200, {"TaskState": "Completed"}, {}),
        (404, {}, {}),
        (410, {}, {}),
    ],
    ids=repr,
)
@pytest.mark.parametrize("monitor", [TASK, None], ids=["a monitor", "the task alone"])
async def test_a_task_is_followed_to_its_end_in_any_form(script, end, monitor):
    running = (202, {"TaskState": "Running", "PercentComplete": 40}, {"Retry-After": "0"})
    partial = (202, {}, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"})
    whole = (200, {"TaskState": "Running", "PercentComplete": 400}, {})
    progress = await _collect_progress(
        script, running, partial, whole, (502, {}, {}), (503, {}, {}), end, monitor=monitor
    )
    assert [step.percent for step in progress] == [None, 40, None, 100, None, None]


@pytest.mark.parametrize(
    ("end", "error", "is_unknown"),
    [
        ((200, {"TaskState": "Exception", "Messages": [{"Message": "No."}]}, {}), errors.Unavailable, True),
        ((200, {"TaskState": "Cancelled"}, {}), errors.Unavailable, True),
        ((500, {}, {}), errors.Unavailable, True),
        ((409, {}, {}), errors.FailedPrecondition, False),
        ((412, {}, {}), errors.Aborted, False),
        ((401, {}, {}), errors.Unauthenticated, True),
        ((403, {}, {}), errors.PermissionDenied, True),
    ],
    ids=repr,
)
async def test_a_task_that_fails_is_an_error(script, end, error, is_unknown):
    with pytest.raises(error) as caught:
        await _collect_progress(script, end)
    assert caught.value.side_effects_unknown is is_unknown


async def test_a_change_that_is_done_in_words_is_done(script):
    script.set_answers(
        "POST", "/z", (201, "Created", {}), (202, "Accepted", {"Location": TASK}), (200, "No", {})
    )
    script.set_answers("GET", TASK, (200, {"TaskState": "Completed"}, {}))
    connection = await script.connect()
    assert await connection.change("POST", "/z") is None
    assert await connection.change("POST", "/z") is None
    assert [path for _, path, _ in script.requests].count(TASK) == 1
    with pytest.raises(errors.Unavailable, match="no JSON object"):
        await connection.change("POST", "/z")


async def test_an_accepted_change_without_a_monitor_has_unknown_effects(script):
    script.set_answers("POST", "/z", (202, {}, {}))
    connection = await script.connect()
    with pytest.raises(errors.Unavailable, match="monitor") as caught:
        await connection.change("POST", "/z")
    assert caught.value.side_effects_unknown


async def test_the_end_of_another_clients_task_is_waited_for(script):
    script.set_answers("GET", TASK, {"TaskState": "Running"}, (503, {}, {}), {"TaskState": "Completed"})
    connection = await script.connect()
    await connection.task_ended(TASK)
    assert [path for _, path, _ in script.requests].count(TASK) == 3
    await connection.task_ended("/gone")


# --- credentials and events ---


async def test_a_token_of_the_administrator_is_sent_as_it_is(script):
    connection = await script.connect(credentials=contract.Credentials(token="t-1"))
    script.set_answers("GET", "/a", (401, {}, {}))
    with pytest.raises(errors.Unauthenticated):
        await connection.get("/a")
    assert [headers["Authorization"] for _, path, headers in script.requests if path == "/a"] == [
        "Bearer t-1"
    ]


async def test_a_session_without_a_token_is_refused(script):
    script.set_answers("POST", "/redfish/v1/SessionService/Sessions", (201, {}, {}))
    with pytest.raises(errors.Unavailable, match="X-Auth-Token"):
        await script.connect(credentials=contract.Credentials(username="u", password="p"))


CREDENTIALS = contract.Credentials(username="u", password="p")


async def test_a_service_that_names_no_sessions_gets_the_password_with_each_request(script):
    script.set_answers("GET", "/redfish/v1/", {"@odata.id": "/redfish/v1", "RedfishVersion": "1.9.0"})
    script.set_answers("GET", "/a", {"Id": "a"})
    connection = await script.connect(credentials=CREDENTIALS)
    await connection.get("/a")
    assert [method for method, _, _ in script.requests] == ["GET", "GET"]
    assert script.requests[-1][2]["Authorization"].startswith("Basic ")


async def test_a_login_that_is_refused_for_basic_is_tried_so_once(script):
    script.set_answers(
        "POST", "/redfish/v1/SessionService/Sessions", (401, {}, {"WWW-Authenticate": 'Basic realm="x"'})
    )
    script.set_answers("GET", "/a", {"Id": "a"}, (401, {}, {"WWW-Authenticate": 'Basic realm="x"'}))
    connection = await script.connect(credentials=CREDENTIALS)
    assert (await connection.get("/a")).id == "a"
    with pytest.raises(errors.Unauthenticated, match="password"):
        await connection.get("/a")
    assert sum(method == "POST" for method, _, _ in script.requests) == 1


@pytest.mark.parametrize(
    ("challenge", "is_basic"),
    [
        ('Digest realm="x", qop="auth", Basic realm="y"', True),
        ("Negotiate, basic", True),
        ('Digest realm="x, Basic"', False),
        ('Digest realm="a \\" , Basic b"', False),
        ("Basically", False),
    ],
)
async def test_basic_is_found_among_the_challenges(script, challenge, is_basic):
    script.set_answers(
        "POST", "/redfish/v1/SessionService/Sessions", (401, {}, {"WWW-Authenticate": challenge})
    )
    script.set_answers("GET", "/a", {"Id": "a"})
    if is_basic:
        assert (await (await script.connect(credentials=CREDENTIALS)).get("/a")).id == "a"
    else:
        with pytest.raises(errors.Unauthenticated):
            await script.connect(credentials=CREDENTIALS)


BASIC = (401, {}, {"WWW-Authenticate": 'Basic realm="x"'})
SERVICE_ROOT = {"@odata.id": "/redfish/v1", "RedfishVersion": "1.9.0"}


@pytest.mark.parametrize(
    ("credentials", "header"),
    [(CREDENTIALS, "Basic "), (contract.Credentials(token="t"), "Bearer t")],
    ids=["password", "token"],
)
async def test_a_root_that_is_not_open_is_read_with_the_credentials(script, credentials, header):
    script.set_answers("GET", "/redfish/v1/", BASIC, SERVICE_ROOT)
    script.set_answers("GET", "/a", {"Id": "a"})
    await (await script.connect(credentials=credentials)).get("/a")
    sent = [headers.get("Authorization", "") for _, _, headers in script.requests]
    assert [each.startswith(header) for each in sent] == [False, True, True]


@pytest.mark.parametrize("answers", [[BASIC, BASIC], [(401, {}, {})]], ids=["refused again", "no challenge"])
async def test_a_root_that_refuses_the_credentials_is_told(script, answers):
    script.set_answers("GET", "/redfish/v1/", *answers)
    with pytest.raises(errors.Unauthenticated, match=r"read /redfish/v1/ with 401.*Secret"):
        await script.connect(credentials=CREDENTIALS)
    assert len(script.requests) == len(answers)


@pytest.mark.parametrize("status", [400, 401, 403, 409, 422])
async def test_a_refused_login_is_about_the_login(script, status):
    script.set_answers("POST", "/redfish/v1/SessionService/Sessions", (status, {"message": "wrong"}, {}))
    with pytest.raises(errors.Unauthenticated, match=r'"wrong"; look at the user name and password'):
        await script.connect(credentials=CREDENTIALS)


async def test_a_login_beyond_the_limit_of_sessions_is_no_wrong_password(script):
    limit = {"error": {"@Message.ExtendedInfo": [{"MessageId": "Base.1.8.CreateLimitReachedForResource"}]}}
    script.set_answers("POST", "/redfish/v1/SessionService/Sessions", (400, limit, {}))
    with pytest.raises(errors.Unavailable, match="end sessions there"):
        await script.connect(credentials=CREDENTIALS)


async def test_many_requests_begin_one_session_together(script):
    script.set_answers(
        "POST", "/redfish/v1/SessionService/Sessions", *((201, {}, {"X-Auth-Token": name}) for name in "ab")
    )
    connection = await script.connect(credentials=contract.Credentials(username="u", password="p"))
    script.set_answers("GET", "/a", *[(401, {}, {})] * 4, {"Id": "a"})
    await asyncio.gather(*(connection.get("/a") for _ in range(4)))
    assert sum(method == "POST" for method, _, _ in script.requests) == 2


async def test_a_new_session_ends_the_former(script):
    """Some services answer 401 for a lack of privileges: each reading would leave a session behind."""
    script.set_answers(
        "POST",
        "/redfish/v1/SessionService/Sessions",
        *((201, {}, {"X-Auth-Token": name, "Location": f"/s/{name}"}) for name in "ab"),
    )
    script.set_answers("GET", "/a", (401, {}, {}), {"Id": "a"})
    script.set_answers("DELETE", "/s/a", (204, None, {}))
    script.set_answers("DELETE", "/s/b", (204, None, {}))
    connected = await script.connect(credentials=CREDENTIALS)
    await connected.get("/a")
    await connected.close()
    assert [uri for method, uri, _ in script.requests if method == "DELETE"] == ["/s/a", "/s/b"]


async def test_a_resource_that_a_new_session_may_not_read_is_a_lack_of_privileges(script):
    script.set_answers(
        "POST", "/redfish/v1/SessionService/Sessions", *((201, {}, {"X-Auth-Token": name}) for name in "ab")
    )
    script.set_answers("GET", "/a", (401, {}, {}))
    script.set_answers("GET", "/b", {"Id": "b"})
    connected = await script.connect(credentials=CREDENTIALS)
    for _ in range(3):
        with pytest.raises(errors.PermissionDenied, match=r"/a with 401.*privilege ConfigureComponents"):
            await connected.get("/a")
        await connected.get("/b")
    assert sum(method == "POST" for method, _, _ in script.requests) == 2


async def test_an_end_of_the_session_that_fails_does_not_prevent_closing(script):
    script.set_answers(
        "POST", "/redfish/v1/SessionService/Sessions", (201, {}, {"X-Auth-Token": "t", "Location": "/s/1"})
    )
    connection = await script.connect(credentials=contract.Credentials(username="u", password="p"))
    await connection.close()
    await connection.close()
    assert [path for method, path, _ in script.requests if method == "DELETE"] == ["/s/1"]


@pytest.mark.parametrize(
    ("service", "stream", "error"),
    [
        (None, None, errors.Unimplemented),
        ({"ServerSentEventUri": 7}, None, errors.Unimplemented),
        ({"ServerSentEventUri": "/sse"}, (200, {}, {}), errors.Unavailable),
        ({"ServerSentEventUri": "/sse"}, (503, {}, {}), errors.Unavailable),
    ],
)
async def test_a_service_that_sends_no_events_is_an_error(script, service, stream, error):
    if service is not None:
        script.set_answers("GET", "/redfish/v1/", ROOT | {"EventService": {"@odata.id": "/events"}})
        script.set_answers("GET", "/events", service)
        script.set_answers("GET", "/sse", stream)
    connection = await script.connect()
    with pytest.raises(error):
        async with aclosing(connection.events()) as events:
            await anext(events)


async def test_an_unreachable_service_is_unavailable(own_address):
    host, port = own_address
    config = contract.AdapterConfig(name="f", endpoint=f"http://{host}:{port}", timeout_seconds=2)
    with pytest.raises(errors.Unavailable, match="cannot be reached"):
        await client.Client.connect(config)


@pytest.mark.parametrize(
    ("scheme", "answer", "remedy"),
    [
        ("http", b"", "put https:// into spec.endpoint"),
        ("http", b"SSH-2.0-OpenSSH_9\r\n", "put https:// into spec.endpoint"),
        ("http", b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "put https:// into spec.endpoint"),
        ("https", b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "put http:// into spec.endpoint"),
        ("http", b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "look at spec.endpoint"),
        (
            "http",
            b"HTTP/1.1 301 Moved\r\nLocation: https://127.0.0.1/redfish/v1/\r\nContent-Length: 0\r\n\r\n",
            "put https:// into spec.endpoint",
        ),
    ],
)
async def test_the_wrong_scheme_is_named_with_the_right_one(scheme, answer, remedy):
    async def serve(reader, writer):
        await reader.read(1)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        config = contract.AdapterConfig(name="f", endpoint=f"{scheme}://127.0.0.1:{port}", timeout_seconds=5)
        with pytest.raises(errors.FabricError) as caught:
            await client.Client.connect(config)
    assert remedy in caught.value.message
    assert "Error" not in caught.value.message
