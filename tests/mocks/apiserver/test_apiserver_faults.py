"""Faults: whom they strike, how often, and what a client then sees."""

import asyncio
import json
import re
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest
from yarl import URL

from drawbar.mocks.apiserver import faultcontrol, faults
from drawbar.mocks.apiserver.faults import Fault, Occasions, Selection

MAPS = "/api/v1/namespaces/default/configmaps"
CONTROL = "/mocks/drawbar.dev/v1/faults"
ERROR = faults.Refusal(code=500)


async def events(response: Any, count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(120):
        return [json.loads(await response.content.readline()) for _ in range(count)]


def names(listed: list[dict[str, Any]]) -> list[str]:
    return [event["object"]["metadata"]["name"] for event in listed]


@asynccontextmanager
async def watching(api: Any, **query: Any):
    """Open a watch that begins now."""
    version = (await api.get(MAPS)).version
    async with api.watch(MAPS, resourceVersion=version, **query) as stream:
        yield stream


@pytest.mark.parametrize(
    ("select", "struck"),
    [
        pytest.param({}, True, id="everything"),
        pytest.param({"user": "kubernetes-*"}, True, id="the user by glob"),
        pytest.param({"user": "system:*"}, False, id="another user"),
        pytest.param({"verb": "update,create"}, True, id="one of several verbs"),
        pytest.param({"verb": "get"}, False, id="another verb"),
        pytest.param({"group": ""}, True, id="the core group"),
        pytest.param({"group": "resource.k8s.io"}, False, id="another group"),
        pytest.param({"resource": "configmaps"}, True, id="the resource"),
        pytest.param({"subresource": ""}, True, id="no subresource"),
        pytest.param({"subresource": "status"}, False, id="a subresource"),
        pytest.param({"namespace": "def*"}, True, id="the namespace by glob"),
        pytest.param({"namespace": "kube-system"}, False, id="another namespace"),
        pytest.param({"name": "o?e"}, True, id="the name in the body of a creation"),
        pytest.param({"name": "two"}, False, id="another name"),
        pytest.param({"manager": "me"}, True, id="the field manager"),
        pytest.param({"manager": "you"}, False, id="another field manager"),
    ],
)
async def test_a_selection_chooses_requests(
    api: Any, make_config_map: Any, select: dict[str, str], struck: bool
) -> None:
    handle = api.server.faults.add(Fault(effect=ERROR, select=Selection(**select)))
    reply = await api.post(MAPS, make_config_map("one"), fieldManager="me")
    assert (reply.code == 500) == struck
    assert (handle.met, handle.struck) == (int(struck), int(struck))


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        pytest.param({"times": 2}, "xx......", id="the first two"),
        pytest.param({"every": 3}, "x..x..x.", id="every third"),
        pytest.param({"skip": 2, "every": 2, "times": 2}, "..x.x...", id="two of every second, after two"),
        pytest.param({"probability": 0}, "........", id="never"),
    ],
)
async def test_occasions_count_requests(api: Any, when: dict[str, Any], expected: str) -> None:
    api.server.faults.add(Fault(effect=ERROR, when=Occasions(**when)))
    codes = [(await api.get(MAPS)).code for _ in expected]
    assert "".join("x" if code == 500 else "." for code in codes) == expected


def struck_pattern(seed: int) -> list[bool]:
    active = faults.Faults()
    handle = active.add(Fault(effect=ERROR, when=Occasions(probability=0.5, seed=seed)))
    asked = faults.Asked(user="u", verb="get")
    return [handle.strikes(asked) for _ in range(64)]


def test_a_probability_is_the_same_under_the_same_seed() -> None:
    assert struck_pattern(1) == struck_pattern(1)
    assert struck_pattern(1) != struck_pattern(2)
    assert 16 < sum(struck_pattern(1)) < 48


async def test_a_lifted_fault_strikes_no_more(api: Any) -> None:
    handle = api.server.faults.add(Fault(effect=ERROR))
    assert (await api.get(MAPS)).code == 500
    handle.lift()
    handle.lift()
    assert (await api.get(MAPS)).code == 200
    assert len(api.server.faults) == 0


async def test_a_conflict_reads_like_the_real_one(api: Any, make_config_map: Any) -> None:
    await api.post(MAPS, make_config_map())
    writes = Selection(verb="create,patch")
    api.server.faults.add(Fault(effect=faults.Refusal(code=409), select=writes))
    reply = await api.merge(f"{MAPS}/one", {"data": {"a": "b"}})
    assert (reply.code, reply.body["reason"]) == (409, "Conflict")
    assert reply.body["details"] == {"name": "one", "kind": "configmaps"}
    assert "the object has been modified" in reply.body["message"]
    assert (await api.post(MAPS, make_config_map("two"))).body["reason"] == "AlreadyExists"


@pytest.mark.parametrize(
    ("code", "verb", "wrong"),
    [
        pytest.param(409, "get", "get", id="a conflict of a get"),
        pytest.param(409, "patch, w*", "watch", id="a conflict of a watch"),
        pytest.param(409, "*", "get, list, watch", id="a conflict of everything"),
        pytest.param(409, "create,update,patch,delete*", "", id="a conflict of writes"),
        pytest.param(410, "get", "get", id="an expired get"),
        pytest.param(410, "list,up*,patch", "update, patch", id="an expired write"),
        pytest.param(410, "list,watch", "", id="an expired list and watch"),
        pytest.param(429, "*", "", id="everything throttled"),
        pytest.param(500, "*", "", id="errors of everything"),
        pytest.param(503, "*", "", id="nothing available"),
        pytest.param(504, "*", "", id="timeouts of everything"),
    ],
)
def test_a_verb_is_refused_only_with_a_code_that_a_server_gives_it(code: int, verb: str, wrong: str) -> None:
    if not wrong:
        assert Fault(effect=faults.Refusal(code=code), select=Selection(verb=verb))
        return
    with pytest.raises(ValueError, match=f"^no API server answers {wrong} with {code}: select only "):
        Fault(effect=faults.Refusal(code=code), select=Selection(verb=verb))


async def test_an_expired_list_reads_like_the_real_one(api: Any) -> None:
    lists = Selection(verb="list,watch")
    api.server.faults.add(Fault(effect=faults.Refusal(code=410), select=lists))
    reply = await api.get(MAPS)
    assert (reply.code, reply.body["reason"]) == (410, "Expired")
    assert reply.body["message"] == "The resourceVersion for the provided list is too old."


async def test_a_throttled_request_gets_text_and_retry_after(api: Any) -> None:
    api.server.faults.add(Fault(effect=faults.Refusal(code=429, retry_after=7)))
    async with api.session.get(api.server.url + MAPS, headers=api.headers) as response:
        text = await response.text()
    assert (response.status, response.headers["Retry-After"]) == (429, "7")
    assert response.content_type == "text/plain"
    assert "Too many requests" in text


async def test_a_refusal_can_say_when_to_retry(api: Any) -> None:
    api.server.faults.add(Fault(effect=faults.Refusal(code=503, retry_after=2, message="going down")))
    reply = await api.get(MAPS)
    assert (reply.body["reason"], reply.body["message"]) == ("ServiceUnavailable", "going down")
    assert reply.body["details"] == {"retryAfterSeconds": 2}


async def test_an_error_before_the_write_leaves_nothing(api: Any, make_config_map: Any) -> None:
    api.server.faults.add(Fault(effect=ERROR, when=Occasions(times=1)))
    assert (await api.post(MAPS, make_config_map())).code == 500
    assert (await api.get(f"{MAPS}/one")).code == 404


async def test_an_error_after_the_write_loses_only_the_reply(api: Any, make_config_map: Any) -> None:
    effect = faults.Refusal(code=500, after=True)
    api.server.faults.add(Fault(effect=effect, select=Selection(verb="create")))
    assert (await api.post(MAPS, make_config_map())).code == 500
    assert (await api.get(f"{MAPS}/one")).code == 200
    assert (await api.post(MAPS, make_config_map("one", a="b"))).code == 500
    assert (await api.get(f"{MAPS}/one")).body["data"] == {}


@pytest.mark.parametrize(("after", "code"), [(False, 404), (True, 200)])
async def test_a_connection_breaks_before_or_after_the_write(
    api: Any, make_config_map: Any, after: bool, code: int
) -> None:
    effect = faults.Disconnect(after=after)
    api.server.faults.add(Fault(effect=effect, select=Selection(verb="create")))
    with pytest.raises(aiohttp.ClientConnectionError):
        await api.post(MAPS, make_config_map())
    assert (await api.get(f"{MAPS}/one")).code == code


async def test_latency_before_holds_the_write_back_until_the_fault_is_lifted(
    api: Any, make_config_map: Any
) -> None:
    handle = api.server.faults.add(Fault(effect=faults.Latency(seconds=50), select=Selection(verb="create")))
    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        posted = group.create_task(api.post(MAPS, make_config_map()))
        while not handle.struck:
            await api.get(MAPS)
        assert (await api.get(f"{MAPS}/one")).code == 404
        handle.lift()
    assert posted.result().code == 201


async def test_latency_after_holds_the_reply_back_and_not_the_write(api: Any, make_config_map: Any) -> None:
    effect = faults.Latency(seconds=50, after=True)
    handle = api.server.faults.add(Fault(effect=effect, select=Selection(verb="create")))
    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        posted = group.create_task(api.post(MAPS, make_config_map()))
        while (await api.get(f"{MAPS}/one")).code != 200:
            assert not posted.done()
        assert not posted.done()
        handle.lift()
    assert posted.result().code == 201


async def test_latency_passes_by_itself(api: Any) -> None:
    loop = asyncio.get_running_loop()
    api.server.faults.add(Fault(effect=faults.Latency(seconds=0.2)))
    began = loop.time()
    assert (await api.get(MAPS)).code == 200
    assert loop.time() - began >= 0.2


async def test_a_partition_hangs_one_users_requests_and_carries_them_out_when_lifted(
    api: Any, make_config_map: Any
) -> None:
    handle = api.server.faults.add(
        Fault(effect=faults.Partition(), select=Selection(user="kubernetes-admin"))
    )
    other = api.acting_as("another-user")
    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        posted = group.create_task(api.post(MAPS, make_config_map()))
        while not handle.struck:
            assert (await other.get("/version")).code == 200
        assert not posted.done()
        handle.lift()
    assert posted.result().code == 201


async def test_a_request_whose_client_gave_up_in_a_partition_is_not_carried_out(
    api: Any, make_config_map: Any
) -> None:
    handle = api.server.faults.add(Fault(effect=faults.Partition(), select=Selection(verb="create")))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await api.post(MAPS, make_config_map())
    assert handle.struck == 1
    await api.get(MAPS)  # by now the server has noticed
    handle.lift()
    assert (await api.get(f"{MAPS}/one")).code == 404


async def test_a_request_hangs_in_a_partition_no_longer_than_the_servers_limit(
    start: Any, make_config_map: Any
) -> None:
    api = await start(request_seconds=0.1)
    api.server.faults.add(Fault(effect=faults.Partition()))
    with pytest.raises(aiohttp.ClientConnectionError):
        await api.post(MAPS, make_config_map())


async def test_a_partition_silences_open_watches_without_closing_them(
    start: Any, make_config_map: Any
) -> None:
    api = await start(bookmark_seconds=0.01)
    other = api.acting_as("default:other")
    api.server.registry.authorizer.allows = lambda user, wanted: True
    async with watching(api) as cut, watching(other, allowWatchBookmarks="true") as whole:
        handle = api.server.faults.add(
            Fault(effect=faults.Partition(), select=Selection(user="kubernetes-admin"))
        )
        await other.post(MAPS, make_config_map())
        while (await events(whole, 1))[0]["type"] != "ADDED":
            pass
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await cut.content.readline()
        assert not cut.content.at_eof()
        handle.lift()
        assert names(await events(cut, 1)) == ["one"]


async def test_a_bookmark_never_overtakes_events_delayed_by_a_partition(
    start: Any, make_config_map: Any
) -> None:
    api = await start(bookmark_seconds=0.02)
    other = api.acting_as("default:other")
    api.server.registry.authorizer.allows = lambda user, wanted: True
    async with watching(api, allowWatchBookmarks="true") as cut, watching(other) as whole:
        fault = Fault(effect=faults.Partition(), select=Selection(user="kubernetes-admin"))
        for name in ("a", "b", "c", "d"):
            handle = api.server.faults.add(fault)
            pause = asyncio.get_running_loop().time() + 0.05  # long enough for a bookmark to fall due
            while asyncio.get_running_loop().time() < pause:
                await other.get("/version")
            written = int((await other.post(MAPS, make_config_map(name))).version)
            await events(whole, 1)
            handle.lift()
            event = (await events(cut, 1))[0]
            while event["type"] == "BOOKMARK":
                assert int(event["object"]["metadata"]["resourceVersion"]) < written
                event = (await events(cut, 1))[0]
            assert names([event]) == [name]


async def test_a_stopping_server_drops_requests_in_a_partition(make_config_map: Any) -> None:
    from drawbar.mocks import apiserver

    async with asyncio.timeout(120), aiohttp.ClientSession() as session:
        async with apiserver.serving() as server, asyncio.TaskGroup() as group:
            headers = {"Authorization": f"Bearer {server.token_for()}"}
            handle = server.faults.add(Fault(effect=faults.Partition()))

            async def post() -> None:
                with pytest.raises(aiohttp.ClientConnectionError):
                    await session.post(server.url + MAPS, headers=headers, json=make_config_map())

            group.create_task(post())
            while not handle.struck:
                await session.get(f"{server.url}/mocks/drawbar.dev/v1/faults", headers=headers)
            server.faults.close()
        assert ("default", "one") not in server.store.collection(("", "configmaps")).items


@pytest.mark.parametrize("count", [0, 2])
async def test_a_watch_is_dropped_after_some_events(api: Any, make_config_map: Any, count: int) -> None:
    url = URL(f"{api.server.url}{MAPS}?watch=true&resourceVersion={(await api.get(MAPS)).version}")
    reader, writer = await asyncio.open_connection(url.host, url.port)
    head = f"GET {url.path_qs} HTTP/1.1\r\nHost: x\r\nAuthorization: {api.headers['Authorization']}\r\n\r\n"
    writer.write(head.encode())
    async with asyncio.timeout(120):
        await reader.readuntil(b"\r\n\r\n")
        effect = faults.DroppedWatch(events=count)
        api.server.faults.add(Fault(effect=effect, select=Selection(resource="configmaps")))
        for name in ("a", "b", "c"):
            await api.post(MAPS, make_config_map(name))
        body = await reader.read()
    writer.close()
    assert re.findall(rb'"name":"(\w)"', body) == [b"a", b"b"][:count]
    assert not body.endswith(b"0\r\n\r\n"), "the stream must break off, not end"


async def test_dropping_counts_watches_and_spares_those_beyond_its_times(
    api: Any, make_config_map: Any
) -> None:
    async with watching(api) as first, watching(api) as second:
        api.server.faults.add(Fault(effect=faults.DroppedWatch(), when=Occasions(times=1)))
        await api.post(MAPS, make_config_map())
        with pytest.raises(aiohttp.ClientPayloadError):
            await events(first, 1)
        assert names(await events(second, 1)) == ["one"]


async def test_a_watch_that_opens_under_the_fault_is_dropped_too(api: Any, make_config_map: Any) -> None:
    api.server.faults.add(Fault(effect=faults.DroppedWatch(events=1, ending="close")))
    async with watching(api) as stream:
        await api.post(MAPS, make_config_map("a"))
        await api.post(MAPS, make_config_map("b"))
        body = await asyncio.wait_for(stream.content.read(), 10)
    assert names([json.loads(line) for line in body.splitlines()]) == ["a"]


async def test_a_watch_can_end_as_expired(api: Any) -> None:
    async with watching(api) as stream:
        api.server.faults.add(Fault(effect=faults.DroppedWatch(ending="expired")))
        received = await events(stream, 1)
        assert await asyncio.wait_for(stream.content.read(), 10) == b""
    assert (received[0]["type"], received[0]["object"]["code"]) == ("ERROR", 410)


async def test_events_are_duplicated_by_the_name_of_their_object(api: Any, make_config_map: Any) -> None:
    effect = faults.DuplicatedEvents(copies=2)
    handle = api.server.faults.add(Fault(effect=effect, select=Selection(name="b")))
    async with watching(api) as stream:
        for name in ("a", "b", "c"):
            await api.post(MAPS, make_config_map(name))
        received = await events(stream, 5)
    assert names(received) == ["a", "b", "b", "b", "c"]
    assert received[1] == received[2] == received[3]
    assert handle.struck == 1


async def test_delayed_events_keep_their_order(api: Any, make_config_map: Any) -> None:
    handle = api.server.faults.add(Fault(effect=faults.DelayedEvents(seconds=50), select=Selection(name="b")))
    async with watching(api) as stream:
        for name in ("a", "b", "c"):
            await api.post(MAPS, make_config_map(name))
        assert names(await events(stream, 1)) == ["a"]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await stream.content.readline()
        handle.lift()
        assert names(await events(stream, 2)) == ["b", "c"]


async def test_faults_are_added_listed_and_lifted_over_http(api: Any) -> None:
    body = {"name": "n", "select": {"verb": "list"}, "when": {"times": 5}}
    body["effect"] = {"kind": "refusal", "code": 503, "retryAfter": 1}
    added = await api.post(
        CONTROL, {"faults": [body, {"effect": {"kind": "disconnect"}, "when": {"skip": 9}}]}
    )
    assert added.code == 201
    first, second = (entry["id"] for entry in added.body["faults"])
    assert (await api.get(MAPS)).code == 503
    listed = (await api.get(CONTROL)).body["faults"]
    assert [(entry["id"], entry["met"], entry["struck"]) for entry in listed] == [
        (first, 1, 1),
        (second, 1, 0),
    ]
    assert listed[0]["fault"]["effect"] == {**body["effect"], "message": "", "after": False}
    assert (await api.delete(f"{CONTROL}/{first}")).body["struck"] == 1
    assert (await api.get(MAPS)).code == 200
    assert (await api.delete(f"{CONTROL}/{first}")).code == 404
    assert (await api.delete(CONTROL)).body == {"faults": []}
    assert len(api.server.faults) == 0


async def test_the_faults_endpoint_is_never_struck_and_only_the_administrators(api: Any) -> None:
    api.server.faults.add(Fault(effect=ERROR))
    assert (await api.get(CONTROL)).code == 200
    for caller, code in ((api.acting_as("default:app"), 403), (api.acting_as("joe"), 403)):
        refused = await caller.post(CONTROL, {"effect": {"kind": "disconnect"}})
        assert (refused.code, refused.body["kind"]) == (code, "Status")
    api.headers = {"Authorization": "Bearer of-no-account"}
    assert (await api.get(CONTROL)).code == 401


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("POST", CONTROL, {"effect": {"kind": "earthquake"}}, 400),
        ("POST", CONTROL, {"effect": {"kind": "refusal", "code": 200}}, 400),
        ("POST", CONTROL, {"effect": {"kind": "refusal", "code": 409}, "select": {"verb": "get"}}, 400),
        ("POST", CONTROL, {"effect": {"kind": "latency", "seconds": -1}}, 400),
        ("POST", CONTROL, {"effect": {"kind": "disconnect"}, "selct": {}}, 400),
        ("POST", CONTROL, {"effect": {"kind": "disconnect"}, "when": {"every": 0}}, 400),
        ("POST", CONTROL, {"effect": {"kind": "disconnect"}, "when": {"probability": 2}}, 400),
        ("POST", CONTROL, [], 201),
        ("POST", CONTROL, b"{", 400),
        ("PUT", CONTROL, {}, 405),
        ("GET", "/mocks/drawbar.dev/v1/restart", None, 405),
        ("GET", "/mocks/drawbar.dev/v1/other", None, 404),
    ],
)
async def test_mistakes_at_the_faults_endpoint_are_answered_with_a_status(
    api: Any, method: str, path: str, body: Any, code: int
) -> None:
    reply = await api.send(method, path, body)
    assert reply.code == code
    assert len(api.server.faults) == 0
    if code != 201:
        assert reply.body["code"] == code


async def test_faults_are_bounded() -> None:
    active = faults.Faults()
    for _ in range(faults.FAULT_LIMIT):
        active.add(Fault(effect=ERROR))
    with pytest.raises(ValueError, match="lift some"):
        active.add(Fault(effect=ERROR))


def test_faults_are_read_from_a_yaml_file(tmp_path: Any) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text(
        "faults:\n- name: lost\n  select: {user: 'system:*', verb: 'patch'}\n  when: {every: 5}\n"
        "  effect: {kind: refusal, code: 500, after: true}\n- effect: {kind: dropped-watch, events: 3}\n"
    )
    first, second = faultcontrol.load(path)
    assert first.effect == faults.Refusal(code=500, after=True)
    assert (first.select.user, first.when.every) == ("system:*", 5)
    assert second.effect == faults.DroppedWatch(events=3)
    assert msgspec.convert(msgspec.to_builtins(first), Fault) == first


@pytest.mark.parametrize("text", ["faults: 3\n", "faults: [{}]\n", "{", "- effect: {kind: rain}\n", "\xff"])
def test_a_file_with_mistakes_is_refused_in_one_sentence_that_names_it(tmp_path: Any, text: str) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(faultcontrol.InvalidFaultsError) as refused:
        faultcontrol.load(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
