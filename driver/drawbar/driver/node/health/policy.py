"""The health policy: the findings, their hold-down times, and their consequences. Pure.

The defaults are careful. Only a finding that makes a device useless or loses data keeps claims away. Only the loss of a
device evicts its pods. `docs/reference/findings.md` is made from the rules.
"""

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from drawbar.driver.node.health import verdicts
from drawbar.driver.node.health.rules import cxl, errors, link, nvme, presence
from drawbar.driver.node.health.rules.rule import HealthRule, Rule, Thresholds

SECONDS_MAX = 86_400.0
COUNT_MAX = 1_000_000


RULES: tuple[HealthRule, ...] = (
    presence.LOST,
    presence.NOT_ANSWERING,
    errors.FATAL,
    nvme.DEAD,
    errors.NONFATAL,
    presence.DRIVER_UNBOUND,
    nvme.NOT_LIVE,
    cxl.DISABLED,
    cxl.UNCOMMITTED,
    cxl.LOCKED,
    link.NARROW,
    link.SLOW,
    errors.CORRECTABLE,
)
"""All findings, the worst first; findings are listed in this order."""
NAMES = tuple(rule.name for rule in RULES)
FILES = tuple(sorted({name for rule in RULES for name in rule.files}))
"""The files to read for the rules, below a card's first function."""


class _Rules:
    """The consequences of each finding, in a field of the finding's name."""

    __slots__ = ()

    def find_rule(self, finding: str) -> Rule:
        """Return the consequences of a finding."""
        return _RULE_OF[finding](self)


_RULE_OF: Mapping[str, Callable[[_Rules], Rule]] = {
    rule.name: operator.attrgetter(rule.field) for rule in RULES
}

if TYPE_CHECKING:

    class Rules(_Rules):
        """The fields are those of `RULES`, each a `Rule`."""

else:
    # This refuses a duplicate name, at import time.
    Rules = dataclasses.make_dataclass(
        "Rules",
        [(rule.field, Rule, dataclasses.field(default=rule.default)) for rule in RULES],
        bases=(_Rules,),
        namespace={"__doc__": _Rules.__doc__, "__module__": __name__},
        frozen=True,
        slots=True,
        kw_only=True,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Policy(Thresholds):
    """The health policy.

    Attributes:
        interval_seconds: the time between two reads of a device without events.
        read_timeout_seconds: the limit of a read; then the device is not answering.
        arrival_seconds: the time from the daemon's start until a missing device counts as lost.
        fatal_per_hour: fatal errors in an hour for a finding.
        nonfatal_per_hour: uncorrectable non-fatal errors in an hour for a finding.
        correctable_per_minute: corrected errors in a minute for a finding.
        recovery_seconds: the time without a finding before its taint is lifted; each relapse doubles it.
        recovery_max_seconds: the most after relapses; as long without one, they are forgotten.
        ignored: findings to ignore.
        slow_link_expected: classes with slow links while idle, to save power.
        rules: the consequences of each finding.
    """

    rules: Rules = dataclasses.field(default_factory=Rules)


def problems(policy: Policy) -> list[str]:
    """Return one sentence for each invalid value."""
    return [
        *_seconds(policy),
        *(
            f"{name} {value} is not a whole number from 1 to {COUNT_MAX}"
            for name, value in (
                ("fatalPerHour", policy.fatal_per_hour),
                ("nonfatalPerHour", policy.nonfatal_per_hour),
                ("correctablePerMinute", policy.correctable_per_minute),
            )
            if not 1 <= value <= COUNT_MAX
        ),
        *(
            f"ignored names {name!r}, which is not a finding: choose of {', '.join(sorted(NAMES))}"
            for name in policy.ignored
            if name not in NAMES
        ),
        *(
            problem
            for finding in NAMES
            for problem in _rule_problems(finding, policy.rules.find_rule(finding))
        ),
    ]


def _seconds(policy: Policy) -> list[str]:
    # NaN fails each of these comparisons.
    wrong = [
        f"{name} {value} is not a number of seconds from {least:g} to {SECONDS_MAX:g}"
        for name, value, least in (
            ("intervalSeconds", policy.interval_seconds, 1.0),
            ("readTimeoutSeconds", policy.read_timeout_seconds, 0.1),
            ("arrivalSeconds", policy.arrival_seconds, 0.0),
            ("recoverySeconds", policy.recovery_seconds, 0.0),
            ("recoveryMaxSeconds", policy.recovery_max_seconds, 0.0),
        )
        if not least <= value <= SECONDS_MAX
    ]
    if policy.recovery_max_seconds < policy.recovery_seconds:
        wrong.append(
            f"recoveryMaxSeconds {policy.recovery_max_seconds:g} is less than recoverySeconds "
            f"{policy.recovery_seconds:g}: raise it"
        )
    return wrong


def _rule_problems(finding: str, rule: Rule) -> list[str]:
    wrong = []
    if rule.effect is not verdicts.Effect.NONE and not rule.unhealthy:
        wrong.append(f"the rule of {finding} has effect {rule.effect}: then unhealthy must be true")
    if not (math.isfinite(rule.hold_down_seconds) and 0 <= rule.hold_down_seconds <= SECONDS_MAX):
        wrong.append(
            f"the rule of {finding} has holdDownSeconds {rule.hold_down_seconds}: give 0 to {SECONDS_MAX:g}"
        )
    return wrong
