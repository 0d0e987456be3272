"""Tables in a pipe and on terminals of any width."""

import io

import pytest
from rich import console

from drawbar.driver.cli import tables

HEAD = ("DEVICE", "CLASS", "SERIAL", "IDENTIFIERS", "HEALTH", "SWITCH", "PORT", "CLAIM")
CLAIM = "default/demo-1-device-thf72"
LINES = (
    ("cxl-memory-1", "cxl-memory", "48-b0-2d-00-00-00-00-01", "dsn board mac*2", "Healthy", "", "p0", CLAIM),
    ("gpu-1", "gpu", "48-b0-2d-00-00-00-00-02", "dsn", "Healthy", "", "", ""),
)


def print_rows(width, head=HEAD, lines=LINES, *, is_terminal=True):
    out = console.Console(file=io.StringIO(), width=width, force_terminal=is_terminal, color_system=None)
    tables.rows(out, head, lines, "nothing")
    return out.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [20, 80, 160])
def test_a_row_in_a_pipe_is_one_line_with_whole_cells(width):
    lines = print_rows(width, is_terminal=False)
    assert len(lines) == 3
    assert all(cell in lines[1] for cell in LINES[0])
    assert lines[2].split()[-3:] == ["-", "-", "-"]


@pytest.mark.parametrize("width", range(32, 170, 4))
def test_a_terminal_gets_every_cell_and_no_broken_word(width):
    lines = print_rows(width)
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    for line in LINES:
        assert all(word in words for cell in line for word in cell.split())


def test_a_column_without_room_follows_below_its_row():
    head, first, below, second = print_rows(80)
    assert head.split() == ["DEVICE", "CLASS", "SERIAL", "IDENTIFIERS", "HEALTH"]
    assert first.split()[-1] == second.split()[-1] == "Healthy"
    assert below == f"  PORT: p0  CLAIM: {CLAIM}"


def test_a_long_text_is_folded_in_its_column():
    detail = "the second attach took longer than 300 s, and nothing came back"
    lines = print_rows(50, ("VERDICT", "DETAIL"), [("failed", detail)])
    assert [line[9:] for line in lines] == [
        "DETAIL",
        "the second attach took longer than 300 s,",
        "and nothing came back",
    ]
