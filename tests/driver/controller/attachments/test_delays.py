"""Claims and pods that wait for a device get an Event with the cause, at most once for each cause."""

import datetime
import types

import msgspec
import pytest
from tests.scenes import claims as scenes

from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import names, retries
from drawbar.driver.controller.attachments import delays
from drawbar.driver.kube import events

DRIVER, PODS = "drawbar.dev", 20
NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


def claim(number):
    return scenes.make_allocated_claim(
        f"d{number}", name=f"c{number}", pool="fab/e", version="1", pods=(f"p{number}",)
    )


class Context(types.SimpleNamespace):
    """Claims that wait for devices of a fabric whose manager is down; the Events stay in the queue."""

    def __init__(self):
        index = claim_index.Index(DRIVER, lambda: NOW)
        for number in range(PODS):
            index.change(None, claim(number))
        down = types.SimpleNamespace(connected=False, message="down")
        keys = [names.DeviceKey(fabric="fab", device=f"d{number}") for number in range(PODS)]
        cluster = types.SimpleNamespace(
            driver=DRIVER,
            clock=lambda: NOW,
            allocated=index,
            sessions={"fab": types.SimpleNamespace(connection=down)},
            attachments={},
            retries=retries.Retries(DRIVER, lambda: NOW),
            recorder=events.Recorder(None, controller=DRIVER, instance="i"),
        )
        super().__init__(
            cluster=cluster,
            latency=types.SimpleNamespace(list_waiting=lambda _seconds: tuple(keys)),
        )


@pytest.mark.parametrize("room", [1000, 10])
def test_events_dropped_by_a_full_queue_are_not_retried_at_every_look(monkeypatch, room):
    monkeypatch.setattr(events, "QUEUE_LIMIT", room)
    context = Context()
    looking = delays.Delays(context=context)
    looking.look(5.0)
    dropped = context.cluster.recorder.dropped
    # Of each device the claim and its pod.
    assert dropped == max(0, 2 * PODS - room)
    for number in range(20):
        # The words of a manager that is down may change with every try.
        context.cluster.sessions["fab"].connection.message = f"down for {number} s"
        looking.look(5.0)
    assert context.cluster.recorder.dropped == dropped


@pytest.mark.parametrize(
    ("queue", "is_busy", "expected"),
    [
        ("the manager is busy", True, (delays.Cause.BUSY, "the manager is busy")),
        (
            "its limit is reached",
            False,
            (delays.Cause.LIMITED, "its limit is reached; the next begin as that minute passes"),
        ),
        ("", False, None),
    ],
    ids=["busy", "limited", "free"],
)
def test_a_claim_behind_others_says_what_it_waits_for(queue, is_busy, expected):
    served = types.SimpleNamespace(
        connection=types.SimpleNamespace(connected=True),
        manager=types.SimpleNamespace(queue=types.SimpleNamespace(is_waiting=lambda _key: is_busy)),
        describe_queue=lambda key, namespace, now: queue if (key, namespace, now) == asked else "",
    )
    key, waits = names.DeviceKey(fabric="fab", device="d0"), claim(0)
    asked = key, waits.metadata.namespace, NOW
    assert delays.cause(key, waits, served, None, NOW) == expected


def test_another_cause_and_another_allocation_are_reported_and_a_cause_that_comes_back_is_not():
    context = Context()
    looking = delays.Delays(context=context)
    queue = context.cluster.recorder._queue

    def count_reports():
        looking.look(5.0)
        sent = [queue.get_nowait() for _ in range(queue.qsize())]
        for series in sent:
            series.event = None
        return len(sent)

    down = context.cluster.sessions["fab"]
    assert count_reports() == 2 * PODS
    context.cluster.sessions.clear()
    assert count_reports() == 2 * PODS
    context.cluster.sessions["fab"] = down
    assert count_reports() == 0
    old = claim(0)
    allocation = msgspec.structs.replace(old.status.allocation, allocation_timestamp="2026-01-02T01:00:00Z")
    new = msgspec.structs.replace(
        old,
        metadata=msgspec.structs.replace(old.metadata, resource_version="2"),
        status=msgspec.structs.replace(old.status, allocation=allocation),
    )
    context.cluster.allocated.change(old, new)
    assert count_reports() == 2


def test_each_of_two_claims_with_one_device_is_reported_once():
    context = Context()
    unattached = claim_index.Index(DRIVER, lambda: NOW, devices=claim_index.remove_conditions)
    for name in ("a", "b"):
        unattached.change(None, scenes.make_allocated_claim("d0", name=name, pool="fab/e", binding=False))
    context.cluster.unattached = unattached
    context.cluster.sessions = [types.SimpleNamespace(name="fab", device={"d0": object()}.get)]
    looking = delays.Delays(context=context)
    for _ in range(3):
        looking.look_at_allocations()
    assert context.cluster.recorder._queue.qsize() == 2


def test_a_device_of_the_claims_own_node_is_none_to_be_attached():
    own = scenes.make_allocated_claim("gpu-1", "d0", name="a", pool="n1/1", node="n1", binding=False)
    far = scenes.make_allocated_claim("d0", name="b", pool="fab/e", node="n1", binding=False)
    assert claim_index.remove_conditions(own, DRIVER) == {}
    assert [key.fabric for key in claim_index.remove_conditions(far, DRIVER)] == ["fab"]
    assert claim_index.remove_conditions(None, DRIVER) == {}
