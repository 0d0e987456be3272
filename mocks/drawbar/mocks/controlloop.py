"""Shared code of the doubles of controllers and schedulers: start of mirrors, workers, and errors of tasks."""

import asyncio
from collections.abc import Sequence
from typing import Any

from drawbar.mocks import errors
from drawbar.mocks.kube import mirror, workqueue

WORKERS = 4


async def start_mirrors(group: asyncio.TaskGroup, name: str, mirrors: Sequence[mirror.Mirror[Any]]) -> None:
    """Start the mirrors as tasks of the group, named after the double; return when each has received its first list."""
    for number, copy in enumerate(mirrors):
        group.create_task(copy.run(), name=f"{name}-mirror-{number}")
    for copy in mirrors:
        await copy.synced.wait()


async def run(
    name: str,
    mirrors: Sequence[mirror.Mirror[Any]],
    queue: workqueue.WorkQueue[workqueue.K],
    reconcile: workqueue.Reconcile[workqueue.K],
    ready: asyncio.Event,
) -> None:
    """Run the mirrors, and workers that reconcile the keys of the queue, until cancelled.

    Sets `ready` when the first lists were received. A failed request of a key is repeated after that key's back-off.
    """
    try:
        async with asyncio.TaskGroup() as group:
            await start_mirrors(group, name, mirrors)
            ready.set()
            for number in range(WORKERS):
                work = queue.run(reconcile)
                group.create_task(work, name=f"{name}-worker-{number}")
    finally:
        queue.close()


def first_error(group: BaseExceptionGroup[errors.MockError]) -> errors.MockError:
    """Return the first error of a group, however deeply it is nested."""
    inner: BaseException = group
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    assert isinstance(inner, errors.MockError)
    return inner
