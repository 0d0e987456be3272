"""The server as a whole: ``serving`` starts it, ``ApiServer`` is what its owner holds."""

from __future__ import annotations

import asyncio
import secrets
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from drawbar.mocks.apiserver import certificates, kubeconfigs, profiles, rbac, requests, resources
from drawbar.mocks.apiserver.registry import Registry
from drawbar.mocks.apiserver.routes import Front
from drawbar.mocks.apiserver.storage import Store
from drawbar.mocks.apiserver.strategies import Call
from drawbar.mocks.apiserver.writes import WriteLog

Json = dict[str, Any]
_NAMESPACES = ("default", "kube-system")


class ApiServer:
    """A running server.

    Attributes:
        url: where it listens, without a slash at the end.
        store: the objects, for tests that look behind the HTTP interface.
        writes: the record of writes.
        profile: the release that is imitated.
        certificate: the PEM certificate that clients trust, or None over plain HTTP.
    """

    def __init__(self, profile: profiles.Profile, *, history: int, bookmark_seconds: float) -> None:
        """Fill the store with what every cluster has."""
        self.url = ""
        self.profile = profile
        self.certificate: bytes | None = None
        self.store = Store(history=history)
        self.writes = WriteLog()
        self._users: dict[str, rbac.User] = {}
        self._tokens: dict[rbac.User, str] = {}
        catalogue = resources.Catalogue(resources.built_in(profile))
        self.registry = Registry(self.store, catalogue, profile, rbac.Authorizer(self.store))
        self.front = Front(self.registry, self._users, self.writes, bookmark_seconds=bookmark_seconds)
        self._bootstrap()

    def token_for(self, user: str = "admin", *, node: str | None = None) -> str:
        """A bearer token, always the same for the same caller.

        Args:
            user: ``admin`` (in ``system:masters``), ``NAMESPACE:NAME`` of a service account (also in the form
                ``system:serviceaccount:NAMESPACE:NAME``), or the plain name of another user.
            node: the node that a service account's token is bound to.

        Raises:
            ValueError: a node is given for a caller that is no service account.
        """
        identity = self._identity(user.removeprefix("system:serviceaccount:"), node)
        token = self._tokens.get(identity)
        if token is None:
            token = self._tokens[identity] = secrets.token_urlsafe(24)
            self._users[token] = identity
        return token

    def kubeconfig(self, path: Path, user: str = "admin", *, node: str | None = None) -> Path:
        """Write a kubeconfig for a caller (see ``token_for``) with mode 0600 and return its path."""
        token = self.token_for(user, node=node)
        return kubeconfigs.write(path, url=self.url, token=token, user=user, certificate=self.certificate)

    def client_context(self) -> ssl.SSLContext | None:
        """What an HTTPS client needs to trust this server; None over plain HTTP."""
        if self.certificate is None:
            return None
        return ssl.create_default_context(cadata=self.certificate.decode())

    @staticmethod
    def _identity(user: str, node: str | None) -> rbac.User:
        namespace, colon, name = user.partition(":")
        if colon and namespace != "system":
            return rbac.service_account(namespace, name, node=node or "")
        if node:
            raise ValueError(f"a token with a node needs a service account NAMESPACE:NAME, not {user!r}")
        if user == "admin":
            return rbac.ADMIN
        return rbac.User(name=user, groups=("system:authenticated",))

    def _bootstrap(self) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        plans: list[tuple[str, str, Json]] = [
            ("", "namespaces", {"metadata": {"name": name}}) for name in _NAMESPACES
        ]
        plans += [(resources.RBAC_GROUP, "clusterroles", role) for role in rbac.BOOTSTRAP_ROLES]
        plans += [
            (resources.RBAC_GROUP, "clusterrolebindings", binding) for binding in rbac.BOOTSTRAP_BINDINGS
        ]
        for group, plural, item in plans:
            resource = self.registry.catalogue.get(group, plural)
            call = Call(
                resource=resource,
                version="v1",
                user=rbac.ADMIN,
                verb="create",
                now=now,
                name=item["metadata"]["name"],
                manager="kube-apiserver",
            )
            self.registry.create(call, item)


@asynccontextmanager
async def serving(
    *,
    profile: str = "1.36",
    port: int = 0,
    gates: Mapping[str, bool] | None = None,
    tls: bool = False,
    history: int = 10_000,
    bookmark_seconds: float = 60,
) -> AsyncIterator[ApiServer]:
    """Run a server on 127.0.0.1 for as long as the context lasts; entered means ready.

    Args:
        profile: the Kubernetes release to imitate: ``1.34``, ``1.36`` or ``1.37``.
        port: the TCP port, 0 for a free one.
        gates: feature gates that differ from the release's defaults.
        tls: serve HTTPS with a throw-away certificate; kubectl sends tokens over HTTPS only.
        history: changes kept per resource, for watches to resume and lists to continue.
        bookmark_seconds: the pause between two bookmarks of an idle watch.

    Raises:
        ValueError: the profile or a gate is unknown.
        OSError: the port is taken.
    """
    chosen = profiles.profile(profile).with_gates(gates or {})
    server = ApiServer(chosen, history=history, bookmark_seconds=bookmark_seconds)
    context = _tls(server) if tls else None
    application = web.Application(client_max_size=requests.BODY_LIMIT)
    application.router.add_route("*", "/{path:.*}", server.front.handle)
    runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=2)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=context)
        await site.start()
        server.url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        server.store.close()
        await _stop(runner)


async def _stop(runner: web.AppRunner) -> None:
    """End everything; a TLS client that never says goodbye would otherwise hold its socket for 30 s."""
    handlers = runner.server.connections if runner.server is not None else []
    transports = [handler.transport for handler in handlers if handler.transport is not None]
    await runner.cleanup()
    for transport in transports:
        transport.abort()
    await asyncio.sleep(0)  # lets the event loop close the sockets just aborted


def _tls(server: ApiServer) -> ssl.SSLContext:
    server.certificate, key = certificates.self_signed()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.TemporaryDirectory(prefix="drawbar-apiserver-") as folder:
        chain = Path(folder, "server.pem")
        chain.touch(mode=0o600)
        chain.write_bytes(server.certificate + key)
        context.load_cert_chain(chain)
    return context
