"""Waiting for what tells nobody when it happens."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

DEADLINE_SECONDS = 60.0
PAUSE_SECONDS = 0.1

Value = TypeVar("Value")


async def until(
    read: Callable[[], Awaitable[Value]],
    holds: Callable[[Value], Any] = bool,
    seconds: float = DEADLINE_SECONDS,
) -> Value:
    """Reads until the value holds; gives it.

    Raises:
        AssertionError: it does not by then; shows the last value.
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
