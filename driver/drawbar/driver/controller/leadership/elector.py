"""The elector: it leads when it may, and stops in time.

Guarantees: `lead` runs only while the lease is ours. It has ended completely before another can take the lease: the
renewal gives up `DURATION - RENEW_WITHIN` seconds before the lease runs out, counted from before the last renewal was
sent. A cancelled elector first ends `lead` and then gives the lease back, so that the next leader begins at once.
"""

import asyncio
import datetime
import logging
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import msgspec

from drawbar.driver.api import core, meta
from drawbar.driver.controller.leadership import deadlines
from drawbar.driver.kube import client, errors, kinds

log = logging.getLogger(__name__)

# A daemon has 3.5 s to end, and its work ends before this begins.
RELEASE_SECONDS = 2.0
Lead = Callable[[], Coroutine[Any, Any, None]]


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The times of the election; the values are those of Kubernetes' own controllers.

    Attributes:
        duration_seconds: the time that others wait after the last renewal that they saw.
        renew_within_seconds: the longest time without a renewal before the leader stops; shorter than the duration.
        retry_seconds: the time between two renewals, and between two looks at another's lease.
    """

    duration_seconds: int = 15
    renew_within_seconds: float = 10.0
    retry_seconds: float = 2.0


class _Lost(Exception):
    """The lease is, or may soon be, another's."""


class Elector:
    """One candidate."""

    def __init__(
        self, api: client.Client, *, namespace: str, name: str, identity: str, terms: Terms | None = None
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._terms = terms or Terms()
        self._seen: tuple[core.LeaseSpec | None, float] = (None, 0.0)
        # Spreads candidates; needs no secrecy.

    async def run(self, lead: Lead) -> None:
        """Wait for the lease and lead, repeatedly, until cancelled or until `lead` fails."""
        while True:
            held, since = await self._acquire()
            log.info("leading", extra={"lease": self._name, "identity": self._identity})
            holding = _Holding(lease=held, renewed_at=since)
            lost = False
            try:
                lost = await self._lead_once(lead, holding)
            finally:
                if not lost:
                    await self._release(holding.lease)

    async def _lead_once(self, lead: Lead, holding: "_Holding") -> bool:
        """Lead until `lead` ends, or until the lease is lost; return whether it was lost, and `lead` cancelled."""
        lost = False
        try:
            async with asyncio.TaskGroup() as tasks:
                renewal = tasks.create_task(self._keep(holding), name="renewal")
                await tasks.create_task(lead(), name="leading")
                renewal.cancel()
        except* _Lost as group:
            log.warning("no longer leading: %s", group.exceptions[0], extra={"lease": self._name})
            lost = True
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # Python 3.11's TaskGroup drops a cancellation that comes while it raises its own error.
            raise asyncio.CancelledError
        return lost

    async def _acquire(self) -> tuple[core.Lease, float]:
        last_error = ""
        while True:
            try:
                held = await self._try()
            except errors.KubeError as error:
                if str(error) != last_error:
                    last_error = str(error)
                    log.warning("cannot get the lease: %s", error, extra={"lease": self._name})
                held = self._terms.retry_seconds
            if not isinstance(held, float):
                return held
            await asyncio.sleep(held * random.uniform(1.0, 1.2))  # noqa: S311 - spreads candidates, guards nothing

    async def _try(self) -> tuple[core.Lease, float] | float:
        """Return the lease and the time of the request, or the seconds to wait."""
        lease = await self._read()
        began = time.monotonic()
        spec = lease.spec if lease is not None else None
        if spec != self._seen[0]:
            self._seen = (spec, began)
        observed = deadlines.Candidacy(
            lease=lease,
            identity=self._identity,
            seen_at=self._seen[1],
            duration_seconds=self._terms.duration_seconds,
        )
        action = deadlines.plan(observed, began)
        if isinstance(action, deadlines.Wait):
            return min(action.seconds, self._terms.retry_seconds)
        return await self._write(lease), began

    async def _keep(self, holding: "_Holding") -> None:
        """Renew until cancelled.

        Raises:
            _Lost: no renewal succeeded in time, or another has the lease.
        """
        while True:
            ends = holding.renewed_at + self._terms.renew_within_seconds
            await asyncio.sleep(min(self._terms.retry_seconds, max(0.0, ends - time.monotonic())))
            began = time.monotonic()
            left = holding.renewed_at + self._terms.renew_within_seconds - began
            try:
                async with asyncio.timeout(max(0.0, left)):
                    holding.lease = await self._write(holding.lease)
            except errors.Conflict:
                await self._look_who(holding, left)
            except (errors.KubeError, TimeoutError) as error:
                log.info("cannot renew the lease: %s", error, extra={"lease": self._name})
                if time.monotonic() >= holding.renewed_at + self._terms.renew_within_seconds:
                    raise _Lost(
                        f"the lease was not renewed for {self._terms.renew_within_seconds:g} s"
                    ) from error
            else:
                holding.renewed_at = began

    async def _look_who(self, holding: "_Holding", left: float) -> None:
        """Read the lease after another client's write: an administrator's label does no harm, another holder ends the term."""
        try:
            async with asyncio.timeout(max(0.0, left)):
                lease = await self._read()
        except (errors.KubeError, TimeoutError):
            return
        if lease is None or lease.spec.holder_identity != self._identity:
            raise _Lost(f"{lease.spec.holder_identity if lease else 'no process'} has the lease now")
        holding.lease = lease

    async def _read(self) -> core.Lease | None:
        try:
            return await self._api.read(kinds.LEASE, self._name, namespace=self._namespace, into=core.Lease)
        except errors.NotFound:
            return None

    async def _write(self, lease: core.Lease | None) -> core.Lease:
        metadata = lease.metadata if lease is not None else meta.ObjectMeta(name=self._name)
        wanted = deadlines.build_held_lease(
            lease,
            metadata,
            identity=self._identity,
            duration_seconds=self._terms.duration_seconds,
            stamp=_stamp(),
        )
        if lease is None:
            return await self._api.create(
                kinds.LEASE, _document(wanted), namespace=self._namespace, into=core.Lease
            )
        return await self._replace(wanted)

    async def _replace(self, desired: core.Lease) -> core.Lease:
        return await self._api.replace(
            kinds.LEASE, self._name, _document(desired), namespace=self._namespace, into=core.Lease
        )

    async def _release(self, held: core.Lease) -> None:
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._replace(deadlines.build_released_lease(held, _stamp()))
        except (errors.KubeError, TimeoutError) as error:
            log.info("the lease was not given back, it runs out: %s", error, extra={"lease": self._name})


@dataclass(slots=True, kw_only=True)
class _Holding:
    """The lease as last written, and the begin of that write (monotonic clock)."""

    lease: core.Lease
    renewed_at: float


def _document(lease: core.Lease) -> dict[str, Any]:
    content = msgspec.to_builtins(lease)
    assert isinstance(content, dict)
    return {"apiVersion": kinds.LEASE.api_version, "kind": kinds.LEASE.kind} | content


def _stamp() -> str:
    """Return the current time as a `metav1.MicroTime`."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
