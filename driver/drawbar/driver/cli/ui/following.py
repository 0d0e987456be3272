"""Keeps the page current: follows the cluster by watches, and makes a page of it after each change."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from drawbar.driver import errors
from drawbar.driver.cli.status import live
from drawbar.driver.cli.ui import device_rows, model
from drawbar.driver.kube import client

# So long changes are collected, since each page compares all rows.
PAUSE_SECONDS = 0.03
# A collection that cannot be followed any more is no change of an object.
LOOK_SECONDS = 2.0


class Latest:
    """The newest page, and waiting for a newer one."""

    def __init__(self) -> None:
        self.page = model.Page()
        self._newer = asyncio.Event()

    def publish(self, page: model.Page) -> None:
        """Replace the page; who waits for a newer one goes on."""
        self.page = page
        self._newer.set()
        self._newer = asyncio.Event()

    async def after(self, page: model.Page) -> model.Page:
        """Return the newest page as soon as that is another than `page`."""
        while self.page is page:
            await self._newer.wait()
        return self.page


@contextlib.asynccontextmanager
async def following(api: client.Client, *, driver: str) -> AsyncIterator[Latest]:
    """`async with`: yield the page once the cluster has been read, and keep it current meanwhile.

    Raises:
        errors.DrawbarError: see `live.Live.ready`.
    """
    wake = asyncio.Event()
    shown = device_rows.Rows(driver)
    latest = Latest()

    def changed(old: object | None, new: object | None) -> None:
        shown.change(old, new)
        wake.set()

    async with live.following(api, driver=driver, changed=changed) as cluster:
        latest.publish(page(cluster, shown))
        try:
            async with asyncio.TaskGroup() as tasks:
                keeping = tasks.create_task(_keep(cluster, shown, wake, latest), name="page")
                yield latest
                keeping.cancel()
        except* errors.DrawbarError as group:
            raise group.exceptions[0] from None


async def _keep(cluster: live.Live, shown: device_rows.Rows, wake: asyncio.Event, latest: Latest) -> None:
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await wake.wait()
        if wake.is_set() or cluster.unread() != latest.page.unread:
            wake.clear()
            latest.publish(page(cluster, shown))
            await asyncio.sleep(PAUSE_SECONDS)


def page(cluster: live.Live, shown: device_rows.Rows) -> model.Page:
    """Return the page of what was followed so far."""
    listed = shown.current()
    return model.Page(
        rows=listed,
        fabrics=model.list_fabrics(cluster.fabrics(), listed.values()),
        claims=shown.pending(),
        events=model.list_events(cluster.events(model.EVENTS)),
        unread=cluster.unread(),
    )
