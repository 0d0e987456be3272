"""Clients of the API server double, and of servers whose answers a test writes."""

import contextlib

from aiohttp import web

from drawbar.driver.api import meta
from drawbar.driver.kube import client, config, sessions
from drawbar.mocks import apiserver


class Thing(meta.Struct, frozen=True):
    """Any object, by its metadata."""

    metadata: meta.ObjectMeta


def connection(url, authorization=None):
    return sessions.Connection(server=url, tls=None, authorization=lambda: authorization, origin="test")


@contextlib.asynccontextmanager
async def double(folder, user="admin"):
    """Run an API server; yield it with a client of this user."""
    async with apiserver.serving() as server:
        kubeconfig = config.from_kubeconfig(server.kubeconfig(folder / "kubeconfig", user))
        async with client.connecting(kubeconfig) as api:
            yield server, api


@contextlib.asynccontextmanager
async def answering(handler, *, tls=None):
    """Run a server that answers each request by `handler`; yield its URL."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
