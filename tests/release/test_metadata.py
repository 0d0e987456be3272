"""The metadata of wheel and chart: a stranger finds the project, its documentation and its licence."""

import re
from pathlib import Path

import pytest
import yaml
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

from drawbar.driver.catalogue import links

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "drawbar"


@pytest.fixture(scope="module")
def core():
    """Return the wheel's metadata; hatchling refuses classifiers that PyPI does not know."""
    return ProjectMetadata(str(ROOT), PluginManager()).core


@pytest.fixture
def chart():
    return yaml.safe_load((CHART / "Chart.yaml").read_text())


def test_the_wheel_names_authors_addresses_and_platform(core):
    assert core.authors
    assert core.maintainers
    assert core.urls.keys() >= {"Homepage", "Documentation", "Source", "Changelog"}
    assert core.urls["Documentation"] == links.BASE
    assert all(url.startswith("https://") for url in core.urls.values())
    assert "Programming Language :: Python :: 3.11" in core.classifiers
    assert "Operating System :: POSIX :: Linux" in core.classifiers
    # PyPI refuses it beside the licence's expression.
    assert not [each for each in core.classifiers if each.startswith("License ::")]


def test_packages_that_only_linux_has_are_not_wanted_elsewhere(core):
    linux = {"asyncinotify", "pyroute2", "pyudev"}
    everything = [*core.dependencies, *core.optional_dependencies["mocks"]]
    marked = {re.match(r"[\w-]+", each)[0] for each in everything if "sys_platform == 'linux'" in each}
    assert marked == linux


def test_the_pictures_of_the_readme_are_seen_outside_the_repository(core):
    pictures = re.findall(r"!\[[^]]*\]\(([^)]*)\)", core.readme)
    assert pictures
    for picture in pictures:
        assert picture.startswith(f"{links.BASE}/")
        assert (ROOT / "docs" / picture.removeprefix(f"{links.BASE}/")).is_file()


def test_the_chart_has_the_addresses_of_the_wheel_and_a_picture(chart, core):
    assert chart["home"] == core.urls["Homepage"]
    assert chart["sources"] == [core.urls["Source"]]
    assert chart["maintainers"]
    assert (ROOT / "docs" / chart["icon"].removeprefix(f"{links.BASE}/")).is_file()


def test_artifact_hub_is_told_of_every_definition(chart):
    annotations = chart["annotations"]
    assert annotations["artifacthub.io/license"] == "Apache-2.0"
    listed = {
        (crd["name"], crd["kind"], crd["version"])
        for crd in yaml.safe_load(annotations["artifacthub.io/crds"])
    }
    defined = [yaml.safe_load(file.read_text()) for file in (CHART / "definitions").glob("*.yaml")]
    assert listed == {
        (crd["metadata"]["name"], crd["spec"]["names"]["kind"], crd["spec"]["versions"][0]["name"])
        for crd in defined
    }
    for link in yaml.safe_load(annotations["artifacthub.io/links"]):
        page = link["url"].removeprefix(links.BASE).strip("/") or "index"
        assert (ROOT / "docs" / f"{page}.md").is_file()
    for shot in yaml.safe_load(annotations["artifacthub.io/screenshots"]):
        assert (ROOT / "docs" / shot["url"].removeprefix(f"{links.BASE}/")).is_file()
