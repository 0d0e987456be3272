"""The documentation is true: commands run, links lead somewhere, reasons are all listed."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md"))
FENCE = re.compile(r"```sh( serving)?\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")


def commands(serving):
    """Return every command line of every page, once, without its comment; of blocks that serve, or of all other blocks."""
    pages = {}
    for page in PAGES:
        for mark, block in FENCE.findall(page.read_text()):
            for line in block.splitlines():
                command = line.split("  #")[0].strip()
                if command and bool(mark) == serving:
                    pages.setdefault(command, page.name)
    return [pytest.param(command, id=f"{page}: {command}") for command, page in pages.items()]


ENVIRONMENT = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


@pytest.mark.parametrize("command", commands(serving=False))
def test_a_command_in_the_documentation_runs(command):
    # make would run these very tests: what it would do is asked for, not done.
    command = re.sub(r"^((?:\w+=\S+ )*)make (.*)", rf"\1make -n \2 VENV={Path(sys.prefix)}", command)
    command = command.replace(".venv/bin/", f"{Path(sys.executable).parent}/")
    done = subprocess.run(
        command,
        shell=True,
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", commands(serving=True))
def test_a_command_that_serves_reports_that_it_is_ready_and_ends_on_sigterm(command, tmp_path):
    words = shlex.split(command.replace("/tmp/drawbar", str(tmp_path)))
    with subprocess.Popen(words, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert json.loads(process.stdout.readline())["ready"]
        finally:
            process.terminate()
        assert process.wait(120) == 0


def anchors(page):
    """Return the anchors of the headings of a page, as GitHub and the site make them."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target, anchor in LINK.findall(page.read_text()):
        file = page.parent / target if target else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), f"{target}#{anchor}"


def test_the_folders_that_the_architecture_names_exist():
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = re.findall(r"`((?:driver|fabric|mocks|deploy|cdi)/[\w./]*)`", page)
    assert len(named) >= 15
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_fabric_of_the_concepts_has_only_fields_of_its_schema():
    page = (ROOT / "docs" / "concepts.md").read_text()
    example = yaml.safe_load(re.search(r"```yaml\n(.*?)```", page, re.DOTALL).group(1))
    crd = yaml.safe_load((ROOT / "deploy/drawbar/definitions/fabrics.yaml").read_text())
    (version,) = crd["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert example["spec"].keys() <= schema["properties"].keys()
    assert set(schema["required"]) <= example["spec"].keys()
