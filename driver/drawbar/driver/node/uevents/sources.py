"""Uevents from the kernel over netlink, or from the datagram socket of a mocked sysfs tree.

A uevent is one datagram: `ACTION@DEVPATH`, a NUL, then `KEY=VALUE` pairs each ended by a NUL (lib/kobject_uevent.c). The
order of `SEQNUM` is the order of the events. They come straight from the kernel, not from the udev daemon. A container has
no udev daemon, and Drawbar waits only for the kernel's own device nodes.

A mocked tree sends the same datagrams to a UNIX socket. The socket belongs to the listener. Events sent without a
listener are dropped, as netlink drops them. Several processes may listen, such as two instances of the daemon in a
rolling update. Each further one binds the path with a number appended, and the sender sends to all.

Between the socket and the task that consumes the events is a bounded `Backlog`. When it is full, one `Overflow` replaces
its content. This loses no information, because the consumer of an Overflow reads all devices again.
"""

import asyncio
import collections
import contextlib
import errno
import logging
import os
import re
import socket
import stat
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from drawbar.driver.node import errors

_NUMBER = re.compile("[0-9]{1,20}")  # of 64 bits
_UDEV_MAGIC = b"libudev\0"  # messages of the udev daemon, which uses the same netlink family


class Uevent(msgspec.Struct, frozen=True, kw_only=True):
    """One event.

    Attributes:
        action: `add`, `remove`, `change`, `bind`, `unbind`, `move`, `online` or `offline`.
        devpath: the device's directory below the sysfs root, with a leading slash.
        subsystem: e.g. `pci`, `nvme`, `cxl`; empty if the kernel named none.
        properties: every KEY=VALUE pair, `ACTION`, `DEVPATH`, `SUBSYSTEM` and `SEQNUM` included.
        seqnum: the kernel's sequence number, 0 if there was none.
    """

    action: str
    devpath: str
    subsystem: str
    properties: Mapping[str, str]
    seqnum: int


class Overflow(msgspec.Struct, frozen=True, kw_only=True):
    """A notice of lost events: the known state of devices may be outdated, so read everything again."""


def parse(datagram: bytes) -> Uevent | None:
    """Return the event in a datagram, or None if it holds none.

    No input raises: unknown keys are kept, malformed pairs skipped, and bytes that are not UTF-8 replaced.
    """
    if datagram.startswith(_UDEV_MAGIC):
        return None
    head, *pairs = datagram.decode("utf-8", "replace").split("\0")
    properties = {
        key: value for pair in pairs for key, equals, value in [pair.partition("=")] if key and equals
    }
    action, separator, devpath = head.partition("@")
    if not separator:
        return None
    return from_properties(properties, action=action, devpath=devpath)


def from_properties(properties: Mapping[str, str], *, action: str, devpath: str) -> Uevent | None:
    """Return an event from its pairs, or None if it has no action or no device."""
    action = properties.get("ACTION", action)
    devpath = properties.get("DEVPATH", devpath)
    if not action or not devpath.startswith("/"):
        return None
    seqnum = properties.get("SEQNUM", "")
    return Uevent(
        action=action,
        devpath=devpath,
        subsystem=properties.get("SUBSYSTEM", ""),
        properties=properties,
        seqnum=int(seqnum) if _NUMBER.fullmatch(seqnum) else 0,
    )


class Backlog:
    """A bounded queue for one consumer; implements `UeventSource`."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._events: collections.deque[Uevent | Overflow] = collections.deque()
        self._arrived = asyncio.Event()
        self._closed = False
        self._error: Exception | None = None

    def put(self, item: Uevent) -> None:
        """Add an event; if there is no room, replace everything by one Overflow."""
        if len(self._events) >= self._capacity:
            self.overflow()
            return
        self._events.append(item)
        self._arrived.set()

    def overflow(self) -> None:
        """Report lost events; waiting ones are dropped, because the consumer reads everything again."""
        self._events.clear()
        self._events.append(Overflow())
        self._arrived.set()

    def close(self, error: Exception | None = None) -> None:
        """End `events` once the queue is empty, with this error if given."""
        self._closed = True
        self._error = error
        self._arrived.set()

    async def events(self) -> AsyncIterator[Uevent | Overflow]:
        """Yield events in order of arrival, until the source is closed."""
        while True:
            while self._events:
                yield self._events.popleft()
            if self._closed:
                break
            self._arrived.clear()
            await self._arrived.wait()
        if self._error is not None:
            raise self._error


_log = logging.getLogger(__name__)

_RECEIVE_BUFFER_BYTES = (
    8 * 1024 * 1024
)  # room for some 16,000 events, such as the attach of a whole enclosure
_EVENTS_PER_WAKEUP = 256  # then other tasks can run


@contextlib.contextmanager
def subscribe(pending: Backlog, *, receive_buffer_bytes: int = _RECEIVE_BUFFER_BYTES) -> Iterator[None]:
    """Put the kernel's events into `pending` while the context lasts; subscribed once it is entered.

    Must be entered in a running event loop.

    Raises:
        UeventError: libudev is not installed, or netlink is not allowed.
    """
    monitor = _open_monitor()
    _enlarge_buffer(monitor, receive_buffer_bytes)
    loop = asyncio.get_running_loop()
    descriptor = monitor.fileno()

    def drain() -> None:
        try:
            _drain(monitor, pending)
        except OSError as error:
            loop.remove_reader(descriptor)
            pending.close(_make_error(error))

    loop.add_reader(descriptor, drain)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        pending.close()


def _open_monitor() -> Any:
    try:
        import pyudev

        monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        monitor.start()
    except ImportError as error:
        raise errors.UeventError(
            "libudev is missing: install libudev1 to follow hot-plugged devices"
        ) from error
    except OSError as error:
        raise errors.UeventError(
            f"cannot listen to the kernel's uevents ({error}): allow netlink sockets (AF_NETLINK) here"
        ) from error
    return monitor


def _enlarge_buffer(monitor: Any, size: int) -> None:
    """Set the receive buffer beyond the system's limit, which requires CAP_NET_ADMIN."""
    try:
        monitor.set_receive_buffer_size(size)
    except OSError as error:
        _log.debug("uevent receive buffer keeps its size", extra={"error": str(error)})


def _drain(monitor: Any, pending: Backlog) -> None:
    for _ in range(_EVENTS_PER_WAKEUP):
        try:
            device = monitor.poll(timeout=0)
        except OSError as error:
            if (error.errno or _socket_error(monitor)) != errno.ENOBUFS:
                raise
            pending.overflow()
            continue
        if device is None:
            return
        event = _read_event(device)
        if event is not None:
            pending.put(event)


def _read_event(device: Any) -> Uevent | None:
    """Return the event of a device.

    The name of a network interface may have any bytes, and a tenant gives it the name with which it returns from a pod.
    Then its event becomes one of the PCI function above it, or none without such a function.
    """
    action = device.action or ""
    try:
        return from_properties(
            _original_properties(device.properties), action=action, devpath=device.device_path
        )
    except UnicodeDecodeError:
        above = device.find_parent("pci")
        if above is None:
            return None
        return from_properties(
            {"SUBSYSTEM": device.subsystem or ""}, action=action, devpath=above.device_path
        )


def _socket_error(monitor: Any) -> int:
    """Return the socket's pending error; this read clears it.

    A full buffer sets ENOBUFS and wakes the poll inside pyudev, which raises an error without the reason.
    """
    with socket.socket(fileno=os.dup(monitor.fileno())) as duplicate:
        return duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def _original_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties as the kernel sent them: libudev adds /dev/ to DEVNAME."""
    sent = dict(properties)
    if "DEVNAME" in sent:
        sent["DEVNAME"] = sent["DEVNAME"].removeprefix("/dev/")
    return sent


def _make_error(error: OSError) -> errors.UeventError:
    broken = errors.UeventError(f"the kernel's uevents ended ({error}): start the daemon again")
    broken.__cause__ = error
    return broken


_LONGEST_PATH_BYTES = 107  # sun_path holds 108 with its final NUL (unix(7))
_DATAGRAM_BYTES = 64 * 1024
_DATAGRAMS_PER_WAKEUP = 256
_LISTENERS_MAX = 4  # the mocked tree's limit, too


@contextlib.contextmanager
def bind(path: Path, pending: Backlog) -> Iterator[None]:
    """Put the events sent to the socket at `path` into `pending` while the context lasts.

    Must be entered in a running event loop. A socket without a listener is replaced.

    Raises:
        UeventError: the path is too long, is a file or has too many listeners, or its directory cannot be written.
    """
    receiver, bound_path = _bind(path)
    loop = asyncio.get_running_loop()
    loop.add_reader(receiver, _drain_datagrams, receiver, pending)
    try:
        yield
    finally:
        loop.remove_reader(receiver)
        receiver.close()
        bound_path.unlink(missing_ok=True)
        pending.close()


def _bind(path: Path) -> tuple[socket.socket, Path]:
    """Return a socket at the first free path, and the path."""
    candidates = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, _LISTENERS_MAX))]
    for candidate in candidates:
        receiver = _try_bind(candidate)
        if receiver is not None:
            return receiver, candidate
    raise errors.UeventError(
        f"cannot listen for uevents at {path}: {_LISTENERS_MAX} listen there already; choose another path"
    )


def _try_bind(path: Path) -> socket.socket | None:
    """Return a socket bound to this path, or None if another listener has it."""
    length = len(str(path).encode())
    if length > _LONGEST_PATH_BYTES:
        raise errors.UeventError(
            f"the socket path {path} is {length} bytes long, of at most {_LONGEST_PATH_BYTES}: choose a shorter one"
        )
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        _remove_stale(path)
        receiver.bind(str(path))
    except OSError as error:
        receiver.close()
        if error.errno == errno.EADDRINUSE and path.is_socket():
            return None
        reason = "a file is there" if error.errno == errno.EADDRINUSE else error.strerror
        raise errors.UeventError(
            f"cannot listen for uevents at {path}: {reason}; choose another path"
        ) from error
    return receiver


def _remove_stale(path: Path) -> None:
    """Remove a socket without a listener; `bind` then refuses any other file at the path."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)


def _drain_datagrams(receiver: socket.socket, pending: Backlog) -> None:
    for _ in range(_DATAGRAMS_PER_WAKEUP):
        try:
            datagram = receiver.recv(_DATAGRAM_BYTES)
        except BlockingIOError:
            return
        event = parse(datagram)
        if event is not None:
            pending.put(event)


KERNEL = "kernel"
_UNIX = "unix:"
_CAPACITY = 4096


class UeventSource(Protocol):
    """A subscription to uevents."""

    def events(self) -> AsyncIterator[Uevent | Overflow]:
        """Yield events in order, from the moment of the subscription, for one consumer.

        An `Overflow` stands for lost events. Ends with the subscription.

        Raises:
            UeventError: the source failed.
        """
        ...


@contextlib.asynccontextmanager
async def listening(source: str, *, capacity: int = _CAPACITY) -> AsyncIterator[UeventSource]:
    """Yield a subscription that is active once the context is entered.

    Subscribe first and read the inventory after it. A change between the two is then seen twice and never missed.

    Args:
        source: `kernel`, or `unix:/path` to bind a datagram socket for a mocked tree.
        capacity: the number of waiting events; with more, an `Overflow` replaces them.

    Raises:
        UeventError: the source is not one of these, or cannot be opened.
    """
    pending = Backlog(capacity)
    with _open_source(source, pending):
        yield pending


def _open_source(source: str, pending: Backlog) -> contextlib.AbstractContextManager[None]:
    if source == KERNEL:
        return subscribe(pending)
    path = source.removeprefix(_UNIX)
    if not source.startswith(_UNIX) or not path:
        raise errors.UeventError(
            f"{source!r} is not a source of uevents: say {KERNEL} or unix:/path/of/socket"
        )
    return bind(Path(path), pending)
