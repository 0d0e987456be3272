"""Hooks of the site's generator, mkdocs: make pages for GitHub render as they do there."""

import re
from typing import Any

_FENCE = re.compile(r"^([ \t]*```\w+)[ \t]+[\w ]+$", re.MULTILINE)
"""The first line of a code block with a word for the tests of the documentation, such as ``sh run``."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page without the words for tests; the generator takes only a language there."""
    return _FENCE.sub(r"\1", markdown)
