"""Shared code of the doubles of controllers and schedulers: start of mirrors, workers, and errors of tasks."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from drawbar.driver import errors
from drawbar.driver.kube import mirror, workers

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
    queue: workers.WorkQueue[workers.K],
    reconcile: workers.Reconcile[workers.K],
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
                work = queue.run(reconcile, lambda key: {"key": key}, level=lambda _: logging.INFO)
                group.create_task(work, name=f"{name}-worker-{number}")
    finally:
        queue.close()


def first_error(group: BaseExceptionGroup[errors.DrawbarError]) -> errors.DrawbarError:
    """Return the first error of a group, however deeply it is nested."""
    inner: BaseException = group
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    assert isinstance(inner, errors.DrawbarError)
    return inner
