"""The sessions of all Fabrics: one task each, begun, replaced and ended as the objects come, change and go."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from drawbar.driver.api import fabrics
from drawbar.driver.controller.fabrics import credentials, redacting_adapter, session


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    session: session.Session
    task: asyncio.Task[None]


class Sessions:
    """The sessions by the name of their Fabric; their tasks run in the group they were begun in.

    Attributes:
        cluster: who this cluster is, for the marks of sessions begun from now on; empty: nobody.
    """

    def __init__(
        self,
        adapters: redacting_adapter.AdapterOf,
        vault: credentials.Vault | None = None,
    ) -> None:
        self.cluster = ""
        self._vault = vault
        self._listener: session.Listener | None = None
        self._adapters = adapters
        self._running: dict[str, _Running] = {}

    def follow(self, listener: session.Listener) -> None:
        """Have a listener called by the sessions that begin from now on."""
        self._listener = listener

    def get(self, name: str) -> session.Session | None:
        """The session of that Fabric, if there is one."""
        found = self._running.get(name)
        return found.session if found else None

    def __iter__(self) -> Iterator[session.Session]:
        return iter([running.session for running in self._running.values()])

    def put(self, fabric: fabrics.Fabric, tasks: asyncio.TaskGroup) -> None:
        """Begins a session, or a new one if the way to the manager changed; another change it takes over as it is."""
        name = fabric.metadata.name
        known = self._running.get(name)
        if known is not None and _way(known.session.spec) == _way(fabric.spec):
            known.session.change(fabric.spec, given_up=fabric.given_up)
            return
        self.drop(name)
        assert self._listener is not None
        opened = session.Session(
            fabric, self._listener, self._adapters, vault=self._vault, cluster=self.cluster
        )
        task = tasks.create_task(opened.run(), name=f"fabric-{name}")
        self._running[name] = _Running(session=opened, task=task)

    def drop(self, name: str) -> None:
        """Ends a session, if there is one."""
        known = self._running.pop(name, None)
        if known is not None:
            known.task.cancel()

    def clear(self) -> None:
        """Ends all sessions."""
        for name in tuple(self._running):
            self.drop(name)


def _way(spec: fabrics.FabricSpec) -> tuple[object, ...]:
    """What of a Fabric decides how its manager is reached, and as whom."""
    return (
        spec.adapter,
        spec.endpoint,
        spec.parameters,
        spec.timeout_seconds,
        spec.credentials_secret_ref,
        spec.tls,
    )
