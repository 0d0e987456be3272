"""`docs/redfish.md` has every parameter and every profile, and no other."""

import re
from pathlib import Path

import pytest

from drawbar.fabric.redfish import parameters, profiles

PAGE = (Path(__file__).parents[3] / "docs/redfish.md").read_text()


def rows(heading):
    """Return the names in the first column of the table with this heading."""
    lines = PAGE[PAGE.index(f"| {heading} |") :].split("\n\n")[0].splitlines()
    return [re.match(r"\| `([^`]+)` \|", line)[1] for line in lines[2:]]


@pytest.mark.parametrize(
    ("heading", "names"), [("parameter", parameters.SCHEMA), ("profile", profiles.PROFILES)]
)
def test_the_page_lists_what_there_is(heading, names):
    assert sorted(rows(heading)) == sorted(names)


def test_the_defaults_on_the_page_are_those_of_the_code():
    assert f"| {parameters.POLL_SECONDS:.0f} |" in PAGE
    assert f"| {parameters.TASK_SECONDS:.0f} |" in PAGE
