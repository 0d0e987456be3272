"""The documentation site lists every page, its pictures are drawn by their program, and its check finds what is broken."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README_LINES = 80


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, whose tags for Python objects are of no interest here."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
SITE = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=_Loader)  # a SafeLoader


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pages(entries):
    """Return the pages of a part of the navigation."""
    for entry in entries:
        for value in entry.values():
            yield from [value] if isinstance(value, str) else pages(value)


def test_the_navigation_has_every_page_once():
    listed = list(pages(SITE["nav"]))
    assert sorted(listed) == sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


def test_the_readme_is_one_screen():
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES


def test_the_pictures_are_those_that_their_program_draws():
    draw = load(DOCS / "pictures" / "draw.py")
    for name, picture in draw.PICTURES.items():
        assert (DOCS / "pictures" / f"{name}.svg").read_text() == picture(), "run docs/pictures/draw.py"


@pytest.fixture
def site(tmp_path):
    """Return a small site without a fault."""
    (tmp_path / "index.html").write_text(
        '<a href="page.html#part">x</a><img src="x.svg"><a href="https://example.com">y</a>'
    )
    (tmp_path / "page.html").write_text('<h2 id="part">x</h2><a href="index.html">x</a><a href="#part">x</a>')
    (tmp_path / "x.svg").write_text("<svg/>")
    return tmp_path


def test_a_page_for_github_is_made_one_of_the_site():
    hooks = load(DOCS / "site" / "hooks.py")
    page = (
        "See [node-release.md](node-release.md#limits).\n\n```sh first-pod\nls\n```\n\n```console\nls\n```\n"
    )
    assert hooks.on_page_markdown(page, page=None) == (
        "See [node release](node-release.md#limits).\n\n```sh\nls\n```\n\n```sh\nls\n```\n"
    )


def check(site):
    command = [sys.executable, ROOT / "docs" / "site" / "check.py", site]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_a_site_without_a_fault_passes(site):
    assert (check(site).returncode, check(site).stderr) == (0, "")


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ('<a href="none.html">x</a>', "error: page.html: none.html leads nowhere\n"),
        ('<a href="index.html#none">x</a>', "error: page.html: index.html#none has no such anchor\n"),
        ('<a href="../../etc/passwd">x</a>', "error: page.html: ../../etc/passwd leads nowhere\n"),
        (
            '<script src="https://cdn.example.com/x.js"></script>',
            "error: page.html loads https://cdn.example.com/x.js from elsewhere\n",
        ),
        (
            '<link rel="stylesheet" href="https://fonts.example.com/x.css">',
            "error: page.html loads https://fonts.example.com/x.css from elsewhere\n",
        ),
        ("<p>```sh try ls</p>", "error: page.html has a code block that was not recognised\n"),
    ],
    ids=["page", "anchor", "outside", "script", "style", "code"],
)
def test_a_fault_of_a_site_is_one_sentence(site, fault, sentence):
    (site / "page.html").write_text(fault)
    (site / "index.html").write_text("x")
    done = check(site)
    assert (done.returncode, done.stderr) == (1, sentence)
