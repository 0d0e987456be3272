"""Tables and sentences on a `rich` console; pure. Foreign text is shown without control characters."""

import itertools
from collections.abc import Mapping, Sequence

from rich import cells, console, text

from drawbar.driver import output

WIDTH_IF_NO_TERMINAL = 160
"""The width in a file or a pipe, with room for every column."""
_GAP = 2
_FOLDED_COLUMNS = 24
"""A column is folded to no fewer than these, unless it moves below its row."""


def clean(content: object) -> str:
    """Return foreign text as one line without control characters."""
    return output.one_line(content)


def rows(out: console.Console, head: Sequence[str], lines: Sequence[Sequence[object]], none: str) -> None:
    """Print a table, or a sentence if it would be empty.

    In a file or a pipe a row is one line. On a terminal, each column without room for its words follows below its row.
    """
    if not lines:
        out.print(text.Text(none))
        return
    shown = [["-" if cell in (None, "") else clean(cell) for cell in line] for line in lines]
    widths = _fit(head, shown, out.width if out.is_terminal else None)
    _print_row(out, head, widths, "bold")
    for line in shown:
        _print_row(out, line, widths)
        below = [
            f"{name}: {cell}"
            for index, (name, cell) in enumerate(zip(head, line, strict=True))
            if index not in widths and cell != "-"
        ]
        for piece in _wrap(out, (" " * _GAP).join(below), out.width - _GAP):
            out.print(text.Text(" " * _GAP + piece), soft_wrap=True)


def _fit(head: Sequence[str], lines: Sequence[Sequence[str]], room: int | None) -> dict[int, int]:
    """Return the widths of the columns that fit side by side, by their numbers; without `room`, of all.

    A column is narrower than its cells only if it is long, and never narrower than its words.
    """
    columns = list(enumerate(zip(head, *lines, strict=True)))
    widest = {index: max(map(cells.cell_len, column)) for index, column in columns}
    if room is None or sum(widest.values()) + _GAP * (len(widest) - 1) <= room:
        return widest
    widths: dict[int, int] = {}
    left = room + _GAP
    for index, (_, *content) in columns:
        longest_word = max(cells.cell_len(word) for cell in (head[index], *content) for word in cell.split())
        least = min(widest[index], max(longest_word, _FOLDED_COLUMNS))
        is_empty = all(cell == "-" for cell in content)
        if not widths or (not is_empty and least + _GAP <= left):
            widths[index] = least
            left -= least + _GAP
    for index, width in widths.items():
        widths[index] = min(widest[index], width + max(0, left))
        left -= widths[index] - width
    return widths


def _print_row(out: console.Console, line: Sequence[str], widths: Mapping[int, int], style: str = "") -> None:
    """Print the cells of these columns; a cell that is wider than its column continues below."""
    folded = [_wrap(out, line[index], width) for index, width in widths.items()]
    for pieces in itertools.zip_longest(*folded, fillvalue=""):
        shown = (
            cells.set_cell_size(piece, width) for piece, width in zip(pieces, widths.values(), strict=True)
        )
        out.print(text.Text((" " * _GAP).join(shown).rstrip(), style), soft_wrap=True)


def _wrap(out: console.Console, content: str, width: int) -> list[str]:
    """Return the content in lines; only a word longer than a line is divided."""
    if cells.cell_len(content) <= width:
        return [content] if content else []
    return [line.plain.rstrip() for line in text.Text(content).wrap(out, width)]


def paragraph(out: console.Console, content: text.Text) -> None:
    """Print text that stays one line in a file or a pipe, so that its commands can be copied."""
    out.print(content, soft_wrap=out.width >= WIDTH_IF_NO_TERMINAL)


def sentence(out: console.Console, content: str) -> None:
    """Print a sentence that stays one line in a pipe."""
    out.print(text.Text(clean(content)), soft_wrap=True)
