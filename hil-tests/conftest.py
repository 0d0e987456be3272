"""One node for all tests: a guest is the dearest thing that there is here, and tests leave it as they found it.

With DRAWBAR_HIL_SITE the node is a real one, and only tests with the marker `hardware` run (`field.choice`).
"""

import dataclasses
import json
import os
import sys
from pathlib import Path

import pytest
import pytest_asyncio

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from field import choice, fabric_devices, session, stand
from lab import cluster, errors, laboratory, machine, sessions, worker
from tests.untested import pytest_terminal_summary

__all__ = ["pytest_terminal_summary"]

TEST_SECONDS = 600
MACHINE = machine.Machine(name="worker-1", ports=4, cxl_ports=1, memory_mib=1536)
NEWER = machine.Machine(name="worker-n", ports=1, cxl_ports=2, memory_mib=1536, newer=True)
"""Of a second guest, for what Debian 12's own QEMU and kernel do not have."""


SITE = session.read(Path(os.environ[session.SITE])) if session.SITE in os.environ else None
CHOSEN = pytest.StashKey[choice.Choice]()
ASSIGNED = fabric_devices.Assigned()


def pytest_configure(config):
    config.addinivalue_line("markers", "short: part of the short set, which is part of every test run")
    config.addinivalue_line(
        "markers",
        "hardware(class=count, writes=False, each=False): runs on real hardware, too, with so many devices",
    )


def pytest_generate_tests(metafunc):
    if "listed" in metafunc.fixturenames:
        metafunc.parametrize("listed", [device.id for device in SITE.devices] if SITE else ["none"])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))
    if session.LISTING in os.environ:
        # The rest needs no machine of any kind, and so tells nothing about one.
        asking = [item for item in items if {"node", "guest", "lab"} & set(item.fixturenames)]
        listing = json.dumps([dataclasses.asdict(describe_test(item)) for item in asking])
        Path(os.environ[session.LISTING]).write_text(listing)
    left = []
    for item in items:
        if SITE is None:
            applies = "listed" not in item.fixturenames
        else:
            (item.stash[CHOSEN],) = choice.choose([describe_test(item)], SITE)
            applies = not item.stash[CHOSEN].reason
        if not applies:
            left.append(item)
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=left)


def describe_test(item):
    """Return what `field.choice` wants of a collected test."""
    marker = item.get_closest_marker("hardware")
    needs = dict(marker.kwargs) if marker else {}
    writes, each = needs.pop("writes", False), needs.pop("each", False)
    return choice.Test(
        name=item.nodeid,
        hardware=marker is not None,
        needs={name.replace("_", "-"): count for name, count in needs.items()},
        writes=writes,
        device=item.callspec.params["listed"] if each else "",
    )


def pytest_runtest_setup(item):
    if SITE is not None:
        ASSIGNED.fill(item.stash[CHOSEN].devices)


@pytest.fixture(scope="session")
def drawbar():
    """Return the path of the `drawbar` program, which is the same here and in a guest."""
    return str(Path(sys.executable).parent / "drawbar")


@pytest.fixture(scope="session")
def logs(tmp_path_factory):
    """Return the folder for consoles and logs of programs: DRAWBAR_HIL_LOGS, or pytest's folder."""
    folder = os.environ.get(sessions.LOGS)
    return Path(folder) if folder else tmp_path_factory.mktemp("hil")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def lab(logs):
    """Yield the lab; None on real hardware. Where the host lacks something, the reason names what to install.

    Tests are skipped then; with DRAWBAR_HIL=required they fail, and with DRAWBAR_HIL=off nothing is tried.
    """
    if SITE is not None:
        yield None
        return
    if os.environ.get("DRAWBAR_HIL") == "off":
        pytest.skip("NO GUEST IS TESTED: DRAWBAR_HIL=off")
    try:
        running = laboratory.Lab.running(logs)
        made = await running.__aenter__()
    except errors.Unavailable as error:
        miss(error)
    try:
        yield made
    finally:
        await running.__aexit__(None, None, None)


def miss(error):
    """Skip the tests for which this host lacks something; with DRAWBAR_HIL=required fail them."""
    if os.environ.get("DRAWBAR_HIL") == "required":
        raise error
    pytest.skip(str(error))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def guest(lab):
    """Yield a machine whose agent answers; None on real hardware."""
    if lab is None:
        yield None
        return
    async with lab.guest(MACHINE) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def newer_guest(lab):
    """Yield a machine with QEMU 10.0 and Linux 6.12; None on real hardware."""
    if lab is None:
        yield None
        return
    running = lab.guest(NEWER)
    try:
        made = await running.__aenter__()
    except errors.Unavailable as error:
        miss(error)
    try:
        yield made
    finally:
        await running.__aexit__(None, None, None)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def newer_node(lab, newer_guest, tmp_path_factory):
    """Yield the newer guest as the node of a cluster of its own."""
    folder = tmp_path_factory.mktemp("newer")
    async with (
        cluster.Cluster.running(folder) as belongs,
        worker.working(newer_guest, belongs, folder=lab.folder, logs=lab.logs) as made,
    ):
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def node(lab, guest, logs, tmp_path_factory):
    """Yield a node of a cluster, with daemon and kubelet."""
    if SITE is not None:
        async with stand.running_node(SITE, ASSIGNED, tmp_path_factory.mktemp("site"), logs) as made:
            yield made
        return
    async with (
        cluster.Cluster.running(lab.folder) as belongs,
        worker.working(guest, belongs, folder=lab.folder, logs=lab.logs) as made,
    ):
        yield made
