"""Serving the kubelet for as long as a block lasts.

The service listens before the registration socket appears, since the kubelet dials at once; on the way out the
registration goes first, so that the kubelet sends nothing more.
"""

import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import grpc

from drawbar.driver.node.plugin import servicers, sockets

log = logging.getLogger(__name__)

STOP_GRACE_SECONDS = 2.0


@asynccontextmanager
async def serving(
    driver: str, where: sockets.Sockets, preparation: servicers.Preparation
) -> AsyncIterator[None]:
    """Both servers listen once entered.

    Raises:
        errors.SocketError: a socket cannot be made.
    """
    sockets.prepare(where)
    service, registrar = grpc.aio.server(), grpc.aio.server()
    try:
        with _owner_only():
            servicers.add_service(service, preparation, where.service)
        await service.start()
        with _owner_only():
            servicers.add_registration(registrar, driver, where.service, where.registration)
        await registrar.start()
        log.info("serving the kubelet", extra={"registration": str(where.registration)})
        yield
    finally:
        await registrar.stop(STOP_GRACE_SECONDS)
        await service.stop(STOP_GRACE_SECONDS)


@contextmanager
def _owner_only() -> Iterator[None]:
    """Files made meanwhile belong to the owner alone: these sockets hand out hardware."""
    mask = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(mask)
