"""The page, made from watches of the cluster after each change."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from types import MappingProxyType

from drawbar.driver import errors, evaluation
from drawbar.driver.api import meta
from drawbar.driver.cli.explain import pending
from drawbar.driver.cli.status import live
from drawbar.driver.cli.ui import device_rows, model
from drawbar.driver.kube import client

# Changes within this time share one page, since each page compares all rows.
PAUSE_SECONDS = 0.03
# A lost collection changes no object, so it is checked at intervals.
LOOK_SECONDS = 2.0
# The reasons of waiting claims cost an evaluation of all devices.
REASONS_SECONDS = 5.0


class Waits:
    """The reasons of the first waiting claims, by namespace and name; see `pending.find_reasons`."""

    def __init__(self) -> None:
        self.reasons: Mapping[tuple[str, str], str] = {}


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

    async def wait_for_newer(self, page: model.Page) -> model.Page:
        """Return the newest page as soon as it differs from `page`."""
        while self.page is page:
            await self._newer.wait()
        return self.page


@contextlib.asynccontextmanager
async def following(
    api: client.Client, *, driver: str, cluster_name: str = "", reader: str = ""
) -> AsyncIterator[Latest]:
    """Yield the page once the cluster has been read, and keep it current.

    Args:
        api: the API server.
        driver: the DRA driver's name.
        cluster_name: the name for people; by default the server's URL.
        reader: the user who logged in.

    Raises:
        errors.DrawbarError: see `live.Live.ready`.
    """
    wake = asyncio.Event()
    about = model.About(cluster=cluster_name or api.server, server=api.server, driver=driver, reader=reader)
    shown = device_rows.Rows(driver)
    latest, waits = Latest(), Waits()

    def note_change(old: object | None, new: object | None) -> None:
        shown.change(old, new)
        wake.set()

    async with live.following(api, driver=driver, changed=note_change) as cluster:

        def draw() -> model.Page:
            return page(about, cluster, shown, waits.reasons)

        latest.publish(draw())
        try:
            async with asyncio.TaskGroup() as tasks:
                running = (
                    tasks.create_task(_keep(draw, cluster, latest, wake), name="page"),
                    tasks.create_task(_find_reasons(api, cluster, latest, waits, wake), name="reasons"),
                )
                yield latest
                for task in running:
                    task.cancel()
        except* errors.DrawbarError as group:
            raise group.exceptions[0] from None


async def _find_reasons(
    api: client.Client, cluster: live.Live, latest: Latest, waits: Waits, wake: asyncio.Event
) -> None:
    evaluator = evaluation.Process()
    try:
        while True:
            seen = latest.page
            devices = [row.device for row in seen.rows.values()]
            # The next page is tried after any answer of the API server.
            with contextlib.suppress(errors.DrawbarError):
                found = await pending.find_reasons(api, evaluator, seen.claims, devices, cluster.cluster())
                if found != waits.reasons:
                    waits.reasons = found
                    wake.set()
            await asyncio.sleep(REASONS_SECONDS)
            await latest.wait_for_newer(seen)
    finally:
        await evaluator.aclose()


async def _keep(
    draw: Callable[[], model.Page], cluster: live.Live, latest: Latest, wake: asyncio.Event
) -> None:
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await wake.wait()
        if wake.is_set() or (cluster.unread(), find_stale(cluster)) != (
            latest.page.unread,
            latest.page.stale,
        ):
            wake.clear()
            latest.publish(draw())
            await asyncio.sleep(PAUSE_SECONDS)


def page(
    about: model.About,
    cluster: live.Live,
    shown: device_rows.Rows,
    reasons: Mapping[tuple[str, str], str] = MappingProxyType({}),
) -> model.Page:
    """Return the page of the cluster's present state, with the known reasons of waiting claims."""
    listed = shown.current()
    unlisted = cluster.find_unlisted()
    unallocated = shown.list_pending(are_pods_known="pods" not in unlisted)
    unused = sum(claim.severity == "note" for claim in unallocated)
    return model.Page(
        about=about,
        rows=listed,
        fabrics=model.list_fabrics(cluster.fabrics(), listed.values(), is_listed="fabrics" not in unlisted),
        claims=pending.give_reasons(unallocated[: model.CLAIMS], reasons),
        waiting=len(unallocated) - unused,
        unused=unused,
        events=model.list_events(cluster.events(model.EVENTS)),
        unread=cluster.unread(),
        stale=find_stale(cluster),
    )


def find_stale(cluster: live.Live) -> model.Stale:
    """Return the collections with old content, and its time."""
    current_until = cluster.find_stale()
    if not current_until:
        return model.Stale()
    return model.Stale(
        kinds=() if cluster.is_unreachable else tuple(current_until),
        since=meta.timestamp(min(current_until.values())),
    )
