"""What one sample shows beside the ones before: base lines, growth, and the state of everything else."""

import dataclasses

import pytest

from drawbar.driver.node.health import evidence, findings
from drawbar.driver.node.health.findings import Counters, ErrorLog, Finding, Severity
from drawbar.driver.node.health.policy import Policy

ADDRESS, PORT = "0000:01:00.0", "0000:00:03.0"
POLICY = Policy(correctable_per_minute=60, nonfatal_per_hour=2)


def log(place, **counts):
    return ErrorLog(
        place=place,
        counters={
            Severity(name): Counters(total=total, kinds={"DLP": total}) for name, total in counts.items()
        },
    )


def reading(**changes):
    return findings.Reading(**({"address": ADDRESS, "device_class": "nvme"} | changes))


def shown(*samples, elapsed=10.0, policy=POLICY):
    """The findings of the last of these samples."""
    memory = evidence.Memory()
    for sample in samples:
        memory, observed = evidence.observe(memory, sample, elapsed, policy)
    return observed


def errors(*totals, severity="fatal", place=PORT, **more):
    return [reading(logs=(log(place, **{severity: total}),), **more) for total in totals]


def test_errors_from_before_the_first_look_do_not_count():
    assert shown(*errors(7)).present == {}
    assert shown(*errors(7, 7)).present == {}


def test_one_more_fatal_error_is_a_finding_that_names_kind_and_place():
    (found,) = shown(*errors(7, 8)).present.items()
    assert found[0] is Finding.AER_FATAL
    assert found[1].message == (
        f"{ADDRESS} had fatal PCI Express errors (DLP), seen by {PORT}: 1 or more within an hour"
    )


def test_an_error_is_a_finding_once():
    assert shown(*errors(7, 8, 8)).present == {}


def test_counters_that_go_backwards_are_a_new_base_line():
    assert shown(*errors(7, 3)).present == {}
    assert Finding.AER_FATAL in shown(*errors(7, 3, 4)).present


def test_another_place_is_a_new_base_line():
    assert shown(*errors(7), *errors(9, place="0000:00:05.0")).present == {}


def test_counters_that_appear_later_begin_at_their_base_line():
    assert shown(reading(), *errors(9)).present == {}


def test_so_many_errors_within_an_hour_as_the_policy_says():
    assert shown(*errors(0, 1, severity="nonfatal")).present == {}
    assert Finding.AER_NONFATAL in shown(*errors(0, 1, 3, severity="nonfatal")).present
    assert shown(*errors(0, 1, 2, severity="nonfatal"), elapsed=3600.0).present == {}


@pytest.mark.parametrize(
    ("per_look", "elapsed", "found"),
    [
        (9, 10.0, False),
        (60, 10.0, True),
        (50, 60.0, False),
        (61, 60.0, True),
        (550, 600.0, False),
        (3, 1.0, True),
    ],
)
def test_corrected_errors_count_by_their_rate_however_often_one_looks(per_look, elapsed, found):
    looks = range(0, per_look * 100, per_look)
    seen = shown(*errors(*looks, severity="correctable"), elapsed=elapsed)
    assert (Finding.AER_CORRECTABLE in seen.present) is found


def test_what_a_root_port_was_told_counts_only_beyond_what_is_counted_elsewhere():
    def both(own, told):
        messages = log(PORT, nonfatal=told)
        return reading(logs=(log(ADDRESS, nonfatal=own),), messages=messages)

    assert shown(both(0, 0), both(1, 1)).present == {}
    assert Finding.AER_NONFATAL in shown(both(0, 0), both(1, 2)).present
    only_told = [reading(messages=log(PORT, fatal=total)) for total in (0, 1)]
    assert Finding.AER_FATAL in shown(*only_told).present


def test_a_device_that_was_there_and_is_gone_is_lost():
    seen = shown(reading(), findings.Gone())
    assert seen.present.keys() == {Finding.DEVICE_LOST}
    assert ADDRESS in seen.present[Finding.DEVICE_LOST].message
    assert seen.unknown == frozenset(Finding) - {Finding.DEVICE_LOST}


def test_a_device_that_never_was_there_is_lost_when_it_had_time_to_arrive():
    assert shown(findings.Gone()).present == {}
    assert shown(*[findings.Gone()] * 5).present == {}
    assert shown(*[findings.Gone()] * 6).present.keys() == {Finding.DEVICE_LOST}
    assert shown(*[findings.Gone()] * 5, reading(), findings.Gone()).present.keys() == {Finding.DEVICE_LOST}


def test_a_device_that_comes_back_begins_anew():
    before = reading(driver="nvme", logs=(log(ADDRESS, fatal=1),))
    assert shown(before, findings.Gone(), reading(logs=(log(ADDRESS, fatal=2),))).present == {}


def test_a_read_that_hangs_says_that_and_nothing_else():
    seen = shown(reading(), findings.Stuck(seconds=5.0))
    assert seen.present.keys() == {Finding.NOT_ANSWERING}
    assert "5 s" in seen.present[Finding.NOT_ANSWERING].message
    assert seen.unknown == frozenset(Finding) - {Finding.NOT_ANSWERING}


def memory_device(**changes):
    known = {"name": "mem0", "driver": "cxl_mem", "security": None, "committed": 1}
    return (findings.Memdev(**(known | changes)),)


@pytest.mark.parametrize(
    ("before", "now", "finding", "value"),
    [
        ({}, {"silent": (ADDRESS,)}, Finding.NOT_ANSWERING, ""),
        ({"driver": "nvme"}, {}, Finding.DRIVER_UNBOUND, ""),
        ({}, {"nvme": {"nvme0": "dead"}}, Finding.NVME_DEAD, "dead"),
        ({}, {"nvme": {"nvme0": "deleting (no IO)"}}, Finding.NVME_NOT_LIVE, "deleting-no-IO"),
        ({"memdevs": memory_device()}, {"memdevs": memory_device(driver=None)}, Finding.CXL_DISABLED, ""),
        ({"memdevs": memory_device()}, {"memdevs": memory_device(committed=0)}, Finding.CXL_UNCOMMITTED, ""),
        ({}, {"memdevs": memory_device(security="locked")}, Finding.CXL_LOCKED, "locked"),
        (
            {},
            {"link": findings.Link(speed_gts=16, width=4, most_gts=16, most_width=16)},
            Finding.LINK_NARROW,
            "x4-of-x16",
        ),
        (
            {},
            {"link": findings.Link(speed_gts=2.5, width=4, most_gts=16, most_width=4)},
            Finding.LINK_SLOW,
            "2.5-of-16-GTs",
        ),
    ],
    ids=lambda one: one.value if isinstance(one, Finding) else "",
)
def test_each_state_is_a_finding_as_long_as_it_lasts(before, now, finding, value):
    seen = shown(reading(**before), reading(**now), reading(**now))
    assert seen.present.keys() == {finding}
    assert seen.present[finding].value == value
    assert ADDRESS in seen.present[finding].message
    healthy = {"driver": "nvme", "nvme": {"nvme0": "live"}} | before
    assert shown(reading(**before), reading(**now), reading(**healthy)).present == {}


@pytest.mark.parametrize(
    "sample",
    [
        reading(driver=None),
        reading(memdevs=memory_device(driver=None, committed=0)),
        reading(memdevs=memory_device(committed=None, security="unlocked")),
        reading(link=findings.Link(speed_gts=2.5, width=1)),
        reading(link=findings.Link(speed_gts=16, width=16, most_gts=8, most_width=8)),
        reading(nvme={"nvme0": "live"}),
    ],
    ids=["never had a driver", "never enabled", "unlocked", "most not known", "more than most", "live"],
)
def test_what_was_never_otherwise_is_no_finding(sample):
    assert shown(sample, sample).present == {}


def test_a_link_may_be_slow_where_drivers_slow_it_down():
    slow = findings.Link(speed_gts=2.5, width=8, most_gts=16, most_width=16)
    assert shown(reading(device_class="gpu", link=slow)).present.keys() == {Finding.LINK_NARROW}
    everywhere = dataclasses.replace(POLICY, slow_link_expected=())
    seen = shown(reading(device_class="gpu", link=slow), policy=everywhere)
    assert seen.present.keys() == {Finding.LINK_NARROW, Finding.LINK_SLOW}


def test_of_a_link_that_is_down_nothing_is_known():
    assert shown(reading()).unknown == {Finding.LINK_NARROW, Finding.LINK_SLOW}


@pytest.mark.parametrize(
    ("text", "value"), [("dead", "dead"), ("(odd) state!", "odd-state"), ("é" * 80, ""), ("a" * 80, "a" * 63)]
)
def test_the_kernel_s_words_become_values_of_taints(text, value):
    assert evidence.label(text) == value
