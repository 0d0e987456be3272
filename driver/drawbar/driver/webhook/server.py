"""The HTTPS server that the API server asks.

It does not know who calls, so it gives nothing away: an answer depends on the question alone. What callers can make it
hold is bounded: `AT_ONCE` questions of `BODY_BYTES`, each sent within `READ_SECONDS`.
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator

import msgspec
from aiohttp import web

from drawbar.driver.operation import errors
from drawbar.driver.webhook import review, settings

log = logging.getLogger(__name__)

PATH = "/validate"
# An object has 1.5 MiB at most (etcd), and an update sends two.
BODY_BYTES = 4 << 20
AT_ONCE = 16
READ_SECONDS = 5.0
SHUTDOWN_SECONDS = 2.0


@contextlib.asynccontextmanager
async def serving(driver: str, where: settings.Listen, context: ssl.SSLContext) -> AsyncIterator[int]:
    """Answers while the context lasts; gives the port.

    Raises:
        errors.AddressError: the address cannot be listened on.
    """
    runner = web.AppRunner(_application(driver), access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        site = web.TCPSite(runner, where.address, where.port, ssl_context=context)
        try:
            await site.start()
        except OSError as error:
            raise errors.AddressError(
                f"cannot listen on {where.address} port {where.port}: {error.strerror or error}; choose another by "
                f"--listen-address and --listen-port"
            ) from error
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _application(driver: str) -> web.Application:
    turns = asyncio.Semaphore(AT_ONCE)

    async def validate(request: web.Request) -> web.Response:
        async with turns:
            try:
                async with asyncio.timeout(READ_SECONDS):
                    body = await request.read()
            except TimeoutError:
                return web.Response(status=408, text="the request took too long\n")
            return _answered(body, driver)

    async def alive(request: web.Request) -> web.Response:
        del request
        return web.Response(text="ok\n")

    application = web.Application(client_max_size=BODY_BYTES)
    application.router.add_post(PATH, validate)
    application.router.add_get("/healthz", alive)
    return application


def _answered(body: bytes, driver: str) -> web.Response:
    try:
        request = review.read(body)
    except review.Unreadable as error:
        return web.Response(status=400, text=f"{error}\n")
    found = review.answer(request, driver)
    if not found["response"]["allowed"]:
        log.info("parameters refused", extra={"kind": request.kind.kind, "uid": request.uid})
    return web.Response(body=msgspec.json.encode(found), content_type="application/json")
