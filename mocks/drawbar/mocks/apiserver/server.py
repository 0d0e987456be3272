"""The server as a whole: ``serving`` starts it, and ``ApiServer`` is its handle."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import secrets
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from drawbar.mocks.apiserver import (
    builtin,
    definitions,
    listeners,
    profiles,
    rbac,
    resources,
)
from drawbar.mocks.apiserver.faultcontrol import Control
from drawbar.mocks.apiserver.faults import Faults
from drawbar.mocks.apiserver.gate import Gate
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
        url: its address, without a slash at the end.
        store: the objects, for tests behind the HTTP interface.
        writes: the record of writes.
        faults: the active faults; tests add to them.
        profile: the imitated release.
        certificate: the trusted certificate for clients as PEM, or None over plain HTTP.
    """

    def __init__(self, profile: profiles.Profile, *, history: int, bookmark_seconds: float) -> None:
        """Fill the store with the default objects of every cluster."""
        self.url = ""
        self.certificate: bytes | None = None
        self.store = Store(history=history)
        self.writes = WriteLog()
        self.faults = Faults()
        self.listener: listeners.Listener | None = None
        self._users: dict[str, rbac.User] = {}
        self._tokens: dict[rbac.User, str] = {}
        self._bookmark_seconds = bookmark_seconds
        self._serve(profile)
        self._bootstrap()

    def token_for(self, user: str = "admin", *, node: str | None = None) -> str:
        """Return a bearer token, always the same for the same caller.

        Args:
            user: ``admin`` (in ``system:masters``), ``NAMESPACE:NAME`` of a service account (also in the form
                ``system:serviceaccount:NAMESPACE:NAME``), or the plain name of another user.
            node: the bound node of a service account's token.

        Raises:
            ValueError: a node is given for a caller other than a service account.
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
        return _write_kubeconfig(path, url=self.url, token=token, user=user, certificate=self.certificate)

    def client_context(self) -> ssl.SSLContext | None:
        """Return a TLS context that trusts this server; None over plain HTTP."""
        if self.certificate is None:
            return None
        return ssl.create_default_context(cadata=self.certificate.decode())

    async def restart(self, *, down_seconds: float = 0, gates: Mapping[str, bool] | None = None) -> None:
        """Restart from the clients' view: same port, same objects, users and faults.

        All connections break, and the history of changes is forgotten: a watch or list from an earlier resourceVersion
        gets 410. Waiting requests (for their body or in a fault) are not carried out.

        Args:
            down_seconds: the time of refused connections, in seconds.
            gates: the feature gates from now on, other than the release's defaults; None keeps the present ones.
        """
        if self.listener is None:
            raise RuntimeError("the server does not run; restart it inside its serving() context")
        if down_seconds > 0:
            await self.listener.close()
        if gates is not None:
            self._serve(profiles.profile(self.profile.name).with_gates(gates))
        self._forget_clients(None)
        if down_seconds > 0:
            await asyncio.sleep(down_seconds)
            await self.listener.open()

    def gate(self, *, request_seconds: float) -> Gate:
        """Return the handler of all requests: the front behind the faults."""
        control = Control(self.faults, self._forget_clients)
        return Gate(
            self._answer,
            self.faults,
            self._users,
            control,
            request_seconds=request_seconds,
        )

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        return await self.front.handle(request)

    def _serve(self, profile: profiles.Profile) -> None:
        """Serve the stored objects as a server of this release does."""
        catalogue = resources.Catalogue(builtin.built_in(profile))
        for definition in self.store.collection(builtin.DEFINITIONS.where).items.values():
            catalogue.register(definitions.resource(definition))
        self.profile = profile
        self.registry = Registry(self.store, catalogue, profile, rbac.Authorizer(self.store))
        self.registry.ledger.adopt()
        self.front = Front(
            self.registry, self._users, self.writes, mint=self._mint, bookmark_seconds=self._bookmark_seconds
        )

    def _forget_clients(self, spared: asyncio.BaseTransport | None) -> None:
        self.store.restart()
        if self.listener is not None:
            self.listener.drop(spared)

    def _mint(self, user: rbac.User) -> str:
        return self.token_for(user.name, node=user.node or None)

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
    request_seconds: float = 60,
) -> AsyncIterator[ApiServer]:
    """Run a server on 127.0.0.1 until the block ends; it is ready on entry.

    Args:
        profile: the imitated release: ``1.34``, ``1.36``, ``1.37``, ``1.30-classic`` and ``1.31-classic`` (a
            driver's controller allocates), or ``kep-5055`` (taint slices).
        port: the TCP port, 0 for a free one.
        gates: the feature gates other than the release's defaults.
        tls: true for HTTPS with a temporary certificate; kubectl sends tokens over HTTPS only.
        history: the number of kept changes per resource, for watches to resume and lists to continue.
        bookmark_seconds: the pause between two bookmarks of an idle watch, in seconds.
        request_seconds: the time limit of a request other than a watch, including its body, in seconds.

    Raises:
        ValueError: the profile or a gate is unknown.
        OSError: the port is taken.
    """
    chosen = profiles.profile(profile).with_gates(gates or {})
    server = ApiServer(chosen, history=history, bookmark_seconds=bookmark_seconds)
    gate = server.gate(request_seconds=request_seconds)
    certificate, key = listeners.issue_certificate() if tls else (b"", b"")
    server.certificate = certificate if tls else None
    context = _tls(certificate, key) if tls else None
    async with listeners.listening(gate.handle, port=port, context=context) as listener:
        server.listener = listener
        server.url = f"{'https' if tls else 'http'}://{listeners.HOST}:{listener.port}"
        try:
            await listener.open()
            yield server
        finally:
            server.listener = None
            server.faults.close()
            server.store.close()


def _tls(certificate: bytes, key: bytes) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.TemporaryDirectory(prefix="drawbar-apiserver-") as folder:
        chain = Path(folder, "server.pem")
        chain.touch(mode=0o600)
        chain.write_bytes(certificate + key)
        context.load_cert_chain(chain)
    return context


def _write_kubeconfig(path: Path, *, url: str, token: str, user: str, certificate: bytes | None) -> Path:
    """Write a kubeconfig (JSON, which is YAML) readable only by its owner; replace an old one, and return the path.

    Args:
        path: the file's path.
        url: the server's address.
        token: the bearer token of the user.
        user: the user's name in the file.
        certificate: the trusted certificate for HTTPS, as PEM; None for plain HTTP.
    """
    cluster: dict[str, str] = {"server": url}
    if certificate is not None:
        cluster["certificate-authority-data"] = base64.b64encode(certificate).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "drawbar", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [
            {"name": "drawbar", "context": {"cluster": "drawbar", "user": user, "namespace": "default"}}
        ],
        "current-context": "drawbar",
    }
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)
    fresh.replace(path)
    return path
