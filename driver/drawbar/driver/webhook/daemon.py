"""The webhook as a daemon: its certificate, and the HTTPS server for the API server. It sends no requests itself.

The server does not authenticate callers, so an answer depends only on the question. The questions are bounded in size
(`Bounds`), and so are the number of connections and their idle time. If there are too many connections, the one with
the oldest question is closed. If too many questions are being read, the one that has been read longest is dropped for
a new one. So a slow caller keeps no client out, and an API server's question ends long before.
"""

import asyncio
import contextlib
import logging
import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator

import msgspec
from aiohttp import web

from drawbar.driver import containment
from drawbar.driver.configuration import loader
from drawbar.driver.operation import address, certificates, gate
from drawbar.driver.webhook import review, settings

log = logging.getLogger(__name__)

PATH = "/validate"
# An object has 1.5 MiB at most (etcd), and an update sends two.
BODY_BYTES = 4 << 20
AT_ONCE = 16
# As long as the API server waits for an answer (`timeoutSeconds` in the chart).
READ_SECONDS = 5.0
# The API server closes its own idle connections after 90 s (client-go), so no question arrives during a close
# from here.
IDLE_SECONDS = 120.0
SHUTDOWN_SECONDS = 2.0


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The limits for callers.

    Attributes:
        at_once: the most questions read at a time, each of `BODY_BYTES` at most.
        read_seconds: the longest time to send one.
        idle_seconds: the longest time of a connection without a complete head of a question.
        connections: their number, and the longest time of a handshake.
    """

    at_once: int = AT_ONCE
    read_seconds: float = READ_SECONDS
    idle_seconds: float = IDLE_SECONDS
    connections: gate.Limits = msgspec.field(default_factory=gate.Limits)


DEFAULTS = Bounds()


@contextlib.asynccontextmanager
async def serving(
    driver: str,
    where: settings.Listen,
    context: ssl.SSLContext,
    bounds: Bounds = DEFAULTS,
    contained: containment.Containment | None = None,
) -> AsyncIterator[int]:
    """Serve while the context lasts and yield the port. Unexpected errors are `contained` and answered with 500.

    Raises:
        errors.AddressError: the address cannot be listened on.
    """
    entrance = gate.Gate(context, bounds.connections)
    runner = web.AppRunner(
        _application(driver, bounds, contained or containment.Uncontained(), entrance),
        access_log=None,
        shutdown_timeout=SHUTDOWN_SECONDS,
        keepalive_timeout=bounds.idle_seconds,
    )
    await runner.setup()
    handlers = runner.server
    assert handlers is not None
    try:
        try:
            server = await asyncio.get_running_loop().create_server(
                entrance.wrap(handlers), where.address, where.port
            )
        except OSError as error:
            raise address.make_listen_error(where.address, where.port, error) from error
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            entrance.close()
    finally:
        await runner.cleanup()


def _application(
    driver: str,
    bounds: Bounds,
    contained: containment.Containment,
    entrance: gate.Gate,
) -> web.Application:
    # Questions that are being read, the oldest first.
    reading: OrderedDict[asyncio.Timeout, None] = OrderedDict()

    async def validate(request: web.Request) -> web.Response:
        entrance.touch(request.transport)
        if len(reading) >= bounds.at_once:
            oldest, _ = reading.popitem(last=False)
            oldest.reschedule(asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(bounds.read_seconds) as deadline:
                reading[deadline] = None
                try:
                    body = await request.read()
                finally:
                    reading.pop(deadline, None)
        except TimeoutError:
            return web.Response(status=408, text="the request took too long\n")
        except ConnectionError:
            # The client has gone; an exception would fill the log.
            return web.Response(status=400)
        with contained.attempt("reviews"):
            return _answer(body, driver)
        return web.Response(
            status=500, text=f"unexpected error; look for '{containment.MESSAGE}' in the log\n"
        )

    async def alive(request: web.Request) -> web.Response:
        entrance.touch(request.transport)
        return web.Response(text="ok\n")

    application = web.Application(client_max_size=BODY_BYTES)
    application.router.add_post(PATH, validate)
    application.router.add_get("/healthz", alive)
    return application


def _answer(body: bytes, driver: str) -> web.Response:
    try:
        request = review.read(body)
    except review.Unreadable as error:
        return web.Response(status=400, text=f"{error}\n")
    answer = review.answer(request, driver)
    if not answer["response"]["allowed"]:
        log.info("parameters refused", extra={"kind": request.kind.kind, "uid": request.uid})
    return web.Response(body=msgspec.json.encode(answer), content_type="application/json")


async def run(options: settings.Settings) -> None:
    """Run until cancelled.

    Raises:
        errors.DrawbarError: the configuration is wrong.
    """
    loader.refuse(settings.problems(options))
    held = certificates.Certificates(options.tls.certificate, options.tls.key)
    context = await held.load()
    contained = containment.Containment()
    with contained.callbacks():
        async with (
            serving(options.driver, options.listen, context, contained=contained) as port,
            asyncio.TaskGroup() as tasks,
        ):
            contained.start(tasks, "certificate", held.follow)
            log.info("webhook is ready", extra={"driver": options.driver, "port": port})
            await asyncio.get_running_loop().create_future()
