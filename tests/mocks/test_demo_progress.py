"""What becomes of a pod, from sightings in whatever order they come."""

import dataclasses
import itertools

import pytest

from drawbar.mocks.demo import progress
from drawbar.mocks.demo.progress import Step

CLAIM = progress.ClaimSeen(uid="c", pod="p", pool="rack/e", device="gpu-1", node="n1")
ATTACHMENT = progress.AttachmentSeen(claim_uid="c", device_id="gpu-1", serial="s1")


def journal(time, *, attach=True, finished=False, failed=False, device="gpu-1", operation="1"):
    return progress.FabricReport(
        device_id=device, operation=operation, attach=attach, finished=finished, failed=failed, time=time
    )


WHOLE_WAY = (
    progress.PodSeen(pod="p"),
    CLAIM,
    ATTACHMENT,
    journal(100.0),
    journal(102.0, finished=True),
    dataclasses.replace(CLAIM, attached=True),
    dataclasses.replace(CLAIM, attached=True, visible=True),
    progress.PodSeen(pod="p", node="n1"),
    progress.PodSeen(pod="p", node="n1", cdi=("drawbar.dev/device=c-gpu-1",)),
    progress.PodSeen(pod="p", node="n1", cdi=("drawbar.dev/device=c-gpu-1",), running=True),
    progress.PodDeleted(pod="p"),
    dataclasses.replace(ATTACHMENT, released=True),
    journal(110.0, attach=False, operation="2"),
    journal(111.5, attach=False, operation="2", finished=True),
    progress.AttachmentGone(claim_uid="c"),
)


def make_views(*sightings, pods=("p",)):
    state = progress.begin(dict.fromkeys(pods, "gpu"))
    for at, sighting in enumerate(sightings):
        state = progress.record_sighting(state, sighting, float(at))
    return progress.views(state)


def test_the_whole_way_of_a_device_is_told_with_the_time_of_each_step():
    view = make_views(*WHOLE_WAY)["p"]
    assert view.steps == {
        Step.ALLOCATED: 1.0,
        Step.ATTACHING: 2.0,
        Step.ATTACHED: 5.0,
        Step.VISIBLE: 6.0,
        Step.BOUND: 7.0,
        Step.PREPARED: 8.0,
        Step.RUNNING: 9.0,
        Step.DELETED: 10.0,
        Step.RELEASED: 11.0,
        Step.DETACHED: 14.0,
    }
    assert tuple(view.steps) == progress.SIMULATED
    assert (view.node, view.pool, view.device, view.serial) == ("n1", "rack/e", "gpu-1", "s1")
    assert view.cdi == ("drawbar.dev/device=c-gpu-1",)
    assert (view.attach_seconds, view.detach_seconds) == (2.0, 1.5)


def test_a_claim_that_is_allocated_after_the_attach_is_told_of_from_the_start_and_to_the_end():
    waiting = progress.ClaimSeen(uid="c", pod="p", allocated=False)
    made = dataclasses.replace(ATTACHMENT, pool="rack/e", device="gpu-1", node="n1")
    there = dataclasses.replace(made, attached=True, visible=True)
    begun = make_views(waiting, made)["p"]
    assert (begun.steps, begun.node, begun.pool, begun.device) == (
        {Step.ATTACHING: 1.0},
        *("n1", "rack/e", "gpu-1"),
    )
    # Of a claim that gives its device back, it is not forgotten what it went through.
    view = make_views(waiting, made, there, CLAIM, progress.PodSeen(pod="p", node="n1"), waiting)["p"]
    assert view.steps == {
        Step.ATTACHING: 1.0,
        Step.ATTACHED: 2.0,
        Step.VISIBLE: 2.0,
        Step.ALLOCATED: 3.0,
        Step.BOUND: 4.0,
    }
    assert set(progress.CLASSIC) == set(progress.SIMULATED)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_sightings_that_overtake_each_other_lose_nothing(order):
    sightings = [CLAIM, ATTACHMENT, progress.PodSeen(pod="p", node="n1")]
    view = make_views(*(sightings[index] for index in order))["p"]
    assert view.steps == {
        Step.ALLOCATED: float(order.index(0)),
        Step.ATTACHING: float(order.index(1)),
        Step.BOUND: float(order.index(2)),
    }


@pytest.mark.parametrize("index", range(len(WHOLE_WAY)))
def test_a_repeated_sighting_keeps_its_first_time(index):
    once = make_views(*WHOLE_WAY[: index + 1])["p"]
    again = make_views(*WHOLE_WAY[: index + 1], *WHOLE_WAY[max(0, index - 1) : index + 1])["p"]
    # A disappearance counts from its last sighting: it might have come back between.
    assert {**again.steps, Step.DETACHED: 0} == {**once.steps, Step.DETACHED: 0}


@pytest.mark.parametrize(
    ("extra", "detached"),
    [
        pytest.param([], False, id="only the attachment is gone"),
        pytest.param([journal(1.0, attach=False)], False, id="the detach has only begun"),
        pytest.param([journal(1.0, attach=False, finished=True, failed=True)], False, id="the detach failed"),
        pytest.param([journal(1.0, attach=False, finished=True, device="gpu-2")], False, id="another device"),
        pytest.param([journal(1.0, attach=False, finished=True)], True, id="the detach finished"),
        pytest.param(
            [journal(1.0, attach=False, finished=True), journal(2.0, finished=True, operation="2")],
            False,
            id="it was attached once more",
        ),
        pytest.param([journal(1.0, attach=False, finished=True), ATTACHMENT], False, id="it came back"),
    ],
)
def test_a_device_is_back_when_the_fabric_says_so_and_no_attachment_is_left(extra, detached):
    view = make_views(CLAIM, ATTACHMENT, progress.AttachmentGone(claim_uid="c"), *extra)["p"]
    assert (Step.DETACHED in view.steps) is detached


def test_a_claim_that_gets_another_device_starts_again():
    view = make_views(
        CLAIM, dataclasses.replace(CLAIM, attached=True), dataclasses.replace(CLAIM, device="gpu-2")
    )["p"]
    assert view.steps == {Step.ALLOCATED: 2.0}
    assert view.device == "gpu-2"


def test_a_failed_attach_and_a_later_one_count_only_the_later_ones_time():
    entries = [
        journal(1.0),
        journal(9.0, finished=True, failed=True),
        journal(10.0, operation="2"),
        journal(10.5, operation="2", finished=True),
    ]
    assert make_views(CLAIM, ATTACHMENT, *entries)["p"].attach_seconds == 0.5


def test_pods_that_are_not_ours_are_not_shown():
    views = make_views(
        progress.PodSeen(pod="stranger", running=True),
        dataclasses.replace(CLAIM, uid="d", pod="stranger"),
    )
    assert list(views) == ["p"]
    assert views["p"].steps == {}


def test_two_pods_are_kept_apart():
    other = dataclasses.replace(CLAIM, uid="d", pod="q", device="nvme-1")
    views = make_views(CLAIM, other, dataclasses.replace(other, attached=True), pods=("p", "q"))
    assert views["p"].steps == {Step.ALLOCATED: 0.0}
    assert views["q"].steps == {Step.ALLOCATED: 1.0, Step.ATTACHED: 2.0}
