"""What fails, what is shared, what is optional, and what is allocated at once in classic allocation."""

import datetime

import msgspec
import pytest
from tests.driver.controller.classic.planner import scenes

from drawbar.driver.api import attachments, classic, handles, slices
from drawbar.driver.controller.allocation import matching
from drawbar.driver.controller.classic import actions, claim_requests, history, negotiation

DAY = datetime.timedelta(days=1)


# What fails.


def test_a_failed_device_is_replaced_by_another_on_the_same_node(world):
    cluster, _ = scenes.make_waiting_pod(world, selected="n1", devices=2)
    cluster.settle()
    (first,) = cluster.attachments
    cluster.work(first, "attached", fails=True)
    (step,) = cluster.settle()
    assert step.reason == "FabricError"
    cluster.work(first, "gone")
    (attach,) = scenes.of_kind(cluster.settle(), actions.Attach)
    assert (attach.node, attach.key.attachment == first) == ("n1", False)


def test_where_no_other_device_is_left_the_node_is_unsuitable_and_the_finalizer_goes(world):
    cluster, pod = scenes.make_waiting_pod(world, selected="n1", devices=1)
    cluster.settle()
    (first,) = cluster.attachments
    cluster.work(first, "attached", fails=True)
    cluster.settle()
    cluster.work(first, "gone")
    cluster.settle()
    assert cluster.context_of(pod).entries == {"c": ("n1", "n2")}
    assert scenes.only(cluster).finalizers == ()


@pytest.mark.parametrize("reason", ["NoFreePort", "DeviceIncompatible"])
def test_a_failure_that_its_device_is_not_to_blame_for_makes_the_node_wait(world, reason):
    cluster, pod = scenes.make_waiting_pod(world, selected="n1", devices=1)
    cluster.settle()
    (name,) = cluster.attachments
    error = attachments.Failure(reason=reason, message="not there")
    cluster._put_attachment(cluster.attachments[name], error=error)
    cluster.settle()
    cluster.work(name, "gone")
    cluster.settle()
    assert cluster.context_of(pod).entries == {"c": ("n1",)}
    cluster.now += history.PAUSE_FIRST
    assert scenes.of_kind(cluster.settle(), actions.Attach)


def test_an_attempt_on_a_silent_node_ends_after_a_timeout(world):
    cluster, _ = scenes.make_waiting_pod(world, selected="n1")
    cluster.settle()
    (name,) = cluster.attachments
    cluster.work(name, "attached")
    cluster.now += DAY
    (step,) = scenes.of_kind(cluster.decide(), actions.Detach)
    assert step.reason == "DeviceNotReady"


def test_an_attempt_on_a_deleted_node_ends(world):
    cluster, _ = scenes.make_waiting_pod(world, selected="n1")
    cluster.settle()
    del cluster.nodes["n1"]
    (step,) = scenes.of_kind(cluster.decide(), actions.Detach)
    assert step.reason == "NodeGone"


def test_an_attempt_goes_on_where_the_node_is_made_again_within_its_grace(world):
    cluster, _ = scenes.make_waiting_pod(world, selected="n1")
    cluster.node_grace = datetime.timedelta(seconds=60)
    cluster.settle()
    node = cluster.nodes.pop("n1")
    assert scenes.of_kind(cluster.settle(), actions.Detach) == []
    # It looks when the grace is over, whatever changes before.
    decision = negotiation.plan(cluster.observe(), cluster.history, cluster.now)
    assert decision.look_again == cluster.now + cluster.node_grace
    cluster.now += cluster.node_grace / 2
    cluster.nodes["n1"] = node
    cluster.settle()
    cluster.attach_all()
    (step,) = scenes.of_kind(cluster.settle(), actions.Allocate)
    assert step.handle.node == "n1"


def test_an_attempt_ends_where_the_node_stays_away_for_its_grace(world):
    cluster, _ = scenes.make_waiting_pod(world, selected="n1")
    cluster.node_grace = datetime.timedelta(seconds=60)
    cluster.settle()
    del cluster.nodes["n1"]
    cluster.settle()
    cluster.now += cluster.node_grace
    (step,) = scenes.of_kind(cluster.settle(), actions.Detach)
    assert step.reason == "NodeGone"


def test_the_next_pod_gets_the_device_of_a_deleted_node(world):
    cluster, _, claim = scenes.make_running_pod(world, devices=1)
    del cluster.nodes["n1"]
    cluster.delete_pod("p")
    cluster.clean_up()
    cluster.settle()
    cluster.attach_all()
    cluster.settle()
    assert scenes.only(cluster).allocation is None
    cluster.claim("next")
    cluster.select(cluster.pod("q", "next"), "n2", ("n2",))
    (attach,) = scenes.of_kind(cluster.settle(), actions.Attach)
    assert (attach.node, attach.key.device) == ("n2", claim.allocation.handle.devices[0].device)


def test_an_attempt_interrupted_by_a_crash_is_completed(world):
    cluster = world(devices=2)
    cluster.claim("c", matching.Request(name="r", count=2))
    cluster.select(cluster.pod("p", "c"), "n1", ("n1",))
    protect, first, _, _ = cluster.decide()
    cluster.apply(protect)
    cluster.apply(first)
    cluster.history = history.History()
    (second,) = scenes.of_kind(cluster.settle(), actions.Attach)
    assert second.allocated_at == first.allocated_at
    assert len(cluster.attachments) == 2


def test_a_claim_is_never_allocated_by_half(world):
    cluster = world(devices=2)
    cluster.claim("c", matching.Request(name="r", count=2))
    cluster.select(cluster.pod("p", "c"), "n1", ("n1",))
    protect, first, _, _ = cluster.decide()
    cluster.apply(protect)
    cluster.apply(first)
    cluster.attach_all()
    assert not scenes.of_kind(cluster.decide(), actions.Allocate)


def test_devices_attached_on_an_outdated_view_are_all_detached(world):
    cluster, _ = scenes.make_waiting_pod(world, selected="n1", devices=2)
    _, first, _ = cluster.decide()
    second = next(key for key in cluster.devices if key != first.key)
    cluster.settle()
    cluster.apply(msgspec.structs.replace(first, key=second))
    cluster.attach_all()
    steps = cluster.decide()
    assert scenes.names(steps) == ["Detach", "Detach"]
    assert steps[0].reason == "AttemptsMixed"


def test_a_partly_served_claim_is_released_if_no_device_is_left(world):
    cluster = world(devices=2)
    cluster.claim("c", matching.Request(name="r", count=2))
    cluster.select(cluster.pod("p", "c"), "n1", ("n1",))
    protect, first, second, _ = cluster.decide()
    cluster.apply(protect)
    cluster.apply(first)
    cluster.connected[second.key] = "n2"
    (step,) = scenes.of_kind(cluster.settle(), actions.Detach)
    assert step.reason == "NoDeviceLeft"
    assert cluster.complaints == ["node n1 has no device left for all that the claim asks for"]


# Taints, sharing, doing without, and at once.


def test_a_tainted_device_is_unsuitable_unless_the_request_tolerates_it(world):
    cluster, _ = scenes.make_waiting_pod(world, selected="n1", devices=1)
    (device,) = cluster.devices
    cluster.tainted[device] = cluster.now + DAY
    assert not scenes.of_kind(cluster.decide(), actions.Attach)
    cluster.claim("tolerant", matching.Request(name="r", tolerations=(matching.Toleration(),)))
    cluster.select(cluster.pod("q", "tolerant"), "n1", ("n1",))
    (attach,) = scenes.of_kind(cluster.decide(), actions.Attach)
    assert attach.claim.name.name == "tolerant"


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        (matching.Toleration(), True),
        (matching.Toleration(key="k"), True),
        (matching.Toleration(key="other"), False),
        (matching.Toleration(key="k", value="v"), True),
        (matching.Toleration(key="k", value="w"), False),
        (matching.Toleration(effect="NoExecute"), False),
    ],
)
def test_a_toleration_covers_matching_taints(toleration, covers):
    assert toleration.covers(slices.Taint(key="k", value="v", effect="NoSchedule")) is covers


def test_a_shareable_claim_is_allocated_as_one(world):
    cluster = world()
    cluster.claim("c", shareable=True)
    cluster.select(cluster.pod("p", "c"), "n1", ("n1",))
    cluster.settle()
    cluster.attach_all()
    (step,) = cluster.decide()
    assert step.shareable


def test_an_optional_request_gets_no_device_only_when_no_node_has_a_device_left(world):
    cluster = world(devices=1)
    cluster.ports["n1"] = 0
    cluster.claim("c", matching.Request(name="r", optional=True))
    pod = cluster.pod("p", "c")
    cluster.select(pod, "n1", ("n1", "n2"))
    (answer,) = cluster.settle()
    assert dict(answer.entries) == {"c": ("n1",)}
    cluster.connected[next(iter(cluster.devices))] = "n2"
    (step,) = scenes.of_kind(cluster.settle(), actions.Allocate)
    assert (step.handle.node, step.handle.devices, step.handle.without) == ("n1", (), ("r",))


def test_an_immediate_claim_is_attached_at_once_and_reserved_for_no_pod(world):
    cluster = world()
    cluster.claim("c", immediate=True)
    assert scenes.names(cluster.settle()) == ["Protect", "Attach"]
    cluster.attach_all()
    (step,) = cluster.decide()
    assert (step.pod, bool(step.handle.node)) == (None, True)


def test_an_immediate_claim_stays_allocated_when_no_pod_uses_it(world):
    cluster = world()
    cluster.claim("c", immediate=True)
    cluster.settle()
    cluster.attach_all()
    cluster.settle()
    assert cluster.decide() == ()


def test_the_pods_of_an_immediate_claim_are_not_asked(world):
    cluster = world()
    cluster.claim("c", immediate=True)
    cluster.select(cluster.pod("p", "c"), "n2", ("n2",))
    (attach,) = scenes.of_kind(cluster.decide(), actions.Attach)
    assert attach.node == "n1"


def test_an_optional_immediate_claim_that_gets_nothing_may_be_used_anywhere(world):
    cluster = world(devices=0)
    cluster.claim("c", matching.Request(name="r", optional=True), immediate=True)
    (_, step) = cluster.settle()
    assert step.handle == handles.Handle(allocated_at=step.handle.allocated_at, without=("r",))


def test_an_attempt_ends_if_the_claims_request_becomes_unreadable(world):
    cluster, _ = scenes.make_waiting_pod(world, selected="n1")
    cluster.settle()
    cluster.attach_all()
    claim = scenes.only(cluster)
    cluster.wanted[claim.uid] = claim_requests.ClaimRequests(problem="its class does not exist")
    (step,) = scenes.of_kind(cluster.settle(), actions.Detach)
    assert step.reason == "CannotServeClaim"
    (name,) = cluster.attachments
    cluster.work(name, "gone")
    cluster.settle()
    assert scenes.only(cluster).allocation is None
    assert cluster.complaints == ["its class does not exist"]


def test_a_claim_that_cannot_be_served_gets_the_reason_once(world):
    cluster = world()
    cluster.claim("c", problem="its class does not exist")
    pod = cluster.pod("p", "c")
    cluster.select(pod, "n1", ("n1", "n2"))
    cluster.settle()
    cluster.settle()
    assert cluster.complaints == ["its class does not exist"]
    assert cluster.context_of(pod).entries == {"c": ("n1", "n2")}


def test_a_claim_of_which_we_hold_nothing_keeps_no_finalizer(world):
    cluster, _ = scenes.make_waiting_pod(world, devices=0, selected="n1")
    cluster._change(scenes.only(cluster), finalizers=("theirs", classic.finalizer("drawbar.dev")))
    cluster.settle()
    assert scenes.only(cluster).finalizers == ("theirs",)
