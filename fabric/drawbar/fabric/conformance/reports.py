"""The results of an adapter's checks, also as JUnit XML for continuous integration systems; pure."""

from dataclasses import dataclass
from enum import StrEnum
from xml.etree import ElementTree


class Verdict(StrEnum):
    """The result of one check."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    WARNED = "warned"
    """Passed, with advice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One check and its result.

    Attributes:
        name: the checked sentence.
        verdict: see `Verdict`.
        detail: the observed fault, the reason to skip, or the warning; empty if the check passed.
    """

    name: str
    verdict: Verdict
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcomes of all checks, in the order of their runs."""

    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> bool:
        """Return whether no check failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """Return the failed checks."""
        return tuple(outcome for outcome in self.outcomes if outcome.verdict is Verdict.FAILED)

    @property
    def warned(self) -> tuple[Outcome, ...]:
        """Return the checks that passed with a warning."""
        return tuple(outcome for outcome in self.outcomes if outcome.verdict is Verdict.WARNED)

    @property
    def skipped(self) -> tuple[Outcome, ...]:
        """Return the checks that this fabric does not allow."""
        return tuple(outcome for outcome in self.outcomes if outcome.verdict is Verdict.SKIPPED)


def junit(report: Report, *, suite: str) -> bytes:
    """Return the report as an XML document.

    Args:
        report: the suite's report.
        suite: the name of the suite, such as the adapter's name.
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
            # JUnit has no warnings, but it shows a test's output.
            ElementTree.SubElement(case, "system-out").text = _printable(f"warning: {outcome.detail}")
    encoded: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return encoded


def _printable(text: str) -> str:
    """Return text without the characters that XML does not allow."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
