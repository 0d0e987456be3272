"""Events: a courtesy that never costs its caller anything."""

import asyncio
import contextlib

import pytest
from tests.scenes import attachments as scenes

from drawbar.driver.api import attachments
from drawbar.driver.kube import client, config, events, kinds, sessions
from drawbar.mocks import apiserver

CLAIM = attachments.ClaimReference(namespace="default", name="c1", uid="u1")


@contextlib.asynccontextmanager
async def recording(folder, user="admin", instance="node-1", **changes):
    """Yield the server, its administrator's client, and a running recorder of `user`."""
    async with apiserver.serving() as server:
        mine = config.from_kubeconfig(server.kubeconfig(folder / "mine", user))
        admin = config.from_kubeconfig(server.kubeconfig(folder / "admin"))
        async with client.connecting(mine) as api, client.connecting(admin) as boss:
            recorder = events.Recorder(api, controller="drawbar.dev", instance=instance, **changes)
            async with asyncio.TaskGroup() as tasks:
                task = tasks.create_task(recorder.run(), name="events")
                yield server, boss, recorder
                task.cancel()


async def allow_everything(api, user):
    group = "rbac.authorization.k8s.io"
    kind = kinds.Kind(
        group=group,
        version="v1",
        kind="ClusterRoleBinding",
        plural="clusterrolebindings",
        namespaced=False,
    )
    body = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": user},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    await api.create(kind, body, into=dict)


async def wait_for_event_count(api, times=1):
    async with asyncio.timeout(120):
        while True:
            listed = (await api.list_all(kinds.EVENT, into=dict)).items
            if len(listed) >= times:
                return listed
            await asyncio.sleep(0.01)


async def test_an_event_stands_at_its_claim_with_who_and_why(tmp_path):
    async with recording(tmp_path) as (_, api, recorder):
        recorder.record_warning(CLAIM, reason="DeviceLost", message="it is gone")
        recorder.record_normal(CLAIM, reason="DeviceReady", message="it is here")
        by_reason = {event["reason"]: event for event in await wait_for_event_count(api, 2)}
    assert {reason: event["type"] for reason, event in by_reason.items()} == {
        "DeviceLost": "Warning",
        "DeviceReady": "Normal",
    }
    lost = by_reason["DeviceLost"]
    assert lost["note"] == "it is gone"
    assert lost["regarding"] == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "namespace": "default",
        "name": "c1",
        "uid": "u1",
    }
    assert (lost["reportingController"], lost["reportingInstance"]) == ("drawbar.dev", "node-1")


async def test_an_event_of_an_attachment_refers_to_its_claim_and_a_local_device_has_none(tmp_path):
    async with recording(tmp_path) as (_, api, recorder):
        recorder.attachment_normal(
            scenes.attachment(claim=CLAIM, fabric=attachments.LOCAL), reason="DeviceReady", message="local"
        )
        recorder.attachment_warning(scenes.attachment(claim=CLAIM), reason="DeviceLost", message="it is gone")
        (event,) = await wait_for_event_count(api)
    assert (event["type"], event["reason"], event["note"]) == ("Warning", "DeviceLost", "it is gone")
    assert (event["regarding"]["kind"], event["metadata"]["namespace"]) == ("DeviceAttachment", "default")
    assert (event["related"]["kind"], event["related"]["name"]) == ("ResourceClaim", "c1")


async def test_without_a_claim_there_is_no_event(tmp_path):
    async with recording(tmp_path) as (server, api, recorder):
        recorder.record_warning(None, reason="DeviceLost", message="m")
        recorder.record_warning(CLAIM, reason="DeviceLost", message="m")
        await wait_for_event_count(api)
        assert server.writes.count(resource="events") == 1


async def test_long_fields_are_cut_to_the_limits_of_the_api_server(tmp_path):
    long = attachments.ClaimReference(namespace="default", name="a" * 199 + "-" + "b" * 53, uid="u1")
    async with recording(tmp_path, instance="n" * 253) as (_, api, recorder):
        recorder.record_warning(long, reason="R" * 200, message="ä" * 1000)
        (event,) = await wait_for_event_count(api)
    assert len(event["note"].encode()) == 1024
    assert len(event["reportingInstance"]) == len(event["reason"]) == 128
    assert event["metadata"]["name"].startswith("a" * 199 + ".")


async def test_a_recorder_without_permission_goes_on_and_fails_no_caller(tmp_path, caplog):
    caplog.set_level("INFO", logger=events.__name__)
    async with recording(tmp_path, "powerless") as (_, api, recorder):
        recorder.record_warning(CLAIM, reason="TooEarly", message="m")
        async with asyncio.timeout(120):
            while not caplog.records:  # noqa: ASYNC110 - the log has no event to wait for
                await asyncio.sleep(0.01)
        await allow_everything(api, "powerless")
        recorder.record_warning(CLAIM, reason="Allowed", message="m")
        assert [event["reason"] for event in await wait_for_event_count(api)] == ["Allowed"]


async def test_a_queue_that_is_full_drops_the_newest_counts_and_logs_it_once(monkeypatch, caplog):
    monkeypatch.setattr(events, "QUEUE_LIMIT", 3)
    connection = sessions.Connection(
        server="http://127.0.0.1:1", tls=None, authorization=lambda: None, origin="test"
    )
    async with client.connecting(connection) as api:
        recorder = events.Recorder(api, controller="c", instance="i")
        for number in range(10):
            recorder.record_normal(CLAIM, reason=f"R{number}", message="m")
    assert recorder.dropped == 7
    assert [record.levelname for record in caplog.records] == ["WARNING"]


class Clock:
    """Seconds that pass when a test lets them."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


async def wait_for_events(api, holds):
    """Read all Events until `holds` is true of them; return them."""
    async with asyncio.timeout(120):
        while True:
            listed = (await api.list_all(kinds.EVENT, into=dict)).items
            if holds(listed):
                return listed
            await asyncio.sleep(0.01)


def count_of(event):
    return event.get("series", {}).get("count", 1)


def total_of(listed):
    return sum(map(count_of, listed))


async def record(api, recorder, times, **words):
    """Record so many Events, each after the Event before is stored; return all Events."""
    before = total_of((await api.list_all(kinds.EVENT, into=dict)).items)
    for number in range(times):
        reported = {key: word.format(number) for key, word in words.items()}
        recorder.record_warning(CLAIM, **reported)
        listed = await wait_for_events(
            api, lambda value, number=number: total_of(value) == before + number + 1
        )
    return listed


async def test_the_same_again_is_counted_by_the_first_event(tmp_path):
    async with recording(tmp_path) as (server, api, recorder):
        (event,) = await record(api, recorder, 5, reason="DeviceLost", message="it is gone")
        assert event["series"]["count"] == 5
        assert event["series"]["lastObservedTime"] > event["eventTime"]
        assert server.writes.count(resource="events") == 5
        recorder.record_warning(CLAIM, reason="DeviceGone", message="it is gone")
        recorder.record_normal(CLAIM, reason="DeviceLost", message="it is gone")
        other = attachments.ClaimReference(namespace="default", name="c1", uid="u2")
        recorder.record_warning(other, reason="DeviceLost", message="it is gone")
        listed = await wait_for_events(api, lambda value: len(value) == 4)
    assert sorted(map(count_of, listed)) == [1, 1, 1, 5], (
        "another reason, type or object has an Event of its own"
    )


async def test_repeated_events_during_a_write_cost_no_request(tmp_path):
    async with recording(tmp_path) as (server, api, recorder):
        for _ in range(500):
            recorder.record_warning(CLAIM, reason="DeviceLost", message="it is gone")
        (event,) = await wait_for_events(api, lambda value: total_of(value) == 500)
        assert server.writes.count(resource="events") == 1
        assert recorder.dropped == 0
    assert event["series"]["count"] == 500


async def test_ten_different_notes_of_one_reason_have_an_event_each_and_the_rest_share_one(tmp_path):
    async with recording(tmp_path) as (_, api, recorder):
        listed = await record(api, recorder, 20, reason="DeviceLost", message="lost for the {}th time")
    shared = [event for event in listed if count_of(event) > 1]
    assert len(listed) == events.NOTES_MAX + 1
    assert [(event["note"], count_of(event)) for event in shared] == [
        ("(combined from similar events): lost for the 10th time", 10)
    ]


async def test_an_object_costs_25_requests_and_then_one_in_five_minutes(tmp_path):
    clock = Clock()
    async with recording(tmp_path, clock=clock) as (server, api, recorder):
        await record(api, recorder, events.BURST, reason="DeviceLost", message="m")
        recorder.record_warning(CLAIM, reason="DeviceLost", message="m")
        # Of another object, which has a budget of its own: what was queued before it is done.
        other = attachments.ClaimReference(namespace="default", name="c2", uid="u2")
        recorder.record_warning(other, reason="DeviceLost", message="m")
        await wait_for_events(api, lambda value: len(value) == 2)
        assert server.writes.count(resource="events") == events.BURST + 1
        clock.now += events.REFILL_SECONDS
        recorder.record_warning(CLAIM, reason="DeviceLost", message="m")
        await wait_for_events(api, lambda value: total_of(value) == events.BURST + 2 + 1)
        assert server.writes.count(resource="events") == events.BURST + 2
        assert recorder.dropped == 0
        recorder.record_warning(CLAIM, reason="DeviceGone", message="m")
        recorder.record_warning(other, reason="DeviceGone", message="m")
        listed = await wait_for_events(api, lambda value: len(value) == 3)
        assert recorder.dropped == 1
    assert {event["regarding"]["name"] for event in listed if event["reason"] == "DeviceGone"} == {"c2"}


async def test_after_a_silence_it_is_news_again(tmp_path):
    clock = Clock()
    async with recording(tmp_path, clock=clock) as (_, api, recorder):
        await record(api, recorder, 2, reason="DeviceLost", message="m")
        clock.now += events.SILENCE_SECONDS + 1
        listed = await record(api, recorder, 2, reason="DeviceLost", message="m")
    assert [count_of(event) for event in listed] == [2, 2]


async def test_a_series_whose_event_has_expired_goes_on_in_a_new_one(tmp_path):
    async with recording(tmp_path) as (_, api, recorder):
        (event,) = await record(api, recorder, 3, reason="DeviceLost", message="m")
        await api.delete(kinds.EVENT, event["metadata"]["name"], namespace="default")
        recorder.record_warning(CLAIM, reason="DeviceLost", message="m")
        (again,) = await wait_for_events(api, bool)
    assert again["metadata"]["name"] != event["metadata"]["name"]
    assert count_of(again) == 4


async def test_the_memory_of_objects_is_bounded(monkeypatch):
    monkeypatch.setattr(events, "OBJECTS_MAX", 10)
    recorder = events.Recorder(None, controller="c", instance="i")
    for number in range(200):
        claim = attachments.ClaimReference(namespace="default", name=f"c{number}", uid="u")
        recorder.record_warning(claim, reason="R", message="m")
        recorder.record_warning(CLAIM, reason=f"R{number}", message="m")
    assert len(recorder._objects) == 10
    assert max(len(regarded.series) for regarded in recorder._objects.values()) == events.SERIES_MAX


@pytest.mark.parametrize("text", ["é" * 600, "x" * 1024, "", "漢" * 400])
def test_a_cut_never_splits_a_character(text):
    cut = events._cut(text, 1024)
    assert text.startswith(cut)
    assert len(cut.encode()) <= 1024
