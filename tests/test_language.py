"""The language of the repository is plain: no rule of `language` is broken."""

import pytest
from tests import language


def test_no_file_breaks_a_rule_of_language():
    assert language.broken() == [], "name what is held, and write literally; tests/language.py has the rules"


@pytest.mark.parametrize(
    ("path", "text", "broken"),
    [
        ("driver/a.py", "found = 1\n", [("names", "found")]),
        ("driver/a.py", "for one in devices:\n    pass\n", [("names", "one")]),
        ("driver/a.py", "self.known = x.told(one=1)\n", []),
        ("driver/a.py", "def of(cls): ...\n", [("constructors", "of")]),
        ("driver/a.py", '"""The node is told."""\n', [("phrases", "is told")]),
        ("driver/a.py", "claim = 1  # nobody has it\n", [("phrases", "nobody")]),
        ("driver/a.py", 'claim = "found"\n', []),
        ("driver/scribe.py", "", [("modules", "driver/scribe.py")]),
        ("tests/test_scribe.py", "", [("modules", "tests/test_scribe.py")]),
        ("docs/a.md", "The controller hears of it.", [("phrases", "hears")]),
        ("docs/a.md", "One device was found.", []),
    ],
)
def test_each_rule_sees_what_breaks_it_and_nothing_else(path, text, broken):
    assert list(language.offences(path, text)) == broken
