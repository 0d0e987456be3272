"""Reads of unlimited duration: Vital Product Data, and the files of NVIDIA's driver.

Each read runs in a daemon thread. The inventory waits for it at most `PATIENCE_SECONDS`, and the end of the process not at
all. A hanging device therefore delays neither. At most `THREADS_MAX` threads of each sort run, including hanging ones.
Further reads of Vital Product Data wait for a free thread; further reads of a driver's files fail at once. Vital Product
Data is read once for each arrival of a function.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from drawbar.driver.node.inventory import identities, vpd
from drawbar.driver.node.inventory.identities import Vpd
from drawbar.driver.node.inventory.model import Silence

THREADS_MAX = 8
PATIENCE_SECONDS = 0.25
"""The longest wait of an inventory read for a driver's file."""
REMEMBERED_MAX = 4096
_TEXT_BYTES = 4096

PENDING = Vpd(fields={}, silence=Silence.VPD_SLOW)


class Arrival(msgspec.Struct, frozen=True):
    """A function since its arrival; its directory has a new inode after each arrival."""

    address: str
    inode: int


@dataclass(slots=True)
class _Read:
    """One read; it is done once `done` is set."""

    done: threading.Event = field(default_factory=threading.Event)
    vital: Vpd = identities.NO_VPD
    text: str | None = None


class _Threads:
    """Threads for a queue of work; each ends when the queue is empty."""

    def __init__(self, most: int, waiting_max: int) -> None:
        self._most = most
        self._waiting_max = waiting_max
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._running = 0

    def start(self, work: Callable[[], None]) -> bool:
        """Start the work in a thread, or queue it for one; return False if the queue is full."""
        with self._lock:
            if self._running >= self._most:
                if len(self._waiting) >= self._waiting_max:
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
    """The current reads, and the results of finished ones. Thread-safe."""

    def __init__(
        self,
        finished: Callable[[str], None] = lambda _: None,
        *,
        threads_max: int = THREADS_MAX,
        remembered_max: int = REMEMBERED_MAX,
    ) -> None:
        """Start no thread yet.

        Args:
            finished: called in the reading thread, with the address of a function after its data is read.
            threads_max: the maximum number of concurrent reads of each sort.
            remembered_max: the maximum number of functions with data.
        """
        self._remembered_max = remembered_max
        self._finished = finished
        self._lock = threading.Lock()
        self._vital: dict[Arrival, _Read] = {}
        self._texts: dict[str, _Read] = {}
        self._vital_threads = _Threads(threads_max, REMEMBERED_MAX)
        # An inventory read waits for each text, so these waits are bounded by the number of threads.
        self._text_threads = _Threads(threads_max, 0)

    def vital(self, arrival: Arrival, path: str) -> Vpd:
        """Return the Vital Product Data from the file at `path`, or `PENDING` until it is read; never wait."""
        with self._lock:
            read = self._vital.get(arrival)
            if read is None and len(self._vital) < self._remembered_max:
                fresh = _Read()
                if self._vital_threads.start(lambda: self._read_vital(fresh, arrival, path)):
                    self._vital[arrival] = read = fresh
        return read.vital if read is not None and read.done.is_set() else PENDING

    def text(self, path: str) -> str | None:
        """Return the text of a file, or None if it cannot be read or does not arrive in time."""
        fresh = _Read()
        with self._lock:
            if path in self._texts or not self._text_threads.start(lambda: self._read_text(fresh, path)):
                # An earlier read of this file hangs, or all threads do.
                return None
            self._texts[path] = fresh
        return fresh.text if fresh.done.wait(PATIENCE_SECONDS) else None

    def list_pending(self) -> frozenset[str]:
        """Return the addresses of functions with unread data."""
        with self._lock:
            return frozenset(
                arrival.address for arrival, read in self._vital.items() if not read.done.is_set()
            )

    def wait(self, seconds: float) -> None:
        """Wait until the data of all functions is read, or until the time is up."""
        with self._lock:
            reads = tuple(self._vital.values())
        deadline = time.monotonic() + seconds
        for read in reads:
            read.done.wait(max(0.0, deadline - time.monotonic()))

    def forget(self, addresses: Iterable[str]) -> None:
        """Forget the functions at these addresses: the next function at each is a new arrival."""
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
