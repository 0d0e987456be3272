"""Queues the operations of one fabric.

A fabric reports how many operations it can run at once, and within what only one (`Capabilities`). The devices that wait
are served host by host in turn, and within a host in their order of arrival, so that one node's storm does not starve the
other nodes.
"""

from collections import OrderedDict

from drawbar.driver.controller import names
from drawbar.fabric.contract import Capabilities, SerializationScope


class Turns:
    """The operations of one fabric: those that run, and those that wait for a place."""

    def __init__(self) -> None:
        self._can = Capabilities(serialization_scope=SerializationScope.DEVICE)
        self._running: dict[names.DeviceKey, str] = {}
        # By host the devices that wait, the first to be served first; the host served last stands last.
        self._waiting: OrderedDict[str, OrderedDict[names.DeviceKey, None]] = OrderedDict()

    @property
    def can(self) -> Capabilities:
        """What the fabric can do, as it last reported."""
        return self._can

    @property
    def running(self) -> int:
        """How many operations the fabric runs, as far as this process has seen."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """How many operations wait for a place."""
        return sum(len(waiting) for waiting in self._waiting.values())

    def is_waiting(self, key: names.DeviceKey) -> bool:
        """Return whether the device waits for a place."""
        return any(key in waiting for waiting in self._waiting.values())

    def allow(self, can: Capabilities) -> tuple[names.DeviceKey, ...]:
        """Take over what the fabric can do; return the devices that get a place thereby."""
        self._can = can
        return self._grant()

    def take(self, key: names.DeviceKey, host: str) -> bool:
        """Return whether the device may be attached or detached now; if not, it waits until `give` or `allow` returns it."""
        if key in self._running:
            return True
        self._waiting.setdefault(host, OrderedDict())[key] = None
        return key in self._grant()

    def occupy(self, key: names.DeviceKey, host: str) -> None:
        """Note that an operation of this device runs already: an earlier process began it."""
        self._forget(key)
        self._running[key] = host

    def give(self, key: names.DeviceKey) -> tuple[names.DeviceKey, ...]:
        """Free the place of the device; return the devices that get a place thereby."""
        host = self._running.pop(key, None)
        waited = self._forget(key)
        return self._grant() if host is not None or waited else ()

    def _forget(self, key: names.DeviceKey) -> bool:
        for host, waiting in self._waiting.items():
            if key in waiting:
                del waiting[key]
                if not waiting:
                    del self._waiting[host]
                return True
        return False

    def _grant(self) -> tuple[names.DeviceKey, ...]:
        granted: list[names.DeviceKey] = []
        # One device per host and round; a host that got a place moves to the end of the queue.
        while hosts := [host for host in self._waiting if self._has_place(host)]:
            for host in hosts:
                if not self._has_place(host):
                    continue
                waiting = self._waiting.pop(host)
                key, _ = waiting.popitem(last=False)
                self._running[key] = host
                granted.append(key)
                if waiting:
                    self._waiting[host] = waiting
        return tuple(granted)

    def _has_place(self, host: str) -> bool:
        limit = self._can.max_concurrent_operations
        if limit is not None and len(self._running) >= limit:
            return False
        match self._can.serialization_scope:
            case SerializationScope.FABRIC:
                return not self._running
            case SerializationScope.HOST:
                return host not in self._running.values()
            case SerializationScope.DEVICE | SerializationScope.NONE:
                return True
