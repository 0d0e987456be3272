"""The definition of a health rule. Pure.

A rule finds one problem in the readings of a device. It is a `HealthRule` in a module of this folder, listed in
`policy.RULES`. Its settings, its taint and its place in messages follow from that.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from drawbar.driver.node.health import verdicts
from drawbar.driver.node.health.samples import Reading

VALUE_CHARS = 63  # the limit of a taint's value, which is that of a label
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The consequences of one finding.

    Attributes:
        effect: its taint's effect: `None`, `NoSchedule` or `NoExecute`.
        unhealthy: report the device as Unhealthy; required with `NoSchedule` and `NoExecute`.
        hold_down_seconds: the time before a finding has a consequence.
    """

    effect: verdicts.Effect = verdicts.Effect.NONE
    unhealthy: bool = True
    hold_down_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The thresholds of rules; see `policy.Policy`."""

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


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence of a present finding.

    Attributes:
        message: the observation, in one clause, with the address.
        value: the taint's value; distinguishes the states of one finding.
    """

    message: str
    value: str = ""


# Not frozen, for speed: each rule makes one for each reading, and a frozen one takes three times as long.
@dataclass(slots=True, kw_only=True)
class Look:
    """The input of a rule.

    Attributes:
        reading: the device's current reading.
        elapsed_seconds: the time since the last sample, 0 or more.
        thresholds: the policy's thresholds.
        before: the result of the rule's `remember` for the last reading. It is None for the first reading. After an absence
            of the device it is the result of the rule's `keep`.
        after: its result for this reading.
    """

    reading: Reading
    elapsed_seconds: float
    thresholds: Thresholds
    before: Any = None
    after: Any = None


def _remember_nothing(_: Any) -> None:
    """Return None, for rules without memory."""


def _is_known(_: Reading) -> bool:
    return False


class HealthRule(msgspec.Struct, frozen=True, kw_only=True):
    """One finding: its detection, and its consequences unless the policy changes them.

    Attributes:
        name: the finding's name and its taint's key: lower case, words joined by dashes.
        meaning: its meaning, as a clause.
        default: its consequences.
        find: returns the evidence, or None without the finding. No I/O.
        remember: returns the state for the next reading's comparison.
        keep: returns the part of that state to keep during an absence of the device.
        unknown: whether a reading says nothing about the finding; the finding is then neither raised nor lifted.
        files: the files to read for it below the card's first function, as `Reading.files`. They are not read while the
            device is asleep, and the finding is then unknown.
    """

    name: str
    meaning: str
    default: Rule
    find: Callable[[Look], Evidence | None]
    remember: Callable[[Look], Any] = _remember_nothing
    keep: Callable[[Any], Any] = _remember_nothing
    unknown: Callable[[Reading], bool] = _is_known
    files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or not self.meaning:
            raise ValueError(
                f"the health rule {self.name!r} needs a name in lower case with dashes, and a meaning"
            )

    @property
    def field(self) -> str:
        """Return its name in the policy."""
        return self.name.replace("-", "_")


def label(text: str) -> str:
    """Return a text of the kernel as a taint's value: `deleting (no IO)` becomes `deleting-no-IO`."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text)[:VALUE_CHARS].strip("-_.")
