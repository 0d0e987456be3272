"""Requests that a faulty client sends: each gets the right code, and the server goes on."""

import asyncio
import json
import re
from typing import Any

import pytest

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
        pytest.param(
            "POST", MAPS, JSON, b'{"metadata":{"name":"\xc3\x28"}}', 422, id="broken UTF-8 in a name"
        ),
        pytest.param("POST", MAPS, JSON, b'{"metadata":{"name":"a"}} {}', 400, id="two objects"),
        pytest.param("POST", MAPS, JSON, b"[]", 400, id="a list"),
        pytest.param("POST", MAPS, JSON, b'"text"', 400, id="a string"),
        pytest.param("POST", MAPS, JSON, b"null", 400, id="null"),
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
        pytest.param("POST", MAPS, "application/yaml", b"a: [", 400, id="bad YAML"),
        pytest.param("PATCH", f"{MAPS}/x", JSON, b"{}", 415, id="a patch of no kind"),
        pytest.param("PATCH", STATUS, APPLY, b"{}", 400, id="an empty configuration"),
        pytest.param("PATCH", STATUS, APPLY, b"- a", 400, id="a configuration that is a list"),
        pytest.param("PATCH", STATUS, APPLY, b"\t", 400, id="a configuration that is no YAML"),
        pytest.param("PATCH", f"{CLAIMS}/absent", MERGE, b"{}", 404, id="a patch of nothing"),
        pytest.param("DELETE", f"{MAPS}/x", JSON, b"[1]", 400, id="delete options that are a list"),
        pytest.param(
            "DELETE", f"{MAPS}/x", JSON, b'{"preconditions":3}', 400, id="preconditions of another type"
        ),
        pytest.param("DELETE", f"{MAPS}/x", JSON, b"{", 400, id="broken delete options"),
        pytest.param("GET", f"{MAPS}?limit=many", "", b"", 400, id="a limit in words"),
        pytest.param("GET", f"{MAPS}?limit=-1", "", b"", 400, id="a negative limit"),
        pytest.param("GET", f"{MAPS}?resourceVersion=x", "", b"", 400, id="a version in words"),
        pytest.param(
            "GET", f"{MAPS}?resourceVersion=99999999999", "", b"", 504, id="a version from the future"
        ),
        pytest.param("GET", f"{MAPS}?continue=!", "", b"", 400, id="a foreign continue token"),
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


async def test_an_oversized_body_is_refused_with_413(api: Any) -> None:
    body = b'{"metadata":{"name":"a"},"data":{"a":"' + b"x" * BIG + b'"}}'
    reply = await api.send("POST", MAPS, body)
    assert (reply.code, reply.body["reason"]) == (413, "RequestEntityTooLarge")
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


def tracebacks(caplog: Any) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.exc_info]
