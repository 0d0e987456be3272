"""The deadline of one call of the adapter, which each answer of the service extends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish import client


@contextlib.asynccontextmanager
async def extend_deadline(
    config: contract.AdapterConfig, connection: client.Client, *, changes: bool = False
) -> AsyncIterator[None]:
    """Apply the contract's deadline to a block; each answer of the service extends it.

    Args:
        config: with the deadline.
        connection: to the service.
        changes: whether the block may change something.

    Raises:
        DeadlineExceeded: it took longer.
    """
    clock = asyncio.get_running_loop().time
    began, before = clock(), connection.answers
    try:
        async with asyncio.timeout(config.timeout_seconds) as deadline:
            with connection.extending(deadline):
                yield
    except TimeoutError as error:
        raise _build_error(
            config, answers=connection.answers - before, seconds=clock() - began, changes=changes
        ) from error


@contextlib.asynccontextmanager
async def plain(config: contract.AdapterConfig) -> AsyncIterator[None]:
    """Apply the contract's deadline to a block that makes the connection.

    Raises:
        DeadlineExceeded: it took longer.
    """
    clock = asyncio.get_running_loop().time
    began = clock()
    try:
        async with asyncio.timeout(config.timeout_seconds):
            yield
    except TimeoutError as error:
        raise _build_error(config, answers=0, seconds=clock() - began, changes=False) from error


def _build_error(
    config: contract.AdapterConfig, *, answers: int, seconds: float, changes: bool
) -> errors.DeadlineExceeded:
    return errors.DeadlineExceeded(
        f'the Redfish service of "{config.name}" has not answered in time: {answers} answers came in '
        f"{seconds:.0f} s; raise spec.timeoutSeconds, or look at the service",
        side_effects_unknown=changes,
    )
