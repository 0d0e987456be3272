"""What all tests share."""

import ipaddress
import os
import socket
import tempfile
from pathlib import Path

import hypothesis
import pytest

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile(
    "unhurried", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("unhurried")


@pytest.fixture
def tmp_path():
    """A folder of the test's own with a short path: a UNIX socket's may have no more than 107 bytes (unix(7))."""
    with tempfile.TemporaryDirectory(prefix="drawbar-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def own_address():
    """A host and a port that no other process takes: an address of the loopback network (Linux) for this one alone."""
    host = str(ipaddress.ip_address("127.128.0.0") + os.getpid())
    with socket.socket() as free:
        free.bind((host, 0))
        return free.getsockname()
