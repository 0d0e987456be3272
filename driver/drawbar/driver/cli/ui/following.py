"""The page, made from watches of the cluster after each change."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from drawbar.driver import errors
from drawbar.driver.cli.status import live
from drawbar.driver.cli.ui import device_rows, model
from drawbar.driver.kube import client

# Changes within this time share one page, since each page compares all rows.
PAUSE_SECONDS = 0.03
# A lost collection changes no object, so it is checked at intervals.
LOOK_SECONDS = 2.0


class Latest:
    """The newest page, and a way to wait for the next."""

    def __init__(self) -> None:
        self.page = model.Page()
        self._newer = asyncio.Event()

    def publish(self, page: model.Page) -> None:
        """Replace the page, and wake all waiters."""
        self.page = page
        self._newer.set()
        self._newer = asyncio.Event()

    async def after(self, page: model.Page) -> model.Page:
        """Return the newest page as soon as it differs from `page`."""
        while self.page is page:
            await self._newer.wait()
        return self.page


@contextlib.asynccontextmanager
async def following(api: client.Client, *, driver: str, cluster_name: str = "") -> AsyncIterator[Latest]:
    """Yield the page once the cluster has been read, and keep it current.

    Args:
        api: the API server.
        driver: the DRA driver's name.
        cluster_name: the name for people; by default the server's URL.

    Raises:
        errors.DrawbarError: see `live.Live.ready`.
    """
    wake = asyncio.Event()
    about = model.About(cluster=cluster_name or api.server, server=api.server, driver=driver)
    shown = device_rows.Rows(driver)
    latest = Latest()

    def changed(old: object | None, new: object | None) -> None:
        shown.change(old, new)
        wake.set()

    async with live.following(api, driver=driver, changed=changed) as cluster:
        latest.publish(page(about, cluster, shown))
        try:
            async with asyncio.TaskGroup() as tasks:
                keeping = tasks.create_task(_keep(about, cluster, shown, wake, latest), name="page")
                yield latest
                keeping.cancel()
        except* errors.DrawbarError as group:
            raise group.exceptions[0] from None


async def _keep(
    about: model.About, cluster: live.Live, shown: device_rows.Rows, wake: asyncio.Event, latest: Latest
) -> None:
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await wake.wait()
        if wake.is_set() or cluster.unread() != latest.page.unread:
            wake.clear()
            latest.publish(page(about, cluster, shown))
            await asyncio.sleep(PAUSE_SECONDS)


def page(about: model.About, cluster: live.Live, shown: device_rows.Rows) -> model.Page:
    """Return the page of the cluster's present state."""
    listed = shown.current()
    pending = shown.pending(are_pods_known="pods" not in cluster.unlisted())
    unused = sum(claim.severity == "note" for claim in pending)
    return model.Page(
        about=about,
        rows=listed,
        fabrics=model.list_fabrics(cluster.fabrics(), listed.values()),
        claims=pending[: model.CLAIMS],
        waiting=len(pending) - unused,
        unused=unused,
        events=model.list_events(cluster.events(model.EVENTS)),
        unread=cluster.unread(),
    )
