"""The watch of a mocked tree with inotify; it carries out the effects of writes as a kernel does.

Guarantees: from entry on, every write that closes its file is handled, in order, from any process. Later devices are
watched from their discovery on, and earlier writes to their triggers are found. A write at that very moment may be
handled twice. The tree's own changes do not count as writes, because they are renames.

The work runs in a thread, because it sends events to sockets that the same loop may read.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from asyncinotify import Inotify, Mask

from drawbar.mocks.sysfs import reactions

_MASK = Mask.CLOSE_WRITE | Mask.CREATE | Mask.MOVED_TO | Mask.ONLYDIR | Mask.DONT_FOLLOW
_WATCHED = ("bus", "devices")
_DRAFT = "."
"""The prefix of the tree's own temporary files."""


@contextlib.asynccontextmanager
async def reacting(root: Path) -> AsyncIterator[None]:
    """React to writes until the block ends; see `SysfsTree.reacting`."""
    with Inotify() as inotify:
        reactor = _Reactor(root, inotify)
        await asyncio.to_thread(reactor.watch_all)
        task = asyncio.Task(reactor.run(), name=f"reactions of {root}")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            await asyncio.to_thread(reactor.finish)
            if not task.cancelled():
                task.result()


class _Reactor:
    def __init__(self, root: Path, inotify: Inotify) -> None:
        self._root = root
        self._inotify = inotify
        # A thread continues after the cancellation of its waiting task.
        self._working = threading.Lock()

    async def run(self) -> None:
        async for event in self._inotify:
            if Mask.Q_OVERFLOW in event:
                await asyncio.to_thread(self._alone, self._look_at_all)
            path = event.path
            if path is None or event.name is None or event.name.name.startswith(_DRAFT):
                continue
            if Mask.ISDIR in event:
                await asyncio.to_thread(self._alone, self._watch_directory, path)
            elif Mask.CLOSE_WRITE in event:
                await asyncio.to_thread(self._alone, self._handle_write, path)

    def finish(self) -> None:
        """Return once no work is in progress."""
        self._alone(lambda: None)

    def _alone(self, work: Callable[..., None], *args: Path) -> None:
        with self._working:
            work(*args)

    def watch_all(self) -> None:
        """Watch all present directories."""
        for name in _WATCHED:
            for _ in self._watch(self._root / name):
                pass

    def _look_at_all(self) -> None:
        for name in _WATCHED:
            self._watch_directory(self._root / name)

    def _watch_directory(self, folder: Path) -> None:
        """Watch a new directory; handle writes to it from before the watch."""
        for each in self._watch(folder):
            with contextlib.suppress(FileNotFoundError):
                for entry in each.iterdir():
                    self._handle_write(entry)

    def _watch(self, folder: Path) -> Iterator[Path]:
        """Watch a directory and all below it; yield each. Skip one that disappears meanwhile."""
        for path, folders, _ in os.walk(folder):
            folders[:] = [name for name in folders if not name.startswith(_DRAFT)]
            try:
                self._inotify.add_watch(path, _MASK)
            except (FileNotFoundError, NotADirectoryError):
                continue
            yield Path(path)

    def _handle_write(self, path: Path) -> None:
        relative = str(path.relative_to(self._root))
        if reactions.is_known(relative):
            reactions.react(self._root, relative)
