"""A mocked host that is written to as a kernel is: each write is answered before the next.

async with mocked.host(folder, "lab") as host:
    await host.write("bus/pci/slots/101/power", 1)
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from drawbar.driver.node import uevents
from drawbar.mocks import sysfs
from drawbar.mocks.sysfs import states
from lab import waiting


class Host:
    """A mocked host. Made by `host`.

    Attributes:
        tree: its sysfs.
        events: what its kernel has announced, each as its variables.
    """

    def __init__(self, tree: sysfs.SysfsTree) -> None:
        self.tree = tree
        self.events: list[Mapping[str, str]] = []

    async def write(self, path: str, value: object) -> None:
        """Write to a file that has an effect, and return once the mocked kernel has answered.

        The file's time is in 1970 then, and the tree's lock is free.
        """
        file = self.tree.root / path

        async def is_there() -> bool:
            return file.exists()

        async def is_taken() -> bool:
            return not file.exists() or file.stat().st_mtime_ns == 0

        await waiting.until(is_there)
        file.write_text(f"{value}\n")
        await waiting.until(is_taken)
        await asyncio.to_thread(self._wait_for_lock)

    async def wait_until_removed(self, name: str) -> None:
        """Return once there was an event of the removal of that device."""

        async def is_gone() -> bool:
            return any(
                event["ACTION"] == "remove" and event["DEVPATH"].endswith(f"/{name}") for event in self.events
            )

        await waiting.until(is_gone)

    def _wait_for_lock(self) -> None:
        with states.locking(self.tree.root):
            pass


@contextlib.asynccontextmanager
async def host(folder: Path, layout: str) -> AsyncIterator[Host]:
    """Yield a mocked host of that layout, which reacts."""
    tree = sysfs.SysfsTree.create(folder / "sys", uevent_socket=folder / "u", layout=layout)
    made = Host(tree)

    async def listen(source: uevents.UeventSource) -> None:
        async for event in source.events():
            assert isinstance(event, uevents.Uevent), "events were lost"
            made.events.append(dict(event.properties))

    async with (
        uevents.listening(f"unix:{folder / 'u'}") as source,
        tree.reacting(),
        waiting.tasks() as tasks,
    ):
        task = tasks.create_task(listen(source), name="uevents")
        try:
            yield made
        finally:
            task.cancel()
