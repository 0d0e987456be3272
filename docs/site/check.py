"""Check a built site: ``python docs/site/check.py build/site``. Exit with 1 if a link leads nowhere or something is loaded from elsewhere.

The generator checks links between pages. This program also checks the result: every link and anchor of every page, and that
no page loads a script, a style, a font or a picture from another server.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src")}
_LOADING_LINKS = {"stylesheet", "icon", "preload", "preconnect"}


class Page(HTMLParser):
    """The anchors of a page, its links, and the files that it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.has_fence = False
        self.feed(text)

    def handle_data(self, data: str) -> None:
        """Note the marks of a code block that the generator did not recognise."""
        self.has_fence |= "```" in data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the tag names, links to or loads."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "link" and _LOADING_LINKS & set(values.get("rel", "").split()):
            self.loaded.append(values.get("href", ""))
        self.loaded += [value for name, value in values.items() if (tag, name) in _LOADED]


def problems(site: Path) -> list[str]:
    """Return a sentence for each broken link and each file from another server."""
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        if page.has_fence:
            found.append(f"{name} has a code block that was not recognised")
        found += [f"{name} loads {url} from elsewhere" for url in page.loaded if urlsplit(url).netloc]
        for link in [*page.links, *(url for url in page.loaded if not urlsplit(url).netloc)]:
            if (problem := _find_problem(site, path, link, pages)) is not None:
                found.append(f"{name}: {link} {problem}")
    return found


def _find_problem(site: Path, page: Path, link: str, pages: dict[Path, Page]) -> str | None:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc or page.name == "404.html":
        return None
    target = page
    if parts.path:
        target = (page.parent / unquote(parts.path)).resolve()
        if target.is_dir():
            target /= "index.html"
    if not target.is_relative_to(site) or not target.exists():
        return "leads nowhere"
    anchor = unquote(parts.fragment)
    if anchor and target in pages and anchor not in pages[target].anchors:
        return "has no such anchor"
    return None


def main() -> int:
    """Print the problems of the site; return the exit status."""
    site = Path(sys.argv[1]).resolve()
    if not (site / "index.html").exists():
        print(f"error: {site} has no index.html: run make docs", file=sys.stderr)
        return 2
    found = problems(site)
    for problem in found:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
