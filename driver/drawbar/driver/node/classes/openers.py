"""Which processes have a device file open: a look into /proc, as `fuser` does.

Only the links of /proc/PID/fd that lead to a device file are followed, so that a hung network file system elsewhere
does not hold this up. Not seen: a mapping whose file was closed, and users inside the kernel.

Source: proc(5); Documentation/filesystems/proc.rst.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from drawbar.driver.node.classes import users
from drawbar.driver.node.inventory import files, model

FOUND_MAX = 16
"""Enough to say that a device is in use; the search ends here."""
_INITIAL_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO, include/linux/proc_ns.h
_CONTAINER_INITS = frozenset({"pause", "tini", "catatonit", "dumb-init", "docker-init"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """What tells a device file, wherever it lies and whatever it is called."""

    block: bool
    major: int
    minor: int


def of_nodes(nodes: Iterable[model.DeviceNode]) -> dict[Numbers, str]:
    """The paths of device files by their numbers."""
    return {Numbers(block=node.block, major=node.major, minor=node.minor): node.path for node in nodes}


def find(proc: Path, wanted: dict[Numbers, str]) -> tuple[users.User, ...]:
    """The processes, ourselves apart, that have one of these open; at most `FOUND_MAX`."""
    if not wanted:
        return ()
    found: list[users.User] = []
    names = {path.rpartition("/")[2] for path in wanted.values()}
    for pid in processes(proc):
        if pid == os.getpid():
            continue
        for path in _opened(f"{proc}/{pid}/fd", wanted, names):
            name = files.text(f"{proc}/{pid}/comm") or "?"
            found.append(users.User(text=f"held by pid {pid} ({name}), {path}"))
            if len(found) == FOUND_MAX:
                return tuple(found)
    return tuple(found)


def processes(proc: Path) -> list[int]:
    """The processes that can be seen, in order."""
    return sorted(int(name) for name in files.names(os.fspath(proc)) if name.isdecimal())


def blindness(proc: Path) -> str | None:
    """Why other processes of the host cannot be seen, with the remedy; None where they can."""
    if files.link_target(f"{proc}/self/ns/pid") == _INITIAL_NAMESPACE:
        return None
    first = files.text(f"{proc}/1/comm")
    if first is None:
        return f"{proc} shows no processes: mount the host's"
    if files.link_target(f"{proc}/self") == "1" or first in _CONTAINER_INITS:
        return "only the processes of this pod can be seen, so users of a device can be missed: set hostPID: true"
    return None


def _opened(folder: str, wanted: dict[Numbers, str], names: set[str]) -> Iterator[str]:
    """The paths of the wanted files that are open there, each once."""
    seen = set()
    for name in files.names(folder):
        target = files.link_target(f"{folder}/{name}") or ""
        if not (target.startswith("/dev/") or target.rpartition("/")[2] in names):
            continue
        numbers = _numbers(f"{folder}/{name}")
        if numbers in wanted and numbers not in seen:
            seen.add(numbers)
            yield wanted[numbers]


def _numbers(path: str) -> Numbers | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - thousands of Path objects cost more than the reads
    except OSError:
        return None
    if not (stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)):
        return None
    return Numbers(
        block=stat.S_ISBLK(status.st_mode), major=os.major(status.st_rdev), minor=os.minor(status.st_rdev)
    )
