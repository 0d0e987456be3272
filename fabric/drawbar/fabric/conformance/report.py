"""What the conformance suite found."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How one check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One check.

    Attributes:
        name: the sentence that was checked.
        verdict: see `Verdict`.
        detail: what was seen instead, or why it was skipped; empty when it passed.
    """

    name: str
    verdict: Verdict
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All checks, in the order in which they ran."""

    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> bool:
        """Nothing failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The checks that failed."""
        return tuple(outcome for outcome in self.outcomes if outcome.verdict is Verdict.FAILED)

    @property
    def skipped(self) -> tuple[Outcome, ...]:
        """The checks that this fabric does not allow."""
        return tuple(outcome for outcome in self.outcomes if outcome.verdict is Verdict.SKIPPED)
