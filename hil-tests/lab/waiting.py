"""Waiting for a condition that can only be read, and task groups around a test's own code."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

DEADLINE_SECONDS = 60.0
PAUSE_SECONDS = 0.1

Value = TypeVar("Value")


async def until(
    read: Callable[[], Awaitable[Value]],
    holds: Callable[[Value], Any] = bool,
    seconds: float = DEADLINE_SECONDS,
) -> Value:
    """Read until the value holds; return it.

    Raises:
        AssertionError: it does not within `seconds`; shows the last value.
    """
    value: Value | None = None
    try:
        async with asyncio.timeout(seconds):
            while True:
                value = await read()
                if holds(value):
                    return value
                await asyncio.sleep(PAUSE_SECONDS)
    except TimeoutError as error:
        raise AssertionError(f"after {seconds:.0f} s it is still {value}") from error


@contextlib.asynccontextmanager
async def tasks() -> AsyncIterator[asyncio.TaskGroup]:
    """Yield a task group that raises a single error as it is: a failed test shows its own assertion."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        error: BaseException = errors
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from error.__cause__
