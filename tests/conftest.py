"""What all tests share."""

import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path():
    """A folder of the test's own with a short path: a UNIX socket's may have no more than 107 bytes (unix(7))."""
    with tempfile.TemporaryDirectory(prefix="drawbar-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
