"""The notes of a release: the section of CHANGELOG.md about its version.

    python release/notes.py v0.1.0 [--source URL]

Refused are a tag that is not that of the version in pyproject.toml, a version without a section, and a section without an entry.
--source is the address of the tagged tree, to which relative links lead then. All functions but `main` are pure.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
_TAG = re.compile(r"v(\d+\.\d+\.\d+)")
_RELATIVE_LINK = re.compile(r"\]\((?!\w+:|#)([^)]+)\)")


class ReleaseError(Exception):
    """The release cannot be made as asked; says why and what to change."""


def version_of(tag: str, package: str) -> str:
    """Return the version that the tag releases.

    Args:
        tag: as `v0.1.0`.
        package: the version in pyproject.toml.

    Raises:
        ReleaseError: it is no tag of a version, or that of another one.
    """
    match = _TAG.fullmatch(tag)
    if match is None:
        raise ReleaseError(f"the tag {tag!r} has not the form vX.Y.Z: push a tag such as v{package}")
    if match[1] != package:
        raise ReleaseError(
            f"the tag {tag} is not that of version {package} in pyproject.toml: change one of them"
        )
    return match[1]


def section(changelog: str, version: str) -> str:
    """Return the entries about the version, each in one line and without the heading.

    Raises:
        ReleaseError: there is no such section, or there is no entry in it.
    """
    sections = re.split(r"^## +(.+?) *$", changelog, flags=re.MULTILINE)
    by_heading = dict(zip(sections[1::2], sections[2::2], strict=True))
    if version not in by_heading:
        raise ReleaseError(f"CHANGELOG.md has no section {version}: rename Unreleased")
    # A forge ends a line of the notes where the text does.
    text = re.sub(r"\n[ \t]+(?=\S)(?![-*] )", " ", by_heading[version].strip())
    if not re.search(r"^- \S", text, re.MULTILINE):
        raise ReleaseError(f"CHANGELOG.md has no entry below {version}: say what changes for users")
    return text + "\n"


def absolute(text: str, source: str) -> str:
    """Return the text with relative links leading below `source`, an address without a slash at its end."""
    return _RELATIVE_LINK.sub(rf"]({source}/\1)", text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the notes; return the exit status."""
    parser = argparse.ArgumentParser(prog="release/notes.py", description="print the notes of a release")
    parser.add_argument("tag", help="the release's tag, such as v0.1.0")
    parser.add_argument("--source", help="address of the tagged tree, for links")
    options = parser.parse_args(arguments)
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    try:
        notes = section((ROOT / "CHANGELOG.md").read_text(), version_of(options.tag, package))
    except ReleaseError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(absolute(notes, options.source.rstrip("/")) if options.source else notes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
