"""Hooks of the site's generator, mkdocs: make pages for GitHub render as they do there, and read better."""

import re
from typing import Any

_FENCE = re.compile(r"^([ \t]*```\w+)[ \t]+[\w -]+$", re.MULTILINE)
"""The first line of a code block with a word for the tests of the documentation, such as ``sh run``."""

_FILE_NAME = re.compile(r"\[(?:[\w-]+/)?([\w-]+)\.md\]\(")
"""The text of a link with the name of a page's file, as tables for terminals have it."""

_COMMANDS = re.compile(r"^```console\n(?!\$ )", re.MULTILINE)
"""The beginning of a block of commands without prompts, which a highlighter takes for their output."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page without words for tests, and with words in place of file names in links."""
    markdown = _COMMANDS.sub("```sh\n", _FENCE.sub(r"\1", markdown))
    return _FILE_NAME.sub(lambda link: f"[{link[1].replace('-', ' ')}](", markdown)
