"""Which accident happens when, and what a fabric's journal shows."""

import pytest
from realcluster import accidents

from drawbar.fabric import contract
from drawbar.mocks.fabric import journal

NODES = ("node-1", "node-2")
DEVICES = 6
ATTACH, DETACH = contract.OperationKind.ATTACH, contract.OperationKind.DETACH


def rounds(seed, number=30):
    return accidents.plan(seed, number, devices=DEVICES, nodes=NODES)


def test_a_seed_gives_the_same_rounds_each_time_and_another_seed_others():
    assert rounds(7) == rounds(7)
    assert rounds(7) != rounds(8)
    # A longer run begins as a shorter one, so that a failure is found again with fewer rounds.
    assert rounds(7)[:5] == rounds(7, 5)


@pytest.mark.parametrize("seed", range(20))
def test_in_thirty_rounds_everything_is_killed_five_times_and_started_again(seed):
    killed = [planned.kill for planned in rounds(seed)]
    assert sorted(kill.victim for kill in killed) == sorted(list(accidents.Victim) * 5)
    for planned in rounds(seed):
        actions = [step.action for step in planned.steps]
        restart = accidents.Restart(victim=planned.kill.victim, node=planned.kill.node)
        assert actions.index(planned.kill) < actions.index(restart)
        assert (planned.kill.node in NODES) == (planned.kill.victim in accidents.ON_A_NODE)


@pytest.mark.parametrize("seed", range(20))
def test_pods_that_run_together_claim_no_more_devices_than_there_are(seed):
    alive = {}
    for planned in rounds(seed):
        actions = [step.action for step in planned.steps]
        for action in actions:
            if isinstance(action, accidents.Create):
                assert action.pod not in alive
                alive[action.pod] = action.claims
        for action in actions:
            if isinstance(action, accidents.Delete):
                del alive[action.pod]
        assert set(alive) == set(planned.alive)
        assert sum(alive.values()) <= DEVICES
        assert [step.at_seconds for step in planned.steps] == sorted(
            step.at_seconds for step in planned.steps
        )


def entry(kind, event="finished", *, host="host-1", error=None):
    return journal.Entry(
        time=0, event=event, kind=kind, operation="1", request_id="r", device="disk", host=host, error=error
    )


@pytest.mark.parametrize(
    ("entries", "twice"),
    [
        ([entry(ATTACH), entry(DETACH), entry(ATTACH)], 0),
        ([entry(ATTACH), entry(ATTACH, host="host-2")], 1),
        ([entry(ATTACH), entry(ATTACH)], 1),
        ([entry(ATTACH, error="LINK_DOWN"), entry(ATTACH)], 0),
        ([entry(ATTACH), entry(ATTACH, "started")], 0),
        # The manager was killed when it had detached, before it wrote so.
        ([entry(ATTACH), entry(DETACH, "started"), entry(ATTACH)], 0),
    ],
    ids=["in-turn", "two-hosts", "again", "failed-first", "only-started", "detach-unwritten"],
)
def test_two_attaches_without_a_detach_between_them_are_found(entries, twice):
    assert len(accidents.attached_twice(entries)) == twice
