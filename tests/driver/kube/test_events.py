"""Events: a courtesy that never costs its caller anything."""

import asyncio
import contextlib

import pytest

from drawbar.driver.api import attachments
from drawbar.driver.kube import client, config, events, kinds
from drawbar.mocks import apiserver

CLAIM = attachments.ClaimReference(namespace="default", name="c1", uid="u1")


@contextlib.asynccontextmanager
async def recording(folder, user="admin", instance="node-1"):
    """The server, its administrator, and a recorder of `user` that runs."""
    async with apiserver.serving() as server:
        mine = config.from_kubeconfig(server.kubeconfig(folder / "mine", user))
        admin = config.from_kubeconfig(server.kubeconfig(folder / "admin"))
        async with client.connecting(mine) as api, client.connecting(admin) as boss:
            recorder = events.Recorder(api, controller="drawbar.dev", instance=instance)
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


async def stored(api, times=1):
    async with asyncio.timeout(20):
        while True:
            listed = (await api.list_all(kinds.EVENT, into=dict)).items
            if len(listed) >= times:
                return listed
            await asyncio.sleep(0.01)


async def test_an_event_stands_at_its_claim_with_who_and_why(tmp_path):
    async with recording(tmp_path) as (_, api, recorder):
        recorder.warning(CLAIM, reason="DeviceLost", message="it is gone")
        recorder.normal(CLAIM, reason="DeviceReady", message="it is here")
        by_reason = {event["reason"]: event for event in await stored(api, 2)}
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


async def test_without_a_claim_there_is_no_event(tmp_path):
    async with recording(tmp_path) as (server, api, recorder):
        recorder.warning(None, reason="DeviceLost", message="m")
        recorder.warning(CLAIM, reason="DeviceLost", message="m")
        await stored(api)
        assert server.writes.count(resource="events") == 1


async def test_what_is_too_long_is_cut_to_what_the_api_server_takes(tmp_path):
    long = attachments.ClaimReference(namespace="default", name="a" * 199 + "-" + "b" * 53, uid="u1")
    async with recording(tmp_path, instance="n" * 253) as (_, api, recorder):
        recorder.warning(long, reason="R" * 200, message="ä" * 1000)
        (event,) = await stored(api)
    assert len(event["note"].encode()) == 1024
    assert len(event["reportingInstance"]) == len(event["reason"]) == 128
    assert event["metadata"]["name"].startswith("a" * 199 + ".")


async def test_a_recorder_without_permission_goes_on_and_fails_no_caller(tmp_path, caplog):
    caplog.set_level("INFO", logger=events.__name__)
    async with recording(tmp_path, "powerless") as (_, api, recorder):
        recorder.warning(CLAIM, reason="TooEarly", message="m")
        async with asyncio.timeout(20):
            while not caplog.records:  # noqa: ASYNC110 - the log has no event to wait for
                await asyncio.sleep(0.01)
        await allow_everything(api, "powerless")
        recorder.warning(CLAIM, reason="Allowed", message="m")
        assert [event["reason"] for event in await stored(api)] == ["Allowed"]


async def test_a_queue_that_is_full_drops_the_newest_counts_and_logs_it_once(monkeypatch, caplog):
    monkeypatch.setattr(events, "QUEUE_LIMIT", 3)
    connection = config.Connection(
        server="http://127.0.0.1:1", tls=None, authorization=lambda: None, origin="test"
    )
    async with client.connecting(connection) as api:
        recorder = events.Recorder(api, controller="c", instance="i")
        for number in range(10):
            recorder.normal(CLAIM, reason=f"R{number}", message="m")
    assert recorder.dropped == 7
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("text", ["é" * 600, "x" * 1024, "", "漢" * 400])
def test_a_cut_never_splits_a_character(text):
    cut = events._cut(text, 1024)
    assert text.startswith(cut)
    assert len(cut.encode()) <= 1024
