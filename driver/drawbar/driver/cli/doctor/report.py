"""The report: a table for people, in 80 columns or more, and JSON for programs, with camelCase keys."""

from collections.abc import Sequence
from typing import Any

from rich import console, table, text

from drawbar.driver.cli.doctor import findings
from drawbar.driver.cli.doctor.findings import Finding, Severity

_STYLES = {
    Severity.ERROR: "bold red",
    Severity.UNCHECKED: "magenta",
    Severity.WARNING: "yellow",
    Severity.NOTE: "cyan",
    Severity.OK: "green",
}
_WORDS = {
    Severity.ERROR: ("error", "errors"),
    Severity.UNCHECKED: ("thing could not be looked at", "things could not be looked at"),
    Severity.WARNING: ("warning", "warnings"),
    Severity.NOTE: ("note", "notes"),
    Severity.OK: ("thing is well", "things are well"),
}
_WITH_CHECKS_COLUMNS = 110
"""From here on the checks' names have a column of their own."""


def show(out: console.Console, listed: Sequence[Finding], *, brief: bool = False) -> None:
    """Print a row for each finding, and a sum.

    Args:
        out: where.
        listed: all findings, in order.
        brief: leaves out what is well.
    """
    shown = [finding for finding in listed if not brief or finding.severity is not Severity.OK]
    if shown:
        out.print(_table(shown, apart=out.width >= _WITH_CHECKS_COLUMNS))
        out.print()
    out.print(_summary(listed))


def _table(listed: Sequence[Finding], *, apart: bool) -> table.Table:
    result = table.Table(box=None, pad_edge=False, header_style="bold")
    result.add_column("SEVERITY", no_wrap=True)
    if apart:
        result.add_column("CHECK", no_wrap=True)
    result.add_column("WHAT IS THE MATTER, AND WHAT TO DO", overflow="fold")
    for finding in listed:
        name = text.Text(finding.check.value, style="dim")
        severity = text.Text(finding.severity.value, style=_STYLES[finding.severity])
        matter = _matter(finding)
        if not apart:
            matter.append(f" [{name}]", style="dim")
        result.add_row(severity, *([name] if apart else []), matter)
    return result


def _matter(finding: Finding) -> text.Text:
    matter = text.Text.assemble((finding.subject, "bold"), ": ", finding.message)
    if finding.remedy:
        matter.append("\n-> ", style=_STYLES[finding.severity])
        matter.append(finding.remedy)
    return matter


def _summary(listed: Sequence[Finding]) -> text.Text:
    counts = findings.counts(listed)
    parts = [
        text.Text(f"{count} {_WORDS[severity][count != 1]}", style=_STYLES[severity])
        for severity, count in counts.items()
        if count
    ]
    return text.Text("; ").join(parts)


def document(listed: Sequence[findings.Finding], about: dict[str, str]) -> dict[str, Any]:
    """Return the report as JSON values.

    Args:
        listed: all findings.
        about: what was checked, such as the API server.
    """
    return {
        **about,
        "summary": {severity.value: count for severity, count in findings.counts(listed).items()},
        "exitStatus": findings.exit_status(listed),
        "findings": [
            {
                "check": finding.check.value,
                "severity": finding.severity.value,
                "subject": finding.subject,
                "message": finding.message,
                "remedy": finding.remedy,
            }
            for finding in listed
        ],
    }
