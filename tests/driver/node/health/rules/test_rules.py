"""What one sample shows beside the ones before: base lines, growth, and the state of everything else."""

import dataclasses

import pytest

from drawbar.driver.node.health import judgement, policy, samples
from drawbar.driver.node.health.policy import Policy
from drawbar.driver.node.health.rules import rule
from drawbar.driver.node.health.samples import Counters, ErrorLog, Severity

ADDRESS, PORT = "0000:01:00.0", "0000:00:03.0"
POLICY = Policy(correctable_per_minute=60, nonfatal_per_hour=2)


def log(address, **counts):
    return ErrorLog(
        address=address,
        counters={
            Severity(name): Counters(total=total, kinds={"DLP": total}) for name, total in counts.items()
        },
    )


def make_reading(**changes):
    return samples.Reading(**({"address": ADDRESS, "device_class": "nvme"} | changes))


def observe_samples(*samples, elapsed=10.0, policy=POLICY):
    """Return the findings of the last of these samples."""
    memory = judgement.Memory()
    for sample in samples:
        memory, observed = judgement.observe(memory, sample, elapsed, policy)
    return observed


def errors(*totals, severity="fatal", address=PORT, **more):
    return [make_reading(logs=(log(address, **{severity: total}),), **more) for total in totals]


def test_errors_from_before_the_first_look_do_not_count():
    assert observe_samples(*errors(7)).present == {}
    assert observe_samples(*errors(7, 7)).present == {}


def test_one_more_fatal_error_is_a_finding_that_names_kind_and_place():
    (finding,) = observe_samples(*errors(7, 8)).present.items()
    assert finding[0] == "aer-fatal"
    assert finding[1].message == (
        f"{ADDRESS} had fatal PCI Express errors (DLP), seen by {PORT}: 1 or more within an hour"
    )


def test_an_error_is_a_finding_once():
    assert observe_samples(*errors(7, 8, 8)).present == {}


def test_counters_that_go_backwards_are_a_new_base_line():
    assert observe_samples(*errors(7, 3)).present == {}
    assert "aer-fatal" in observe_samples(*errors(7, 3, 4)).present


def test_another_place_is_a_new_base_line():
    assert observe_samples(*errors(7), *errors(9, address="0000:00:05.0")).present == {}


def test_counters_that_appear_later_begin_at_their_base_line():
    assert observe_samples(make_reading(), *errors(9)).present == {}


def test_so_many_errors_within_an_hour_as_the_policy_says():
    assert observe_samples(*errors(0, 1, severity="nonfatal")).present == {}
    assert "aer-nonfatal" in observe_samples(*errors(0, 1, 3, severity="nonfatal")).present
    assert observe_samples(*errors(0, 1, 2, severity="nonfatal"), elapsed=3600.0).present == {}


@pytest.mark.parametrize(
    ("per_look", "elapsed", "present"),
    [
        (9, 10.0, False),
        (60, 10.0, True),
        (50, 60.0, False),
        (61, 60.0, True),
        (550, 600.0, False),
        (3, 1.0, True),
    ],
)
def test_corrected_errors_count_by_their_rate_however_often_one_looks(per_look, elapsed, present):
    looks = range(0, per_look * 100, per_look)
    seen = observe_samples(*errors(*looks, severity="correctable"), elapsed=elapsed)
    assert ("aer-correctable" in seen.present) is present


def test_errors_reported_by_a_root_port_are_not_counted_twice():
    def make_reading_of_both(own, reported):
        messages = log(PORT, nonfatal=reported)
        return make_reading(logs=(log(ADDRESS, nonfatal=own),), messages=messages)

    assert observe_samples(make_reading_of_both(0, 0), make_reading_of_both(1, 1)).present == {}
    assert "aer-nonfatal" in observe_samples(make_reading_of_both(0, 0), make_reading_of_both(1, 2)).present
    only_reported = [make_reading(messages=log(PORT, fatal=total)) for total in (0, 1)]
    assert "aer-fatal" in observe_samples(*only_reported).present


def test_a_device_that_was_there_and_is_gone_is_lost():
    seen = observe_samples(make_reading(), samples.Gone())
    assert seen.present.keys() == {"device-lost"}
    assert ADDRESS in seen.present["device-lost"].message
    assert seen.unknown == frozenset(policy.NAMES) - {"device-lost"}


def test_a_device_that_never_was_there_is_lost_when_it_had_time_to_arrive():
    assert observe_samples(samples.Gone()).present == {}
    assert observe_samples(*[samples.Gone()] * 5).present == {}
    assert observe_samples(*[samples.Gone()] * 6).present.keys() == {"device-lost"}
    assert observe_samples(*[samples.Gone()] * 5, make_reading(), samples.Gone()).present.keys() == {
        "device-lost"
    }


def test_a_returning_device_gets_a_new_base_line():
    before = make_reading(driver="nvme", logs=(log(ADDRESS, fatal=1),))
    assert observe_samples(before, samples.Gone(), make_reading(logs=(log(ADDRESS, fatal=2),))).present == {}


def test_a_read_that_hangs_is_the_only_finding():
    seen = observe_samples(make_reading(), samples.Stuck(seconds=5.0))
    assert seen.present.keys() == {"not-answering"}
    assert "5 s" in seen.present["not-answering"].message
    assert seen.unknown == frozenset(policy.NAMES) - {"not-answering"}


def memory_device(**changes):
    fields = {"name": "mem0", "driver": "cxl_mem", "security": None, "committed": 1}
    return (samples.Memdev(**(fields | changes)),)


@pytest.mark.parametrize(
    ("before", "now", "finding", "value"),
    [
        ({}, {"silent": (ADDRESS,)}, "not-answering", ""),
        ({"driver": "nvme"}, {}, "driver-unbound", ""),
        ({}, {"nvme": {"nvme0": "dead"}}, "nvme-dead", "dead"),
        ({}, {"nvme": {"nvme0": "deleting (no IO)"}}, "nvme-not-live", "deleting-no-IO"),
        ({"memdevs": memory_device()}, {"memdevs": memory_device(driver=None)}, "cxl-disabled", ""),
        ({"memdevs": memory_device()}, {"memdevs": memory_device(committed=0)}, "cxl-uncommitted", ""),
        ({}, {"memdevs": memory_device(security="locked")}, "cxl-locked", "locked"),
        (
            {},
            {"link": samples.Link(speed_gts=16, width=4, most_gts=16, most_width=16)},
            "link-narrow",
            "x4-of-x16",
        ),
        (
            {},
            {"link": samples.Link(speed_gts=2.5, width=4, most_gts=16, most_width=4)},
            "link-slow",
            "2.5-of-16-GTs",
        ),
    ],
    ids=lambda parameter: parameter if isinstance(parameter, str) else "",
)
def test_each_state_is_a_finding_as_long_as_it_lasts(before, now, finding, value):
    seen = observe_samples(make_reading(**before), make_reading(**now), make_reading(**now))
    assert seen.present.keys() == {finding}
    assert seen.present[finding].value == value
    assert ADDRESS in seen.present[finding].message
    healthy = {"driver": "nvme", "nvme": {"nvme0": "live"}} | before
    assert observe_samples(make_reading(**before), make_reading(**now), make_reading(**healthy)).present == {}


@pytest.mark.parametrize(
    "sample",
    [
        make_reading(driver=None),
        make_reading(memdevs=memory_device(driver=None, committed=0)),
        make_reading(memdevs=memory_device(committed=None, security="unlocked")),
        make_reading(link=samples.Link(speed_gts=2.5, width=1)),
        make_reading(link=samples.Link(speed_gts=16, width=16, most_gts=8, most_width=8)),
        make_reading(nvme={"nvme0": "live"}),
    ],
    ids=["never had a driver", "never enabled", "unlocked", "most not known", "more than most", "live"],
)
def test_an_unchanged_reading_is_no_finding(sample):
    assert observe_samples(sample, sample).present == {}


def test_a_link_may_be_slow_where_drivers_slow_it_down():
    slow = samples.Link(speed_gts=2.5, width=8, most_gts=16, most_width=16)
    assert observe_samples(make_reading(device_class="gpu", link=slow)).present.keys() == {"link-narrow"}
    everywhere = dataclasses.replace(POLICY, slow_link_expected=())
    seen = observe_samples(make_reading(device_class="gpu", link=slow), policy=everywhere)
    assert seen.present.keys() == {"link-narrow", "link-slow"}


def test_of_a_link_that_is_down_nothing_is_known():
    assert observe_samples(make_reading()).unknown == {"link-narrow", "link-slow"}


@pytest.mark.parametrize(
    ("text", "value"), [("dead", "dead"), ("(odd) state!", "odd-state"), ("é" * 80, ""), ("a" * 80, "a" * 63)]
)
def test_the_kernel_s_words_become_values_of_taints(text, value):
    assert rule.label(text) == value
