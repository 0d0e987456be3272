"""What tests of a whole cluster in one process have in common: our daemons as tasks, objects, and waiting for something.

Not here: the doubles, of which each test needs others.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from drawbar.driver.kube import client, kinds
from drawbar.mocks import kubelet, sysfs

POLL_SECONDS = 0.02
KUBELET = kubelet.Settings(
    reconcile_seconds=0.05, retry_first_seconds=0.05, resync_seconds=0.5, unprepare_seconds=0.2
)
"""A kubelet that waits for nothing longer than it must."""

T = TypeVar("T")


class World:
    """A cluster as its administrator sees it; `stop_all` must be called in the end.

    Attributes:
        api: with all rights.
    """

    def __init__(self, api: client.Client) -> None:
        self.api = api
        self._daemons: dict[str, asyncio.Task[None]] = {}

    def run(self, name: str, daemon: Coroutine[Any, Any, None]) -> None:
        """Starts a daemon; `until` raises what it ends with."""
        self._daemons[name] = asyncio.Task(daemon, name=name)

    async def stop(self, name: str) -> None:
        """Ends a daemon, in order."""
        task = self._daemons.pop(name)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def stop_all(self) -> None:
        """Ends those that run."""
        for name in tuple(self._daemons):
            await self.stop(name)

    async def create(
        self, kind: kinds.Kind, name: str, namespace: str | None = None, **content: Any
    ) -> dict[str, Any]:
        """Makes an object; gives it as it is stored."""
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, **content}
        return await self.api.create(kind, body, namespace=namespace, into=dict)

    async def until(
        self, read: Callable[[], Awaitable[T]], holds: Callable[[T], Any], seconds: float = 30
    ) -> T:
        """Reads until it holds; gives what was read then.

        Raises:
            TimeoutError: it never did.
        """
        async with asyncio.timeout(seconds):
            while not holds(value := await read()):
                for daemon in self._daemons.values():
                    # One that ended did so because of something that it can say.
                    if daemon.done():
                        daemon.result()
                await asyncio.sleep(POLL_SECONDS)
            return value


def disk(number: int) -> dict[str, Any]:
    """An NVMe disk in the configuration of the simulated fabric."""
    identity = {"serial": f"SN000{number}", "pciVendor": 0x144D, "pciDevice": 0xA824}
    return {"id": f"disk-{number}", "class": "nvme", "model": "M1"} | identity


def trees(path: Path, nodes: Iterable[str]) -> dict[str, sysfs.SysfsTree]:
    """By node a mocked /sys with four slots, below a folder of its name, and the socket of its uevents beside it."""
    found = {}
    for name in nodes:
        (path / name).mkdir()
        found[name] = sysfs.SysfsTree.create(
            path / name / "sys", slots=4, uevent_socket=path / name / "uevents"
        )
    return found
