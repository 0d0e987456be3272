"""The doubles as a package of their own, with no other packages than its dependencies."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from tests.scenes import packages

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "test_another_driver.py"
IMPORT_ALL = """
import importlib, pathlib
import drawbar.mocks
site = pathlib.Path(drawbar.mocks.__path__[0]).parents[1]
names = [".".join(file.relative_to(site).with_suffix("").parts) for file in (site / "drawbar").rglob("*.py")]
for name in {name.removesuffix(".__init__") for name in names} - {"drawbar.mocks.testing.plugin"}:
    importlib.import_module(name)
print(len(names))
"""
FIXTURES = """
import asyncio

from drawbar.mocks import apiserver
from drawbar.mocks.testing import processes


def test_the_fixtures_serve(drawbar_apiserver, drawbar_fabric, drawbar_sysfs):
    assert drawbar_apiserver.kubeconfig.is_file()
    assert drawbar_fabric.journal() == []
    assert drawbar_sysfs.tree.root.is_dir()


def test_a_server_serves_without_fixtures():
    async def serve():
        async with apiserver.serving(profile="1.37") as server:
            return server.url

    assert asyncio.run(serve()).startswith("http")


def test_a_redfish_service_and_a_host_serve(tmp_path):
    (tmp_path / "redfish.json").write_text('{"hosts": [{"id": "host-1"}]}')
    log, host = tmp_path / "log", ["nvme-node", "--root", str(tmp_path / "sys"), "--react"]
    with processes.running("redfish", log, "--config", str(tmp_path / "redfish.json")) as ready:
        assert ready["ready"]
    with processes.running("sysfs", log, *host) as ready:
        assert ready["ready"]
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT / "mocks", check=True, capture_output=True)
    (built,) = folder.glob("drawbar_mocks-*.whl")
    return built


@pytest.fixture
def alone(wheel, tmp_path):
    """Return a function that runs Python with the doubles, their dependencies and `more` packages."""

    def run(*arguments, more=()):
        project = ProjectMetadata(str(ROOT / "mocks"), PluginManager()).core
        names = packages.list_dependencies(*project.dependencies, *more)
        site = packages.make_environment(tmp_path / "environment", names)
        zipfile.ZipFile(wheel).extractall(site)
        return subprocess.run(
            [tmp_path / "environment" / "bin" / "python", *arguments],
            env={key: value for key, value in os.environ.items() if not key.startswith("PYTHON")},
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
            timeout=500,
        )

    return run


def test_every_module_can_be_imported(alone):
    done = alone("-c", IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def test_the_doubles_serve_as_documented(alone, tmp_path):
    (tmp_path / "test_fixtures.py").write_text(FIXTURES)
    done = alone("-m", "pytest", "-q", "test_fixtures.py", more=["pytest"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_the_ci_of_another_driver_runs_on_them(alone, tmp_path):
    shutil.copy(EXAMPLE, tmp_path)
    done = alone("-m", "pytest", "-q", EXAMPLE.name, more=["pytest", "kubernetes"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_package_wants_the_versions_that_drawbar_wants():
    own, drawbar = (ProjectMetadata(str(folder), PluginManager()).core for folder in (ROOT / "mocks", ROOT))
    assert {*own.dependencies} <= {*drawbar.dependencies, *drawbar.optional_dependencies["mocks"]}
