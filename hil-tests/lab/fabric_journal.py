"""Keeps the journal of a fabric as the simulated one does: a line when an operation starts and one when it finishes.

It follows what the adapter tells its watchers, so the times are those of the adapter, not of whoever asked it. An
operation that had nothing to do starts and finishes at once.
"""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from drawbar.fabric import contract
from drawbar.mocks.fabric import journal
from lab import waiting


@contextlib.asynccontextmanager
async def writing(adapter: contract.FabricAdapter, path: Path) -> AsyncIterator[None]:
    """Write while the context lasts; the file is there once entered."""
    version = (await adapter.devices()).version
    hosts = [host.id for host in await adapter.hosts()]
    with journal.Journal(path) as kept:
        scribe = _Scribe(kept, hosts[0] if len(hosts) == 1 else "")
        async with adapter.watch(version) as events, waiting.tasks() as tasks:
            follower = tasks.create_task(scribe.follow(events), name="scribe")
            try:
                yield
            finally:
                follower.cancel()


class _Scribe:
    def __init__(self, kept: journal.Journal, only_host: str) -> None:
        self._kept = kept
        self._only_host = only_host
        self._begun: set[str] = set()

    async def follow(self, events: AsyncIterator[contract.WatchEvent]) -> None:
        async for event in events:
            if isinstance(event, contract.OperationChanged):
                self._note_operation(event.operation)

    def _note_operation(self, operation: contract.Operation) -> None:
        if operation.id not in self._begun:
            self._begun.add(operation.id)
            self._write("started", operation, None)
        if operation.done:
            self._begun.discard(operation.id)
            self._write(
                "finished", operation, operation.error.reason if operation.error is not None else None
            )

    def _write(self, what: journal.Event, operation: contract.Operation, error: str | None) -> None:
        device = operation.device
        # Only while it is connected does a device tell where.
        connection = device.connection if device is not None else None
        self._kept.write(
            what,
            operation.kind,
            operation=operation.id,
            request_id=operation.request_id,
            device=device.id if device is not None else "",
            host=connection.host_id if connection is not None else self._only_host,
            error=error,
        )
