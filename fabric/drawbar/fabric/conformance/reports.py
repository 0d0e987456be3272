"""What the checks of an adapter have shown, also as JUnit XML, which continuous integration systems show; pure."""

from dataclasses import dataclass
from enum import StrEnum
from xml.etree import ElementTree


class Verdict(StrEnum):
    """How one check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    WARNED = "warned"
    """Passed, and something is worth a look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One check.

    Attributes:
        name: the sentence that was checked.
        verdict: see `Verdict`.
        detail: what was seen instead, why it was skipped, or the warning; empty when it passed.
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
    def warned(self) -> tuple[Outcome, ...]:
        """The checks that passed with a warning."""
        return tuple(outcome for outcome in self.outcomes if outcome.verdict is Verdict.WARNED)

    @property
    def skipped(self) -> tuple[Outcome, ...]:
        """The checks that this fabric does not allow."""
        return tuple(outcome for outcome in self.outcomes if outcome.verdict is Verdict.SKIPPED)


def junit(report: Report, *, suite: str) -> bytes:
    """Return the report as an XML document.

    Args:
        report: of the suite.
        suite: the name of the suite, such as that of the adapter.
    """
    root = ElementTree.Element(
        "testsuite",
        name=_printable(suite),
        tests=str(len(report.outcomes)),
        failures=str(len(report.failed)),
        skipped=str(len(report.skipped)),
    )
    for outcome in report.outcomes:
        case = ElementTree.SubElement(
            root, "testcase", classname="conformance", name=_printable(outcome.name)
        )
        if outcome.verdict is Verdict.FAILED:
            ElementTree.SubElement(case, "failure", message=_printable(outcome.detail))
        elif outcome.verdict is Verdict.SKIPPED:
            ElementTree.SubElement(case, "skipped", message=_printable(outcome.detail))
        elif outcome.verdict is Verdict.WARNED:
            # JUnit has no warnings; what a test writes is shown beside it.
            ElementTree.SubElement(case, "system-out").text = _printable(f"warning: {outcome.detail}")
    encoded: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return encoded


def _printable(text: str) -> str:
    """Return text without the characters that XML does not allow."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
