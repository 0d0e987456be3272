"""CHANGELOG.md has a section for each release, and the package, the chart and the image have the version of the newest one."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def headings():
    return re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def number(version):
    return tuple(int(part) for part in version.split("."))


def test_unreleased_changes_come_first_and_releases_follow_newest_first():
    unreleased, *releases = headings()
    assert unreleased == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", release) for release in releases)
    assert releases == sorted(set(releases), key=number, reverse=True)


def test_the_package_the_chart_and_the_image_have_the_version_of_the_newest_release():
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((ROOT / "deploy/drawbar/Chart.yaml").read_text())
    image = re.findall(r"^ARG VERSION=(.+)$", (ROOT / "deploy/image/Containerfile").read_text(), re.MULTILINE)
    assert {package, chart["version"], chart["appVersion"], *image} == {headings()[1]}
    assert image
