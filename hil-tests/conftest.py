"""One node for all tests: a guest is the dearest thing that there is here, and tests leave it as they found it."""

import os
import sys
from pathlib import Path

import pytest
import pytest_asyncio

sys.path.insert(0, str(Path(__file__).parent))

from lab import cluster, errors, machine, worker
from lab import hall as halls

TEST_SECONDS = 600
MACHINE = machine.Machine(name="worker-1", ports=4, cxl_ports=1, memory_mib=1536, processors=2)


def pytest_configure(config):
    config.addinivalue_line("markers", "short: part of the short set, which is part of every test run")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@pytest.fixture(scope="session")
def drawbar():
    """The program, here and in a guest."""
    return str(Path(sys.executable).parent / "drawbar")


@pytest.fixture(scope="session")
def logs(tmp_path_factory):
    """Where consoles and logs of programs go: DRAWBAR_HIL_LOGS, or pytest's folder."""
    folder = os.environ.get("DRAWBAR_HIL_LOGS")
    return Path(folder) if folder else tmp_path_factory.mktemp("hil")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def hall(logs):
    """The lab. Where the host lacks something, the reason says what to install.

    Tests are skipped then; with DRAWBAR_HIL=required they fail, and with DRAWBAR_HIL=off nothing is tried.
    """
    if os.environ.get("DRAWBAR_HIL") == "off":
        pytest.skip("NO GUEST IS TESTED: DRAWBAR_HIL=off")
    try:
        running = halls.Lab.running(logs)
        made = await running.__aenter__()
    except errors.Unavailable as error:
        if os.environ.get("DRAWBAR_HIL") == "required":
            raise
        pytest.skip(str(error))
    try:
        yield made
    finally:
        await running.__aexit__(None, None, None)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def guest(hall):
    """A machine whose agent answers."""
    async with hall.guest(MACHINE) as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def node(hall, guest):
    """A node of a cluster, with daemon and kubelet."""
    async with (
        cluster.Cluster.running(hall.folder) as belongs,
        worker.working(guest, belongs, folder=hall.folder, logs=hall.logs) as made,
    ):
        yield made
