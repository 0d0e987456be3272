"""The duties of a driver in classic allocation, one by one, on the pure planner."""

import datetime

import msgspec
from tests.driver.controller.classic.planner import scenes

from drawbar.driver.api import handles
from drawbar.driver.controller.classic import actions, history, negotiation

CLAIM = handles.WHOLE_CLAIM
DAY = datetime.timedelta(days=1)


# Before an allocation.


def test_the_finalizer_comes_before_the_attempt(world):
    cluster, _ = scenes.make_waiting_pod(world, selected="n1")
    steps = cluster.decide()
    assert scenes.names(steps)[:2] == ["Protect", "Attach"]


def test_nothing_is_begun_before_the_scheduler_selects_a_node(world):
    cluster, _ = scenes.make_waiting_pod(world)
    assert scenes.names(cluster.decide()) == ["Answer"]


def test_nothing_is_allocated_before_the_device_is_attached_and_visible(world):
    cluster, _ = scenes.make_waiting_pod(world, selected="n1")
    cluster.settle()
    (name,) = cluster.attachments
    cluster.work(name, "attached")
    assert cluster.decide() == ()
    cluster.work(name, "visible")
    assert scenes.names(cluster.decide()) == ["Allocate"]


def test_the_allocation_and_the_pod_that_it_is_for_are_one_write(world):
    cluster, pod = scenes.make_waiting_pod(world, selected="n1")
    cluster.settle()
    cluster.attach_all()
    (step,) = cluster.decide()
    assert (step.handle.node, step.pod.uid) == ("n1", pod.uid)
    assert [device.request for device in step.handle.devices] == [CLAIM]


def test_of_several_pods_that_wait_for_a_claim_it_is_for_the_one_that_goes_where_it_is(world):
    cluster, _ = scenes.make_waiting_pod(world, selected="n2")
    cluster.settle()
    cluster.select(cluster.pod("later", "c"), "n2", ("n1", "n2"))
    cluster.select(next(iter(cluster.pods.values())), "n1", ("n1", "n2"))
    cluster.attach_all()
    (step,) = scenes.of_kind(cluster.decide(), actions.Allocate)
    assert step.pod.name == "later"


def test_of_several_pods_on_one_node_a_claim_is_for_the_one_whose_other_claims_go_there_too(world):
    """Otherwise each pod would get one of its two claims, and both would be taken back, again and again."""
    cluster = world(devices=2, node_names=("n1",), ports=2)
    for name in ("a", "b", "shared"):
        cluster.claim(name)
    first, second = cluster.pod("first", "a", "shared"), cluster.pod("second", "b", "shared")
    cluster.select(first, "elsewhere")
    cluster.select(second, "n1", ("n1",))
    cluster.settle()
    cluster.select(first, "n1", ("n1",))
    cluster.attach_all()
    steps = scenes.of_kind(cluster.decide(), actions.Allocate)
    assert {step.claim.name.name: step.pod.name for step in steps} == {"b": "second", "shared": "second"}


def test_another_selected_node_changes_nothing_about_an_attempt_that_is_under_way(world):
    cluster, pod = scenes.make_waiting_pod(world, selected="n1")
    cluster.settle()
    cluster.select(pod, "n2", ("n1", "n2"))
    assert cluster.decide() == ()
    cluster.attach_all()
    (step,) = cluster.decide()
    assert step.handle.node == "n1"


def test_another_selected_node_changes_nothing_about_an_allocation(world):
    cluster, pod, claim = scenes.make_running_pod(world)
    cluster.select(pod, "n2", ("n1", "n2"))
    assert cluster.decide() == ()
    assert scenes.only(cluster) == claim


def test_a_context_with_nothing_but_a_selected_node_is_tried_until_it_succeeds(world):
    cluster, _ = scenes.make_waiting_pod(world, selected="n1", potential=(), devices=1)
    other = cluster.pod("first", "taken")
    cluster.claim("taken")
    cluster.connected[next(iter(cluster.devices))] = "n2"
    assert cluster.decide() == ()
    cluster.connected.clear()
    cluster.delete_pod(other.name.name)
    assert scenes.of_kind(cluster.decide(), actions.Attach)


# The answers to the scheduler.


def test_every_pending_claim_has_an_entry_even_without_an_unsuitable_node(world):
    cluster, _ = scenes.make_waiting_pod(world, claims=("a", "b"), devices=2)
    (answer,) = cluster.decide()
    assert dict(answer.entries) == {"a": (), "b": ()}


def test_a_claim_that_is_allocated_already_needs_no_entry(world):
    cluster, pod, _ = scenes.make_running_pod(world, devices=3)
    cluster.claim("more")
    claims = {"c": "c", "more": "more"}
    cluster.pods[pod.name] = msgspec.structs.replace(pod, claims=claims)
    del cluster.contexts[cluster.context_of(pod).uid]
    cluster.select(pod, "", ("n1", "n2"))
    (answer,) = cluster.decide()
    assert dict(answer.entries) == {"more": ()}


def test_all_claims_of_a_pod_are_judged_together(world):
    cluster, _ = scenes.make_waiting_pod(world, claims=("a", "b"), devices=1)
    (answer,) = cluster.decide()
    assert dict(answer.entries) == {"a": ("n1", "n2"), "b": ("n1", "n2")}


def test_nothing_is_begun_for_one_claim_of_a_pod_while_another_cannot_be_had(world):
    cluster, _ = scenes.make_waiting_pod(world, claims=("a", "b"), devices=1, selected="n1")
    assert not scenes.of_kind(cluster.decide(), actions.Attach)


def test_no_attach_begins_while_another_claim_of_the_pod_is_deallocated(world):
    cluster, _ = scenes.make_waiting_pod(world, claims=("a", "b"), devices=2, selected="n1")
    cluster.settle()
    (first,) = (claim for claim in cluster.claims.values() if claim.name.name == "a")
    cluster._change(first, deallocation_requested=True)
    for name, attachment in list(cluster.attachments.items()):
        if attachment.spec.claim.name == "b":
            cluster.work(name, "gone")
    assert not scenes.of_kind(cluster.settle(), actions.Attach)


def test_where_one_claim_of_a_pod_is_being_attached_the_others_go_too(world):
    cluster, pod = scenes.make_waiting_pod(world, claims=("a", "b"), devices=3, selected="n1")
    cluster.settle()
    (name,) = (name for name, attachment in cluster.attachments.items() if attachment.spec.claim.name == "b")
    cluster.work(name, "attached", fails=True)
    cluster.settle()
    cluster.work(name, "gone")
    cluster.select(pod, "n2", ("n1", "n2"))
    assert not scenes.of_kind(cluster.settle(), actions.Attach)
    assert cluster.context_of(pod).entries == {"a": (), "b": ("n2",)}


def test_two_pods_that_wait_for_one_claim_begin_one_attempt(world):
    cluster, _ = scenes.make_waiting_pod(world, selected="n1")
    cluster.select(cluster.pod("other", "c"), "n2", ("n1", "n2"))
    assert len(scenes.of_kind(cluster.decide(), actions.Attach)) == 1


def test_ports_count_for_all_claims_together(world):
    cluster, _ = scenes.make_waiting_pod(world, claims=("a", "b"), devices=2, ports=2)
    cluster.ports["n1"] = 1
    (answer,) = cluster.decide()
    assert dict(answer.entries) == {"a": ("n1",), "b": ("n1",)}


def test_the_last_port_of_a_node_goes_to_one_pod(world):
    cluster, _ = scenes.make_waiting_pod(world, selected="n1", devices=2, ports=1)
    cluster.claim("d")
    cluster.select(cluster.pod("q", "d"), "n1", ("n1", "n2"))
    steps = cluster.decide()
    assert len(scenes.of_kind(steps, actions.Attach)) == 1
    answers = scenes.of_kind(steps, actions.Answer)
    assert {dict(answer.entries).get("d") for answer in answers} == {None, ("n1",)}


def test_earlier_unsuitable_nodes_are_judged_again(world):
    cluster, pod = scenes.make_waiting_pod(world, devices=1)
    cluster.connected[next(iter(cluster.devices))] = "n2"
    cluster.settle()
    assert cluster.context_of(pod).entries == {"c": ("n1", "n2")}
    cluster.select(pod, "", ("n3",))
    cluster.connected.clear()
    (answer,) = cluster.decide()
    # A node without any record has nothing.
    assert dict(answer.entries) == {"c": ("n3",)}


def test_a_device_that_becomes_free_is_offered_to_as_many_pods_as_can_have_it(world):
    cluster = world(devices=1)
    for number in range(5):
        cluster.claim(f"c{number}")
        cluster.select(cluster.pod(f"p{number}", f"c{number}"), "", ("n1", "n2"))
        cluster.now += datetime.timedelta(seconds=1)
    (device,) = cluster.devices
    cluster.connected[device] = "n2"
    cluster.settle()
    cluster.connected.clear()
    (answer,) = scenes.of_kind(cluster.decide(), actions.Answer)
    assert (answer.context.name.name, dict(answer.entries)) == ("p0", {"c0": ()})


def test_a_pod_that_misses_its_window_goes_last(world):
    cluster = world(devices=1)
    for name in ("a", "b"):
        cluster.claim(name)
        cluster.select(cluster.pod(name, name), "", ("n1",))
        cluster.now += datetime.timedelta(seconds=1)
    cluster.settle()
    pods = {pod.name.name: cluster.context_of(pod) for pod in cluster.pods.values()}
    assert (pods["a"].entries, pods["b"].entries) == ({"a": ()}, {"b": ("n1",)})
    cluster.now += history.WINDOW
    answers = {step.context.name.name: dict(step.entries) for step in cluster.decide()}
    assert answers == {"a": {"a": ("n1",)}, "b": {"b": ()}}


def test_the_plan_asks_to_be_made_again_even_if_nothing_happens(world):
    cluster, _, _ = scenes.make_running_pod(world)
    decision = negotiation.plan(cluster.observe(), cluster.history, cluster.now)
    assert decision.look_again - cluster.now <= negotiation.REFRESH


def test_at_most_128_nodes_are_listed_and_those_first_that_may_be_selected_now(world):
    many = tuple(f"n{number:03}" for number in range(200))
    cluster, pod = scenes.make_waiting_pod(
        world, devices=1, node_names=many, potential=many[:128], selected=many[5]
    )
    cluster.connected[next(iter(cluster.devices))] = many[0]
    cluster.settle()
    assert set(cluster.context_of(pod).entries["c"]) == set(many[:128])
    cluster.select(pod, many[190], many[128:])
    cluster.now += DAY
    (answer,) = cluster.decide()
    listed = dict(answer.entries)["c"]
    assert len(listed) == 128
    assert set(many[128:]) <= set(listed)


def test_a_scheduler_that_offers_ever_other_nodes_where_none_will_do_is_answered_less_and_less_often(world):
    many = tuple(f"n{number:03}" for number in range(200))
    cluster, pod = scenes.make_waiting_pod(
        world, devices=1, node_names=many, potential=many[:128], selected=many[0]
    )
    cluster.connected[next(iter(cluster.devices))] = many[0]
    for number in range(120):
        offered = many[:128] if number % 2 else many[72:]
        cluster.select(pod, offered[0], offered)
        cluster.settle()
        cluster.now += datetime.timedelta(seconds=10)
    assert cluster.context_writes[pod.uid] <= 10


# Whose contexts and claims these are.


def test_a_context_whose_pod_is_gone_is_ignored(world):
    cluster, pod = scenes.make_waiting_pod(world, selected="n1")
    del cluster.pods[pod.name]
    assert cluster.decide() == ()


def test_a_context_of_an_earlier_pod_of_the_same_name_is_ignored(world):
    cluster, pod = scenes.make_waiting_pod(world, selected="n1")
    cluster.pods[pod.name] = msgspec.structs.replace(pod, uid="another")
    assert cluster.decide() == ()


def test_a_pod_that_is_being_deleted_gets_nothing_any_more(world):
    cluster, pod = scenes.make_waiting_pod(world, selected="n1")
    cluster.pods[pod.name] = msgspec.structs.replace(pod, over=True)
    assert cluster.decide() == ()


def test_a_claim_of_the_name_that_a_template_gives_is_not_taken_for_the_pod_s_own(world):
    cluster, pod = scenes.make_waiting_pod(world, selected="n1")
    cluster.pods[pod.name] = msgspec.structs.replace(pod, from_template=frozenset({"c"}))
    assert cluster.decide() == ()


# Giving back.


def test_a_claim_whose_deallocation_is_asked_for_gives_its_device_back_first(world):
    cluster, _, claim = scenes.make_running_pod(world)
    cluster._change(claim, deallocation_requested=True, reserved_for=())
    assert scenes.names(cluster.settle()) == ["Detach"]
    assert scenes.only(cluster).allocation is not None
    cluster.attach_all()
    assert scenes.names(cluster.decide()) == ["Free", "Unprotect"]
    cluster.settle()
    left = scenes.only(cluster)
    assert (left.allocation, left.deallocation_requested, left.finalizers) == (None, False, ())


def test_a_claim_that_is_being_deleted_stays_while_a_pod_uses_it(world):
    cluster, _, claim = scenes.make_running_pod(world)
    cluster._change(claim, deleting=True)
    assert cluster.decide() == ()


def test_a_claim_that_is_being_deleted_gets_no_finalizer_any_more(world):
    cluster, _, claim = scenes.make_running_pod(world)
    cluster._change(claim, deleting=True, finalizers=("theirs",))
    assert cluster.decide() == ()


def test_a_claim_that_is_being_deleted_and_used_by_no_pod_gives_its_device_back_and_vanishes(world):
    cluster, _, claim = scenes.make_running_pod(world)
    cluster._change(claim, deleting=True, reserved_for=())
    assert scenes.names(cluster.settle()) == ["Detach"]
    cluster.attach_all()
    cluster.settle()
    assert (cluster.claims, cluster.attachments) == ({}, {})


def test_deallocation_of_an_unallocated_claim_is_granted(world):
    cluster, _ = scenes.make_waiting_pod(world, selected="n1")
    cluster.settle()
    cluster._change(scenes.only(cluster), deallocation_requested=True)
    cluster.settle()
    cluster.attach_all()
    cluster.delete_pod("p")
    cluster.settle()
    assert (scenes.only(cluster).deallocation_requested, scenes.only(cluster).finalizers) == (False, ())


def test_an_attempt_ends_if_no_pod_waits_for_it(world):
    cluster, _ = scenes.make_waiting_pod(world, selected="n1")
    cluster.settle()
    cluster.delete_pod("p")
    (step,) = cluster.settle()
    assert step.reason == "NobodyWaits"
    cluster.attach_all()
    cluster.settle()
    assert scenes.only(cluster).finalizers == ()


def test_a_node_that_the_scheduler_took_a_claim_back_from_is_not_tried_again_at_once(world):
    cluster, _, claim = scenes.make_running_pod(world)
    cluster._change(claim, deallocation_requested=True, reserved_for=())
    cluster.settle()
    cluster.attach_all()
    assert not scenes.of_kind(cluster.settle(), actions.Attach)
    cluster.now += history.PAUSE_MAX
    assert scenes.of_kind(cluster.settle(), actions.Attach)
