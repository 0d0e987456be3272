"""The live view of the cluster in a terminal, until the user quits."""

import asyncio
import contextlib
import datetime

from drawbar.driver import output
from drawbar.driver.cli.terminal import keys, screen
from drawbar.driver.cli.ui import following, model
from drawbar.driver.kube import client

# Ages grow without a change of the cluster.
REDRAW_SECONDS = 1.0


async def show(api: client.Client, *, driver: str, words: str = "") -> None:
    """Show the cluster until the user presses q.

    Args:
        api: the API server.
        driver: the DRA driver's name.
        words: the initial filter.

    Raises:
        errors.DrawbarError: there is no terminal, or the cluster is not reached.
    """
    from rich import live as rich_live

    out = output.console()
    state = screen.State(filter=words)
    wake = asyncio.Event()
    async with following.following(api, driver=driver) as latest:
        with (
            keys.keys(wake.set) as pressed,
            rich_live.Live(console=out, screen=True, auto_refresh=False) as shown,
        ):
            arranged: tuple[model.Page, screen.State] | None = None
            listed: tuple[screen.Line, ...] = ()
            while not state.is_done:
                page = latest.page
                while True:
                    if arranged is None or not screen.lists_same(arranged, (page, state)):
                        listed, arranged = screen.arrange(page, state), (page, state)
                    if not pressed:
                        break
                    state = screen.press(state, pressed.popleft(), listed, page_rows=out.height // 2)
                now = datetime.datetime.now(datetime.UTC)
                drawn = screen.render(state, page, listed, now=now, width=out.width, height=out.height)
                shown.update(drawn, refresh=True)
                await _wait(latest, page, wake)


async def _wait(latest: following.Latest, page: model.Page, wake: asyncio.Event) -> None:
    """Return after a key, a new page or `REDRAW_SECONDS`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REDRAW_SECONDS):
            async with asyncio.TaskGroup() as tasks:
                changed = tasks.create_task(latest.wait_for_newer(page), name="page")
                pressed = tasks.create_task(wake.wait(), name="key")
                await asyncio.wait({changed, pressed}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                pressed.cancel()
    wake.clear()
