"""The queue of one fabric's operations.

A fabric reports how many operations it can run at once, and the scopes with only one at a time (`Capabilities`). The
waiting devices are served in turn by namespace, within a namespace by host, and within a host in their order of
arrival. So neither one tenant's storm nor one node's starves the others.
"""

from collections import OrderedDict
from collections.abc import Iterator

from drawbar.driver.controller import names
from drawbar.fabric.contract import Capabilities, SerializationScope

_Waiting = OrderedDict[str, OrderedDict[str, OrderedDict[names.DeviceKey, None]]]


class OperationQueue:
    """The operations of one fabric: running and waiting ones."""

    def __init__(self) -> None:
        self._can = Capabilities(serialization_scope=SerializationScope.DEVICE)
        self._running: dict[names.DeviceKey, str] = {}
        # By namespace and host: the waiting devices. The namespace served last is the last, and so is its host.
        self._waiting: _Waiting = OrderedDict()

    @property
    def can(self) -> Capabilities:
        """Return the fabric's last reported capabilities."""
        return self._can

    @property
    def running(self) -> int:
        """Return the number of the fabric's running operations, as far as this process has seen."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Return the number of waiting operations."""
        return sum(len(devices) for hosts in self._waiting.values() for devices in hosts.values())

    def is_waiting(self, key: names.DeviceKey) -> bool:
        """Return whether the device waits."""
        return any(key in devices for hosts in self._waiting.values() for devices in hosts.values())

    def allow(self, can: Capabilities) -> tuple[names.DeviceKey, ...]:
        """Take in the fabric's capabilities; return the devices that it admits by them."""
        self._can = can
        return tuple(self._grant())

    def take(self, key: names.DeviceKey, host: str, namespace: str) -> bool:
        """Return whether the device may be attached or detached now; if not, it waits until `give` or `allow` returns it.

        Args:
            key: the device.
            host: the host of the operation.
            namespace: the namespace of the device's claim; empty without one.
        """
        if key in self._running:
            return True
        hosts = self._waiting.get(namespace)
        if hosts is None or key not in hosts.get(host, ()):
            self._forget(key)
            self._waiting.setdefault(namespace, OrderedDict()).setdefault(host, OrderedDict())[key] = None
        return key in tuple(self._grant())

    def occupy(self, key: names.DeviceKey, host: str) -> None:
        """Note that an operation of this device already runs: an earlier process began it."""
        self._forget(key)
        self._running[key] = host

    def give(self, key: names.DeviceKey) -> tuple[names.DeviceKey, ...]:
        """End the device's operation; return the devices that are admitted by that."""
        host = self._running.pop(key, None)
        waited = self._forget(key)
        return tuple(self._grant()) if host is not None or waited else ()

    def _forget(self, key: names.DeviceKey) -> bool:
        for namespace, hosts in self._waiting.items():
            for host, devices in hosts.items():
                if key in devices:
                    del devices[key]
                    self._drop_empty(namespace, host)
                    return True
        return False

    def _drop_empty(self, namespace: str, host: str) -> None:
        hosts = self._waiting[namespace]
        if not hosts[host]:
            del hosts[host]
        if not hosts:
            del self._waiting[namespace]

    def _grant(self) -> Iterator[names.DeviceKey]:
        """Yield the admitted devices, one namespace after the other."""
        while waiter := self._next():
            namespace, host = waiter
            hosts = self._waiting[namespace]
            key, _ = hosts[host].popitem(last=False)
            self._running[key] = host
            hosts.move_to_end(host)
            self._waiting.move_to_end(namespace)
            self._drop_empty(namespace, host)
            yield key

    def _next(self) -> tuple[str, str] | None:
        """Return the namespace and host to serve next, or None if none can begin."""
        return next(
            (
                (namespace, host)
                for namespace, hosts in self._waiting.items()
                for host in hosts
                if self._has_room(host)
            ),
            None,
        )

    def _has_room(self, host: str) -> bool:
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
