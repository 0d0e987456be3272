"""The servers for the kubelet, active while a context lasts.

The service listens before the registration socket appears, because the kubelet dials at once. At the end the registration
stops first, so that the kubelet sends no further calls.
"""

import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import grpc
from google.protobuf import message

from drawbar.driver.node.health import verdicts
from drawbar.driver.node.plugin import classic, health, servicers, sockets
from drawbar.fabric.grpc import starting

log = logging.getLogger(__name__)
# Malformed messages are answered with an error; a traceback for each would fill the log.
logging.getLogger("grpc._cython.cygrpc").addFilter(
    lambda record: not (record.exc_info and isinstance(record.exc_info[1], message.DecodeError))
)

STOP_GRACE_SECONDS = 2.0
# The kubelet keeps a call open for each starting pod, and each call may wait for a device.
CALLS_LIMIT = 1024
REGISTRATION_CALLS_LIMIT = 16


@asynccontextmanager
async def serving(
    driver: str,
    where: sockets.Sockets,
    preparation: servicers.Preparation,
    node_verdicts: verdicts.Verdicts,
    registered: Callable[[bool], None] | None = None,
) -> AsyncIterator[None]:
    """Serve the kubelet while the context lasts; both servers listen once it is entered.

    Args:
        driver: the DRA driver's name.
        where: the paths of the sockets.
        preparation: the implementation of the DRA service.
        node_verdicts: the verdicts for the health service.
        registered: called with whether the kubelet registered the driver.

    Raises:
        errors.SocketError: a socket cannot be made.
    """
    sockets.prepare(where)
    service = grpc.aio.server(maximum_concurrent_rpcs=CALLS_LIMIT)
    registrar = grpc.aio.server(maximum_concurrent_rpcs=REGISTRATION_CALLS_LIMIT)
    streams = health.Streams(node_verdicts)
    try:
        health.add_services(service, streams)
        classic.add_services(service, preparation)
        with _owner_only():
            servicers.add_service(service, preparation, where.service)
        await starting.start(service)
        with _owner_only():
            servicers.add_registration(registrar, driver, where.service, where.registration, registered)
        await starting.start(registrar)
        log.info("serving the kubelet", extra={"registration": str(where.registration)})
        yield
    finally:
        await registrar.stop(STOP_GRACE_SECONDS)
        # A stream has no natural end, and would use up the grace period.
        streams.close()
        await service.stop(STOP_GRACE_SECONDS)


@contextmanager
def _owner_only() -> Iterator[None]:
    """Restrict files made while the context lasts to their owner: these sockets give access to hardware."""
    mask = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(mask)
