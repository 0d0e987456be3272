"""Prepare and Unprepare: the kubelet's calls that give a claim's devices to its containers, and take them back.

Invariants:

- A device goes to one claim at most, and only when it is ready for that claim (`readiness`).
- A claim with a CDI file has a record.
- A device counts as held once all devices of its claim are ready. From then on it is neither cleaned nor released.

Prepare attaches nothing and touches no hardware. It checks that the device is present and ready, records it durably
(`started`), writes the CDI file and answers. If the daemon is killed meanwhile, at most a record is left. The next Prepare or
Unprepare of the claim takes it up.

Each claim has a lock. Prepare waits for a late device outside every other lock, so a slow claim delays no other.
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
# The time in which the host's udev daemon renames an interface that has just come; a container is started by the last name.
RENAME_SECONDS = 1.0
# The pause between two looks for the CDI file of a device's vendor.
LOOK_SECONDS = 0.5


class Recorder(Protocol):
    """A recorder of Events, such as `kube.events.Recorder`."""

    def record_warning(self, claim: attachments.ClaimReference | None, *, reason: str, message: str) -> None:
        """Emit a warning Event on the claim."""
        ...


def _ignore_uid(_: str) -> None:
    """Do nothing after a preparation."""


async def _leave_at_once(_: records.PreparedClaim) -> None:
    """Do nothing before a claim releases its devices."""


def _ignore_claim(_: claims.ResourceClaim) -> None:
    """Do nothing with a claim that was read."""


class Complaints:
    """The Events on claims that cannot be prepared: one for each reason, even if the kubelet tries often.

    The kubelet's own Event is on the pod, and reports only the failure. The number of remembered claims is bounded. The claim
    with the oldest Event is forgotten first, and may get an Event of the same reason again.
    """

    def __init__(self, recorder: Recorder | None) -> None:
        self._recorder = recorder
        self._told: OrderedDict[str, str] = OrderedDict()

    def say(self, claim: servicers.ClaimName, error: errors.NodeError) -> None:
        """Emit an Event on the claim, unless its last one had this reason or the claim is gone."""
        reason = error.reason if isinstance(error, errors.PrepareError) else reasons.CHECKPOINT_FAILED
        if self._recorder is None or reason == reasons.CLAIM_GONE or self._told.get(claim.uid) == reason:
            return
        self._told[claim.uid] = reason
        self._told.move_to_end(claim.uid)
        if len(self._told) > CLAIMS_LIMIT:
            self._told.popitem(last=False)
        reference = attachments.ClaimReference(namespace=claim.namespace, name=claim.name, uid=claim.uid)
        self._recorder.record_warning(reference, reason=reason, message=str(error))

    def forget(self, uid: str) -> None:
        """Forget the claim's last Event, because the claim was prepared or unprepared."""
        self._told.pop(uid, None)


class Preparer:
    """The implementation of `servicers.Preparation` on this node's files.

    Args:
        reader: reads claims.
        finder: looks up devices.
        held_by: the holders of devices.
        described: the files that describe devices to containers.
        boot_id: the ID of the running kernel's boot.
        released: called with pool and name of a device after a claim released it.
        prepared: called with the UID of each prepared claim.
        leave: called with the record of a claim before it releases its devices.
        seen: called with each claim after it was read.
        recorder: takes the Events; None emits none.
        waits: the waits of a Prepare.
    """

    def __init__(
        self,
        *,
        reader: claim_versions.Reader,
        finder: lookup.Finder,
        held_by: holders.Holders,
        described: metadata.Files,
        boot_id: str,
        released: Callable[[str, str], None],
        prepared: Callable[[str], None] = _ignore_uid,
        leave: Callable[[records.PreparedClaim], Awaitable[None]] = _leave_at_once,
        seen: Callable[[claims.ResourceClaim], None] = _ignore_claim,
        recorder: Recorder | None = None,
        waits: limits.Limits | None = None,
    ) -> None:
        # Nothing is read or written before `restore`.
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
        # The unfinished claims of the last instance, as `restore` found them; `sweeping` settles them.
        self.unsettled: tuple[records.PreparedClaim, ...] = ()
        self._news = asyncio.Event()
        # A lock lives as long as a task holds it or waits for it.
        self._claims: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    def wake(self) -> None:
        """Wake the calls that wait for a device, because devices or attachments changed."""
        self._news.set()
        self._news = asyncio.Event()

    async def restore(self) -> None:
        """Restore the claims of the last instance; see `restoring`. Call it once, before the kubelet may call.

        Raises:
            errors.NodeError: the checkpoint or the CDI directory cannot be used.
        """
        # Read the files before the records: another instance may write a record and then its file at any moment.
        owners = await asyncio.to_thread(self._described.owners)
        restored = await self.store.restore(
            lambda left: restoring.decide(left, self._finder, boot_id=self._boot_id)
        )
        for uid in sorted(owners - restored.claims.keys()):
            await asyncio.to_thread(self._described.remove, uid)
        unfinished = (records.STARTED, records.UNEXPLAINED)
        self.unsettled = tuple(claim for claim in restored.claims.values() if claim.state in unfinished)

    async def prepare(self, claim: servicers.ClaimName) -> tuple[servicers.Prepared, ...]:
        """Prepare a claim and return its devices, as specified by `servicers.Preparation`."""
        async with self._exclusive_call(claim):
            try:
                about = await self._read_for_metadata(claim)
                claim_devices = await self._await_devices(claim, about)
                vendor_ids = await self._await_vendor_ids(claim, claim_devices)
                if claim_devices:
                    await self._store(claim, claim_devices, about)
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
            for device in claim_devices
        )

    async def unprepare(self, claim: servicers.ClaimName) -> None:
        """Unprepare a claim, as specified by `servicers.Preparation`."""
        self._complaints.forget(claim.uid)
        await self.drop(claim.uid)

    async def drop(self, uid: str, *, states: tuple[str, ...] = ()) -> None:
        """Take its devices from a claim, if its record is in one of these states; no states stand for any state.

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
                # A call that is cancelled during its write completes the write, and the next call finds no record.
                if before is not None and uid not in self.store.claims:
                    log.info("claim unprepared", extra={"claim": before.name, "uid": uid})
                self._report_lost(before)

    @asynccontextmanager
    async def _exclusive_call(self, claim: servicers.ClaimName) -> AsyncIterator[None]:
        """Allow one call at a time for the claim; at the end, report the devices that it did not get after all."""
        async with self._claims.setdefault(claim.uid, asyncio.Lock()):
            self.holders.begin(claim.uid)
            try:
                yield
            finally:
                self._report_released(self.holders.end(claim.uid))

    async def _forget(self, dropped: records.PreparedClaim) -> None:
        """Remove the files that describe the devices of a claim. The next start removes any leftovers."""
        if dropped.uid in self.store.claims:
            return
        try:
            await asyncio.to_thread(self._described.remove, dropped.uid)
        except errors.PrepareError as error:
            log.warning("%s", error, extra={"claim": dropped.name, "uid": dropped.uid})

    async def _read_for_metadata(self, claim: servicers.ClaimName) -> claims.ResourceClaim | None:
        """Read the claim if its containers get files that describe their devices; return it, else None."""
        is_wanted = self._described.enabled and self._reader.modern and claim.handle is None
        return await self._lookup.read(claim) if is_wanted else None

    async def _await_devices(
        self, claim: servicers.ClaimName, about: claims.ResourceClaim | None
    ) -> list[claimdevices.ClaimDevice]:
        """Wait for late devices; return the claim's devices once all are present and ready."""
        wanted = await self._lookup.find_devices(claim) if about is None else self._finder.find_devices(about)
        late: errors.DeviceLate | None = None
        settled, ends = True, self._patience_ends(claim)
        try:
            async with asyncio.timeout_at(ends):
                while True:
                    # Taken before the lookup, so that no change in between is missed.
                    news = self._news
                    try:
                        found = self._find_all(wanted, claim.uid)
                    except errors.DeviceLate as error:
                        late, settled = error, False
                        await news.wait()
                        continue
                    named = [device.record.device for device in found if device.interfaces]
                    if settled or not named:
                        return found
                    late, settled = _report_rename(named), True
                    if asyncio.get_running_loop().time() + RENAME_SECONDS > ends:
                        raise late
                    await asyncio.sleep(RENAME_SECONDS)
        except TimeoutError:
            assert late is not None
            raise late from None

    async def _await_vendor_ids(
        self, claim: servicers.ClaimName, devices: Iterable[claimdevices.ClaimDevice]
    ) -> dict[str, str | None]:
        """Wait for late CDI files of vendors; return the vendors' CDI IDs, by this driver's CDI ID."""
        wanted = [device for device in devices if device.vendor_kind is not None]
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
                # Another program writes the file, in a directory that may be missing, so the file is polled for.
                if asyncio.get_running_loop().time() + LOOK_SECONDS > ends:
                    raise
            await asyncio.sleep(LOOK_SECONDS)

    def _patience_ends(self, claim: servicers.ClaimName) -> float:
        """Return the end of the wait for a late device, in the loop's time. The kubelet must still get the reason."""
        ends = asyncio.get_running_loop().time() + self._waits.late_device_seconds
        return ends if claim.answer_by is None else min(ends, claim.answer_by - limits.ANSWER_SECONDS)

    def _find_all(
        self, allocated: Iterable[claimdevices.AllocatedDevice], uid: str
    ) -> list[claimdevices.ClaimDevice]:
        """Return the claim's devices. From now on they count as held, and the node neither cleans nor releases them.

        Until all of them are ready, the node works on each device as if there were no claim.
        """
        held = [device for device in allocated if not device.is_shared and not device.admin]
        for device in held:
            self._refuse_overlap(device, uid)
        prepared = self._list_prepared_devices(uid)
        claim_devices = [
            self._finder.find(device, uid, prepared=(device.pool, device.device) in prepared)
            for device in allocated
        ]
        self.holders.give(uid, ((device.pool, device.device) for device in held))
        return claimdevices.number_interfaces(claim_devices)

    def _list_prepared_devices(self, uid: str) -> frozenset[tuple[str, str]]:
        """Return pool and name of each device that the claim was prepared with in this boot."""
        before = self.store.claims.get(uid)
        if before is None or before.state == records.UNEXPLAINED or not self.store.cdi.exists(uid):
            return frozenset()
        return frozenset((device.pool, device.device) for device in before.devices)

    def _refuse_overlap(self, allocated: claimdevices.AllocatedDevice, uid: str) -> None:
        # The store checks this again when it records the claim.
        records.refuse_overlap(self.store.claims, allocated.pool, allocated.device, uid)

    async def _store(
        self,
        claim: servicers.ClaimName,
        claim_devices: list[claimdevices.ClaimDevice],
        about: claims.ResourceClaim | None,
    ) -> None:
        if about is not None:
            recorded = metadata.mount([device.record for device in claim_devices], about, self._described)
            claim_devices = [
                claimdevices.replace_record(device, record)
                for device, record in zip(claim_devices, recorded, strict=True)
            ]
        if any(device.asks_the_driver for device in claim_devices):
            devices, content = await asyncio.to_thread(_content, claim_devices, self._finder.driver)
        else:
            devices, content = _content(claim_devices, self._finder.driver)
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
            self._report_lost(before)
        if about is not None:
            described = [
                metadata.DescribedDevice(record=record, values=device.values)
                for record, device in zip(devices, claim_devices, strict=True)
            ]
            await asyncio.to_thread(self._described.write, about, described)
        log.info(
            "claim prepared",
            extra={
                "claim": claim.name,
                "uid": claim.uid,
                "devices": [device.record.cdi_id for device in claim_devices],
            },
        )

    def _report_lost(self, before: records.PreparedClaim | None) -> None:
        """Report the devices that the claim has lost since that record."""
        if before is not None:
            after = self.store.claims.get(before.uid)
            kept = {(device.pool, device.device) for device in (after.devices if after is not None else ())}
            self._report_released({(device.pool, device.device) for device in before.devices} - kept)

    def _report_released(self, devices: Iterable[tuple[str, str]]) -> None:
        for pool, device in devices:
            self._released(pool, device)


def _report_rename(names: Iterable[str]) -> errors.DeviceLate:
    """Return the error of a wait that ends while the host may still rename new network interfaces."""
    return errors.DeviceLate(
        f"the network interfaces of {', '.join(names)} have just come, and the host may still rename them; trying again",
        reason=reasons.DEVICE_NOT_READY,
    )


def _content(
    claim_devices: list[claimdevices.ClaimDevice], driver: str
) -> tuple[tuple[records.PreparedDevice, ...], spec.Spec]:
    contents = [device.content() for device in claim_devices]
    recorded = tuple(
        device.record if network is None else msgspec.structs.replace(device.record, network=network)
        for device, content in zip(claim_devices, contents, strict=True)
        for network in (device.network(content),)
    )
    # Two shares of one device are one device to the container. Admin access gives the least, so it comes first.
    pairs = sorted(zip(recorded, contents, strict=True), key=lambda pair: not pair[0].admin)
    devices = {content.name: content for _, content in pairs}
    return recorded, spec.Spec(kind=edits.kind(driver), devices=tuple(devices.values()))
