"""The notes of a release are its section of CHANGELOG.md, and a release without one is refused."""

import re
import tomllib

import notes
import pytest

CHANGELOG = """# Changelog

By effect on users.

## Unreleased

Nothing yet.

## 0.10.0

## 0.2.0

- The first, which
  goes on in a second line ([docs](docs/ui.md)), and is over.
  - Below it, also
    in two lines.

- The second ([elsewhere](https://example.com/x), [here](#here)).

## 0.1.0

- Old.
"""
PACKAGE = tomllib.loads((notes.ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_the_section_is_taken_whole_and_alone_each_entry_in_one_line():
    assert notes.section(CHANGELOG, "0.2.0") == (
        "- The first, which goes on in a second line ([docs](docs/ui.md)), and is over.\n"
        "  - Below it, also in two lines.\n\n"
        "- The second ([elsewhere](https://example.com/x), [here](#here)).\n"
    )
    assert notes.section(CHANGELOG, "0.1.0") == "- Old.\n"


@pytest.mark.parametrize(
    ("version", "message"),
    [
        pytest.param("0.3.0", "no section 0.3.0", id="missing"),
        pytest.param("0.10.0", "no entry below 0.10.0", id="empty"),
        pytest.param("Unreleased", "no entry below Unreleased", id="words but no entry"),
        pytest.param("0.1", "no section 0.1", id="the beginning of another"),
    ],
)
def test_a_section_that_is_missing_or_empty_is_refused(version, message):
    with pytest.raises(notes.ReleaseError, match=re.escape(message)):
        notes.section(CHANGELOG, version)


def test_a_tag_releases_the_version_that_the_package_has():
    assert notes.version_of("v0.2.0", "0.2.0") == "0.2.0"


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        ("v0.3.0", "is not that of version 0.2.0"),
        ("0.2.0", "has not the form vX.Y.Z"),
        ("v0.2.0-rc1", "has not the form vX.Y.Z"),
        ("v0.2", "has not the form vX.Y.Z"),
        ("v0.2.0\n", "has not the form vX.Y.Z"),
    ],
)
def test_another_tag_is_refused(tag, message):
    with pytest.raises(notes.ReleaseError, match=re.escape(message)):
        notes.version_of(tag, "0.2.0")


def test_relative_links_lead_to_the_tagged_tree_and_the_rest_stay():
    text = notes.absolute(notes.section(CHANGELOG, "0.2.0"), "https://forge.example.com/blob/v0.2.0")
    assert "[docs](https://forge.example.com/blob/v0.2.0/docs/ui.md)" in text
    assert "[elsewhere](https://example.com/x), [here](#here)" in text


def test_the_version_of_this_tree_can_be_released(capsys):
    assert notes.main([f"v{PACKAGE}", "--source", "https://forge.example.com/blob/tag/"]) == 0
    printed = capsys.readouterr().out
    assert all(re.match(r"- |  [-*] ", line) for line in printed.splitlines() if line)
    assert "](docs/" not in printed
    assert "](https://forge.example.com/blob/tag/docs/" in printed


def test_the_error_is_one_sentence(capsys):
    assert notes.main(["v99.0.0"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(r"error: the tag v99\.0\.0 .*\n", captured.err)
