"""The explanation of an object, for people and for programs."""

from typing import Any

from rich import console, text

from drawbar.driver.cli import objects, tables
from drawbar.driver.cli.doctor import report
from drawbar.driver.cli.doctor.findings import Finding, Severity
from drawbar.driver.cli.explain import diagnosis


def show(
    out: console.Console, explained: diagnosis.Explanation, target: objects.Target, *, brief: bool = False
) -> None:
    """Print the cause with its next step, then its consequences, then the rest unless `brief`."""
    cause = explained.cause
    if cause is None:
        out.print(text.Text(f"Nothing is wrong with {target.kind} {target.name}.", style="green"))
    else:
        is_known = cause.severity is not Severity.UNCHECKED
        out.print(text.Text("Cause" if is_known else "Unknown, since this cannot be read", style="bold"))
        _print_finding(out, cause)
        if explained.consequences:
            out.print(text.Text("\nConsequences", style="bold"))
        for finding in explained.consequences:
            _print_finding(out, finding)
    if explained.rest and not brief:
        out.print(text.Text("\nAlso seen" if cause else "", style="bold"))
        for finding in explained.rest:
            _print_finding(out, finding)


def _print_finding(out: console.Console, finding: Finding) -> None:
    mark = report.MARKS[finding.severity]
    line = text.Text(f"{mark} ", style=report.STYLES[finding.severity])
    line.append(tables.clean(f"{finding.subject}: {finding.message}"), style="not bold default")
    tables.paragraph(out, line)
    if finding.remedy and finding.severity is not Severity.OK:
        tables.paragraph(out, text.Text(f"  -> {tables.clean(finding.remedy)}", style="dim"))


def document(explained: diagnosis.Explanation, about: dict[str, str]) -> dict[str, Any]:
    """Return the explanation as JSON values: `cause`, `consequences`, and all `findings`."""
    return {
        **report.document(explained.findings, about),
        "cause": report.as_values(explained.cause) if explained.cause is not None else None,
        "consequences": [report.as_values(finding) for finding in explained.consequences],
    }
