"""Remedies for terminals, and addresses of the documentation: a user of a wheel or a plugin has no copy of it."""

BASE = "https://drawbar.dev/docs"


def url(page: str) -> str:
    """Return the URL of a page as the tables name it, such as `fabrics.md#credentials`."""
    return f"{BASE}/{page.replace('.md', '', 1)}"


def advise(remedy: str, page: str, **objects: str) -> str:
    """Return a remedy for a terminal, with the URL of the page that has the details.

    Args:
        remedy: in Markdown; the objects of its commands have the name `NAME`.
        page: see `url`; empty without details.
        objects: the names of the objects by kind, such as `fabric="rack-1"`; empty if unknown.
    """
    text = remedy.replace("`", "")
    for kind, name in objects.items():
        for before in (f"{kind} ", f"{kind} check ", f"{kind}/"):
            text = text.replace(f"{before}NAME", f"{before}{name or 'NAME'}")
    return text + (f" ({url(page)})" if page else "")
