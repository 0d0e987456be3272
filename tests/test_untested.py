"""The last screen of a run: the tests of an absent tool are not run, and are counted by need."""

import sys
from pathlib import Path

import pytest
from tests import untested

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[1]
SUITE = """
import pytest

def test_that_runs(): pass

@pytest.mark.tool("mock-ups")
@pytest.mark.parametrize("number", range(3))
def test_of_the_mock_ups(number): assert False, "this needs the mock-ups"

@pytest.mark.tool("chart")
def test_of_the_chart(): assert False, "this needs the chart"

def test_that_notices_on_its_way(): pytest.skip("root may read every file")
"""


@pytest.fixture
def suite(pytester, monkeypatch):
    """Return a function that runs the suite in a process of its own; the arguments are pytest's."""
    for name in ("MOCKUPS", "DRAWBAR_CHART", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeini("[pytest]\nmarkers = tool(*names)\naddopts = --strict-markers -p tests.untested")
    return lambda text, *arguments: (
        pytester.makepyfile(text),
        pytester.run(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments),
    )[1]


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "xdist"])
def test_the_last_screen_counts_by_need_and_names_the_command(suite, workers):
    ended = suite(SUITE, *workers)
    ended.stdout.re_match_lines_random(
        [
            r".*not tested here",
            r" +3  Redfish by .*: make redfish SCHEMAS=DIR MOCKUPS=DIR",
            r" +1  the chart .*: make chart",
            r" +1  root may read every file",
            r".*1 passed, 1 skipped.*",
        ]
    )
    ended.stdout.no_fnmatch_line("SKIPPED*")
    assert ended.ret == 0


def test_a_tool_that_is_at_hand_has_its_tests_run(suite, monkeypatch):
    monkeypatch.setenv("MOCKUPS", "/srv/mockups")
    ended = suite(SUITE)
    ended.stdout.fnmatch_lines(["*this needs the mock-ups*"])
    assert ended.ret == 1


def test_a_tool_that_nobody_knows_is_an_error_with_the_names(suite):
    ended = suite('import pytest\n\n@pytest.mark.tool("mockups")\ndef test_a(): pass\n')
    ended.stderr.fnmatch_lines(["ERROR: *::test_a: no tool 'mockups'; use one of *mock-ups*"])
    assert ended.ret == pytest.ExitCode.USAGE_ERROR


def test_the_list_of_causes_is_bounded():
    causes = {f"cause {number}": 50 - number for number in range(30)}
    lines = untested.table(causes, 120)
    assert len(lines) == untested.LINES
    assert lines[0] == "   50  cause 0"
    assert lines[-1] == f"{sum(50 - number for number in range(11, 30)):5}  for 19 other reasons: pytest -rs"


def test_every_fixture_with_a_need_names_a_known_tool():
    assert set(untested.FIXTURES.values()) <= set(untested.TOOLS)
