"""The parts of a table of conditions."""

import enum

import msgspec

from drawbar.driver.catalogue import links

READ_MESSAGE = "read the message"


class Severity(enum.StrEnum):
    """The severity of a reason; the words are those of the doctor's findings."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    OK = "ok"


class Row(msgspec.Struct, frozen=True):
    """One reason of a condition.

    Attributes:
        reason: the word in the object.
        cause: one sentence for the reference page; empty if reason and remedy say it.
        remedy: the next step; empty if there is none.
        page: a page of docs/ with the details, as `fabrics.md#credentials`.
        status: the condition's, if it differs from the table's.
        blames_device: whether the device is tainted for it, since other claims would fail as well.
    """

    reason: str
    cause: str = ""
    remedy: str = ""
    page: str = ""
    severity: Severity = Severity.ERROR
    status: str = ""
    blames_device: bool = False

    def advise(self, **objects: str) -> str:
        """Return the remedy in the form of a terminal, with the names of these objects; see `links.advise`."""
        return links.advise(self.remedy, self.page, **objects)


class Table(msgspec.Struct, frozen=True):
    """The reasons of one condition, or of several with common reasons.

    Attributes:
        title: of its section in docs/reference; tables with one title share it.
        conditions: the types, in Markdown.
        status: of the conditions with most reasons; empty if they differ.
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
