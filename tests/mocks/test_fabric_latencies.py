"""Latencies and chances of the simulated fabric: within their bounds, and the same under the same seed."""

import json
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.fabric import errors
from drawbar.mocks.fabric import configuration, latencies

DISTRIBUTIONS = (
    latencies.Fixed(seconds=2.0),
    latencies.Uniform(min=0.5, max=2.0),
    latencies.Normal(mean=1.0, deviation=5.0, min=0.5, max=2.0),
    latencies.Lognormal(median=1.0, sigma=3.0, min=0.5, max=2.0),
)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda each: type(each).__name__)
@given(seed=st.integers())
def test_a_latency_stays_within_its_bounds(distribution, seed):
    dice = latencies.Dice(seed)
    drawn = [dice.seconds(distribution, "attach", "d1") for _ in range(20)]
    assert all(0.5 <= seconds <= 2.0 for seconds in drawn)


@given(seed=st.integers(), order=st.permutations(["a", "a", "b", "b", "c"]))
def test_the_latency_of_a_device_is_independent_of_others(seed, order):
    distribution = latencies.Uniform(max=1.0)
    alone = {}
    for device in "abc":
        dice = latencies.Dice(seed)
        alone[device] = [dice.seconds(distribution, "attach", device) for _ in range(order.count(device))]
    together = {device: [] for device in "abc"}
    dice = latencies.Dice(seed)
    for device in order:
        together[device].append(dice.seconds(distribution, "attach", device))
    assert together == alone


def test_draws_differ_and_go_on_after_a_restart():
    distribution = latencies.Lognormal(median=1.0, sigma=1.0, max=100.0)
    dice = latencies.Dice(7)
    drawn = [dice.seconds(distribution, "detach", "d1") for _ in range(4)]
    assert len(set(drawn)) == 4
    before = latencies.Dice(7)
    first = [before.seconds(distribution, "detach", "d1") for _ in range(2)]
    after = latencies.Dice(7, before.used)
    assert first + [after.seconds(distribution, "detach", "d1") for _ in range(2)] == drawn
    assert latencies.Dice(8).seconds(distribution, "detach", "d1") != drawn[0]


def test_a_chance_comes_up_as_often_as_it_says():
    dice = latencies.Dice(1)
    hits = sum(dice.happens(0.25, "fault", "0") for _ in range(2000))
    assert 400 < hits < 600
    assert dice.happens(1.0, "certain")
    assert "certain" not in dice.used


def test_half_of_a_lognormal_latency_is_below_its_median():
    source = random.Random(3)
    distribution = latencies.Lognormal(median=2.0, sigma=0.5, max=1000.0)
    drawn = [distribution.draw(source) for _ in range(2000)]
    assert 900 < sum(seconds < 2.0 for seconds in drawn) < 1100


def parse(**fields):
    return configuration.parse(json.dumps({"hosts": [{"id": "h"}], **fields}).encode())


def test_latencies_are_read_from_the_configuration():
    read = parse(
        latencies={"attachCall": {"kind": "fixed", "seconds": 0.5}, "devices": {"kind": "uniform", "max": 3}}
    )
    assert read.latencies.attach_call == latencies.Fixed(seconds=0.5)
    assert read.latencies.devices == latencies.Uniform(min=0.0, max=3.0)
    assert read.latencies.problems() == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"latencies": {"attach": {"kind": "fixed", "seconds": -1}}}, "attach: seconds is negative"),
        ({"latencies": {"devices": {"kind": "uniform", "min": 2, "max": 1}}}, "max 1 is below min 2"),
        (
            {"latencies": {"hosts": {"kind": "lognormal", "median": 0, "sigma": 1, "max": 1}}},
            "median is not above",
        ),
        (
            {"latencies": {"cancel": {"kind": "normal", "mean": 1, "deviation": -1, "max": 1}}},
            "deviation is neg",
        ),
        ({"latencies": {"attachCall": {"kind": "uniform", "max": -1}}}, "attachCall: max -1 is below"),
        ({"latencies": {"attach": {"kind": "round"}}}, "latencies: Invalid value"),
        ({"latencies": {"attack": {"kind": "fixed", "seconds": 1}}}, "latencies: Object contains unknown"),
        (
            {"latencies": {"detach": {"kind": "fixed", "seconds": 1}}, "detachSeconds": 1},
            "latencies.detach and detachSeconds are both given",
        ),
    ],
)
def test_a_latency_that_cannot_be_is_told_in_one_sentence(fields, words):
    with pytest.raises(errors.InvalidConfiguration) as caught:
        parse(**fields)
    assert len([problem for problem in caught.value.problems if words in problem]) == 1


def test_a_distribution_without_an_end_is_refused():
    with pytest.raises(msgspec.ValidationError, match="max"):
        msgspec.json.decode(b'{"kind": "normal", "mean": 1, "deviation": 1}', type=latencies.Normal)
