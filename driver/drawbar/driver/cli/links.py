"""Addresses of the documentation, for remedies: a user of a wheel or a plugin has no copy of it."""

BASE = "https://drawbar.dev/docs"


def page(name: str, section: str = "") -> str:
    """Return the URL of a page, or of a section of it."""
    return f"{BASE}/{name}" + (f"#{section}" if section else "")
