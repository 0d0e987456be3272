"""What counts as ill, for how long, and what follows from it: the health policy, as configured; pure.

The defaults are careful: only what makes a device useless or loses data keeps claims away from it, and only a device
that is gone takes pods off it. `docs/health.md` has the table.
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
"""Everything that can be wrong; the worst first, which is the order in which findings are listed."""
NAMES = tuple(rule.name for rule in RULES)
FILES = tuple(sorted({name for rule in RULES for name in rule.files}))
"""What is read for rules below a card's first function."""


class _Rules:
    """What follows from each finding, in a field of the finding's name."""

    __slots__ = ()

    def for_finding(self, finding: str) -> Rule:
        """Return what follows from a finding."""
        return _RULE_OF[finding](self)


_RULE_OF: Mapping[str, Callable[[_Rules], Rule]] = {
    rule.name: operator.attrgetter(rule.field) for rule in RULES
}

if TYPE_CHECKING:

    class Rules(_Rules):
        """Its fields are those of `RULES`, each a `Rule`."""

else:
    # A name that is there twice is refused here, so at the start.
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
        interval_seconds: between two looks at a device; one more follows an event of the device.
        read_timeout_seconds: how long reading a device may take before it counts as not answering.
        arrival_seconds: how long a device may be away after the daemon's start before it is lost.
        fatal_per_hour: so many fatal errors within an hour are a finding.
        nonfatal_per_hour: so many uncorrectable errors that are not fatal.
        correctable_per_minute: so many corrected errors within a minute.
        recovery_seconds: how long a finding must stay away before its taint is lifted. Each relapse doubles it.
        recovery_max_seconds: the longest it gets; after so long without a relapse, the relapses are forgotten.
        ignored: findings that are not looked for.
        slow_link_expected: classes whose drivers slow an idle device's link down to save power.
        rules: what follows from each finding.
    """

    rules: Rules = dataclasses.field(default_factory=Rules)


def problems(policy: Policy) -> list[str]:
    """One sentence for each value that cannot be; empty when all is well."""
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
            f"ignored names {name!r}, which is no finding: choose of {', '.join(sorted(NAMES))}"
            for name in policy.ignored
            if name not in NAMES
        ),
        *(
            problem
            for finding in NAMES
            for problem in _rule_problems(finding, policy.rules.for_finding(finding))
        ),
    ]


def _seconds(policy: Policy) -> list[str]:
    # Written so that they hold for no NaN.
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
