"""PCI Express errors, as the kernel counts them; pure.

Counters count by their growth: the first reading is the base line, and one that goes backwards (another device in its
place, a reset) is a new base line. So errors from before the daemon's start are not held against a device.

Growth fills a bucket per severity that drains at the allowed rate; errors are a finding while the bucket is full. So
looking twice in a row, or late, finds the same.
"""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from drawbar.driver.node.health.rules.rule import Evidence, HealthRule, Look, Rule, Thresholds
from drawbar.driver.node.health.samples import ErrorLog, Severity
from drawbar.driver.node.health.verdicts import Effect

MINUTE_SECONDS = 60.0
HOUR_SECONDS = 3600.0
_WORDS = {
    Severity.FATAL: "fatal",
    Severity.NONFATAL: "uncorrectable (non-fatal)",
    Severity.CORRECTABLE: "corrected",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """The errors of one severity.

    Attributes:
        totals: counters by place; those of root ports' messages under `messages`.
        level: how full the bucket is, in errors.
        grown: new errors by place, of the last reading.
    """

    totals: Mapping[str, int] = field(default_factory=dict)
    messages: Mapping[str, int] = field(default_factory=dict)
    level: float = 0.0
    grown: Mapping[str, int] = field(default_factory=dict)


def _count(severity: Severity, look: Look) -> _Counted:
    before: _Counted = look.before or _Counted()
    reading = look.reading
    totals = _totals(reading.logs, severity)
    messages = _totals((reading.messages,) if reading.messages else (), severity)
    grown = _growth(before.totals, totals)
    # A root port receives messages of what the others counted already, so they count only as far as they are more: it is
    # all there is where a card keeps no counters.
    for place, amount in _growth(before.messages, messages).items():
        if (more := amount - sum(grown.values())) > 0:
            grown[place] = grown.get(place, 0) + more
    level = _level(before.level, sum(grown.values()), severity, look)
    return _Counted(totals=totals, messages=messages, level=level, grown=grown)


def _totals(logs: Iterable[ErrorLog], severity: Severity) -> dict[str, int]:
    return {log.place: log.counters[severity].total for log in logs if severity in log.counters}


def _growth(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    return {
        place: amount - before[place] for place, amount in now.items() if amount > before.get(place, amount)
    }


def _allowed(severity: Severity, thresholds: Thresholds) -> tuple[int, float]:
    """How many errors are too many, and within how many seconds."""
    match severity:
        case Severity.CORRECTABLE:
            return thresholds.correctable_per_minute, MINUTE_SECONDS
        case Severity.NONFATAL:
            return thresholds.nonfatal_per_hour, HOUR_SECONDS
        case Severity.FATAL:
            return thresholds.fatal_per_hour, HOUR_SECONDS
        case _:
            assert_never(severity)


def _level(level: float, grown: int, severity: Severity, look: Look) -> float:
    """The bucket after these errors; it holds no more than makes a finding, so it drains at once when they end."""
    capacity, period = _allowed(severity, look.thresholds)
    elapsed = look.elapsed_seconds
    left = max(0.0, level - capacity * elapsed / period)
    # Of errors over a longer time than the period only their average in a period counts; of uncorrectable ones all do.
    share = min(1.0, period / elapsed) if severity is Severity.CORRECTABLE and elapsed > 0 else 1.0
    return min(float(capacity), left + grown * share)


def _too_many(severity: Severity, look: Look) -> Evidence | None:
    """The errors in words; the kinds are all that the places where they grew ever counted."""
    amount, period = _allowed(severity, look.thresholds)
    counted: _Counted = look.after
    if counted.level < amount:
        return None
    reading = look.reading
    logs = (
        log.counters[severity]
        for log in reading.logs
        if log.place in counted.grown and severity in log.counters
    )
    kinds = {kind for counters in logs for kind in counters.kinds}
    named = f" ({', '.join(sorted(kinds))})" if kinds else ""
    places = ", ".join(place for place in sorted(counted.grown) if place != reading.address)
    seen = f", seen by {places}" if places else ""
    within = "a minute" if period == MINUTE_SECONDS else "an hour"
    errors = f"{_WORDS[severity]} PCI Express errors{named}{seen}"
    return Evidence(message=f"{reading.address} had {errors}: {amount} or more within {within}")


def _rule(severity: Severity, meaning: str, default: Rule) -> HealthRule:
    return HealthRule(
        name=f"aer-{severity}",
        meaning=meaning,
        default=default,
        find=functools.partial(_too_many, severity),
        remember=functools.partial(_count, severity),
        # What comes back has counters that begin at zero.
        keep=lambda counted: _Counted(level=counted.level),
    )


FATAL = _rule(
    Severity.FATAL,
    "uncorrectable errors after which the link is not reliable",
    Rule(effect=Effect.NO_SCHEDULE),
)
NONFATAL = _rule(
    Severity.NONFATAL, "uncorrectable errors that lost a transaction", Rule(effect=Effect.NO_SCHEDULE)
)
CORRECTABLE = _rule(
    Severity.CORRECTABLE, "more corrected errors than the policy allows", Rule(unhealthy=False)
)
