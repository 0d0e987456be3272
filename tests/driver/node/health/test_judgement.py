"""The course of findings: when they are reported, and when they are lifted."""

import dataclasses

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drawbar.driver.node.health import judgement, policy, samples
from drawbar.driver.node.health.policy import Policy, Rule, Rules
from drawbar.driver.node.health.samples import Counters, ErrorLog, Severity
from drawbar.driver.node.health.verdicts import UNKNOWN, Effect, Status, Taint

ADDRESS = "0000:01:00.0"
POLICY = Policy(interval_seconds=10.0, recovery_seconds=30.0, recovery_max_seconds=100.0)


def make_reading(**changes):
    return samples.Reading(**({"address": ADDRESS, "device_class": "nvme"} | changes))


HEALTHY = make_reading(driver="nvme", nvme={"nvme0": "live"})
DEAD = make_reading(driver="nvme", nvme={"nvme0": "dead"})
RESETTING = make_reading(driver="nvme", nvme={"nvme0": "resetting"})
NARROW = make_reading(link=samples.Link(speed_gts=16, width=4, most_gts=16, most_width=16))
WIDE = make_reading(link=samples.Link(speed_gts=16, width=16, most_gts=16, most_width=16))


class Course:
    """Judges sample after sample on a clock of its own."""

    def __init__(self, policy=POLICY):
        self.policy, self.now, self.history = policy, 1000.0, judgement.History()

    def judge(self, *course_samples, seconds=10.0):
        for sample in course_samples:
            self.now += seconds
            self.history, verdict = judgement.judge(self.history, sample, self.now, self.policy)
        return verdict

    @property
    def pause(self):
        return judgement.look_again_seconds(self.history, self.policy)


def keys(verdict):
    return [taint.key for taint in verdict.taints]


def test_a_device_is_unknown_until_it_was_read_once():
    course = Course()
    assert course.judge(samples.Gone(), samples.Gone()) == UNKNOWN
    assert course.judge(HEALTHY).status is Status.HEALTHY


def test_a_pulled_device_is_reported_at_once_and_evicts():
    verdict = Course().judge(HEALTHY, samples.Gone())
    assert verdict.status is Status.UNHEALTHY
    assert "disappeared" in verdict.message
    assert verdict.taints == (
        Taint(key="device-lost", value="", effect=Effect.NO_EXECUTE, message=verdict.message),
    )


def test_a_finding_that_must_last_is_reported_when_it_has():
    course = Course()
    assert course.judge(RESETTING, *[RESETTING] * 5).status is Status.HEALTHY
    verdict = course.judge(RESETTING)
    assert (verdict.status, keys(verdict)) == (Status.UNHEALTHY, ["nvme-not-live"])


def test_a_finding_that_comes_and_goes_does_not_add_up():
    course = Course()
    for _ in range(20):
        assert course.judge(RESETTING, RESETTING, HEALTHY).status is Status.HEALTHY


def test_the_next_look_comes_when_a_finding_may_have_lasted_long_enough():
    course = Course(dataclasses.replace(POLICY, interval_seconds=60.0))
    course.judge(HEALTHY)
    assert course.pause == 60.0
    course.judge(make_reading(driver=None, nvme={"nvme0": "live"}), seconds=60.0)
    assert course.pause == 10.0
    course.judge(make_reading(driver=None), seconds=9.9)
    assert course.pause == judgement.LOOK_AGAIN_LEAST_SECONDS
    course.judge(make_reading(driver=None), seconds=0.5)
    assert course.pause == 60.0


def test_a_taint_is_lifted_after_a_clean_time():
    course = Course()
    course.judge(DEAD)
    assert keys(course.judge(HEALTHY, HEALTHY)) == ["nvme-dead"]
    assert course.judge(HEALTHY).taints == ()


def test_a_returning_finding_restarts_the_clean_time():
    course = Course()
    course.judge(DEAD, HEALTHY, HEALTHY, DEAD)
    assert keys(course.judge(HEALTHY, HEALTHY)) == ["nvme-dead"]
    assert course.judge(HEALTHY).taints == ()


def clean_looks(course):
    """Return how many healthy samples lift every taint."""
    looks = 1
    while course.judge(HEALTHY).taints:
        looks += 1
    return looks


def test_each_relapse_doubles_the_clean_time_up_to_a_bound():
    course, looks = Course(), []
    for _ in range(4):
        course.judge(DEAD)
        looks.append(clean_looks(course))
    assert looks == [3, 6, 10, 10]


def test_relapses_are_forgotten_after_a_long_clean_time():
    course = Course()
    course.judge(DEAD)
    clean_looks(course)
    course.judge(*[HEALTHY] * 20)
    assert course.history.tracks == {}
    course.judge(DEAD)
    assert clean_looks(course) == 3


def test_a_finding_of_effect_none_informs_of_a_healthy_device():
    verdict = Course().judge(*[NARROW] * 7)
    assert verdict.status is Status.HEALTHY
    assert "x4" in verdict.message
    assert verdict.taints == (
        Taint(key="link-narrow", value="x4-of-x16", effect=Effect.NONE, message=verdict.message),
    )


def test_a_link_that_sleeps_neither_heals_nor_ails():
    course = Course()
    course.judge(*[NARROW] * 7)
    assert keys(course.judge(*[make_reading()] * 100)) == ["link-narrow"]
    assert course.judge(WIDE, WIDE, WIDE).taints == ()
    course = Course()
    course.judge(*[NARROW] * 6)
    course.judge(NARROW, seconds=5.0)
    assert course.pause == 5.0
    assert course.judge(*[make_reading()] * 100).taints == ()
    assert course.pause == 10.0


def test_counting_on_changes_no_verdict():
    def errors(own, above):
        counted = ((ADDRESS, own), ("0000:00:01.0", above))
        logs = [
            ErrorLog(
                address=address, counters={Severity.FATAL: Counters(total=total, kinds={f"K{total}": total})}
            )
            for address, total in counted
        ]
        return make_reading(logs=tuple(logs))

    course = Course()
    course.judge(errors(0, 0))
    first = course.judge(errors(1, 0))
    assert keys(first) == ["aer-fatal"]
    assert course.judge(errors(5, 0)) == first
    assert course.judge(errors(9, 2)) == first


def test_a_state_that_changes_is_reported_as_it_is():
    course = Course()
    course.judge(*[RESETTING] * 7)
    deleting = make_reading(driver="nvme", nvme={"nvme0": "deleting"})
    assert [taint.value for taint in course.judge(deleting).taints] == ["deleting"]


def test_the_worst_comes_first():
    course = Course()
    course.judge(*[msgspec.structs.replace(NARROW, nvme={"nvme0": "dead"}, driver="nvme")] * 7)
    verdict = course.judge(samples.Gone())
    assert keys(verdict) == ["device-lost", "nvme-dead", "link-narrow"]


def test_an_ignored_rule_finds_nothing():
    course = Course(dataclasses.replace(POLICY, ignored=("nvme-dead",)))
    verdict = course.judge(DEAD)
    assert (verdict.status, verdict.taints) == (Status.HEALTHY, ())


def test_a_rule_decides_the_effect_and_the_hold_down_time():
    rules = Rules(nvme_dead=Rule(effect=Effect.NO_EXECUTE, hold_down_seconds=10.0))
    course = Course(dataclasses.replace(POLICY, rules=rules))
    assert course.judge(DEAD).taints == ()
    assert course.judge(DEAD).taints[0].effect is Effect.NO_EXECUTE


@pytest.mark.parametrize("jump", [100_000.0, -100_000.0, 0.0])
def test_a_clock_that_jumps_lifts_nothing_and_raises_nothing(jump):
    course = Course()
    course.judge(DEAD)
    assert keys(course.judge(HEALTHY, seconds=jump)) == ["nvme-dead"]
    other = Course()
    other.judge(RESETTING)
    assert other.judge(RESETTING, seconds=jump).taints == ()


# Properties.

totals = st.integers(0, 3)
logs = st.builds(
    lambda address, counts: ErrorLog(
        address=address, counters={severity: Counters(total=total) for severity, total in counts.items()}
    ),
    st.sampled_from([ADDRESS, "0000:00:01.0"]),
    st.dictionaries(st.sampled_from(list(Severity)), st.one_of(totals, st.integers(0, 10**6))),
)
link_states = st.none() | st.builds(
    samples.Link,
    speed_gts=st.sampled_from([2.5, 16.0]),
    width=st.sampled_from([1, 16]),
    most_gts=st.sampled_from([None, 16.0]),
    most_width=st.sampled_from([None, 16]),
)
memory_devices = st.builds(
    samples.Memdev,
    name=st.sampled_from(["mem0", "mem1"]),
    driver=st.sampled_from([None, "cxl_mem"]),
    security=st.sampled_from([None, "locked", "unlocked", "odd"]),
    committed=st.sampled_from([None, 0, 2]),
)
readings = st.builds(
    samples.Reading,
    address=st.sampled_from([ADDRESS, "0000:02:00.0"]),
    device_class=st.sampled_from(["nvme", "gpu", "cxl-memory"]),
    driver=st.sampled_from([None, "nvme"]),
    asleep=st.booleans(),
    silent=st.sampled_from([(), (ADDRESS,)]),
    logs=st.lists(logs, max_size=3).map(tuple),
    messages=st.none() | logs,
    link=link_states,
    nvme=st.dictionaries(st.sampled_from(["nvme0"]), st.sampled_from(["live", "dead", "resetting", "x y"])),
    memdevs=st.lists(memory_devices, max_size=2).map(tuple),
)
course_samples = st.one_of(st.just(samples.Gone()), st.just(samples.Stuck(seconds=5.0)), readings)
steps = st.one_of(st.floats(0, 30), st.floats(-1e6, 1e9), st.just(0.0))
courses = st.lists(st.tuples(course_samples, steps), max_size=30)
effects = {Effect.NONE: 0, Effect.NO_SCHEDULE: 1, Effect.NO_EXECUTE: 2}


@given(courses)
@settings(deadline=None)
def test_every_taint_has_a_finding_that_was_seen_and_fits_the_verdict(course):
    """Also: any sample at any time is judged."""
    history, now, seen = judgement.History(), 0.0, set()
    for sample, step in course:
        now += step
        _, observed = judgement.observe(
            history.memory, sample, max(0.0, now - history.at) if history.at is not None else 0.0, POLICY
        )
        seen |= set(observed.present)
        history, verdict = judgement.judge(history, sample, now, POLICY)
        assert set(keys(verdict)) <= seen
        assert bool(verdict.taints) == bool(verdict.message)
        assert len(verdict.message) <= judgement.MESSAGE_CHARS
        ranks = [effects[taint.effect] for taint in verdict.taints]
        assert ranks == sorted(ranks, reverse=True)
        ill = any(POLICY.rules.find_rule(taint.key).unhealthy for taint in verdict.taints)
        assert (verdict.status is Status.UNHEALTHY) == ill
        assert (verdict.status is Status.UNKNOWN) <= (not history.memory.seen)
        assert len(history.tracks) <= len(policy.NAMES)
        assert 0 < judgement.look_again_seconds(history, POLICY) <= POLICY.interval_seconds


@given(courses)
@settings(deadline=None)
def test_every_taint_is_lifted_by_enough_clean_samples(course):
    history, now = judgement.History(), 0.0
    for sample, step in course:
        now += step
        history, _ = judgement.judge(history, sample, now, POLICY)
    sample = msgspec.structs.replace(
        HEALTHY,
        link=WIDE.link,
        memdevs=tuple(
            samples.Memdev(name=name, driver="cxl_mem", security=None, committed=1)
            for name in ("mem0", "mem1")
        ),
    )
    clean = int(POLICY.recovery_max_seconds / POLICY.interval_seconds) + 2
    for _ in range(clean):
        now += POLICY.interval_seconds
        history, verdict = judgement.judge(history, sample, now, POLICY)
    assert (verdict.status, verdict.taints, verdict.message) == (Status.HEALTHY, (), "")


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=30))
def test_error_counters_of_any_course_that_only_fall_are_no_finding(counts):
    course = Course()
    for total in sorted(counts, reverse=True):
        log = ErrorLog(address=ADDRESS, counters={severity: Counters(total=total) for severity in Severity})
        assert course.judge(make_reading(logs=(log,))).taints == ()
