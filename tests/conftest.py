"""What all tests share."""

import gc
import ipaddress
import logging
import os
import signal
import socket
import tempfile
from pathlib import Path

import hypothesis
import pytest
from tests.scenes import defects
from tests.untested import pytest_collection_modifyitems, pytest_terminal_summary, pytest_testnodedown

__all__ = ["pytest_collection_modifyitems", "pytest_terminal_summary", "pytest_testnodedown"]

# How long an example takes depends on how busy the machine is.
hypothesis.settings.register_profile(
    "unhurried", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("unhurried")

MEMORY, MEMORY_BYTES = "/dev/shm", 512 << 20


def _temporary_files_in_memory():
    """Have this process and all that it starts put temporary files into memory: mocked hosts are thousands of small files.

    Only where there is room, where programs may be started from there, and where `TMPDIR` names no other place.
    """
    try:
        filesystem = os.statvfs(MEMORY)
    except OSError:
        return
    roomy = filesystem.f_bavail * filesystem.f_frsize >= MEMORY_BYTES
    if roomy and not filesystem.f_flag & os.ST_NOEXEC and os.access(MEMORY, os.W_OK):
        os.environ.setdefault("TMPDIR", MEMORY)
        tempfile.tempdir = None  # it may have been looked up before


_temporary_files_in_memory()

# As in the chart's pods: no test knows a server of the machine's authorities, and to read them takes 50 ms in each process.
os.environ.setdefault("SSL_CERT_FILE", os.devnull)

# Collection makes a million objects that stay, and no garbage; see `pytest_collection_finish`.
gc.disable()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has what it starts in the background ignore Ctrl-C, and so would every program that a test starts and ends by it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "attack: an attack of docs/attacks.md; the stage `attacks` of `make kubernetes` runs it"
    )
    config.addinivalue_line("markers", "defects: the test has a worker of a daemon fail unexpectedly")
    config.addinivalue_line("markers", "sockets: not in virtual time; see tests/fabric/redfish/conftest.py")
    config.addinivalue_line("markers", "tool(*names): only where these are at hand; see tests/untested.py")


def pytest_collection_finish():
    """Collect garbage again, without the modules and tests: each collection would look at all of them."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """Return more than there are processor cores, since tests wait half of their time; at most two for a single core."""
    cores = len(os.sched_getaffinity(0))
    return min(2 * cores, cores + 2)


@pytest.fixture(autouse=True)
def _logging_as_before():
    """Restore logging after a command that ran in this process, not in one of its own."""
    root = logging.getLogger()
    level, handlers = root.level, tuple(root.handlers)
    yield
    root.setLevel(level)
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)


@pytest.fixture(autouse=True)
def _no_defects(request):
    """Fail where a daemon in this process met an unexpected error: it goes on, and the test would not notice."""
    defects.SEEN.clear()
    yield
    if not request.node.get_closest_marker("defects"):
        defects.check()


@pytest.fixture
def tmp_path():
    """Yield a folder of the test's own with a short path: a UNIX socket's may have at most 107 bytes (unix(7))."""
    with tempfile.TemporaryDirectory(prefix="drawbar-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def own_address():
    """Return a host and a port that no other process takes: a loopback address (Linux) for this process alone."""
    host = str(ipaddress.ip_address("127.128.0.0") + os.getpid())
    with socket.socket() as free:
        free.bind((host, 0))
        return free.getsockname()
