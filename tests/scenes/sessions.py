"""Where the tests of a session with a fabric begin: a Fabric, its manager, and a listener that does nothing."""

import asyncio
import contextlib

from drawbar.driver.api import fabrics, meta
from drawbar.driver.controller.fabrics import connection, session
from drawbar.fabric import contract

FABRIC = fabrics.Fabric(
    metadata=meta.ObjectMeta(name="f"), spec=fabrics.FabricSpec(adapter="here", endpoint="e")
)


class Listener:
    """Ignores all changes."""

    def ignore(self, *_):
        """Ignore the call."""

    device_changed = hosts_changed = operation_changed = operation_admitted = ignore
    troubles_changed = connection_changed = ignore


class Manager:
    """A fabric's manager, which is its adapter and the adapter's class; a watch yields what is put into `events`.

    Attributes:
        devices_now, hosts_now, unread_now: what a listing shows.
        listed: when the listings began, on the loop's clock.
    """

    def __init__(self):
        self.devices_now, self.hosts_now, self.unread_now = (), (), ()
        self.events, self.listed = asyncio.Queue(), []

    def validate(self, config):
        """Accept any configuration."""

    async def connect(self, config):
        return self

    async def capabilities(self):
        return contract.Capabilities(watch=True)

    async def devices(self):
        self.listed.append(asyncio.get_running_loop().time())
        return contract.Inventory(
            version=str(len(self.listed)), devices=self.devices_now, unread=self.unread_now
        )

    async def hosts(self):
        return self.hosts_now

    @contextlib.asynccontextmanager
    async def watch(self, version):
        yield self._yield_events()

    async def _yield_events(self):
        while True:
            yield await self.events.get()

    async def close(self):
        """Do nothing, as there is nothing to release."""


@contextlib.asynccontextmanager
async def running(manager, listener=None, *, held=None, seconds=1, fabric=FABRIC):
    """Run a session with the manager; yield it after so many seconds of virtual time.

    `held` is what the cluster holds."""
    opened = session.Session(fabric, listener or Listener(), lambda name: manager)
    if held is not None:
        opened.update_holdings(held)
    task = asyncio.Task(opened.run())
    await asyncio.sleep(seconds)
    try:
        yield opened
    finally:
        task.cancel()
        await asyncio.wait({task}, timeout=connection.CLOSE_SECONDS + 1)
        assert task.cancelled()
