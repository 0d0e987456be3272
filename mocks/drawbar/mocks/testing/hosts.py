"""A mocked host, for the fixture `drawbar_sysfs`."""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from drawbar.mocks import sysfs


@dataclass(frozen=True, slots=True, kw_only=True)
class MockedHost:
    """A host with hot-plug slots.

    Attributes:
        tree: attach and detach devices here; `tree.root` is its /sys.
        uevents: the path for hot-plug uevents; bind a datagram socket there to receive them.
    """

    tree: sysfs.SysfsTree
    uevents: Path


@contextlib.contextmanager
def mocking(root: Path, *, slots: int) -> Iterator[MockedHost]:
    """Make a host at `root` and yield it.

    Raises:
        sysfs.ImpossibleWorld: `root` already exists, or there are too many slots.
    """
    # pytest's folders are too deep for sockets.
    with tempfile.TemporaryDirectory(prefix="drawbar-") as short:
        uevents = Path(short, "uevents")
        yield MockedHost(
            tree=sysfs.SysfsTree.create(root, slots=slots, uevent_socket=uevents), uevents=uevents
        )
