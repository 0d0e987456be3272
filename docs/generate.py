"""Writes docs/reference/ from the tables of `drawbar.driver.catalogue`. `make generate` runs it after a change of a table."""

import sys
from collections.abc import Iterable
from pathlib import Path

from drawbar.driver.catalogue import attachment_conditions, events, fabric_conditions, taints
from drawbar.driver.catalogue.tables import Row, Severity

FOLDER = Path(__file__).resolve().parent / "reference"
_HEAD = "<!-- Generated from {source} by `make generate`: change that, not this page. -->\n\n# {title}\n\n{text}\n"


def pages() -> dict[str, str]:
    """Return the text of each generated page by its name."""
    return {"conditions.md": _conditions(), "events.md": _events(), "taints.md": _taints()}


def _conditions() -> str:
    head = _HEAD.format(
        source="driver/drawbar/driver/catalogue",
        title="Conditions and their reasons",
        text=(
            "The reasons are a closed list. The message beside a reason quotes the fabric manager or the kernel, in at most "
            "1,024 characters. [conditions.md](../conditions.md) explains when each condition is written. The prefix "
            "`drawbar.dev/` is the driver's name."
        ),
    )
    parts = [head]
    for table in (*attachment_conditions.TABLES, *fabric_conditions.TABLES):
        written = (
            f"{table.conditions} is {table.status}, except where the row has another status."
            if table.status
            else table.conditions
        )
        columns = ["reason", "cause", "remedy"]
        rows = [[_reason(row), row.cause, _remedy(row)] for row in table.rows]
        if table in attachment_conditions.FAILURES:
            columns.append("taints the device")
            for cells, row in zip(rows, table.rows, strict=True):
                cells.append("yes" if row.blames_device else "no")
        parts.append(f"\n## {table.title}\n\n{written}\n\n{_table(columns, rows)}")
    return "".join(parts)


def _events() -> str:
    head = _HEAD.format(
        source="driver/drawbar/driver/catalogue/events.py",
        title="Events",
        text=(
            "Run `kubectl events --for KIND/NAME`, or `kubectl describe`. Events of objects without a namespace are in the "
            "namespace `default`. Every reason of a [failed attach](conditions.md#why-an-attach-fails) is a Warning on the claim "
            "and its pods; every reason of [`Released`](conditions.md#why-a-node-does-not-release-a-device) is one on the claim and "
            "its DeviceAttachment."
        ),
    )
    parts = [head]
    for table in events.TABLES:
        rows = [[_type(row), _reason(row), row.cause, _remedy(row)] for row in table.rows]
        parts.append(f"\n## {table.title}\n\n{_table(['type', 'reason', 'cause', 'remedy'], rows)}")
    return "".join(parts)


def _taints() -> str:
    head = _HEAD.format(
        source="driver/drawbar/driver/catalogue/taints.py",
        title="Taints in ResourceSlices",
        text=(
            "The prefix `drawbar.dev/` is the driver's name. Findings of a node are taints as well: "
            "[health.md](../health.md#findings) lists them, with the effect that the node's health policy gives them. They are "
            "lifted when the node finds them no more or has released the device."
        ),
    )
    rows = [
        [
            f"`drawbar.dev/{row.key}{'=' + row.value if row.value else ''}`".replace("{reason}", "<reason>"),
            row.effect,
            row.cause,
            row.lifted,
            _remedy(row),
        ]
        for row in taints.TAINTS
        if row.cause
    ]
    return f"{head}\n{_table(['taint', 'effect', 'cause', 'lifted', 'remedy'], rows)}"


def _type(row: Row) -> str:
    return "Normal" if row.severity in (Severity.OK, Severity.NOTE) else "Warning"


def _reason(row: Row) -> str:
    return f"`{row.reason}`" + (f" ({row.status})" if row.status else "")


def _remedy(row: Row | taints.Taint) -> str:
    link = f"[{row.page.partition('#')[0]}](../{row.page})" if row.page else ""
    return f"{row.remedy} ({link})" if row.remedy and link else row.remedy or link


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(columns)
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n".replace("|  |", "| |") for cells in lines)


def main() -> None:
    """Write the pages, or with --check only print those that are not up to date and fail."""
    stale = [
        name
        for name, text in pages().items()
        if not (FOLDER / name).exists() or (FOLDER / name).read_text() != text
    ]
    if "--check" in sys.argv[1:]:
        sys.exit(
            f"error: {', '.join(stale)} in docs/reference not up to date: run make generate" if stale else 0
        )
    FOLDER.mkdir(exist_ok=True)
    for name in stale:
        (FOLDER / name).write_text(pages()[name])


if __name__ == "__main__":
    main()
