"""The last reading of a service, which one task at a time renews."""

import asyncio

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish import client, methods, polling, reading, remembered, tasks


class Observer:
    """The reading of a service by one method.

    Attributes:
        method: with its last reading.
        lock: held by the task that reads or judges.
        is_changed: whether the next reading has to be a whole one, since slices may have been made or deleted.
    """

    def __init__(self, connection: client.Client, method: methods.Method) -> None:
        self.method = method
        self.lock = asyncio.Lock()
        self.is_changed = False
        self._client = connection
        self._remembered = remembered.Remembered(asyncio.get_running_loop().time)
        # Requests of the last whole reading for resources that are not remembered.
        self._fixed_requests = 0

    @property
    def devices(self) -> dict[str, contract.Device]:
        """Return the devices of the last reading, by id."""
        return dict(self.method.view().devices)

    def plan_poll(self, poll_seconds: float) -> polling.Poll:
        """Return when the service is polled next, and how much of it is read then."""
        return polling.plan(poll_seconds, fixed=self._fixed_requests, remembered=len(self._remembered))

    async def read(
        self, *, whole: bool = False, rereads: int | None = None, is_expanded: bool = True
    ) -> None:
        """Read the connections, and devices and hosts if they may have changed; the caller holds the lock.

        Args:
            whole: whether more than the connections is read.
            rereads: the number of remembered resources to read again; None for all members of collections.
            is_expanded: whether collections may be expanded.

        Raises:
            FabricError: the service cannot be read.
        """
        if not (whole or self.is_changed):
            await self.method.read_connections(reading.Reader(self._client, is_expanded=is_expanded))
            return
        reader = reading.Reader(
            self._client,
            self._remembered,
            rereads=None if self.is_changed else rereads,
            is_expanded=is_expanded,
        )
        is_changed, self.is_changed = self.is_changed, False
        try:
            await self.method.read(reader)
        except errors.FabricError:
            self.is_changed |= is_changed
            raise
        self._remembered.keep_only(reader.touched)
        self._fixed_requests = reader.requests

    async def read_connections(self) -> dict[str, contract.Device]:
        """Read the connections, and return the devices by id.

        Raises:
            FabricError: the service cannot be read.
        """
        async with self.lock:
            await self.method.read_connections(reading.Reader(self._client))
            return self.devices

    async def read_changes(self) -> tuple[tasks.Change, ...]:
        """Return the changes that the service is performing; none if it does not show them."""
        return await tasks.changes(reading.Reader(self._client))
