"""The doubles without Drawbar's driver and without the libraries of its daemons."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "test_another_driver.py"
# What only the driver, the adapters, the daemons and the CEL library's command line need. The example uses `kubernetes`.
ABSENT = (
    "aiohttp_socks",
    "drawbar.driver",
    "drawbar.fabric.redfish",
    "drawbar.fabric.qemu",
    "prometheus_client",
    "prompt_toolkit",
    "pypci",
    "pyroute2",
    "pyudev",
    "tenacity",
    "typer",
)
REFUSING = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if any(f"{{name}}.".startswith(f"{{absent}}.") for absent in {ABSENT!r}):
            raise ModuleNotFoundError(f"no module named {{name!r}}")

sys.meta_path.insert(0, Absent())
"""
IMPORT_ALL = """
import importlib, pkgutil
import drawbar.mocks
names = [module.name for module in pkgutil.walk_packages(drawbar.mocks.__path__, "drawbar.mocks.")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


@pytest.fixture
def alone(tmp_path):
    """Return a function that runs a program without those modules, also for its children."""
    (tmp_path / "sitecustomize.py").write_text(REFUSING)

    def run(*arguments):
        return subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
            timeout=500,
        )

    return run


def test_every_module_of_the_doubles_can_be_imported(alone):
    assert "no module named 'drawbar.driver'" in alone("-c", "import drawbar.driver.errors").stderr
    done = alone("-c", IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def test_the_ci_of_another_driver_runs_on_them(alone):
    done = alone("-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
