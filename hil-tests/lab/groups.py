"""Task groups around a test's own code, without changing what it raises."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def tasks() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group whose single error is raised as it is, so that a failed test shows its own assertion."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        found: BaseException = errors
        while isinstance(found, BaseExceptionGroup) and len(found.exceptions) == 1:
            found = found.exceptions[0]
        raise found from found.__cause__
