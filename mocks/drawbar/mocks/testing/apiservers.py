"""The API server double in a thread, as the fixture `drawbar_apiserver` gives it."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from drawbar.mocks import apiserver
from drawbar.mocks.testing import background

Answer = TypeVar("Answer")


class RunningApiServer:
    """An API server that serves HTTPS on 127.0.0.1.

    Attributes:
        url: where.
        kubeconfig: the file of a caller who may do everything.
    """

    def __init__(self, running: background.Background[apiserver.ApiServer], folder: Path) -> None:
        self._running = running
        self._folder = folder
        self.url = running.server.url
        self.kubeconfig = self.account("admin")

    def account(self, user: str, *, node: str | None = None) -> Path:
        """A kubeconfig for a caller: `NAMESPACE:NAME` of a service account, or the plain name of a user.

        Args:
            user: the caller.
            node: the node that a service account's token is bound to.
        """
        name = "-".join([user.replace(":", "-"), *([node] if node else [])])

        async def write(server: apiserver.ApiServer) -> Path:
            return server.kubeconfig(self._folder / f"{name}.kubeconfig", user, node=node)

        return self._running.call(write)

    def call(self, function: Callable[[apiserver.ApiServer], Awaitable[Answer]]) -> Answer:
        """Runs a coroutine function with the server itself, in its loop: to look at `writes`, or to set `faults`."""
        return self._running.call(function)


@contextlib.contextmanager
def running(folder: Path, *, profile: str, gates: Mapping[str, bool] | None) -> Iterator[RunningApiServer]:
    """A server for as long as the block lasts; kubeconfigs go into `folder`.

    Raises:
        ValueError: the profile or a gate is unknown.
    """
    with background.running(
        lambda: apiserver.serving(profile=profile, gates=gates, tls=True), "drawbar-apiserver"
    ) as server:
        yield RunningApiServer(server, folder)
