"""Each attack of docs/attacks.md names tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOP = ("bench/", "hil-tests/", "mocks/", "tests/")
_PAGE = (ROOT / "docs" / "attacks.md").read_text()
ROWS = [
    line
    for line in _PAGE.splitlines()
    if line.startswith("|") and not re.match(r"\|( tried| what happens|---)", line)
]


def test_the_page_has_attacks():
    assert len(ROWS) > 30


@pytest.mark.parametrize("row", ROWS)
def test_an_attack_has_a_test(row):
    named = re.findall(r"`([^`]+)`", row.rsplit("|", 2)[1])
    assert named
    for name in named:
        assert (ROOT / (name if name.startswith(TOP) else f"tests/driver/{name}")).exists(), name
