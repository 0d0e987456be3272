"""An asynchronous server in a thread with a loop of its own, so that any test can use it, asynchronous or not."""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

Server = TypeVar("Server")
Answer = TypeVar("Answer")
SECONDS = 30.0


class Background(Generic[Server]):
    """A server that runs; make it with `running`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: Server) -> None:
        self._loop = loop
        self.server = server

    def call(self, function: Callable[[Server], Awaitable[Answer]]) -> Answer:
        """Runs a coroutine function with the server in the server's own loop, and gives what it returns.

        Raises:
            TimeoutError: it takes longer than `SECONDS`.
        """

        async def work() -> Answer:
            async with asyncio.timeout(SECONDS):
                return await function(self.server)

        return asyncio.run_coroutine_threadsafe(work(), self._loop).result()


@contextlib.contextmanager
def running(
    opened: Callable[[], AbstractAsyncContextManager[Server]], name: str
) -> Iterator[Background[Server]]:
    """Runs a server for as long as the block lasts; what goes wrong with it is raised here."""
    ready: concurrent.futures.Future[tuple[Background[Server], asyncio.Event]] = concurrent.futures.Future()

    async def live() -> None:
        stop = asyncio.Event()
        async with opened() as server:
            ready.set_result((Background(asyncio.get_running_loop(), server), stop))
            await stop.wait()

    with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix=name) as pool:
        life = pool.submit(lambda: asyncio.run(live()))
        either: tuple[concurrent.futures.Future[Any], ...] = (ready, life)
        concurrent.futures.wait(either, return_when=concurrent.futures.FIRST_COMPLETED)
        if life.done():
            life.result()
        background, stop = ready.result()
        try:
            yield background
        finally:
            if not life.done():
                background._loop.call_soon_threadsafe(stop.set)  # noqa: SLF001 - its maker ends it
            life.result()
