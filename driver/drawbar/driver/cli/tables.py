"""Tables and sentences on a `rich` console; pure. Foreign text is shown without control characters."""

from collections.abc import Sequence

from rich import console, table, text

from drawbar.driver import output

WIDTH_IF_NO_TERMINAL = 160
"""The width in a file or a pipe, with room for every column."""


def clean(content: object) -> str:
    """Return foreign text as one line without control characters."""
    return output.one_line(content)


def rows(out: console.Console, head: Sequence[str], lines: Sequence[Sequence[object]], none: str) -> None:
    """Print a table, or a sentence if it would be empty."""
    if not lines:
        out.print(text.Text(none))
        return
    shown = table.Table(box=None, pad_edge=False, header_style="bold")
    for name in head:
        shown.add_column(name, overflow="fold")
    for line in lines:
        shown.add_row(*(text.Text("-" if cell in (None, "") else clean(cell)) for cell in line))
    out.print(shown)


def paragraph(out: console.Console, content: text.Text) -> None:
    """Print text that stays one line in a file or a pipe, so that its commands can be copied."""
    out.print(content, soft_wrap=out.width >= WIDTH_IF_NO_TERMINAL)


def sentence(out: console.Console, content: str) -> None:
    """Print a sentence that stays one line in a pipe."""
    out.print(text.Text(clean(content)), soft_wrap=True)
