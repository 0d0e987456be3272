"""Who has which device on this node, and the changes to that, durable before they count.

Guarantees: one write at a time, among the tasks of this process and among the instances of a rolling update; changes
that wait while another write is under way go into the next one together, so that many claims cost few writes; what has
begun to be written is written to its end, whoever is cancelled meanwhile (the kubelet gives up a call after 45 s).
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

from drawbar.cdi import spec
from drawbar.driver.node import checkpoint, errors
from drawbar.driver.node.preparation import records, sharedfiles, store, worker

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What a start makes of what it found.

    Attributes:
        content: the record from now on.
        specs: by claim uid the CDI files to write again.
        strays: uids of the claims whose CDI files go.
    """

    content: records.Content
    specs: Mapping[str, spec.Spec]
    strays: frozenset[str] = frozenset()


@dataclass(slots=True, kw_only=True, eq=False)
class _Waiting:
    change: store.Change
    answered: bool = False
    before: records.Content = field(default_factory=records.Content)
    error: errors.NodeError | None = None

    def answer(self, error: errors.NodeError | None) -> None:
        self.answered, self.error = True, error


class Ledger:
    """The checkpoint as this instance knows it. Nothing is read before `restore`."""

    def __init__(self, files: store.Store, *, lock_seconds: float) -> None:
        self._files = files
        self._known = store.Known(content=records.Content(), completed={})
        self._lock_file = files.checkpoint.with_name(f"{files.checkpoint.name}.lock")
        self._lock_seconds = lock_seconds
        self._waiting: list[_Waiting] = []
        self._writing = asyncio.Lock()
        # A thread of its own: a write does not queue behind reads of a slow sysfs.
        self._worker = worker.Worker("checkpoint")

    @property
    def known(self) -> records.Content:
        """What the checkpoint said when this instance last read or wrote it; for what a commit checks again."""
        return self._known.content

    @property
    def content(self) -> records.Content:
        """What the checkpoint says now, whoever wrote it.

        That is two short reads, and a whole one only when another instance wrote. If that fails, what was known holds on.
        """
        stamp = self._known.stamp
        if stamp is not None and not checkpoint.is_current(self._files.checkpoint, stamp):
            try:
                found = checkpoint.read(self._files.checkpoint)
            except errors.CheckpointError as error:
                log.warning("%s; going on with what was known", error)
            else:
                if found is not None:
                    self._known = store.Known(
                        content=found[0], stamp=found[1], completed=self._known.completed
                    )
        return self._known.content

    async def restore(self, decide: Callable[[store.Found], Restored]) -> Restored:
        """Takes up what the last instance left; `decide` says what becomes of it.

        Raises:
            errors.NodeError: the checkpoint or the CDI directory cannot be used.
        """
        async with self._writing, sharedfiles.held(self._lock_file, self._lock_seconds):
            restored = decide(await self._worker.to_its_end(self._files.found))

            def replace() -> store.Known:
                return self._files.replace(restored.content, specs=restored.specs, strays=restored.strays)

            await self._worker.to_its_end(replace, self._learn)
        return restored

    async def commit(self, change: store.Change) -> records.Content:
        """Makes one change, together with whatever else waits; gives what the checkpoint said before, whoever wrote it.

        Raises:
            errors.NodeError: why it was not made.
        """
        mine = _Waiting(change=change)
        self._waiting.append(mine)
        try:
            async with self._writing:
                if not mine.answered:
                    await self._carry_out()
        finally:
            if mine in self._waiting:
                self._waiting.remove(mine)
        if mine.error is not None:
            raise mine.error
        return mine.before

    async def _carry_out(self) -> None:
        """One write for all that waits. The caller holds `_writing`."""
        async with self._answering() as batch, sharedfiles.held(self._lock_file, self._lock_seconds):
            batch.extend(self._waiting)
            self._waiting = []

            known, changes = self._known, [one.change for one in batch]

            def answer(done: store.Round) -> None:
                self._learn(done.known)
                for one, outcome in zip(batch, done.outcomes, strict=True):
                    one.before = done.before
                    one.answer(outcome)

            await self._worker.to_its_end(lambda: self._files.carry_out(known, changes), answer)

    def _learn(self, known: store.Known) -> None:
        self._known = known

    @contextlib.asynccontextmanager
    async def _answering(self) -> AsyncIterator[list[_Waiting]]:
        """Everybody who waits hears of it when the lock cannot be had, instead of trying one after the other."""
        batch: list[_Waiting] = []
        try:
            yield batch
        except errors.CheckpointError as error:
            for one in batch or self._waiting:
                one.answer(error)
            if not batch:
                self._waiting = []
