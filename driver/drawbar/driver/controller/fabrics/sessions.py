"""The sessions of all Fabrics: one task each, begun, replaced and ended with the objects."""

import asyncio
import functools
from collections.abc import Iterator

import msgspec

from drawbar.driver import clocks, containment
from drawbar.driver.api import fabrics, meta
from drawbar.driver.controller.fabrics import credentials, news, redacting_adapter, session
from drawbar.driver.kube import events, kinds
from drawbar.fabric import contract


class _Running(msgspec.Struct, frozen=True, kw_only=True):
    session: session.Session
    task: asyncio.Task[None]


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """A term of leadership, in which sessions run.

    Attributes:
        listener: the receiver of the sessions' reports.
        cluster: the UID of this cluster, for the marks of connections; empty if not known.
    """

    tasks: asyncio.TaskGroup
    listener: news.Listener
    cluster: str


class Sessions:
    """The sessions by the name of their Fabric."""

    def __init__(
        self,
        adapters: redacting_adapter.AdapterOf,
        vault: credentials.Vault | None = None,
        networks: contract.Networks | None = None,
        *,
        contained: containment.Containment | None = None,
        recorder: events.Recorder | None = None,
        clock: clocks.Clock = clocks.steady,
    ) -> None:
        self._contained = contained
        self._recorder = recorder
        self._clock = clock
        self._vault = vault
        self._networks = networks
        self._adapters = adapters
        self._running: dict[str, _Running] = {}

    def get(self, name: str) -> session.Session | None:
        """Return the session of that Fabric, or None."""
        running = self._running.get(name)
        return running.session if running else None

    def __iter__(self) -> Iterator[session.Session]:
        return iter([running.session for running in self._running.values()])

    def put(self, fabric: fabrics.Fabric, term: Term) -> None:
        """Begin a session, or another one if the access to the manager changed; pass any other change to the session."""
        name = fabric.metadata.name
        running = self._running.get(name)
        if running is not None and _way(running.session.spec) == _way(fabric.spec):
            running.session.change(fabric.spec, given_up=fabric.given_up)
            return
        self.drop(name)
        opened = session.Session(
            fabric,
            term.listener,
            self._adapters,
            vault=self._vault,
            networks=self._networks,
            cluster=term.cluster,
            contained=self._contained,
            report=functools.partial(self._report_unexpected, fabric.metadata),
            clock=self._clock,
        )
        task = term.tasks.create_task(opened.run(), name=f"fabric-{name}")
        self._running[name] = _Running(session=opened, task=task)

    def _report_unexpected(self, metadata: meta.ObjectMeta, failure: str) -> None:
        if self._recorder is not None:
            self._recorder.record_unexpected(kinds.FABRIC, metadata, failure)

    def drop(self, name: str) -> None:
        """End a session, if there is one."""
        running = self._running.pop(name, None)
        if running is not None:
            running.task.cancel()

    def clear(self) -> None:
        """End all sessions."""
        for name in tuple(self._running):
            self.drop(name)


def _way(spec: fabrics.FabricSpec) -> tuple[object, ...]:
    """Return the parts of a Fabric that decide the access to its manager, and how much of it is read."""
    return (
        spec.adapter,
        spec.endpoint,
        spec.parameters,
        spec.timeout_seconds,
        spec.credentials_secret_ref,
        spec.tls,
        spec.policy.limits.budget,
    )
