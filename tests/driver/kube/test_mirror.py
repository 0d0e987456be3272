"""The local copy of a collection, against the API server double and a server that plays a script."""

import asyncio
import contextlib
import datetime
import errno
import itertools
import json

import aiohttp
import pytest
from aiohttp import web
from tests.scenes import apiservers, waiting
from tests.scenes.apiservers import Thing

from drawbar.driver import backoff, clocks, containment
from drawbar.driver.api import core, meta
from drawbar.driver.kube import answers, client, config, errors, kinds, localcopy, mirror
from drawbar.mocks import apiserver

KIND = kinds.CONFIG_MAP


def make_thing(name="one", uid="u1", version="5"):
    return Thing(metadata=meta.ObjectMeta(name=name, namespace="default", uid=uid, resource_version=version))


class Seen:
    """The calls of `changed`, as (old version, new version), and a way to wait for them."""

    def __init__(self):
        self.pairs = []
        self._wake = asyncio.Event()

    def __call__(self, old, new):
        self.pairs.append((old, new))
        self._wake.set()

    @property
    def changes(self):
        return [
            ("deleted" if new is None else "added" if old is None else "changed", (new or old).metadata.name)
            for old, new in self.pairs
        ]

    async def until(self, holds):
        async with asyncio.timeout(120):
            while not holds():
                self._wake.clear()
                await self._wake.wait()


@contextlib.asynccontextmanager
async def running(copy):
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(copy.run(), name="reflector")
        async with asyncio.timeout(120):
            await copy.synced.wait()
        yield copy
        task.cancel()


async def make(api, name="one", labels=None):
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels or {}},
        "data": {},
    }
    return await api.create(KIND, body, into=Thing, namespace="default")


async def touch(api, name="one", **metadata):
    return await api.patch(
        KIND,
        name,
        {"metadata": metadata},
        content=client.Patch.MERGE,
        into=Thing,
        namespace="default",
    )


class Script:
    """A server that answers lists and watches from its script, and records when it was asked."""

    def __init__(self):
        self.listing = {"metadata": {"resourceVersion": "10"}, "items": []}
        self.list_status = 200
        self.watch_status = 200
        self.lines = []
        self.stays_open = False
        self.expires = None
        self.asked = []
        self._wake = asyncio.Event()

    async def handle(self, request):
        verb = "watch" if "watch" in request.query else "list"
        self.asked.append((verb, asyncio.get_running_loop().time(), dict(request.query)))
        self._wake.set()
        status = self.watch_status if verb == "watch" else self.list_status
        if status != 200:
            return web.json_response({"message": "no", "code": status}, status=status)
        if verb == "list" and self.expires is not None:
            return self._page(request.query.get("continue"))
        if verb == "list":
            return web.json_response(self.listing)
        answer = web.StreamResponse()
        await answer.prepare(request)
        for line in self.lines:
            await answer.write(json.dumps(line).encode() + b"\n")
        if self.stays_open:
            await asyncio.Event().wait()
        return answer

    def _page(self, token):
        """Return one of two pages; the second may have expired."""
        if token is None:
            metadata = {"resourceVersion": "10", "continue": "more"}
            return web.json_response({"metadata": metadata, "items": [self._make_item("one")]})
        if self.expires:
            return web.json_response({"message": "too old", "reason": "Expired", "code": 410}, status=410)
        return web.json_response({"metadata": {"resourceVersion": "10"}, "items": [self._make_item("two")]})

    @staticmethod
    def _make_item(name):
        return {"metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "5"}}

    def times(self, verb):
        return [moment for kind, moment, _ in self.asked if kind == verb]

    async def until_asked(self, verb, times):
        async with asyncio.timeout(120):
            while len(self.times(verb)) < times:
                self._wake.clear()
                await self._wake.wait()


@contextlib.asynccontextmanager
async def scripting(script):
    async with (
        apiservers.answering(script.handle) as url,
        client.connecting(apiservers.connection(url)) as api,
    ):
        yield api


async def test_every_difference_is_reported_once_in_order(tmp_path):
    async with apiservers.double(tmp_path) as (_, api):
        await make(api, "before")
        seen = Seen()
        async with running(mirror.Mirror(api, KIND, into=Thing, changed=seen, namespace="default")):
            made = await make(api)
            await touch(api, labels={"a": "b"})
            await api.delete(KIND, "one", namespace="default", uid=made.metadata.uid)
            await make(api, "last")
            await seen.until(lambda: ("added", "last") in seen.changes)
    assert seen.changes == [
        ("added", "before"),
        ("added", "one"),
        ("changed", "one"),
        ("deleted", "one"),
        ("added", "last"),
    ]


async def grow(api, name, size):
    """Give an object data of that many bytes."""
    body = {"data": {"a": "<" * size}}
    try:
        await api.patch(KIND, name, body, content=client.Patch.MERGE, into=Thing, namespace="default")
    except errors.TooLarge:
        return  # what was stored is what the client does not read


async def test_an_object_that_is_too_large_keeps_its_last_state_and_is_named_once(tmp_path, monkeypatch):
    monkeypatch.setattr(answers, "LIMIT_BYTES", 20_000)
    async with apiservers.double(tmp_path) as (_, api):
        for name in ("one", "two"):
            await make(api, name)
        seen, named = Seen(), []
        copy = mirror.Mirror(api, KIND, into=Thing, namespace="default")
        copy.follow(seen)
        copy.report_unreadable(lambda old, new: named.append((new or old).metadata) if new else None)
        async with running(copy):
            before = copy.get("one", "default")
            await grow(api, "one", 5_000)
            await make(api, "three")
            await seen.until(lambda: ("added", "three") in seen.changes)
            assert copy.get("one", "default") == before
            # Another list names it no second time.
            await grow(api, "one", 5_001)
            await make(api, "four")
            await seen.until(lambda: ("added", "four") in seen.changes)
            assert [(entry.name, entry.uid) for entry in named] == [("one", before.metadata.uid)]
            await grow(api, "one", 5)
            await seen.until(lambda: ("changed", "one") in seen.changes)
            assert copy.unreadable == {}
            await grow(api, "one", 5_000)
            await api.delete(KIND, "two", namespace="default")
            await seen.until(lambda: ("deleted", "two") in seen.changes)
            await delete_unread(api, "one")
            await seen.until(lambda: ("deleted", "one") in seen.changes)
    assert [entry.name for entry in named] == ["one", "one"]


def make_object(name, uid, version, **fields):
    named = {"name": name, "namespace": "default", "uid": uid, "resourceVersion": version}
    return {"metadata": named | fields}


WRONG = {"labels": 5}


async def test_an_object_that_cannot_be_read_keeps_its_last_state_until_it_is_read_or_gone(
    caplog, monkeypatch
):
    """Three objects cannot be read: one was read before, one never was, one replaces another of its name."""
    script = Script()
    script.listing["items"] = [
        make_object("never", "u1", "1", **WRONG),
        make_object("was", "u2", "2"),
        make_object("renamed", "u3", "3"),
        make_object("fine", "u4", "4"),
    ]
    script.lines = [
        {"type": "MODIFIED", "object": make_object("was", "u2", "11", **WRONG)},
        {"type": "MODIFIED", "object": make_object("was", "u2", "12", **WRONG)},
        {"type": "ADDED", "object": make_object("renamed", "u5", "13", **WRONG)},
        {"type": "MODIFIED", "object": make_object("fine", "u4", "14")},
    ]
    script.stays_open = True
    async with scripting(script) as api:
        seen, left = Seen(), Seen()
        copy = mirror.Mirror(api, KIND, into=Thing, namespace="default", changed=seen)
        copy.report_unreadable(left)
        async with running(copy):
            assert copy.is_unreadable("never", "default")
            await seen.until(lambda: ("changed", "fine") in seen.changes)
            assert {name for _, name in copy.unreadable} == {"never", "was", "renamed"}
            assert {item.metadata.name for item in copy} == {"was", "fine"}
            assert copy.get("was", "default").metadata.resource_version == "2"
            assert mirror.count_unreadable([copy]) == {"configmaps": 3.0}
            monkeypatch.setattr(mirror, "FRESH_SECONDS", 0.0)
            # A list knows which of them are gone, and which can be read by now.
            script.listing = {
                "metadata": {"resourceVersion": "20"},
                "items": [make_object("was", "u2", "15"), make_object("renamed", "u5", "13", **WRONG)],
            }
            script.lines = [{"type": "DELETED", "object": make_object("renamed", "u5", "21", **WRONG)}]
            await copy.renew()
            await left.until(lambda: left.changes.count(("deleted", "renamed")) == 1)
            assert [item.metadata.resource_version for item in copy] == ["15"]
            assert copy.unreadable == {}
    names = ("never", "was", "renamed")
    assert left.changes[:3] == [("added", name) for name in names]
    assert sorted(left.changes[3:]) == sorted(("deleted", name) for name in names)
    assert [sum(f"default/{name} is left out" in text for text in caplog.messages) for name in names] == [
        1
    ] * 3


async def delete_unread(api, name):
    with contextlib.suppress(errors.TooLarge):
        await api.delete(KIND, name, namespace="default")


async def test_the_answer_of_a_write_is_known_at_once_and_reported_once(tmp_path):
    async with apiservers.double(tmp_path) as (_, api):
        seen = Seen()
        copy = mirror.Mirror(api, KIND, into=Thing, changed=seen, namespace="default")
        async with running(copy):
            copy.learn(await make(api))
            assert copy.get("one", "default") is not None
            await make(api, "last")
            await seen.until(lambda: ("added", "last") in seen.changes)
    assert seen.changes == [("added", "one"), ("added", "last")]


async def test_a_write_through_the_mirror_is_visible_before_its_event(tmp_path):
    """The watch does not run yet, so only the answers of the writes can be in the mirror."""
    async with apiservers.double(tmp_path) as (_, api):
        copy = mirror.Mirror(api, KIND, into=Thing, changed=Seen(), namespace="default")
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {}}
        made = await copy.create(body, namespace="default")
        assert copy.get("one", "default") == made
        merged = await copy.merge(made, {"metadata": {"finalizers": ["a.example/b"]}}, manager="m")
        assert copy.get("one", "default").metadata.finalizers == ("a.example/b",)
        applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "labels": {"a": "b"}}}
        await copy.apply(merged, applied, manager="n")
        assert copy.get("one", "default").metadata.labels == {"a": "b"}
        await copy.delete(made)
        going = copy.get("one", "default")
        assert going.metadata.deletion_timestamp is not None, "its finalizer keeps it"
        await copy.merge(going, {"metadata": {"finalizers": []}}, manager="m")
        assert copy.get("one", "default") is None, "the last finalizer is gone, and the object with it"


async def test_an_object_that_a_write_finds_gone_is_gone_from_the_mirror(tmp_path):
    async with apiservers.double(tmp_path) as (_, api):
        copy = mirror.Mirror(api, KIND, into=Thing, changed=Seen(), namespace="default")
        made = await make(api)
        copy.learn(made)
        await copy.delete(made)
        assert copy.get("one", "default") is None
        again = await make(api)
        copy.learn(again)
        await api.delete(KIND, "one", namespace="default")
        with pytest.raises(errors.NotFound):
            await copy.merge(again, {"metadata": {"labels": {"a": "b"}}}, manager="m")
        assert copy.get("one", "default") is None


async def test_a_late_answer_does_not_restore_a_deleted_object(tmp_path):
    async with apiservers.double(tmp_path) as (_, api):
        seen = Seen()
        copy = mirror.Mirror(api, KIND, into=Thing, changed=seen, namespace="default")
        async with running(copy):
            await make(api)
            answer = await touch(api, labels={"a": "b"})
            await api.delete(KIND, "one", namespace="default")
            await seen.until(lambda: ("deleted", "one") in seen.changes)
            copy.learn(answer)
            assert copy.get("one", "default") is None
            again = await make(api)
            copy.learn(again)
            assert copy.get("one", "default") == again


async def test_a_late_deletion_does_not_take_the_next_object_of_that_name():
    script = Script()
    script.listing["items"] = [{"metadata": {"name": "one", "uid": "u1", "resourceVersion": "5"}}]
    script.lines = [
        {"type": "DELETED", "object": {"metadata": {"name": "one", "uid": "u1", "resourceVersion": "11"}}},
        {"type": "MODIFIED", "object": {"metadata": {"name": "two", "uid": "u2", "resourceVersion": "12"}}},
    ]
    script.stays_open = True
    seen = Seen()
    fresh = Thing(metadata=meta.ObjectMeta(name="one", uid="u9", resource_version="13"))
    async with scripting(script) as api:
        copy = mirror.Mirror(api, KIND, into=Thing, changed=seen)

        def learn_when_first_seen(old, new):
            if not seen.pairs:
                seen(old, new)
                copy.learn(fresh)
            else:
                seen(old, new)

        copy._changed = learn_when_first_seen
        async with running(copy):
            await seen.until(lambda: ("added", "two") in seen.changes)
            assert copy.get("one") == fresh
    assert ("deleted", "one") not in seen.changes


async def test_an_object_that_leaves_the_selection_and_returns_is_known_again(tmp_path):
    async with apiservers.double(tmp_path) as (_, api):
        seen = Seen()
        copy = mirror.Mirror(api, KIND, into=Thing, changed=seen, labels="a=b")
        async with running(copy):
            await make(api, labels={"a": "b"})
            await touch(api, labels={"a": "c"})
            await touch(api, labels={"a": "b"})
            await seen.until(lambda: len(seen.changes) == 3)
            assert copy.get("one", "default") is not None
    assert seen.changes == [("added", "one"), ("deleted", "one"), ("added", "one")]


async def test_a_new_list_reports_missed_deletions_and_changes(tmp_path):
    """The watch ends, the history is forgotten, so the next watch is answered 410."""
    async with apiservers.double(tmp_path) as (server, api):
        for name in ("goes", "stays", "changes"):
            await make(api, name)
        seen = Seen()
        copy = mirror.Mirror(api, KIND, into=Thing, changed=seen, namespace="default")
        async with running(copy):
            server.store.close()  # ends all watches, as an API server that restarts does
            await api.delete(KIND, "goes", namespace="default")
            await touch(api, "changes", labels={"a": "b"})
            server.store.compact()
            await seen.until(lambda: len(seen.changes) >= 5)
            assert {item.metadata.name for item in copy} >= {"stays", "changes"}
            assert copy.get("goes", "default") is None
    assert sorted(seen.changes[:3]) == [("added", "changes"), ("added", "goes"), ("added", "stays")]
    assert sorted(seen.changes[3:]) == [("changed", "changes"), ("deleted", "goes")]


@pytest.mark.parametrize(
    "version",
    [
        pytest.param("4", id="restored-from-a-backup"),
        pytest.param("6", id="went-on"),
        pytest.param("opaque", id="not-a-number"),
    ],
)
async def test_a_list_is_accepted_with_any_version(version):
    script = Script()
    script.listing["items"] = [{"metadata": {"name": "one", "uid": "u1", "resourceVersion": "5"}}]
    script.watch_status = 410
    seen = Seen()
    async with scripting(script) as api:
        copy = mirror.Mirror(api, KIND, into=Thing, changed=seen)
        async with running(copy):
            script.listing["items"] = [{"metadata": {"name": "one", "uid": "u1", "resourceVersion": version}}]
            await seen.until(lambda: len(seen.changes) == 2)
            assert copy.get("one").metadata.resource_version == version


async def test_a_list_that_is_older_than_our_write_does_not_undo_it():
    script = Script()
    script.watch_status = 410
    seen = Seen()
    async with scripting(script) as api:
        copy = mirror.Mirror(api, KIND, into=Thing, changed=seen)
        async with running(copy):
            ours = make_thing(version="11")  # the list is of version 10
            copy.learn(ours)
            await script.until_asked("list", 3)
            assert copy.get("one", "default") == ours
            script.listing["metadata"]["resourceVersion"] = "12"
            await seen.until(lambda: ("deleted", "one") in seen.changes)


async def test_watches_that_end_at_once_are_asked_for_ever_more_seldom():
    script = Script()
    async with scripting(script) as api, running(mirror.Mirror(api, KIND, into=Thing, changed=Seen())):
        await script.until_asked("watch", 4)
    times = script.times("watch")
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)][:3]
    shortest = [backoff.FIRST_SECONDS * factor / 2 for factor in (1, 2, 4)]
    assert all(pause >= least for pause, least in zip(pauses, shortest, strict=True)), pauses
    assert len(script.times("list")) == 1


@pytest.mark.parametrize("status", [403, 410, 429, 500])
async def test_watches_that_are_refused_do_not_make_it_list_without_pause(status):
    script = Script()
    script.watch_status = status
    async with scripting(script) as api, running(mirror.Mirror(api, KIND, into=Thing, changed=Seen())):
        await script.until_asked("list", 3)
    times = script.times("list")
    assert times[2] - times[0] >= backoff.FIRST_SECONDS * 1.5


async def test_a_watch_goes_on_from_the_bookmark():
    script = Script()
    script.lines = [{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "77"}}}]
    async with scripting(script) as api, running(mirror.Mirror(api, KIND, into=Thing, changed=Seen())):
        await script.until_asked("watch", 2)
    versions = [query["resourceVersion"] for verb, _, query in script.asked if verb == "watch"]
    assert versions[:2] == ["10", "77"]


async def test_a_denied_list_is_logged_once_and_retried_until_allowed(caplog):
    script = Script()
    script.list_status = 403
    async with scripting(script) as api:
        copy = mirror.Mirror(api, KIND, into=Thing, changed=Seen())
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(copy.run(), name="reflector")
            await script.until_asked("list", 3)
            assert not copy.synced.is_set()
            script.list_status, script.stays_open = 200, True
            async with asyncio.timeout(120):
                await copy.synced.wait()
            task.cancel()
    assert [record.levelname for record in caplog.records if record.name == mirror.__name__] == ["WARNING"]


async def test_the_memory_of_the_deleted_is_bounded():
    copy = mirror.Mirror(None, KIND, into=Thing, changed=Seen())
    for number in range(localcopy.DELETED_LIMIT + 10):
        copy.put(make_thing(uid=f"u{number}", version=str(number)))
        copy.drop(("default", "one"), f"u{number}")
    assert len(copy._deleted) == localcopy.DELETED_LIMIT


def make_list(*names, version):
    items = [{"metadata": {"name": name, "uid": name, "resourceVersion": version}} for name in names]
    return {"metadata": {"resourceVersion": version}, "items": items}


async def _read_times(script, error=None, clock=clocks.time_of_day):
    """Return the time of the list, of the failure, and until which the copy says to have been current."""
    async with scripting(script) as api:
        copy = mirror.Mirror(api, KIND, into=Thing, changed=Seen(), clock=clock)
        if error is not None:
            api.watch = lambda *_, **__: _fail(error)
        async with running(copy):
            listed = datetime.datetime.now(datetime.UTC)
            assert (copy.problem, copy.current_until) == (None, None)
            script.list_status = 500
            async with asyncio.timeout(120):
                while copy.problem is None:  # noqa: ASYNC110 (a copy does not announce it)
                    await asyncio.sleep(0.01)
            failed = datetime.datetime.now(datetime.UTC)
            until = copy.current_until
            await script.until_asked("list", 3)
            assert copy.current_until == until  # the first failure counts
            script.list_status, script.stays_open = 200, True
            async with asyncio.timeout(120):
                while copy.problem is not None:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert copy.current_until is None
    return listed, until, failed


async def _fail(error):
    await asyncio.sleep(0.3)
    raise errors.Unreachable("the stream broke") from error
    yield


@pytest.mark.parametrize("error", [ConnectionResetError(), aiohttp.ClientPayloadError()], ids=repr)
async def test_a_copy_whose_watch_breaks_was_current_until_then(error):
    listed, until, failed = await _read_times(Script(), error)
    assert listed + datetime.timedelta(seconds=0.2) < until <= failed


@pytest.mark.parametrize("code", [errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ECONNREFUSED])
async def test_a_copy_whose_server_was_absent_was_current_at_the_last_answer(code):
    listed, until, _ = await _read_times(Script(), OSError(code, "gone"))
    assert until <= listed


async def test_a_copy_without_a_clock_has_no_time_of_its_last_answer():
    _, until, _ = await _read_times(Script(), ConnectionResetError(), clock=None)
    assert until is None


@pytest.mark.parametrize("waited", [True, False])
async def test_a_watch_that_has_gone_silent_is_left_for_a_new_list(monkeypatch, waited):
    if waited:
        monkeypatch.setattr(mirror, "FRESH_SECONDS", 0.0)
    script, seen = Script(), Seen()
    script.stays_open, script.listing = True, make_list("gone", version="10")
    async with (
        scripting(script) as api,
        running(mirror.Mirror(api, KIND, into=Thing, changed=seen)) as copy,
    ):
        await script.until_asked("watch", 1)
        script.listing = make_list("new", version="20")
        async with asyncio.timeout(120):
            await copy.renew()
        assert [stored.metadata.name for stored in copy] == (["new"] if waited else ["gone"])
        await script.until_asked("watch", 2 if waited else 1)
    assert seen.changes == [("added", "gone"), *([("deleted", "gone"), ("added", "new")] if waited else [])]
    versions = [query["resourceVersion"] for verb, _, query in script.asked if verb == "watch"]
    assert versions == (["10", "20"] if waited else ["10"])


async def test_an_object_that_is_not_to_be_kept_any_more_is_let_go_and_taken_up_again(tmp_path):
    async with apiserver.serving() as server:
        server.kubeconfig(tmp_path / "kc")
        async with client.connecting(config.from_kubeconfig(tmp_path / "kc")) as api:
            seen = Seen()
            copy = mirror.Mirror(
                api, KIND, into=Thing, changed=seen, keep=lambda item: "ours" in item.metadata.labels
            )
            async with running(copy):
                await make(api, labels={"ours": "yes"})
                await make(api, "another")
                await seen.until(lambda: len(seen.pairs) == 1)
                await touch(api, labels={"ours": None})
                await seen.until(lambda: len(seen.pairs) == 2)
                assert len(copy) == 0
                await touch(api, labels={"ours": "again"})
                await seen.until(lambda: len(seen.pairs) == 3)
                assert copy.get("one", "default").metadata.labels == {"ours": "again"}
    assert seen.changes == [("added", "one"), ("deleted", "one"), ("added", "one")]


async def test_a_reflector_keeps_only_selected_objects(tmp_path):
    async with apiserver.serving() as server:
        server.kubeconfig(tmp_path / "admin", "admin")
        async with client.connecting(config.from_kubeconfig(tmp_path / "admin")) as api:
            for name in ("a1", "b1"):
                await _make_node(api, name)
            seen = asyncio.Event()
            nodes = mirror.Mirror(
                api,
                kinds.NODE,
                into=core.Node,
                changed=lambda old, new: seen.set() if new.metadata.name == "a2" else None,
                keep=lambda node: node.metadata.name.startswith("a"),
            )
            async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
                running = tasks.create_task(nodes.run())
                await nodes.synced.wait()
                await _make_node(api, "b2")
                await _make_node(api, "a2")
                await seen.wait()
                running.cancel()
            assert sorted(node.metadata.name for node in nodes) == ["a1", "a2"]


async def _make_node(api, name):
    await api.create(kinds.NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}, into=dict)


class Recorder:
    """Keeps the Events about unexpected errors."""

    def __init__(self):
        self.events = []

    def record_unexpected(self, kind, metadata, failure):
        self.events.append((kind.kind, metadata.name, failure))


@pytest.mark.defects
async def test_a_change_that_its_follower_fails_over_is_reported_again_and_the_others_at_once(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(containment, "PAUSE_FIRST_SECONDS", 0.01)
    contained, recorder, seen, broken = containment.Containment(), Recorder(), Seen(), {"bad"}

    def note_or_fail(old, new):
        if (new or old).metadata.name in broken:
            raise KeyError("a defect")
        seen(old, new)

    async with apiservers.double(tmp_path) as (_, api):
        copy = mirror.Mirror(
            api,
            KIND,
            into=Thing,
            namespace="default",
            changed=note_or_fail,
            contained=contained,
            recorder=recorder,
        )
        await make(api, "bad")
        async with running(copy):
            await make(api, "good")
            await seen.until(lambda: ("added", "good") in seen.changes)
            await touch(api, "bad", labels={"a": "b"})
            await waiting.eventually(lambda: contained.counts()[copy.worker] >= 3)
            assert seen.changes == [("added", "good")]
            broken.clear()
            await seen.until(lambda: ("added", "bad") in seen.changes)
            await make(api, "last")
            await seen.until(lambda: ("added", "last") in seen.changes)
    (added,) = [new for old, new in seen.pairs if old is None and new.metadata.name == "bad"]
    assert added.metadata.labels == {"a": "b"}
    assert [event[:2] for event in recorder.events] == [("ConfigMap", "bad")]
    assert contained.count_failing()[copy.worker] == 0.0


async def test_a_list_that_expires_between_its_pages_is_begun_again_after_ever_longer_pauses():
    script = Script()
    script.expires = True
    seen = Seen()
    async with scripting(script) as api:
        copy = mirror.Mirror(api, KIND, into=Thing, changed=seen)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(copy.run(), name="reflector")
            await script.until_asked("list", 6)
            times = [
                moment for verb, moment, query in script.asked if verb == "list" and "continue" not in query
            ]
            assert times[2] - times[0] >= backoff.FIRST_SECONDS * 1.5
            assert (seen.pairs, copy.synced.is_set()) == ([], False), "half a list is none"
            script.expires, script.stays_open = False, True
            async with asyncio.timeout(120):
                await copy.synced.wait()
            task.cancel()
    assert seen.changes == [("added", "one"), ("added", "two")]


async def test_watches_that_bring_bookmarks_alone_and_end_are_asked_for_ever_more_seldom():
    script = Script()
    script.lines = [{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "77"}}}] * 100
    async with scripting(script) as api, running(mirror.Mirror(api, KIND, into=Thing, changed=Seen())):
        await script.until_asked("watch", 4)
    times = script.times("watch")
    assert times[3] - times[0] >= backoff.FIRST_SECONDS * (1 + 2 + 4) / 2
    assert len(script.times("list")) == 1
