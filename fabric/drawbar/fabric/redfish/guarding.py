"""The check after a change of a shared resource: the host's other devices are still there, or are put back."""

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from drawbar.fabric import errors
from drawbar.fabric.redfish import calls, client, documents, losses, observing, restoring

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A host whose other devices a change has to leave in place.

    Attributes:
        kept: the ids of these devices.
    """

    host_id: str
    kept: tuple[str, ...] = ()


class Guard:
    """The verification of changes, which puts lost members back where that is safe."""

    def __init__(self, connection: client.Client, observer: observing.Observer, *, uses_etags: bool) -> None:
        self._client = connection
        self._observer = observer
        self._uses_etags = uses_etags

    def watch(self, call: calls.Call, host_id: str, meant: str) -> Watched:
        """Return the devices that the change has to leave in place, from the last reading.

        Args:
            call: the change.
            host_id: of the changed host.
            meant: the device that is attached or detached.
        """
        owners: Mapping[str, str] = losses.find_owners(self._observer.devices) if call.is_shared else {}
        return Watched(host_id=host_id, kept=losses.find_kept(owners, host_id, meant))

    async def check(
        self, watched: Watched, call: calls.Call, answer: documents.Document | None = None
    ) -> None:
        """Verify that a change has left the other devices where they were; else put them back.

        Raises:
            FailedPrecondition: it has not; also if they are back.
        """
        try:
            lost = await self._find_lost(watched, call)
        except errors.FabricError as error:
            # The look at the end of the operation meets the same trouble.
            _logger.warning("the outcome of a change is not verified", extra={"error": error.message})
            return
        if not lost:
            return
        _logger.error("a change took others from their host", extra={"uri": call.uri, "lost": lost})
        reason, remedy = await self._restore(call, answer, watched.host_id)
        remains = lost
        with contextlib.suppress(errors.FabricError):
            remains = await self._find_lost(watched, call)
        raise losses.build_error(
            call, watched.host_id, lost=lost, remains=remains, reason=reason, remedy=remedy
        )

    async def _find_lost(self, watched: Watched, call: calls.Call) -> tuple[str, ...]:
        """Return the devices that are not at the host any more, and the members without a device that left the array.

        Raises:
            FabricError: the service cannot be read.
        """
        missing: tuple[str, ...] = ()
        if call.change is not None:
            missing = losses.find_missing(call.change, await self._client.get(call.uri))
        if not watched.kept:
            return missing
        devices = await self._observer.read_connections()
        return (*losses.find_lost(watched.kept, devices, watched.host_id), *missing)

    async def _restore(
        self, call: calls.Call, answer: documents.Document | None, host_id: str
    ) -> tuple[str, str]:
        """Put back, in one request, the members of an array that its change took with it.

        Return the reason why they are not put back, and the setting that avoids the loss, as clauses; empty if there is none.
        """
        change = call.change
        if change is None:
            return "the request sets no array, or its outcome is not known", ""
        remedy = ""
        try:
            after = await self._client.get(call.uri)
            if (form := restoring.other_form(change, after)) is not None:
                remedy = f"set zoneBody: {form}"
            taken = losses.find_taken(
                change.wanted, self._observer.devices, host_id, self._observer.method.device_ids
            )
            decision = restoring.plan(change, answer, after, taken)
            if isinstance(decision, restoring.Leave):
                return decision.reason, remedy
            etag = decision.etag if self._uses_etags else None
            await self._client.change("PATCH", call.uri, decision.body(), etag=etag)
        except errors.FabricError as error:
            return error.message, remedy
        return "", remedy
