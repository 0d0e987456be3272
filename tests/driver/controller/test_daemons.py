"""Which nodes have a living node daemon."""

import datetime

import pytest

from drawbar.driver.api import core, meta
from drawbar.driver.controller import daemons
from drawbar.driver.controller.daemons import State

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


def time_after(seconds):
    return NOW + datetime.timedelta(seconds=seconds)


def node(ready=None):
    conditions = () if ready is None else (core.NodeCondition(type="Ready", status=ready),)
    return core.Node(metadata=meta.ObjectMeta(name="n1"), status=core.NodeStatus(conditions=conditions))


def pod(uid="a", ready="True", on="n1"):
    conditions = (meta.Condition(type="Ready", status=ready),)
    return core.Pod(
        metadata=meta.ObjectMeta(name=f"p-{uid}", uid=uid),
        spec=core.PodSpec(node_name=on),
        status=core.PodStatus(conditions=conditions),
    )


@pytest.mark.parametrize(
    ("ready", "state"),
    [(None, State.ALIVE), ("True", State.ALIVE), ("False", State.NODE_DOWN), ("Unknown", State.NODE_DOWN)],
)
def test_where_daemons_are_no_pods_the_node_decides(ready, state):
    assert daemons.Daemons(judged=False).look(node(ready), NOW) is state


def test_a_pod_of_the_daemon_that_is_ready_makes_its_node_alive():
    tracked = daemons.Daemons(judged=True)
    assert tracked.change(None, pod(ready="False")) is False
    assert tracked.look(node(), NOW) is State.FADING
    assert tracked.change(pod(ready="False"), pod()) is True
    assert tracked.look(node(), NOW) is State.ALIVE
    assert tracked.look(node("Unknown"), NOW) is State.NODE_DOWN


def test_a_silent_daemon_has_a_grace_that_counts_from_when_it_was_first_seen():
    tracked = daemons.Daemons(judged=True)
    tracked.change(None, pod())
    tracked.look(node(), NOW)
    tracked.change(pod(), pod(ready="False"))
    assert [tracked.look(node(), time_after(seconds)) for seconds in (60, 79, 80)] == [
        State.FADING,
        State.FADING,
        State.SILENT,
    ]
    tracked.change(pod(ready="False"), pod())
    assert tracked.look(node(), time_after(81)) is State.ALIVE


def test_during_a_rolling_update_one_of_two_pods_suffices():
    tracked = daemons.Daemons(judged=True)
    tracked.change(None, pod("a"))
    assert tracked.change(None, pod("b")) is True
    tracked.change(pod("a"), None)
    assert tracked.look(node(), NOW) is State.ALIVE
    tracked.change(pod("b"), None)
    assert tracked.look(node(), NOW) is State.FADING


def test_a_pod_that_says_no_more_than_before_changes_nothing():
    tracked = daemons.Daemons(judged=True)
    tracked.change(None, pod())
    assert tracked.change(pod(), pod()) is False


@pytest.mark.parametrize(
    ("silent", "text"),
    [
        ((), ""),
        (("n1", "n2"), "no node daemon is Ready on n1, n2, so nothing is offered there"),
        (tuple(f"n{number}" for number in range(12)), "n9 and 2 more, so nothing"),
    ],
)
def test_silent_nodes_are_named_up_to_a_limit(silent, text):
    assert text in daemons.trouble(silent)
    assert bool(daemons.trouble(silent)) == bool(silent)
