"""Watches a mocked tree with inotify, and does what a kernel does when its files are written to.

Guarantees: once entered, a write that closes its file is answered, in order, whoever made it; devices that come later
are watched from the moment that they are seen, and what was written to their triggers before that is found. What is
written at that very moment may be answered twice. The tree's own changes are no writes: they come by rename.

The work is done in a thread, for it sends events to sockets that the same loop may have to read.
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
"""With this begins the name of a file that the tree itself is about to put in place."""


@contextlib.asynccontextmanager
async def reacting(root: Path) -> AsyncIterator[None]:
    """See `SysfsTree.reacting`."""
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
        # A thread goes on when the task that waits for it is cancelled.
        self._working = threading.Lock()

    async def run(self) -> None:
        async for event in self._inotify:
            if Mask.Q_OVERFLOW in event:
                await asyncio.to_thread(self._alone, self._look_at_all)
            path = event.path
            if path is None or event.name is None or event.name.name.startswith(_DRAFT):
                continue
            if Mask.ISDIR in event:
                await asyncio.to_thread(self._alone, self._appeared, path)
            elif Mask.CLOSE_WRITE in event:
                await asyncio.to_thread(self._alone, self._written, path)

    def finish(self) -> None:
        """Returns when nothing is being done."""
        self._alone(lambda: None)

    def _alone(self, work: Callable[..., None], *args: Path) -> None:
        with self._working:
            work(*args)

    def watch_all(self) -> None:
        """Everything that is there."""
        for name in _WATCHED:
            for _ in self._watch(self._root / name):
                pass

    def _look_at_all(self) -> None:
        for name in _WATCHED:
            self._appeared(self._root / name)

    def _appeared(self, folder: Path) -> None:
        """A directory is new: a process may have written to it before the watch began."""
        for each in self._watch(folder):
            with contextlib.suppress(FileNotFoundError):
                for entry in each.iterdir():
                    self._written(entry)

    def _watch(self, folder: Path) -> Iterator[Path]:
        """Watches a directory and all below it; gives each. One that goes meanwhile needs no watch."""
        for place, folders, _ in os.walk(folder):
            folders[:] = [name for name in folders if not name.startswith(_DRAFT)]
            try:
                self._inotify.add_watch(place, _MASK)
            except (FileNotFoundError, NotADirectoryError):
                continue
            yield Path(place)

    def _written(self, path: Path) -> None:
        relative = str(path.relative_to(self._root))
        if reactions.is_known(relative):
            reactions.react(self._root, relative)
