"""The report as JSON: camelCase keys, findings in the order of the table; pure."""

from collections.abc import Sequence
from typing import Any

from drawbar.driver.cli.doctor import findings


def document(found: Sequence[findings.Finding], about: dict[str, str]) -> dict[str, Any]:
    """Everything that is said.

    Args:
        found: all findings.
        about: what was looked at, such as the API server.
    """
    return {
        **about,
        "summary": {severity.value: count for severity, count in findings.counts(found).items()},
        "exitStatus": findings.exit_status(found),
        "findings": [
            {
                "check": one.check.value,
                "severity": one.severity.value,
                "subject": one.subject,
                "message": one.message,
                "remedy": one.remedy,
            }
            for one in found
        ],
    }
