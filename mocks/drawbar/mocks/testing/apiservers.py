"""The API server double in a thread, for the fixture `drawbar_apiserver`."""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Generic, TypeVar

from drawbar.mocks import apiserver

Answer = TypeVar("Answer")
Server = TypeVar("Server")
SECONDS = 30.0


class _Background(Generic[Server]):
    """A running server; make it with `_running`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: Server) -> None:
        self._loop = loop
        self.server = server

    def call(self, function: Callable[[Server], Awaitable[Answer]]) -> Answer:
        """Run a coroutine function with the server in the server's own loop, and return its result.

        Raises:
            TimeoutError: it takes longer than `SECONDS`.
        """

        async def work() -> Answer:
            async with asyncio.timeout(SECONDS):
                return await function(self.server)

        return asyncio.run_coroutine_threadsafe(work(), self._loop).result()


@contextlib.contextmanager
def _running(
    opened: Callable[[], AbstractAsyncContextManager[Server]], name: str
) -> Iterator[_Background[Server]]:
    """Run a server until the block ends, and yield it. Raise the server's errors here."""
    ready: concurrent.futures.Future[tuple[_Background[Server], asyncio.Event]] = concurrent.futures.Future()

    async def live() -> None:
        stop = asyncio.Event()
        async with opened() as server:
            ready.set_result((_Background(asyncio.get_running_loop(), server), stop))
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


class RunningApiServer:
    """An API server that serves HTTPS on 127.0.0.1.

    Attributes:
        url: the server's address.
        kubeconfig: the administrator's file.
    """

    def __init__(self, running: _Background[apiserver.ApiServer], folder: Path) -> None:
        self._running = running
        self._folder = folder
        self.url = running.server.url
        self.kubeconfig = self.account("admin")

    def account(self, user: str, *, node: str | None = None) -> Path:
        """Return a kubeconfig for a caller: `NAMESPACE:NAME` of a service account, or the plain name of a user.

        Args:
            user: the caller.
            node: the node that a service account's token is bound to.
        """
        name = "-".join([user.replace(":", "-"), *([node] if node else [])])

        async def write(server: apiserver.ApiServer) -> Path:
            return server.kubeconfig(self._folder / f"{name}.kubeconfig", user, node=node)

        return self._running.call(write)

    def call(self, function: Callable[[apiserver.ApiServer], Awaitable[Answer]]) -> Answer:
        """Run a coroutine function with the server in its loop, for example to read `writes` or to set `faults`."""
        return self._running.call(function)


@contextlib.contextmanager
def running(folder: Path, *, profile: str, gates: Mapping[str, bool] | None) -> Iterator[RunningApiServer]:
    """Run a server until the block ends, and yield it; kubeconfigs go into `folder`.

    Raises:
        ValueError: the profile or a gate is unknown.
    """
    with _running(
        lambda: apiserver.serving(profile=profile, gates=gates, tls=True), "drawbar-apiserver"
    ) as server:
        yield RunningApiServer(server, folder)
