"""What a health rule is; pure.

A rule sees one finding in the readings of a device. It is a `HealthRule` in a module of this folder, and `policy.RULES` lists
it: its settings, its taint and its place in messages follow from that.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drawbar.driver.node.health import verdicts
from drawbar.driver.node.health.samples import Reading

VALUE_CHARS = 63  # of a taint, which is a label's value
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """What rules compare with; see `policy.Policy`."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """That a finding is there now.

    Attributes:
        message: what was seen, in one clause, with the address.
        value: of the taint; tells the states of one finding apart.
    """

    message: str
    value: str = ""


# Not frozen: one is made for each rule at each look, and a frozen one takes three times as long to make.
@dataclass(slots=True, kw_only=True)
class Look:
    """What a rule judges.

    Attributes:
        reading: of the device, now.
        elapsed_seconds: since the last sample, 0 and more.
        thresholds: of the policy.
        before: what the rule's `remember` returned at the last reading; None at the first, and after the device was gone
            unless the rule's `keep` kept it.
        after: what it returned at this one.
    """

    reading: Reading
    elapsed_seconds: float
    thresholds: Thresholds
    before: Any = None
    after: Any = None


def _nothing(_: Any) -> None:
    """Of what needs no memory."""


def _known(_: Reading) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRule:
    """One finding: how it is seen, and what follows from it unless the policy says otherwise.

    Attributes:
        name: of the finding, which is also the key of its taint: lower case, words joined by dashes.
        meaning: what it means, in a clause.
        default: what follows.
        find: returns the evidence, None where the finding is not there. No I/O.
        remember: returns what the next look is compared with.
        keep: returns what of it stays when the device is gone.
        unknown: whether a reading says nothing of the finding; it is then neither raised nor lifted.
        files: files below the card's first function that are read for it, as `Reading.files`. While the device sleeps
            they are not read, and the finding is unknown.
    """

    name: str
    meaning: str
    default: Rule
    find: Callable[[Look], Evidence | None]
    remember: Callable[[Look], Any] = _nothing
    keep: Callable[[Any], Any] = _nothing
    unknown: Callable[[Reading], bool] = _known
    files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or not self.meaning:
            raise ValueError(
                f"the health rule {self.name!r} needs a name in lower case with dashes, and a meaning"
            )

    @property
    def field(self) -> str:
        """Its name in the policy."""
        return self.name.replace("-", "_")


def label(text: str) -> str:
    """Return a text of the kernel as a taint's value: `deleting (no IO)` becomes `deleting-no-IO`."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text)[:VALUE_CHARS].strip("-_.")
