"""What counts as ill, for how long, and what follows from it: the health policy, as configured.

The defaults are careful: only what makes a device useless or loses data keeps claims away from it, and only a device
that is gone takes pods off it. `docs/health.md` has the table.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping

from drawbar.driver.node.health import findings, verdicts

SECONDS_MAX = 86_400.0
COUNT_MAX = 1_000_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What follows from one finding.

    Attributes:
        effect: of its taint: `None`, `NoSchedule` or `NoExecute`.
        unhealthy: the device is called Unhealthy, to the kubelet and on its DeviceAttachment. Whatever repels claims makes
            unhealthy.
        hold_down_seconds: how long it must last before anything is said.
    """

    effect: verdicts.Effect = verdicts.Effect.NONE
    unhealthy: bool = True
    hold_down_seconds: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rule of each finding.

    Attributes:
        device_lost: the card was pulled or fell off the bus.
        not_answering: configuration space answers all ones, or a read never ends. A reset takes up to a second.
        aer_fatal: uncorrectable errors after which the link is not reliable.
        nvme_dead: the driver gave the controller up.
        aer_nonfatal: uncorrectable errors that lost a transaction.
        driver_unbound: it had a driver and has none. Binding another driver takes a moment.
        nvme_not_live: resetting, connecting or being deleted for longer than a controller needs to come up.
        cxl_disabled: the memory device was disabled.
        cxl_uncommitted: its memory was mapped and no longer is. Mapping it anew takes a moment.
        cxl_locked: its media is locked, or being sanitised.
        link_narrow: fewer lanes than both ends have.
        link_slow: slower than both ends can.
        aer_correctable: more corrected errors than the policy allows.
    """

    device_lost: Rule = Rule(effect=verdicts.Effect.NO_EXECUTE)
    not_answering: Rule = Rule(effect=verdicts.Effect.NO_SCHEDULE, hold_down_seconds=10.0)
    aer_fatal: Rule = Rule(effect=verdicts.Effect.NO_SCHEDULE)
    nvme_dead: Rule = Rule(effect=verdicts.Effect.NO_SCHEDULE)
    aer_nonfatal: Rule = Rule(effect=verdicts.Effect.NO_SCHEDULE)
    driver_unbound: Rule = Rule(effect=verdicts.Effect.NO_SCHEDULE, hold_down_seconds=10.0)
    nvme_not_live: Rule = Rule(effect=verdicts.Effect.NO_SCHEDULE, hold_down_seconds=60.0)
    cxl_disabled: Rule = Rule(effect=verdicts.Effect.NO_SCHEDULE, hold_down_seconds=10.0)
    cxl_uncommitted: Rule = Rule(effect=verdicts.Effect.NO_SCHEDULE, hold_down_seconds=60.0)
    cxl_locked: Rule = Rule(effect=verdicts.Effect.NO_SCHEDULE, hold_down_seconds=60.0)
    link_narrow: Rule = Rule(unhealthy=False, hold_down_seconds=60.0)
    link_slow: Rule = Rule(unhealthy=False, hold_down_seconds=60.0)
    aer_correctable: Rule = Rule(unhealthy=False)

    def of(self, finding: findings.Finding) -> Rule:
        """Return the rule of a finding."""
        return _RULE_OF[finding](self)


_RULE_OF: Mapping[findings.Finding, Callable[[Rules], Rule]] = {
    findings.Finding.DEVICE_LOST: lambda rules: rules.device_lost,
    findings.Finding.NOT_ANSWERING: lambda rules: rules.not_answering,
    findings.Finding.AER_FATAL: lambda rules: rules.aer_fatal,
    findings.Finding.NVME_DEAD: lambda rules: rules.nvme_dead,
    findings.Finding.AER_NONFATAL: lambda rules: rules.aer_nonfatal,
    findings.Finding.DRIVER_UNBOUND: lambda rules: rules.driver_unbound,
    findings.Finding.NVME_NOT_LIVE: lambda rules: rules.nvme_not_live,
    findings.Finding.CXL_DISABLED: lambda rules: rules.cxl_disabled,
    findings.Finding.CXL_UNCOMMITTED: lambda rules: rules.cxl_uncommitted,
    findings.Finding.CXL_LOCKED: lambda rules: rules.cxl_locked,
    findings.Finding.LINK_NARROW: lambda rules: rules.link_narrow,
    findings.Finding.LINK_SLOW: lambda rules: rules.link_slow,
    findings.Finding.AER_CORRECTABLE: lambda rules: rules.aer_correctable,
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
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

    interval_seconds: float = 10.0
    read_timeout_seconds: float = 5.0
    arrival_seconds: float = 60.0
    fatal_per_hour: int = 1
    nonfatal_per_hour: int = 1
    correctable_per_minute: int = 100
    recovery_seconds: float = 300.0
    recovery_max_seconds: float = 3600.0
    ignored: tuple[str, ...] = ()
    slow_link_expected: tuple[str, ...] = ("gpu",)
    rules: Rules = dataclasses.field(default_factory=Rules)


def problems(policy: Policy) -> list[str]:
    """One sentence for each value that cannot be; empty when all is well."""
    known = {finding.value for finding in findings.Finding}
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
            f"ignored names {name!r}, which is no finding: choose of {', '.join(sorted(known))}"
            for name in policy.ignored
            if name not in known
        ),
        *(
            problem
            for finding in findings.Finding
            for problem in _rule_problems(finding, policy.rules.of(finding))
        ),
    ]


def _seconds(policy: Policy) -> list[str]:
    # Written so that they hold for no NaN.
    found = [
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
        found.append(
            f"recoveryMaxSeconds {policy.recovery_max_seconds:g} is less than recoverySeconds "
            f"{policy.recovery_seconds:g}: raise it"
        )
    return found


def _rule_problems(finding: findings.Finding, rule: Rule) -> list[str]:
    found = []
    if rule.effect is not verdicts.Effect.NONE and not rule.unhealthy:
        found.append(f"the rule of {finding} has effect {rule.effect}: then unhealthy must be true")
    if not (math.isfinite(rule.hold_down_seconds) and 0 <= rule.hold_down_seconds <= SECONDS_MAX):
        found.append(
            f"the rule of {finding} has holdDownSeconds {rule.hold_down_seconds}: give 0 to {SECONDS_MAX:g}"
        )
    return found
