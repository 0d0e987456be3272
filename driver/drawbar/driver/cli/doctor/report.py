"""The report for people, as sections with a mark and a line for each check, and for programs, as JSON with camelCase keys."""

from collections.abc import Sequence
from typing import Any

from rich import console, text

from drawbar.driver.catalogue import links
from drawbar.driver.cli import tables
from drawbar.driver.cli.doctor import findings
from drawbar.driver.cli.doctor.findings import Finding, Severity
from drawbar.fabric import errors

MESSAGE_BYTES = 4096
"""A node may put any text into its status; so much of it is shown."""

STYLES = {
    Severity.ERROR: "bold red",
    Severity.UNCHECKED: "magenta",
    Severity.WARNING: "yellow",
    Severity.NOTE: "cyan",
    Severity.OK: "green",
}
MARKS = {
    Severity.ERROR: "✗",
    Severity.UNCHECKED: "?",
    Severity.WARNING: "!",
    Severity.NOTE: "·",
    Severity.OK: "✓",
}
_WORDS = {
    Severity.ERROR: ("error", "errors"),
    Severity.UNCHECKED: ("check could not be made", "checks could not be made"),
    Severity.WARNING: ("warning", "warnings"),
    Severity.NOTE: ("note", "notes"),
    Severity.OK: ("check passed", "checks passed"),
}
_TITLES = {
    "server": "API server",
    "features": "Features of the API server",
    "access": "Permissions",
    "controller": "Controller",
    "nodes": "Nodes",
    "clocks": "Clocks",
    "fabrics": "Fabrics",
    "hosts": "Hosts",
    "attachments": "Attachments",
    "pods": "Pods",
    "claims": "Claims",
    "devices": "Devices",
    "host": "This node",
}
"""A title for each topic, in the order of the sections."""


def show(out: console.Console, listed: Sequence[Finding], *, brief: bool = False) -> None:
    """Print a section for each topic, with a line for each check, and a sum.

    Args:
        out: the console.
        listed: all findings.
        brief: whether to leave out checks without trouble.
    """
    severities = list(Severity)
    for topic, title in _TITLES.items():
        section = [
            finding
            for finding in listed
            if finding.check.topic == topic and not (brief and finding.severity is Severity.OK)
        ]
        if section:
            out.print(text.Text(title, style="bold"))
        for finding in sorted(section, key=lambda it: severities.index(it.severity)):
            _line(out, finding)
        if section:
            out.print()
    out.print(_summary(listed))


def _line(out: console.Console, finding: Finding) -> None:
    line = text.Text(f"{MARKS[finding.severity]} ", style=STYLES[finding.severity])
    line.append(tables.clean(f"{finding.subject}: {_message(finding)}"), style="not bold default")
    line.append(f"  [{finding.check.value}]", style="not bold dim")
    tables.paragraph(out, line)
    if finding.remedy and finding.severity is not Severity.OK:
        tables.paragraph(out, text.Text(f"  -> {tables.clean(finding.remedy)}", style="dim"))
        tables.paragraph(out, text.Text(f"  {url(finding)}", style="dim"))


def _message(finding: Finding) -> str:
    return errors.cut(finding.message, MESSAGE_BYTES)


def url(finding: Finding) -> str:
    """Return the URL of the documentation of a check."""
    return links.url(f"reference/checks.md#{finding.check.value}")


def _summary(listed: Sequence[Finding]) -> text.Text:
    counts = findings.counts(listed)
    parts = [
        text.Text(f"{count} {_WORDS[severity][count != 1]}", style=STYLES[severity])
        for severity, count in counts.items()
        if count
    ]
    return text.Text("; ").join(parts)


def document(listed: Sequence[findings.Finding], about: dict[str, str]) -> dict[str, Any]:
    """Return the report as JSON values.

    Args:
        listed: all findings.
        about: the checked object, such as the API server.
    """
    return {
        **about,
        "summary": {severity.value: count for severity, count in findings.counts(listed).items()},
        "exitStatus": findings.exit_status(listed),
        "findings": [as_values(finding) for finding in listed],
    }


def as_values(finding: Finding) -> dict[str, str]:
    """Return a finding as JSON values."""
    return {
        "check": finding.check.value,
        "severity": finding.severity.value,
        "subject": finding.subject,
        "message": _message(finding),
        "remedy": finding.remedy,
        "url": url(finding),
    }
