"""Claims whose devices have longer names than an allocation has room for."""

import datetime

import msgspec
import pytest
from tests.driver.controller.classic.planner import scenes

from drawbar.driver.api import handles, meta
from drawbar.driver.controller import names
from drawbar.driver.controller.allocation import matching
from drawbar.driver.controller.classic import actions, negotiation

POOL = f"{'f' * 63}/{'e' * 63}/model.{'m' * 63}"
KEYS = [names.DeviceKey(fabric="f" * 63, device=f"{'d' * 60}{number:03}") for number in range(33)]
DAY = datetime.timedelta(days=1)


@pytest.fixture
def waiting(world):
    """Return a function that makes a pod with a selected node, waiting for devices with the longest names."""

    def make_waiting_pod(count):
        cluster = world(devices=0, pool=POOL)
        cluster.devices = dict.fromkeys(KEYS, "m")
        cluster.claim("c", matching.Request(name="r" * 63, count=count))
        pod = cluster.pod("p", "c")
        cluster.select(pod, "n1", ("n1", "n2"))
        return cluster, pod

    return make_waiting_pod


def test_an_oversized_allocation_is_refused_once_before_any_attach(waiting):
    cluster, pod = waiting(32)
    assert scenes.kinds(cluster.settle()) == [actions.Complain, actions.Answer]
    assert cluster.context_of(pod).entries == {"c": ("n1", "n2")}
    cluster.select(pod, "", ("n1", "n2"))
    cluster.now += DAY
    assert cluster.settle() == []
    (message,) = cluster.complaints
    assert "ask for fewer devices in one claim" in message


def test_an_immediate_claim_that_an_allocation_has_no_room_for_is_refused_too(waiting):
    cluster, _ = waiting(32)
    cluster.pods.clear()
    (claim,) = cluster.claims.values()
    cluster._change(claim, immediate=True)
    assert scenes.kinds(cluster.settle()) == [actions.Complain]


def test_so_few_devices_that_their_names_are_not_measured_have_room(waiting):
    cluster, _ = waiting(negotiation.SURELY_FIT)
    cluster.settle()
    cluster.attach_all()
    assert scenes.kinds(cluster.settle()) == [actions.Allocate]
    (claim,) = cluster.claims.values()
    worst = msgspec.structs.replace(
        claim.allocation.handle, node="n" * 253, without=("w" * 63,) * (32 - negotiation.SURELY_FIT)
    )
    assert handles.encode(worst)


def test_devices_of_an_oversized_allocation_are_detached_with_the_reason(waiting):
    cluster, _ = waiting(32)
    (claim,) = cluster.claims.values()
    cluster.apply(actions.Protect(claim=claim))
    for key in KEYS[:32]:
        cluster.apply(
            actions.Attach(
                claim=claim,
                key=key,
                pool=POOL,
                request="r" * 63,
                node="n1",
                host_id="host-n1",
                devices=32,
                allocated_at=meta.timestamp(cluster.now),
            )
        )
    cluster.attach_all()
    steps = cluster.decide()
    assert scenes.kinds(steps)[:-1] == [actions.Detach] * 32
    assert [step.reason for step in steps[:-1] if step.reason] == ["AllocationTooLarge"]
