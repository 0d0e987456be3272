"""What a table of conditions is made of."""

import enum
from dataclasses import dataclass

from drawbar.driver.catalogue import links

READ_MESSAGE = "read the message"


class Severity(enum.StrEnum):
    """How much a reason matters; the words are those of the doctor's findings."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Row:
    """One reason of a condition.

    Attributes:
        reason: the word in the object.
        cause: one sentence about what happened.
        remedy: what to do; empty where nothing is to be done.
        page: a page of docs/ with the details, as `fabrics.md#credentials`.
        severity: how much it matters.
        status: the condition's, where it differs from the table's.
        blames_device: the device is tainted for it, since other claims would fail as well.
    """

    reason: str
    cause: str
    remedy: str = ""
    page: str = ""
    severity: Severity = Severity.ERROR
    status: str = ""
    blames_device: bool = False

    @property
    def advice(self) -> str:
        """Return the remedy in the form of a terminal."""
        return links.advise(self.remedy, self.page)


@dataclass(frozen=True, slots=True)
class Table:
    """The reasons of one condition, or of several that share them.

    Attributes:
        title: of its section in docs/reference/conditions.md.
        conditions: the types, in Markdown.
        status: that the conditions have with most reasons; empty where they differ.
        rows: in the order of the page.
    """

    title: str
    conditions: str
    status: str
    rows: tuple[Row, ...]

    @property
    def reasons(self) -> frozenset[str]:
        """Return the reasons of all rows."""
        return frozenset(row.reason for row in self.rows)

    def find(self, reason: str) -> Row:
        """Return the row of a reason; for a reason without a row, one that refers to the message."""
        return next((row for row in self.rows if row.reason == reason), Row(reason, "", READ_MESSAGE))
