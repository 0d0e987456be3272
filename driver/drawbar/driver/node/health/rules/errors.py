"""Rules for PCI Express errors, as the kernel counts them. Pure.

Only growth of a counter counts. The first reading is the base line. A lower value (another device in its place, a reset)
is a new base line. Errors from before the daemon's start are therefore ignored.

Growth fills a bucket for each severity, and the bucket drains at the allowed rate. A full bucket is a finding. Early or
late readings therefore give the same result.
"""

import functools
from collections.abc import Iterable, Mapping
from typing import assert_never

import msgspec

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


class _Counted(msgspec.Struct, frozen=True, kw_only=True):
    """The errors of one severity.

    Attributes:
        totals: counters by PCI address.
        messages: counters of root ports' messages, by PCI address.
        level: the errors in the bucket.
        grown: new errors by PCI address, from the last reading.
    """

    totals: Mapping[str, int] = msgspec.field(default_factory=dict)
    messages: Mapping[str, int] = msgspec.field(default_factory=dict)
    level: float = 0.0
    grown: Mapping[str, int] = msgspec.field(default_factory=dict)


def _count(severity: Severity, look: Look) -> _Counted:
    before: _Counted = look.before or _Counted()
    reading = look.reading
    totals = _totals(reading.logs, severity)
    messages = _totals((reading.messages,) if reading.messages else (), severity)
    grown = _growth(before.totals, totals)
    # A root port receives messages about errors that the others have counted too, so only the excess counts.
    # For a card without counters the messages are the only source.
    for address, amount in _growth(before.messages, messages).items():
        if (more := amount - sum(grown.values())) > 0:
            grown[address] = grown.get(address, 0) + more
    level = _level(before.level, sum(grown.values()), severity, look)
    return _Counted(totals=totals, messages=messages, level=level, grown=grown)


def _totals(logs: Iterable[ErrorLog], severity: Severity) -> dict[str, int]:
    return {log.address: log.counters[severity].total for log in logs if severity in log.counters}


def _growth(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    return {
        address: amount - before[address]
        for address, amount in now.items()
        if amount > before.get(address, amount)
    }


def _limit(severity: Severity, thresholds: Thresholds) -> tuple[int, float]:
    """Return the number of errors that makes a finding, and the period in seconds."""
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
    """Return the bucket's level after these errors; it never exceeds the limit, so it starts to drain with the last error."""
    capacity, period = _limit(severity, look.thresholds)
    elapsed = look.elapsed_seconds
    left = max(0.0, level - capacity * elapsed / period)
    # Corrected errors over more than a period count with their average per period, uncorrectable ones in full.
    share = min(1.0, period / elapsed) if severity is Severity.CORRECTABLE and elapsed > 0 else 1.0
    return min(float(capacity), left + grown * share)


def _find_excess(severity: Severity, look: Look) -> Evidence | None:
    """Return the errors as evidence, or None if there are too few.

    The kinds are all that the ports with new errors have ever counted.
    """
    amount, period = _limit(severity, look.thresholds)
    counted: _Counted = look.after
    if counted.level < amount:
        return None
    reading = look.reading
    logs = (
        log.counters[severity]
        for log in reading.logs
        if log.address in counted.grown and severity in log.counters
    )
    kinds = {kind for counters in logs for kind in counters.kinds}
    named = f" ({', '.join(sorted(kinds))})" if kinds else ""
    addresses = ", ".join(address for address in sorted(counted.grown) if address != reading.address)
    seen = f", seen by {addresses}" if addresses else ""
    within = "a minute" if period == MINUTE_SECONDS else "an hour"
    errors = f"{_WORDS[severity]} PCI Express errors{named}{seen}"
    return Evidence(message=f"{reading.address} had {errors}: {amount} or more within {within}")


def _rule(severity: Severity, meaning: str, default: Rule) -> HealthRule:
    return HealthRule(
        name=f"aer-{severity}",
        meaning=meaning,
        default=default,
        find=functools.partial(_find_excess, severity),
        remember=functools.partial(_count, severity),
        # The counters of a returning device start at zero.
        keep=lambda counted: _Counted(level=counted.level),
    )


FATAL = _rule(
    Severity.FATAL,
    "fatal PCI Express errors: the link is not reliable",
    Rule(effect=Effect.NO_SCHEDULE),
)
NONFATAL = _rule(
    Severity.NONFATAL,
    "uncorrectable PCI Express errors with a lost transaction",
    Rule(effect=Effect.NO_SCHEDULE),
)
CORRECTABLE = _rule(
    Severity.CORRECTABLE,
    "more corrected PCI Express errors than allowed: the link works, and repeats itself",
    Rule(unhealthy=False),
)
