"""The flow chart "Resource allocation and usage flow" of KEP-3063, line by line, for each lifecycle and each mode.

The names of the steps are those of the proposal. Users, the claim controller, the scheduler and the garbage collector are
played by the world; what the driver does is the planner's.
"""

import pytest
from tests.driver.controller.classic.planner import scenes

from drawbar.driver.api import handles
from drawbar.driver.controller.allocation import matching
from drawbar.driver.controller.classic import actions

REQUEST = matching.Request(name=handles.WHOLE_CLAIM)


def user_creates_pod_and_claim_controller_creates_claim(cluster, *, template, immediate=False):
    """Create the pod, and its claim before it or from a template; return the pod."""
    if not template:
        cluster.claim("c", immediate=immediate)
        return cluster.pod("p", "c")
    pod = cluster.pod("p", template={"device": (REQUEST,)})
    cluster._change(scenes.only(cluster), immediate=immediate)
    return pod


def driver_allocates_immediately(cluster):
    """Check the steps of immediate allocation."""
    assert scenes.kinds(cluster.settle()) == [actions.Protect, actions.Attach], "allocation in progress"
    cluster.attach_all()
    assert scenes.kinds(cluster.settle()) == [actions.Allocate], "claim ready for use by any pod"
    assert scenes.only(cluster).reserved_for == ()


def scheduler_and_driver_negotiate(cluster, pod):
    """Check the steps for a pending pod with delayed allocation, before the resource is allocated."""
    cluster.schedule()
    context = cluster.context_of(pod)
    assert context.potential_nodes, "the nodes that fit the pod"
    assert context.selected_node, "exactly one claim is pending"
    steps = cluster.settle()
    assert scenes.kinds(steps) == [actions.Protect, actions.Attach, actions.Answer], "resource is available"
    cluster.attach_all()
    assert scenes.kinds(cluster.settle()) == [actions.Allocate], (
        "claim ready for use and reserved for the pod"
    )
    assert [consumer.uid for consumer in scenes.only(cluster).reserved_for] == [pod.uid]


def scheduler_binds(cluster, pod):
    """Check the steps once the resource is allocated and reserved."""
    cluster.schedule()
    assert [consumer.uid for consumer in scenes.only(cluster).reserved_for] == [pod.uid]
    assert cluster.bound[pod.uid] == scenes.only(cluster).allocation.node
    assert cluster.context_of(pod) is None, "the scheduler deletes the PodSchedulingContext"
    assert cluster.settle() == []


def driver_deallocates(cluster):
    """Check the steps once the claim has a deletionTimestamp and its reservedFor is empty."""
    assert scenes.kinds(cluster.settle()) == [actions.Detach], "resource driver deallocates resource"
    cluster.attach_all()
    assert scenes.kinds(cluster.settle()) == [actions.Free, actions.Unprotect], (
        "clears finalizer and allocation"
    )
    assert (cluster.claims, cluster.attachments) == ({}, {}), "API server removes ResourceClaim"


@pytest.mark.parametrize("immediate", [False, True], ids=["delayed", "immediate"])
@pytest.mark.parametrize("template", [False, True], ids=["regular-claim", "template"])
def test_the_flow_chart_of_the_proposal(world, template, immediate):
    cluster = world()
    pod = user_creates_pod_and_claim_controller_creates_claim(cluster, template=template, immediate=immediate)
    if immediate:
        driver_allocates_immediately(cluster)
    else:
        scheduler_and_driver_negotiate(cluster, pod)
    scheduler_binds(cluster, pod)

    cluster.delete_pod("p")
    if not template:
        assert scenes.only(cluster).deleting is False
        cluster.clean_up()
        assert scenes.only(cluster).deallocation_requested is not immediate
        if immediate:
            assert cluster.settle() == [], "the resource remains allocated"
        cluster.delete_claim("c")
    cluster.clean_up()
    driver_deallocates(cluster)


def test_else_the_scheduler_needs_to_know_that_it_must_avoid_this_and_possibly_other_nodes(world):
    cluster = world(devices=1, node_names=("n1", "n2", "n3"))
    cluster.ports["n1"] = cluster.ports["n2"] = 0
    pod = user_creates_pod_and_claim_controller_creates_claim(cluster, template=True)
    cluster.schedule()
    assert cluster.context_of(pod).selected_node == "n1"
    assert scenes.kinds(cluster.settle()) == [actions.Answer]
    assert cluster.context_of(pod).entries == {"device": ("n1", "n2")}
    cluster.schedule()
    assert cluster.context_of(pod).selected_node == "n3"
    assert actions.Attach in scenes.kinds(cluster.settle())


def test_for_several_claims_all_drivers_provide_information_before_a_node_is_picked(world):
    cluster = world(devices=2)
    pod = cluster.pod("p", template={"a": (REQUEST,), "b": (REQUEST,)})
    cluster.schedule()
    assert cluster.context_of(pod).selected_node == ""
    assert scenes.kinds(cluster.settle()) == [actions.Answer]
    cluster.schedule()
    assert cluster.context_of(pod).selected_node
    assert scenes.kinds(cluster.settle()).count(actions.Attach) == 2
    cluster.attach_all()
    cluster.settle()
    cluster.schedule()
    assert pod.uid in cluster.bound


def test_else_the_pod_cannot_be_scheduled_and_the_scheduler_triggers_deallocation_of_some_claim(world):
    cluster = world(devices=2)
    pod = cluster.pod("p", template={"a": (REQUEST,), "b": (REQUEST,)})
    cluster.schedule()
    cluster.settle()
    cluster.schedule()
    cluster.settle()
    first, second = cluster.attachments
    cluster.work(first, "attached")
    cluster.work(first, "visible")
    cluster.work(second, "attached", fails=True)
    cluster.settle()
    cluster.work(second, "gone")
    cluster.settle()
    cluster.fits[pod.uid] = {"n2"}
    cluster.schedule()
    assert cluster.deallocations == 1
    cluster.settle()
    cluster.attach_all()
    cluster.settle()
    assert [claim.allocation for claim in cluster.claims.values()] == [None, None]


def test_a_regular_claim_is_used_by_one_pod_after_the_other(world):
    cluster = world(devices=1)
    cluster.claim("c")
    for name in ("first", "second"):
        pod = cluster.pod(name, "c")
        scheduler_and_driver_negotiate(cluster, pod)
        scheduler_binds(cluster, pod)
        cluster.delete_pod(name)
        cluster.clean_up()
        cluster.settle()
        cluster.attach_all()
        cluster.settle()
        assert scenes.only(cluster).allocation is None
        assert not scenes.only(cluster).has_finalizer
