"""Reads that may take seconds or never end: Vital Product Data, and the files of NVIDIA's driver.

Each read has a daemon thread of its own, which nothing waits for longer than `PATIENCE_SECONDS`, so a device that does
not answer delays neither the inventory nor the end of the process. At most `THREADS_MAX` threads exist, those that hang
included; further reads wait until one has ended. Vital Product Data is read once per arrival of a function.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from drawbar.driver.node.inventory import identities, vpd
from drawbar.driver.node.inventory.identities import Vpd
from drawbar.driver.node.inventory.model import Silence

THREADS_MAX = 8
PATIENCE_SECONDS = 0.25
"""How long a reading of the inventory waits for a file of a driver."""
REMEMBERED_MAX = 4096
_TEXT_BYTES = 4096

PENDING = Vpd(fields={}, silence=Silence.VPD_SLOW)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A function since it arrived: its directory has another inode when it arrives again."""

    address: str
    inode: int


@dataclass(slots=True)
class _Read:
    """One read; it is done once `done` is set."""

    done: threading.Event = field(default_factory=threading.Event)
    vital: Vpd = identities.NO_VPD
    text: str | None = None


class _Threads:
    """Threads that work off a queue, and end when it is empty."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._running = 0

    def start(self, work: Callable[[], None]) -> bool:
        """Do the work in a thread, at once or when one is free; return whether there was room to remember it."""
        with self._lock:
            if self._running >= self._most:
                if len(self._waiting) >= REMEMBERED_MAX:
                    return False
                self._waiting.append(work)
                return True
            self._running += 1
        threading.Thread(target=self._work, args=(work,), name="drawbar-slow-read", daemon=True).start()
        return True

    def _work(self, work: Callable[[], None]) -> None:
        while True:
            work()
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                work = self._waiting.popleft()


class SlowReads:
    """The reads that are under way, and the answers of those that ended; safe to use from several threads."""

    def __init__(
        self,
        finished: Callable[[str], None] = lambda _: None,
        *,
        threads_max: int = THREADS_MAX,
        remembered_max: int = REMEMBERED_MAX,
    ) -> None:
        """Start no thread yet.

        Args:
            finished: called in the reading thread with the address of a function whose data is read.
            threads_max: how many reads of either sort may be under way at once.
            remembered_max: of how many functions the data is read.
        """
        self._remembered_max = remembered_max
        self._finished = finished
        self._lock = threading.Lock()
        self._vital: dict[Arrival, _Read] = {}
        self._texts: dict[str, _Read] = {}
        self._vital_threads, self._text_threads = _Threads(threads_max), _Threads(threads_max)

    def vital(self, arrival: Arrival, path: str) -> Vpd:
        """Return the Vital Product Data in the file at `path` as far as it is read; never waits."""
        with self._lock:
            read = self._vital.get(arrival)
            if read is None and len(self._vital) < self._remembered_max:
                fresh = _Read()
                if self._vital_threads.start(lambda: self._read_vital(fresh, arrival, path)):
                    self._vital[arrival] = read = fresh
        return read.vital if read is not None and read.done.is_set() else PENDING

    def text(self, path: str) -> str | None:
        """Return the text of a file, or None where it cannot be read or does not come in time."""
        fresh = _Read()
        with self._lock:
            if path in self._texts or not self._text_threads.start(lambda: self._read_text(fresh, path)):
                # An earlier read of it hangs.
                return None
            self._texts[path] = fresh
        return fresh.text if fresh.done.wait(PATIENCE_SECONDS) else None

    def pending(self) -> frozenset[str]:
        """Return the addresses of the functions whose data is not yet read."""
        with self._lock:
            return frozenset(
                arrival.address for arrival, read in self._vital.items() if not read.done.is_set()
            )

    def wait(self, seconds: float) -> None:
        """Wait until the data of all functions is read, at most so long."""
        with self._lock:
            reads = tuple(self._vital.values())
        deadline = time.monotonic() + seconds
        for read in reads:
            read.done.wait(max(0.0, deadline - time.monotonic()))

    def forget(self, addresses: Iterable[str]) -> None:
        """Forget the functions at these addresses: what is there from now on has arrived anew."""
        gone = frozenset(addresses)
        with self._lock:
            self._vital = {
                arrival: read for arrival, read in self._vital.items() if arrival.address not in gone
            }

    def _read_vital(self, read: _Read, arrival: Arrival, path: str) -> None:
        read.vital = _vital(path)
        read.done.set()
        self._finished(arrival.address)

    def _read_text(self, read: _Read, path: str) -> None:
        read.text = _text(path)
        with self._lock:
            del self._texts[path]
        read.done.set()


def _vital(path: str) -> Vpd:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return Vpd(fields={}, silence=Silence.NO_PRIVILEGE)
    except OSError:
        return identities.NO_VPD
    try:
        return Vpd(fields=vpd.read_fields(lambda length, offset: os.pread(descriptor, length, offset)))
    except OSError:
        return identities.NO_VPD
    finally:
        os.close(descriptor)


def _text(path: str) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, _TEXT_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(descriptor)
