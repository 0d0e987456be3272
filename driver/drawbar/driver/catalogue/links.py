"""Addresses of the documentation, for remedies: a user of a wheel or a plugin has no copy of it."""

BASE = "https://drawbar.dev/docs"


def url(page: str) -> str:
    """Return the URL of a page as the tables name it, such as `fabrics.md#credentials`."""
    return f"{BASE}/{page.replace('.md', '', 1)}"


def advise(remedy: str, page: str) -> str:
    """Return a remedy for a terminal, with the URL of the page that has the details."""
    return remedy.replace("`", "") + (f" ({url(page)})" if page else "")
