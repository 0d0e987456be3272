"""Prepare and Unprepare: from a device that is here to a container.

Invariants: a device is handed to one claim at most, and only when it is ready for that claim (`readiness`); a claim that has a
CDI file has a record; a device counts as held from the moment at which all devices of its claim are ready, so it is neither
cleaned nor released from then on, and not kept from either before. Prepare attaches nothing and touches no hardware: it checks
that the very device is here and ready, records it (`started`, durable), writes the CDI file and answers. Killed at any moment,
it leaves a record at most, which the next Prepare or Unprepare of the claim takes up.

A claim has a lock of its own and a device that is late is waited for outside of every other lock, so a slow claim
delays no other.
"""

import asyncio
import logging
import weakref
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec

from drawbar.cdi import spec
from drawbar.driver.api import attachments, claims
from drawbar.driver.catalogue import reasons
from drawbar.driver.node import claim_versions, edits, errors
from drawbar.driver.node.plugin import servicers
from drawbar.driver.node.preparation import (
    claimdevices,
    holders,
    limits,
    lookup,
    metadata,
    records,
    restoring,
)

log = logging.getLogger(__name__)


CLAIMS_LIMIT = 1000
# Between two looks for the CDI file of a device's vendor.
LOOK_SECONDS = 0.5


class Recorder(Protocol):
    """Where events go; `kube.events.Recorder`."""

    def warning(self, claim: attachments.ClaimReference | None, *, reason: str, message: str) -> None:
        """Something needs attention."""
        ...


def _nothing(_: str) -> None:
    """Nothing follows a preparation."""


async def _at_once(_: records.PreparedClaim) -> None:
    """A claim lets go of its devices without more ado."""


def _unnoticed(_: claims.ResourceClaim) -> None:
    """The claim is of no further use."""


class Complaints:
    """Says on the claim why it cannot be prepared: once per reason, however often the kubelet tries.

    The kubelet's own event is on the pod and says only that it failed. Bounded: of the claims with trouble the oldest
    are forgotten first, and may then get an Event of the same reason again.
    """

    def __init__(self, recorder: Recorder | None) -> None:
        self._recorder = recorder
        self._told: OrderedDict[str, str] = OrderedDict()

    def say(self, claim: servicers.ClaimName, error: errors.NodeError) -> None:
        """Emit an Event on the claim, unless its last one had this reason; none on a claim that is gone."""
        reason = error.reason if isinstance(error, errors.PrepareError) else reasons.CHECKPOINT_FAILED
        if self._recorder is None or reason == reasons.CLAIM_GONE or self._told.get(claim.uid) == reason:
            return
        self._told[claim.uid] = reason
        self._told.move_to_end(claim.uid)
        if len(self._told) > CLAIMS_LIMIT:
            self._told.popitem(last=False)
        reference = attachments.ClaimReference(namespace=claim.namespace, name=claim.name, uid=claim.uid)
        self._recorder.warning(reference, reason=reason, message=str(error))

    def forget(self, uid: str) -> None:
        """The claim has no trouble any more."""
        self._told.pop(uid, None)


class Preparer:
    """Implements `servicers.Preparation` on this node's files."""

    def __init__(
        self,
        *,
        reader: claim_versions.Reader,
        finder: lookup.Finder,
        held_by: holders.Holders,
        described: metadata.Files,
        boot_id: str,
        released: Callable[[str, str], None],
        prepared: Callable[[str], None] = _nothing,
        leave: Callable[[records.PreparedClaim], Awaitable[None]] = _at_once,
        seen: Callable[[claims.ResourceClaim], None] = _unnoticed,
        recorder: Recorder | None = None,
        waits: limits.Limits | None = None,
    ) -> None:
        # Nothing is read or written before `restore`. `released` is called with pool and device when a claim let go of it,
        # `prepared` with the uid of each claim that was prepared, `leave` with what a claim has before it lets go of it,
        # `seen` with each claim that was read.
        self._lookup = lookup.Lookup(reader, finder, seen)
        self._finder = finder
        self._boot_id = boot_id
        self._released = released
        self._prepared = prepared
        self._leave = leave
        self._reader = reader
        self._described = described
        self._waits = waits or limits.Limits()
        self._complaints = Complaints(recorder)
        self.holders = held_by
        self.store = held_by.store
        # What the last instance left unfinished, as `restore` found it; `sweeping` settles it.
        self.unsettled: tuple[records.PreparedClaim, ...] = ()
        self._news = asyncio.Event()
        # A lock lives as long as a task holds it or waits for it.
        self._claims: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    def changed(self) -> None:
        """Devices or attachments changed: whoever waits for a device looks again."""
        self._news.set()
        self._news = asyncio.Event()

    async def restore(self) -> None:
        """Takes up where the last instance stopped: call once, before the kubelet may call. See `restoring`.

        Raises:
            errors.NodeError: the checkpoint or the CDI directory cannot be used.
        """
        # Before the records: a file is written after its record, and by another instance at any moment.
        owners = await asyncio.to_thread(self._described.owners)
        restored = await self.store.restore(
            lambda left: restoring.decide(left, self._finder, boot_id=self._boot_id)
        )
        for uid in sorted(owners - restored.claims.keys()):
            await asyncio.to_thread(self._described.remove, uid)
        unfinished = (records.STARTED, records.UNEXPLAINED)
        self.unsettled = tuple(claim for claim in restored.claims.values() if claim.state in unfinished)

    async def prepare(self, claim: servicers.ClaimName) -> tuple[servicers.Prepared, ...]:
        """See `servicers.Preparation`."""
        async with self._working(claim):
            try:
                about = await self._about(claim)
                given = await self._arrived(claim, about)
                vendor_ids = await self._vendor_ids(claim, given)
                if given:
                    await self._store(claim, given, about)
            except errors.NodeError as error:
                self._complaints.say(claim, error)
                raise
        self._complaints.forget(claim.uid)
        self._prepared(claim.uid)
        return tuple(
            servicers.Prepared(
                requests=device.record.requests,
                pool=device.record.pool,
                device=device.record.composite or device.record.device,
                cdi_id=device.record.cdi_id,
                share_id=device.record.share_id,
                vendor_id=vendor_ids.get(device.record.cdi_id),
            )
            for device in given
        )

    async def unprepare(self, claim: servicers.ClaimName) -> None:
        """See `servicers.Preparation`."""
        self._complaints.forget(claim.uid)
        await self.drop(claim.uid)

    async def drop(self, uid: str, *, states: tuple[str, ...] = ()) -> None:
        """Takes a claim's devices from containers, if its record is in one of these states (none named: in any).

        Raises:
            errors.NodeError: a file cannot be removed or written; the claim keeps its devices.
        """
        async with self._claims.setdefault(uid, asyncio.Lock()):
            before = self.store.claims.get(uid)
            if before is not None and (not states or before.state in states):
                await self._leave(before)
            try:
                before = await self.store.drop(uid, states=states)
                if before is not None and any(device.mounts for device in before.devices):
                    await self._forget(before)
            finally:
                # A call that is cancelled during its write ends with the write made, and the next finds no record.
                if before is not None and uid not in self.store.claims:
                    log.info("claim unprepared", extra={"claim": before.name, "uid": uid})
                self._tell_given_up(before)

    @asynccontextmanager
    async def _working(self, claim: servicers.ClaimName) -> AsyncIterator[None]:
        """Have one call at a time for the claim, and report a device that it was about to get and did not."""
        async with self._claims.setdefault(claim.uid, asyncio.Lock()):
            self.holders.begin(claim.uid)
            try:
                yield
            finally:
                self._tell_released(self.holders.end(claim.uid))

    async def _forget(self, dropped: records.PreparedClaim) -> None:
        """Remove the files that described its devices; what is left goes at the next start."""
        if dropped.uid in self.store.claims:
            return
        try:
            await asyncio.to_thread(self._described.remove, dropped.uid)
        except errors.PrepareError as error:
            log.warning("%s", error, extra={"claim": dropped.name, "uid": dropped.uid})

    async def _about(self, claim: servicers.ClaimName) -> claims.ResourceClaim | None:
        """The claim, where its containers get files that describe their devices."""
        is_wanted = self._described.enabled and self._reader.modern and claim.handle is None
        return await self._lookup.read(claim) if is_wanted else None

    async def _arrived(
        self, claim: servicers.ClaimName, about: claims.ResourceClaim | None
    ) -> list[claimdevices.Given]:
        """The claim's devices, all of them here; waits for one that is late."""
        wanted = await self._lookup.wanted(claim) if about is None else self._finder.wanted(about)
        late: errors.DeviceLate | None = None
        try:
            async with asyncio.timeout_at(self._patience_ends(claim)):
                while True:
                    # Taken before the look, so that nothing is missed between the two.
                    news = self._news
                    try:
                        return self._found(wanted, claim.uid)
                    except errors.DeviceLate as error:
                        late = error
                    await news.wait()
        except TimeoutError:
            assert late is not None
            raise late from None

    async def _vendor_ids(
        self, claim: servicers.ClaimName, given: Iterable[claimdevices.Given]
    ) -> dict[str, str | None]:
        """The devices by their vendors' CDI files, by ours; waits for a file that is late."""
        wanted = [device for device in given if device.vendor_kind is not None]
        ends = self._patience_ends(claim)
        while True:
            try:
                return {
                    device.record.cdi_id: await asyncio.to_thread(
                        device.vendor_id, self.store.cdi.directories
                    )
                    for device in wanted
                }
            except errors.DeviceLate:
                # A file of another program in a directory that need not be there: no event tells of it.
                if asyncio.get_running_loop().time() + LOOK_SECONDS > ends:
                    raise
            await asyncio.sleep(LOOK_SECONDS)

    def _patience_ends(self, claim: servicers.ClaimName) -> float:
        """Until when a late device is waited for, in the loop's time: the kubelet must still get the reason."""
        ends = asyncio.get_running_loop().time() + self._waits.late_device_seconds
        return ends if claim.answer_by is None else min(ends, claim.answer_by - limits.ANSWER_SECONDS)

    def _found(self, wanted: Iterable[claimdevices.Wanted], uid: str) -> list[claimdevices.Given]:
        """Return the claim's devices, which count as held from now on: the node neither cleans nor releases them.

        Until all of them are ready, the node works on each as if the claim was not there.
        """
        held = [device for device in wanted if not device.is_shared and not device.admin]
        for device in held:
            self._refuse_overlap(device, uid)
        prepared = self._prepared_devices(uid)
        given = [
            self._finder.find(device, uid, prepared=(device.pool, device.device) in prepared)
            for device in wanted
        ]
        self.holders.give(uid, ((device.pool, device.device) for device in held))
        return claimdevices.numbered(given)

    def _prepared_devices(self, uid: str) -> frozenset[tuple[str, str]]:
        """Return pool and name of each device with which the claim was prepared in this boot."""
        before = self.store.claims.get(uid)
        if before is None or before.state == records.UNEXPLAINED or not self.store.cdi.exists(uid):
            return frozenset()
        return frozenset((device.pool, device.device) for device in before.devices)

    def _refuse_overlap(self, wanted: claimdevices.Wanted, uid: str) -> None:
        # The commit looks again.
        records.refuse_overlap(self.store.claims, wanted.pool, wanted.device, uid)

    async def _store(
        self, claim: servicers.ClaimName, given: list[claimdevices.Given], about: claims.ResourceClaim | None
    ) -> None:
        if about is not None:
            recorded = metadata.mounted([device.record for device in given], about, self._described)
            given = [
                claimdevices.with_record(device, record)
                for device, record in zip(given, recorded, strict=True)
            ]
        if any(device.asks_the_driver for device in given):
            devices, content = await asyncio.to_thread(_content, given, self._finder.driver)
        else:
            devices, content = _content(given, self._finder.driver)
        record = records.PreparedClaim(
            namespace=claim.namespace,
            name=claim.name,
            uid=claim.uid,
            devices=devices,
            state=records.STARTED,
            boot_id=self._boot_id,
        )
        before = self.store.claims.get(claim.uid)
        try:
            before = await self.store.start(record, content)
        finally:
            # As in `drop`.
            self._tell_given_up(before)
        if about is not None:
            described = [
                metadata.Described(record=record, values=device.values)
                for record, device in zip(devices, given, strict=True)
            ]
            await asyncio.to_thread(self._described.write, about, described)
        log.info(
            "claim prepared",
            extra={
                "claim": claim.name,
                "uid": claim.uid,
                "devices": [device.record.cdi_id for device in given],
            },
        )

    def _tell_given_up(self, before: records.PreparedClaim | None) -> None:
        """Tells of what the claim had by that record and has no more."""
        if before is not None:
            after = self.store.claims.get(before.uid)
            kept = {(device.pool, device.device) for device in (after.devices if after is not None else ())}
            self._tell_released({(device.pool, device.device) for device in before.devices} - kept)

    def _tell_released(self, devices: Iterable[tuple[str, str]]) -> None:
        for pool, device in devices:
            self._released(pool, device)


def _content(
    given: list[claimdevices.Given], driver: str
) -> tuple[tuple[records.PreparedDevice, ...], spec.Spec]:
    contents = [device.content() for device in given]
    recorded = tuple(
        device.record if network is None else msgspec.structs.replace(device.record, network=network)
        for device, content in zip(given, contents, strict=True)
        for network in (device.network(content),)
    )
    # Two shares of one device are one device to the container.
    devices = {content.name: content for content in contents}
    return recorded, spec.Spec(kind=edits.kind(driver), devices=tuple(devices.values()))
