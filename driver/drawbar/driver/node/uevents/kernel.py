"""Uevents from the kernel, over netlink.

They come straight from the kernel, not from the udev daemon: in a container there is none, and what
Drawbar waits for are the kernel's own device nodes.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from drawbar.driver.node import errors
from drawbar.driver.node.uevents import backlog, event

_log = logging.getLogger(__name__)

_RECEIVE_BUFFER_BYTES = 8 * 1024 * 1024  # holds some 16,000 events: a whole enclosure that comes at once
_EVENTS_PER_WAKEUP = 256  # then other tasks have their turn


@contextlib.contextmanager
def subscribed(
    pending: backlog.Backlog, *, receive_buffer_bytes: int = _RECEIVE_BUFFER_BYTES
) -> Iterator[None]:
    """Puts the kernel's events into `pending` while the context lasts; subscribed once it is entered.

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
            pending.close(_broken(error))

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
            "libudev is missing: install libudev1 to hear of hot-plugged devices"
        ) from error
    except OSError as error:
        raise errors.UeventError(
            f"cannot listen to the kernel's uevents ({error}): allow netlink sockets (AF_NETLINK) here"
        ) from error
    return monitor


def _enlarge_buffer(monitor: Any, size: int) -> None:
    """Sets the receive buffer beyond the system's limit, which takes CAP_NET_ADMIN."""
    try:
        monitor.set_receive_buffer_size(size)
    except OSError as error:
        _log.debug("uevent receive buffer keeps its size", extra={"error": str(error)})


def _drain(monitor: Any, pending: backlog.Backlog) -> None:
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
        found = event.from_properties(
            _as_sent(device.properties), action=device.action or "", devpath=device.device_path
        )
        if found is not None:
            pending.put(found)


def _socket_error(monitor: Any) -> int:
    """The socket's pending error, which reading it clears.

    A full buffer sets ENOBUFS and wakes the poll inside pyudev, which raises without saying why.
    """
    with socket.socket(fileno=os.dup(monitor.fileno())) as duplicate:
        return duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def _as_sent(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties as the kernel sent them: libudev puts /dev/ before DEVNAME."""
    sent = dict(properties)
    if "DEVNAME" in sent:
        sent["DEVNAME"] = sent["DEVNAME"].removeprefix("/dev/")
    return sent


def _broken(error: OSError) -> errors.UeventError:
    broken = errors.UeventError(f"the kernel's uevents ended ({error}): start again to listen anew")
    broken.__cause__ = error
    return broken
