"""The world of one test: unique names, objects that are deleted afterwards, other callers.

Guarantee: everything made through a world is deleted when its test ends, finalizers or not, and nothing else is.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from contract import api, bodies, capabilities, kinds
from contract.api import Json, Reply
from drawbar.mocks.kube import connections

RUN_LABEL = "contract.drawbar.dev/run"
PAUSE_SECONDS = 0.05
_serial = itertools.count(1)


class Corner:
    """One test's corner of a cluster.

    Attributes:
        api: the administrator.
        namespace: the run's namespace; names in it are made unique with `name`.
        can: the abilities of the server.
        poll_seconds: the scheduler's pause between two looks at binding conditions.
        driver: a driver name of this test's own.
        kinds: where kinds are served.
    """

    def __init__(
        self,
        client: api.Client,
        *,
        run: str,
        can: capabilities.Capabilities,
        accounts: dict[str, str],
        poll_seconds: float = 5.0,
        served: Mapping[str, kinds.Kind] = kinds.KINDS,
    ) -> None:
        self.api = client
        self.namespace = run
        self.can = can
        self.kinds = served
        self.poll_seconds = poll_seconds
        self._run = run
        self._accounts = accounts
        self._made: list[str] = []
        self._number = next(_serial)
        self._names = itertools.count(1)
        self.driver = f"{run}-{self._number}.drawbar.dev"

    def name(self, base: str = "x") -> str:
        """Return a name that nothing else has, on the whole cluster."""
        return f"{self._run}-{self._number}-{base}-{next(self._names)}"

    def path(self, plural: str, name: str = "", subresource: str = "", *, namespace: str = "") -> str:
        """Return the path of a collection or of an object.

        Raises:
            AssertionError: the server does not serve the kind, and the test is not marked with that need.
        """
        kind = self.kinds[plural]
        if not self.can.has(kind, plural):
            raise AssertionError(
                f"{self.can.version} does not serve {plural} in {kind.api_version}; mark the test with "
                "pytest.mark.needs, see contract/features.py"
            )
        home = f"/namespaces/{namespace or self.namespace}" if kind.namespaced else ""
        return "/".join(part for part in (f"{kind.prefix}{home}/{plural}", name, subresource) if part)

    def body(self, plural: str, name: str, *, metadata: Json | None = None, **fields: Any) -> Json:
        """Return an object of a kind, labelled as ours."""
        kind = self.kinds[plural]
        values = dict(metadata or {})
        labels = {RUN_LABEL: self._run, **(values.pop("labels", None) or {})}
        named = {"name": name} if name else {}
        return {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {**named, **values, "labels": labels},
            **fields,
        }

    async def make(self, plural: str, name: str = "", *, metadata: Json | None = None, **fields: Any) -> Json:
        """Create an object that must be accepted; without a name it gets a unique one."""
        generated = (metadata or {}).get("generateName")
        named = "" if generated else name or self.name()
        reply = await self.post(plural, self.body(plural, named, metadata=metadata, **fields))
        assert reply.code == 201, reply.body
        made: Json = reply.body
        return made

    async def post(self, plural: str, body: Json, *, client: api.Client | None = None, **query: Any) -> Reply:
        """Try to create an object; it is taken away if that works."""
        namespace = body["metadata"].get("namespace", "")
        collection = self.path(plural, namespace=namespace)
        reply = await (client or self.api).post(collection, body, **query)
        if reply.code == 201 and "dryRun" not in query:
            self.remember(self.path(plural, reply.body["metadata"]["name"], namespace=namespace))
        return reply

    def remember(self, path: str) -> None:
        """Delete this object when the test ends."""
        if path not in self._made:
            self._made.append(path)

    async def until(
        self, plural: str, name: str, holds: Callable[[Json], Any], *, namespace: str = ""
    ) -> Json:
        """Wait until something holds of an object that exists."""
        stored = await self.api.until(
            self.path(plural, namespace=namespace),
            name,
            lambda document: document is not None and holds(document),
        )
        assert stored is not None
        return stored

    async def wait_until_gone(self, plural: str, name: str, *, namespace: str = "") -> None:
        """Wait until an object does not exist."""
        await self.api.until(self.path(plural, namespace=namespace), name, lambda document: document is None)

    async def eventually(self, ask: Callable[[], Awaitable[Reply]], holds: Callable[[Reply], Any]) -> Reply:
        """Repeat a request until `holds` is true of the answer, for late effects without an event."""
        deadline = time.monotonic() + api.PATIENCE_SECONDS
        while not holds(reply := await ask()):
            assert time.monotonic() < deadline, f"still {reply.code}: {reply.body}"
            await asyncio.sleep(PAUSE_SECONDS)
        return reply

    def acting_as(self, account: str, *, node: str = "") -> api.Client:
        """Return a client of a service account in our namespace, with its token bound to a node."""
        if self.can.impersonation:
            return self._impersonate(account, node)
        credential = f"{account}-{node}" if node else account
        if credential not in self._accounts:
            pytest.skip(f"{self.can.version} lets us act neither as others nor as the account {credential}")
        return api.Client(connection=connections.load(self._accounts[credential]), session=self.api.session)

    def _impersonate(self, account: str, node: str) -> api.Client:
        headers = {"Impersonate-User": self.user(account)}
        if node:
            headers["Impersonate-Extra-authentication.kubernetes.io%2Fnode-name"] = node
        return api.Client(connection=self.api.connection, session=self.api.session, extra=headers)

    def user(self, account: str) -> str:
        """Return the user name of a service account of ours."""
        return f"system:serviceaccount:{self.namespace}:{account}"

    async def allow(self, account: str, *rules: Json, everywhere: bool = False) -> None:
        """Give an account rights in our namespace, or on the whole cluster."""
        kind, binding = ("clusterroles", "clusterrolebindings") if everywhere else ("roles", "rolebindings")
        role = await self.make(kind, rules=list(rules))
        await self.make(
            binding,
            roleRef={
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": role["kind"],
                "name": role["metadata"]["name"],
            },
            subjects=[{"kind": "ServiceAccount", "name": account, "namespace": self.namespace}],
        )

    async def clean(self) -> None:
        """Delete everything, the newest first."""
        for path in reversed(self._made):
            await discard(self.api, path)
        self._made.clear()

    async def node(self, name: str = "", **labels: str) -> Json:
        """Return a Ready Node with no machine behind it."""
        made = await self.make("nodes", name, metadata={"labels": labels})
        return await self.ready(made["metadata"]["name"])

    async def ready(self, name: str, status: str = "True") -> Json:
        """Report a node as ready, as a kubelet does."""
        room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        condition = {
            "type": "Ready",
            "status": status,
            "reason": "Contract",
            "message": "",
            "lastHeartbeatTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "lastTransitionTime": bodies.EPOCH,
        }
        reply = await self.api.strategic(
            self.path("nodes", name, "status"),
            {"status": {"capacity": room, "allocatable": room, "conditions": [condition]}},
        )
        assert reply.code == 200, reply.body
        written: Json = reply.body
        return written


async def discard(client: api.Client, path: str) -> None:
    """Delete one object and forget it; it need not exist."""
    reply = await client.delete(path, gracePeriodSeconds=0, propagationPolicy="Background")
    if reply.code == 404:
        return
    if reply.code == 405 or reply.code >= 500:
        raise AssertionError(f"{path} cannot be deleted, remove it by hand: {reply.body}")
    held = await client.get(path)
    if held.code == 200 and held.body["metadata"].get("finalizers"):
        await client.merge(path, {"metadata": {"finalizers": None}})
