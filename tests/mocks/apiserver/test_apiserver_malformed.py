"""Requests that no honest client sends: each gets the right code, and the server goes on."""

import asyncio
import json
import logging
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drawbar.mocks import apiserver

MAPS = "/api/v1/namespaces/default/configmaps"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
STATUS = f"{CLAIMS}/c1/status"
JSON = "application/json"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
BIG = 3 * 1024 * 1024


async def exchange(server: apiserver.ApiServer, raw: bytes, *, close: bool = True) -> bytes:
    """Send some bytes; return everything that the server answers until it closes the connection."""
    port = int(server.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(120):
            writer.write(raw)
            if close:
                writer.write_eof()
            return await reader.read()
    except ConnectionError:
        return b""  # refused with a reset, because more was sent than was read
    finally:
        writer.transport.abort()


def head(server: apiserver.ApiServer, method: str, path: str, *lines: str) -> bytes:
    """Return the head of a request by the administrator."""
    fixed = ("Host: localhost", f"Authorization: Bearer {server.token_for()}", "Connection: close")
    return "\r\n".join([f"{method} {path} HTTP/1.1", *fixed, *lines, "", ""]).encode("latin-1")


def code_of(answer: bytes) -> int:
    match = re.match(rb"HTTP/1\.[01] (\d{3}) ", answer)
    assert match is not None, answer[:200]
    return int(match.group(1))


def status_of(answer: bytes) -> dict[str, Any]:
    """Return the Status object in an answer; assert that it fits the HTTP status."""
    status = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")
    assert status["code"] == code_of(answer)
    assert status["message"]
    return dict(status)


async def still_works(api: Any) -> None:
    assert (await api.get("/version")).code == 200


@pytest.mark.parametrize(
    ("method", "path", "kind", "body", "code"),
    [
        pytest.param("POST", MAPS, JSON, b"", 400, id="no body"),
        pytest.param("POST", MAPS, JSON, b"{", 400, id="half an object"),
        pytest.param("POST", MAPS, JSON, b"\xff\xfe\x00", 400, id="bytes that are no text"),
        pytest.param(
            "POST", MAPS, JSON, b'{"metadata":{"name":"\xc3\x28"}}', 422, id="broken UTF-8 in a name"
        ),
        pytest.param("POST", MAPS, JSON, b'{"metadata":{"name":"a"}} {}', 400, id="two objects"),
        pytest.param("POST", MAPS, JSON, b"[]", 400, id="a list"),
        pytest.param("POST", MAPS, JSON, b'"text"', 400, id="a string"),
        pytest.param("POST", MAPS, JSON, b"null", 400, id="null"),
        pytest.param("POST", MAPS, JSON, b"[" * 100_000, 400, id="nesting without end"),
        pytest.param(
            "POST", MAPS, JSON, b'{"metadata":' * 5_000 + b"1" + b"}" * 5_000, 400, id="deep metadata"
        ),
        pytest.param("POST", MAPS, JSON, b'{"metadata":[]}', 400, id="metadata of another type"),
        pytest.param("POST", MAPS, JSON, b'{"metadata":{"name":7}}', 400, id="a name that is a number"),
        pytest.param(
            "POST", MAPS, JSON, b'{"metadata":{"labels":{"a":1}}}', 400, id="a label that is a number"
        ),
        pytest.param("POST", MAPS, JSON, b'{"kind":"Pod","metadata":{"name":"a"}}', 400, id="another kind"),
        pytest.param(
            "POST", MAPS, JSON, b'{"apiVersion":"v2","metadata":{"name":"a"}}', 400, id="another version"
        ),
        pytest.param(
            "POST", MAPS, JSON, b'{"metadata":{"name":"a","namespace":"b"}}', 400, id="another namespace"
        ),
        pytest.param("POST", MAPS, JSON, b'{"metadata":{}}', 422, id="no name"),
        pytest.param("POST", MAPS, JSON, b'{"metadata":{"name":"A_b"}}', 422, id="a bad name"),
        pytest.param("POST", MAPS, "text/csv", b"{}", 415, id="another content type"),
        pytest.param("POST", MAPS, "nonsense", b"{}", 415, id="no content type at all"),
        pytest.param(
            "POST", MAPS, "application/vnd.kubernetes.protobuf", b"k8s\0\xff\xff", 400, id="bad protobuf"
        ),
        pytest.param("POST", MAPS, "application/vnd.kubernetes.protobuf", b"{}", 400, id="no protobuf"),
        pytest.param("POST", MAPS, "application/yaml", b"a: [", 400, id="bad YAML"),
        pytest.param(
            "POST", MAPS, "application/yaml", b"!!python/object:os.system {}", 400, id="YAML with objects"
        ),
        pytest.param("POST", MAPS, "application/yaml", b"a: &a [*a]", 400, id="YAML that holds itself"),
        pytest.param("PATCH", f"{MAPS}/x", JSON, b"{}", 415, id="a patch of no kind"),
        pytest.param("PATCH", STATUS, APPLY, b"{}", 400, id="an empty configuration"),
        pytest.param("PATCH", STATUS, APPLY, b"- a", 400, id="a configuration that is a list"),
        pytest.param("PATCH", STATUS, APPLY, b"\t", 400, id="a configuration that is no YAML"),
        pytest.param("PATCH", f"{CLAIMS}/absent", MERGE, b"{}", 404, id="a patch of nothing"),
        pytest.param(
            "PATCH",
            "/api/v1/namespaces/default",
            "application/json-patch+json",
            '[{"op":"add","path":"/metadata/finalizers","value":["a/b"]},'
            '{"op":"remove","path":"/metadata/finalizers/²"}]'.encode(),
            422,
            id="a list index in superscript",
        ),
        pytest.param("DELETE", f"{MAPS}/x", JSON, b"[1]", 400, id="delete options that are a list"),
        pytest.param(
            "DELETE", f"{MAPS}/x", JSON, b'{"preconditions":3}', 400, id="preconditions of another type"
        ),
        pytest.param("DELETE", f"{MAPS}/x", JSON, b"{", 400, id="broken delete options"),
        pytest.param("GET", f"{MAPS}?limit=many", "", b"", 400, id="a limit in words"),
        pytest.param("GET", f"{MAPS}?limit=-1", "", b"", 400, id="a negative limit"),
        pytest.param("GET", f"{MAPS}?limit=%C2%B2", "", b"", 400, id="a limit in superscript"),
        pytest.param("GET", f"{MAPS}?resourceVersion=x", "", b"", 400, id="a version in words"),
        pytest.param(
            "GET", f"{MAPS}?resourceVersion=99999999999", "", b"", 504, id="a version from the future"
        ),
        pytest.param("GET", f"{MAPS}?continue=!", "", b"", 400, id="a foreign continue token"),
        pytest.param("GET", f"{MAPS}?continue=%C3%A9", "", b"", 400, id="a continue token beyond ASCII"),
        pytest.param(
            "GET", f"{MAPS}?continue=WzEsMiwzXQ%3D%3D", "", b"", 400, id="a continue token of other types"
        ),
        pytest.param("GET", f"{MAPS}?labelSelector=a%3D%3D%3Db", "", b"", 400, id="a broken label selector"),
        pytest.param("GET", f"{MAPS}?labelSelector=a+in+(", "", b"", 400, id="half a label selector"),
        pytest.param("GET", f"{MAPS}?fieldSelector=spec.x%3D1", "", b"", 400, id="an unknown field selector"),
        pytest.param("GET", f"{MAPS}?watch=1&timeoutSeconds=soon", "", b"", 400, id="a timeout in words"),
        pytest.param("GET", f"{MAPS}?watch=1&resourceVersion=x", "", b"", 400, id="a watch from words"),
        pytest.param(
            "POST", f"{MAPS}?dryRun=Some", JSON, b'{"metadata":{"name":"a"}}', 422, id="half a dry run"
        ),
        pytest.param(
            "GET", "/api/v1/namespaces/default/nodes", "", b"", 404, id="a cluster's object in a namespace"
        ),
        pytest.param("GET", "/api/v1/nonsense", "", b"", 404, id="an unknown resource"),
        pytest.param("GET", "/apis/unserved.example/v1/things", "", b"", 404, id="an unknown group"),
        pytest.param("GET", f"{MAPS}/x/y/z", "", b"", 404, id="a path that is too long"),
        pytest.param("GET", f"{MAPS}/x/scale", "", b"", 404, id="an unknown subresource"),
        pytest.param("GET", "/" + "a/" * 500, "", b"", 404, id="a path of many parts"),
        pytest.param("GET", "/api/v1/%00", "", b"", 404, id="a path with a zero byte"),
        pytest.param("GET", f"{MAPS}/..%2f..%2fsecrets", "", b"", 404, id="a path that climbs"),
        pytest.param("GET", f"{MAPS}/%ff%fe", "", b"", 404, id="a path that is no UTF-8"),
        pytest.param("POST", "/version", JSON, b"{}", 405, id="a write to what is only read"),
        pytest.param("PUT", MAPS, JSON, b"{}", 405, id="an update of a collection"),
        pytest.param("OPTIONS", MAPS, "", b"", 405, id="a method that the API does not have"),
    ],
)
async def test_a_bad_request_gets_a_status_with_the_right_code(
    api: Any, method: str, path: str, kind: str, body: bytes, code: int
) -> None:
    lines = [f"Content-Length: {len(body)}", *([f"Content-Type: {kind}"] if kind else [])]
    answer = await exchange(api.server, head(api.server, method, path, *lines) + body, close=False)
    assert status_of(answer)["code"] == code
    await still_works(api)


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        pytest.param({"properties": {"spec": "x"}}, 400, id="a schema that is a string"),
        pytest.param({"x-kubernetes-validations": 3}, 400, id="rules that are a number"),
        pytest.param({"x-kubernetes-validations": [{"rule": []}]}, 400, id="a rule that is a list"),
        pytest.param(
            {"properties": {"a": {"type": "string", "maxLength": "x"}}}, 400, id="a length in words"
        ),
        pytest.param({"properties": {"a": {"type": "text"}}}, 422, id="an unknown type"),
        pytest.param({"properties": {"a": {"type": "string", "pattern": "("}}}, 422, id="half a pattern"),
    ],
)
async def test_a_definition_with_a_broken_schema_is_refused(
    api: Any, definition: Any, schema: dict[str, Any], code: int
) -> None:
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {"type": "object", **schema}
    reply = await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    assert reply.code == code


async def test_a_review_of_something_else_than_an_object_is_refused(api: Any) -> None:
    reply = await api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": 7})
    assert reply.code == 400


async def test_an_unknown_token_is_refused_in_any_form(api: Any) -> None:
    for token in ("Bearer x", "Bearer", "Basic eA==", "Bearer \xff", "x" * 8000):
        raw = f"GET {MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\nConnection: close\r\n\r\n"
        answer = await exchange(api.server, raw.encode("latin-1"), close=False)
        assert status_of(answer)["code"] == 401


async def test_an_oversized_body_is_refused_with_413(api: Any) -> None:
    body = b'{"metadata":{"name":"a"},"data":{"a":"' + b"x" * BIG + b'"}}'
    reply = await api.send("POST", MAPS, body)
    assert (reply.code, reply.body["reason"]) == (413, "RequestEntityTooLarge")
    await still_works(api)


async def test_an_announced_oversize_is_not_waited_for(api: Any) -> None:
    lines = (f"Content-Type: {JSON}", f"Content-Length: {BIG * 1000}")
    answer = await exchange(
        api.server, head(api.server, "POST", MAPS, *lines) + b"x" * (BIG + 1), close=False
    )
    assert status_of(answer)["code"] == 413


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param((f"Content-Type: {JSON}", "Content-Length: 1000"), id="by length"),
        pytest.param((f"Content-Type: {JSON}", "Transfer-Encoding: chunked"), id="by chunks"),
    ],
)
async def test_a_half_sent_body_times_out_at_the_servers_limit(start: Any, lines: tuple[str, ...]) -> None:
    api = await start(request_seconds=0.2)
    raw = head(api.server, "POST", MAPS, *lines) + b'5\r\n{"met'
    answer = await exchange(api.server, raw, close=False)
    assert status_of(answer)["reason"] == "Timeout"
    assert code_of(answer) == 504
    await still_works(api)


async def test_the_servers_limit_is_not_for_open_watches(start: Any) -> None:
    api = await start(request_seconds=0.2)
    async with api.watch(MAPS, timeoutSeconds=1) as stream:
        assert await asyncio.wait_for(stream.content.read(), 10) == b""
        assert stream.status == 200


async def test_a_client_that_leaves_in_the_middle_of_its_body_changes_nothing(api: Any, caplog: Any) -> None:
    raw = head(api.server, "POST", MAPS, f"Content-Type: {JSON}", "Content-Length: 1000")
    await exchange(api.server, raw + b'{"metadata":{"name":"half"}}', close=True)
    assert (await api.get(f"{MAPS}/half")).code == 404
    assert not tracebacks(caplog)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, id="TLS on a plain port"),
        pytest.param(b"GET\r\n\r\n", 400, id="no path"),
        pytest.param(b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 400, id="a method that HTTP does not have"),
        pytest.param(b"GET / HTTP/9.9\r\n\r\n", 400, id="no version of HTTP"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", 400, id="a header without a colon"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nA\0: b\r\n\r\n", 400, id="a zero byte in a header"),
        pytest.param(
            b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"x" * 100_000 + b"\r\n\r\n", 400, id="a long header"
        ),
        pytest.param(
            b"GET / HTTP/1.1\r\nHost: a\r\n" + b"A: b\r\n" * 10_000 + b"\r\n", 400, id="many headers"
        ),
        pytest.param(b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 400, id="a long path"),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400, id="a negative length"
        ),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            400,
            id="two lengths",
        ),
        pytest.param(b"GET http:// HTTP/1.1\r\nHost: a\r\n\r\n", 400, id="half a URL"),
    ],
)
async def test_invalid_http_is_refused_without_a_traceback(
    api: Any, caplog: Any, raw: bytes, code: int
) -> None:
    answer = await exchange(api.server, raw)
    assert answer == b"" or code_of(answer) == code
    assert not tracebacks(caplog)
    await still_works(api)


@pytest.mark.parametrize(("expect", "code"), [("100-continue", 201), ("a miracle", 417), ("\xe9", 417)])
async def test_expectations_other_than_100_are_refused(
    api: Any, make_config_map: Any, expect: str, code: int
) -> None:
    body = json.dumps(make_config_map()).encode()
    lines = (f"Expect: {expect}", f"Content-Type: {JSON}", f"Content-Length: {len(body)}")
    answer = await exchange(api.server, head(api.server, "POST", MAPS, *lines) + body, close=False)
    if code == 201:
        head_100, _, answer = answer.partition(b"\r\n\r\n")
        assert code_of(head_100) == 100
    assert code_of(answer) == code


async def test_a_body_that_is_not_compressed_as_it_says_is_the_clients_mistake(api: Any, caplog: Any) -> None:
    lines = (f"Content-Type: {JSON}", "Content-Encoding: gzip", "Content-Length: 2")
    answer = await exchange(api.server, head(api.server, "POST", MAPS, *lines) + b"{}", close=False)
    assert status_of(answer)["code"] == 400
    assert not tracebacks(caplog)


async def test_a_broken_chunk_is_the_clients_mistake(api: Any, caplog: Any) -> None:
    raw = head(api.server, "POST", MAPS, f"Content-Type: {JSON}", "Transfer-Encoding: chunked")
    answer = await exchange(api.server, raw + b"zz\r\n{}\r\n0\r\n\r\n", close=False)
    assert code_of(answer) == 400
    assert not tracebacks(caplog)


def tracebacks(caplog: Any) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.exc_info]


HEADERS = st.lists(
    st.tuples(
        st.sampled_from(
            ["Content-Type", "Accept", "Authorization", "Content-Encoding", "Expect", "X-A", "User-Agent"]
        ),
        st.sampled_from(["", "gzip", JSON, APPLY, MERGE, "*/*;q", "a;b=c;;", "Bearer ", "100-continue", "é"])
        | st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30),
    ),
    max_size=4,
)
SEGMENTS = st.sampled_from(
    [
        "api",
        "apis",
        "v1",
        "namespaces",
        "default",
        "configmaps",
        "pods",
        "status",
        "binding",
        "resource.k8s.io",
        "resourceclaims",
        "resourceslices",
        "nodes",
        "events",
        "mocks",
        "drawbar.dev",
        "faults",
        "restart",
        "openapi",
        "v3",
        "%00",
        "%2f",
        "..",
        "",
        "%ff",
        "a b",
        "é",
        "customresourcedefinitions",
        "apiextensions.k8s.io",
    ]
) | st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="?#"), max_size=10)
QUERIES = st.dictionaries(
    st.sampled_from(
        [
            "limit",
            "continue",
            "labelSelector",
            "fieldSelector",
            "resourceVersion",
            "dryRun",
            "fieldManager",
            "force",
            "fieldValidation",
            "timeoutSeconds",
            "resourceVersionMatch",
            "gracePeriodSeconds",
            "includeObject",
        ]
    ),
    st.sampled_from(
        ["", "0", "-1", "1", "All", "true", "Strict", "Exact", "a=b", "a in (b", "%", "%C3", "\u00b2"]
    )
    | st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="&#"), max_size=8),
    max_size=3,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["metadata", "name", "spec", "status", "labels", "managedFields", "devices", "kind", "data"]
            )
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
BODIES = st.binary(max_size=40) | VALUES.map(lambda value: json.dumps(value).encode())


@pytest.fixture
def alarm(caplog: Any) -> Any:
    caplog.set_level(logging.WARNING)
    return caplog


@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_that_is_sent_hangs_the_server_or_makes_it_fail(alarm: Any, data: Any) -> None:
    requests = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "TRACE", "get"]),
                st.lists(SEGMENTS, max_size=7),
                QUERIES,
                HEADERS,
                BODIES,
            ),
            min_size=1,
            max_size=8,
        )
    )
    alarm.clear()
    asyncio.run(throw(requests))
    assert [record.getMessage() for record in alarm.records if record.levelno >= logging.ERROR] == []


async def throw(requests: list[Any]) -> None:
    async with apiserver.serving() as server:
        for method, segments, query, headers, body in requests:
            path = "/" + "/".join(segments) + "?" + "&".join(f"{key}={value}" for key, value in query.items())
            lines = [f"{key}: {value}" for key, value in headers] + [f"Content-Length: {len(body)}"]
            raw = head(server, method, path.replace(" ", "%20").encode().decode("latin-1"), *lines) + body
            answer = await exchange(server, raw, close=False)
            assert answer == b"" or code_of(answer) < 500 or status_of(answer)["reason"] != "InternalError", (
                raw
            )
        answer = await exchange(server, head(server, "GET", "/version"), close=False)
        assert code_of(answer) == 200


@given(raw=st.binary(max_size=200))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_bytes_are_answered_with_400_or_silence(alarm: Any, raw: bytes) -> None:
    async def check() -> None:
        async with apiserver.serving() as server:
            answer = await exchange(server, raw)
            assert answer == b"" or 400 <= code_of(answer) < 500
            answer = await exchange(server, b"GET /api" + raw.replace(b"\n", b"") + b" HTTP/1.1\r\n\r\n")
            assert answer == b"" or code_of(answer) != 500

    alarm.clear()
    asyncio.run(check())
    assert [record.getMessage() for record in alarm.records if record.levelno >= logging.ERROR] == []
