"""What a sample shows, compared with what was seen of the device before. Pure.

Error counters count by their growth: the first reading is the base line, and one that goes backwards (another device
in its place, a reset) is a new base line. So errors from before the daemon's start are not held against a device.

Growth fills a bucket per severity that drains at the allowed rate; errors are a finding while the bucket is full. So
looking twice in a row, or late, finds the same.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from drawbar.driver.node.health.findings import ErrorLog, Finding, Gone, Reading, Sample, Severity, Stuck
from drawbar.driver.node.health.policy import Policy

MINUTE_SECONDS = 60.0
HOUR_SECONDS = 3600.0
VALUE_CHARS = 63  # of a taint, which is a label's value
NVME_LIVE = "live"
NVME_DEAD = "dead"
# The other states (`disabled`, `unlocked`, `frozen`) leave the media usable.
MEDIA_UNUSABLE = frozenset({"locked", "sanitize"})
_SEVERITIES = {
    Severity.FATAL: Finding.AER_FATAL,
    Severity.NONFATAL: Finding.AER_NONFATAL,
    Severity.CORRECTABLE: Finding.AER_CORRECTABLE,
}
_WORDS = {
    Severity.FATAL: "fatal",
    Severity.NONFATAL: "uncorrectable (non-fatal)",
    Severity.CORRECTABLE: "corrected",
}
_ALL = frozenset(Finding)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """That a finding is there now.

    Attributes:
        message: what was seen, in one clause, with the address.
        value: of the taint; tells the states of one finding apart.
    """

    message: str
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What a sample shows; a finding in neither is not there.

    Attributes:
        unknown: findings of which the sample says nothing.
    """

    present: Mapping[Finding, Evidence]
    unknown: frozenset[Finding] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What the next sample is compared with.

    Attributes:
        seen: the device was there at some time.
        absent_seconds: for how long the kernel has not shown it.
        address: where it was last; empty while it was never seen.
        driver: that was bound to it last.
        enabled: CXL memory devices that had their driver.
        mapped: CXL memory devices that had mapped memory.
        totals: counters by (place, severity); those of root ports' messages under `messages`.
        levels: how full the bucket of each severity is, in errors.
    """

    seen: bool = False
    absent_seconds: float = 0.0
    address: str = ""
    driver: str | None = None
    enabled: frozenset[str] = frozenset()
    mapped: frozenset[str] = frozenset()
    totals: Mapping[tuple[str, Severity], int] = field(default_factory=dict)
    messages: Mapping[tuple[str, Severity], int] = field(default_factory=dict)
    levels: Mapping[Severity, float] = field(default_factory=dict)


def observe(
    memory: Memory, sample: Sample, elapsed_seconds: float, policy: Policy
) -> tuple[Memory, Observed]:
    """What the sample shows, and what to remember of it.

    Args:
        memory: of the samples before.
        sample: the new one.
        elapsed_seconds: since the last sample, 0 and more.
        policy: its thresholds.
    """
    match sample:
        case Gone():
            return _gone(memory, elapsed_seconds, policy)
        case Stuck(seconds=seconds):
            message = f"{memory.address or 'the device'}: reading its state did not end within {seconds:g} s"
            return memory, _only(Finding.NOT_ANSWERING, message)
        case Reading():
            return _reading(memory, sample, elapsed_seconds, policy)
        case _:
            assert_never(sample)


def _gone(memory: Memory, elapsed: float, policy: Policy) -> tuple[Memory, Observed]:
    absent = memory.absent_seconds + elapsed
    # What comes back has counters that begin at zero, and a driver that has not bound yet.
    after = Memory(seen=memory.seen, absent_seconds=absent, address=memory.address, levels=memory.levels)
    if memory.seen:
        message = (
            f"{memory.address} disappeared from the bus while it was attached; look at its link and power"
        )
        return after, _only(Finding.DEVICE_LOST, message)
    if absent >= policy.arrival_seconds:
        return after, _only(
            Finding.DEVICE_LOST,
            f"the device has not appeared within {policy.arrival_seconds:g} s; look at its link",
        )
    return after, Observed(present={}, unknown=_ALL)


def _only(finding: Finding, message: str) -> Observed:
    return Observed(present={finding: Evidence(message=message)}, unknown=_ALL - {finding})


def _reading(memory: Memory, reading: Reading, elapsed: float, policy: Policy) -> tuple[Memory, Observed]:
    growth = {severity: _growth(memory, reading, severity) for severity in Severity}
    levels = {
        severity: _level(
            memory.levels.get(severity, 0.0), sum(growth[severity].values()), severity, elapsed, policy
        )
        for severity in Severity
    }
    present = dict(_states(memory, reading, policy))
    for severity, finding in _SEVERITIES.items():
        if levels[severity] >= _allowed(severity, policy)[0]:
            present[finding] = Evidence(message=_too_many(reading, severity, growth[severity], policy))
    after = replace(
        memory,
        seen=True,
        absent_seconds=0.0,
        address=reading.address,
        driver=reading.driver or memory.driver,
        enabled=frozenset(one.name for one in reading.memdevs if one.driver or one.name in memory.enabled),
        mapped=frozenset(one.name for one in reading.memdevs if one.committed or one.name in memory.mapped),
        totals=_totals(reading.logs),
        messages=_totals((reading.messages,) if reading.messages else ()),
        levels=levels,
    )
    unknown = frozenset({Finding.LINK_NARROW, Finding.LINK_SLOW}) if reading.link is None else frozenset()
    return after, Observed(present=present, unknown=unknown)


def _states(memory: Memory, reading: Reading, policy: Policy) -> Iterator[tuple[Finding, Evidence]]:
    """Everything but errors, which alone need the base line."""
    address = reading.address
    if reading.silent:
        places = ", ".join(reading.silent)
        yield (
            Finding.NOT_ANSWERING,
            Evidence(message=f"{places} answers all ones: the card is dead, unpowered or pulled"),
        )
    if memory.driver is not None and reading.driver is None:
        message = f"{address} lost its driver {memory.driver}; look at the kernel's log"
        yield Finding.DRIVER_UNBOUND, Evidence(message=message)
    yield from _link(reading, policy)
    for name, state in sorted(reading.nvme.items()):
        if state != NVME_LIVE:
            finding = Finding.NVME_DEAD if state == NVME_DEAD else Finding.NVME_NOT_LIVE
            yield (
                finding,
                Evidence(message=f"NVMe controller {name} ({address}) is {state}", value=label(state)),
            )
    for memdev in reading.memdevs:
        where = f"CXL memory device {memdev.name} ({address})"
        if memdev.name in memory.enabled and memdev.driver is None:
            yield Finding.CXL_DISABLED, Evidence(message=f"{where} was disabled: it has no driver any more")
        if memdev.name in memory.mapped and memdev.committed == 0:
            yield Finding.CXL_UNCOMMITTED, Evidence(message=f"the memory of {where} is no longer mapped")
        if memdev.security in MEDIA_UNUSABLE:
            evidence = Evidence(
                message=f"{where} has media in state {memdev.security}", value=memdev.security
            )
            yield Finding.CXL_LOCKED, evidence


def _link(reading: Reading, policy: Policy) -> Iterator[tuple[Finding, Evidence]]:
    link = reading.link
    if link is None:
        return
    if link.most_width is not None and link.width < link.most_width:
        message = f"{reading.address} has a link of x{link.width} where both ends have x{link.most_width}"
        yield Finding.LINK_NARROW, Evidence(message=message, value=f"x{link.width}-of-x{link.most_width}")
    slow = link.most_gts is not None and link.speed_gts < link.most_gts
    if slow and reading.device_class not in policy.slow_link_expected:
        now, most = f"{link.speed_gts:g}", f"{link.most_gts:g}"
        message = f"{reading.address} has a link of {now} GT/s where both ends can {most} GT/s"
        yield Finding.LINK_SLOW, Evidence(message=message, value=f"{now}-of-{most}-GTs")


def label(text: str) -> str:
    """A text of the kernel as a taint's value: `deleting (no IO)` becomes `deleting-no-IO`."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text)[:VALUE_CHARS].strip("-_.")


def _totals(logs: tuple[ErrorLog, ...]) -> dict[tuple[str, Severity], int]:
    return {
        (log.place, severity): counters.total for log in logs for severity, counters in log.counters.items()
    }


def _growth(memory: Memory, reading: Reading, severity: Severity) -> dict[str, int]:
    """New errors by place.

    A root port is told of what the others counted already, so what it was told counts only as far as it is more: it
    is all there is where a card keeps no counters.
    """
    grown = _grown(memory.totals, reading.logs, severity)
    told = _grown(memory.messages, (reading.messages,) if reading.messages else (), severity)
    for place, amount in told.items():
        if (more := amount - sum(grown.values())) > 0:
            grown[place] = grown.get(place, 0) + more
    return grown


def _grown(
    before: Mapping[tuple[str, Severity], int], logs: tuple[ErrorLog, ...], severity: Severity
) -> dict[str, int]:
    now = _totals(logs)
    return {
        place: amount - before[place, one]
        for (place, one), amount in now.items()
        if one == severity and amount > before.get((place, one), amount)
    }


def _allowed(severity: Severity, policy: Policy) -> tuple[int, float]:
    """How many errors are too many, and within how many seconds."""
    match severity:
        case Severity.CORRECTABLE:
            return policy.correctable_per_minute, MINUTE_SECONDS
        case Severity.NONFATAL:
            return policy.nonfatal_per_hour, HOUR_SECONDS
        case Severity.FATAL:
            return policy.fatal_per_hour, HOUR_SECONDS
        case _:
            assert_never(severity)


def _level(level: float, grown: int, severity: Severity, elapsed: float, policy: Policy) -> float:
    """The bucket after these errors; it holds no more than makes a finding, so it drains at once when they end."""
    capacity, period = _allowed(severity, policy)
    left = max(0.0, level - capacity * elapsed / period)
    # Of errors over a longer time than the period only their average in a period counts; of uncorrectable ones all do.
    share = min(1.0, period / elapsed) if severity is Severity.CORRECTABLE and elapsed > 0 else 1.0
    return min(float(capacity), left + grown * share)


def _too_many(reading: Reading, severity: Severity, growth: Mapping[str, int], policy: Policy) -> str:
    """The errors in words; the kinds are all that the places where they grew ever counted."""
    logs = (
        log.counters[severity] for log in reading.logs if log.place in growth and severity in log.counters
    )
    kinds = {kind for counted in logs for kind in counted.kinds}
    named = f" ({', '.join(sorted(kinds))})" if kinds else ""
    places = ", ".join(place for place in sorted(growth) if place != reading.address)
    seen = f", seen by {places}" if places else ""
    amount, period = _allowed(severity, policy)
    within = "a minute" if period == MINUTE_SECONDS else "an hour"
    return f"{reading.address} had {_WORDS[severity]} PCI Express errors{named}{seen}: {amount} or more within {within}"
