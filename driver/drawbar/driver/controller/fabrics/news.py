"""The reports of a session: changes for a listener, and troubles of its Fabric.

A callback that fails for one device is repeated after a pause, while the others go on.
"""

import functools
from collections.abc import Callable, Hashable
from typing import Protocol

from drawbar.driver import containment
from drawbar.driver.controller import names
from drawbar.fabric import contract


class Listener(Protocol):
    """The receiver of a fabric's changes. It is never asked for anything."""

    def device_changed(self, fabric: str, old: contract.Device | None, new: contract.Device | None) -> None:
        """Take in a new, changed or removed device."""
        ...

    def hosts_changed(self, fabric: str) -> None:
        """Take in a change of hosts, or of their ports."""
        ...

    def operation_changed(self, fabric: str, operation: contract.Operation) -> None:
        """Take in an operation that began or finished."""
        ...

    def operation_admitted(self, key: names.DeviceKey) -> None:
        """Take in that the fabric is free for this device's waiting operation."""
        ...

    def troubles_changed(self, fabric: str) -> None:
        """Take in a change of the Fabric's troubles."""
        ...

    def connection_changed(self, fabric: str) -> None:
        """Take in that the manager can be reached, or no longer."""
        ...


class News:
    """The reports about one fabric.

    Attributes:
        troubles: a sentence by its subject: a device's name, `node labels`, `its name`, `composites`, or empty for the
            whole.
    """

    def __init__(
        self,
        fabric: str,
        listener: Listener,
        contained: containment.Containment,
        report_unexpected: containment.Report | None,
    ) -> None:
        """Report on a fabric to a listener; `report_unexpected` shows an unexpected error on the Fabric."""
        self.troubles: dict[str, str] = {}
        self._fabric = fabric
        self._listener = listener
        self._report_unexpected = report_unexpected
        self._callbacks: containment.Callbacks[Hashable] = containment.Callbacks(contained, "fabric-changes")

    def close(self) -> None:
        """Make no more callbacks."""
        self._callbacks.close()

    def report(self, subject: str, trouble: str = "") -> bool:
        """Show a trouble in the Fabric's status, or its end; return whether that is new."""
        if self.troubles.get(subject, "") == trouble:
            return False
        if trouble:
            self.troubles[subject] = trouble
        else:
            del self.troubles[subject]
        self._tell("troubles", self._listener.troubles_changed, self._fabric)
        return True

    def tell_device(self, name: str, old: contract.Device | None, new: contract.Device | None) -> None:
        """Report a new, changed or removed device."""
        self._callbacks.tell(
            (self._fabric, "device", name),
            functools.partial(self._listener.device_changed, self._fabric),
            old,
            new,
            extra=lambda: {"fabric": self._fabric, "device": name},
            report=self._report_unexpected,
        )

    def tell_hosts(self) -> None:
        """Report a change of hosts."""
        self._tell("hosts", self._listener.hosts_changed, self._fabric)

    def tell_operation(self, operation: contract.Operation) -> None:
        """Report an operation."""
        key = ("operation", operation.id)
        self._tell(key, self._listener.operation_changed, self._fabric, operation)

    def tell_admitted(self, keys: tuple[names.DeviceKey, ...]) -> None:
        """Report that the fabric admits the operations of these devices."""
        for key in keys:
            self._tell(("admitted", key), self._listener.operation_admitted, key)

    def tell_connection(self) -> None:
        """Report that the manager can be reached, or no longer, or that everything is to be reconciled."""
        self._tell("connection", self._listener.connection_changed, self._fabric)

    def _tell(self, key: Hashable, callback: Callable[..., None], *arguments: object) -> None:
        """Call the listener, and again after a pause if that fails."""
        self._callbacks.call(
            (self._fabric, key),
            functools.partial(callback, *arguments),
            extra=lambda: {"fabric": self._fabric, "about": str(key)},
            report=self._report_unexpected,
        )
