"""Prepare and Unprepare: from an attached device to a container.

Invariant: a device is in the checkpoint for at most one claim, and whatever is in the checkpoint has a CDI file.
The CDI file is written first and the checkpoint last, so a crash in between leaves a file that the next start
removes, never a record without its file. Prepare never attaches anything. The kubelet gives up a call after 45 s:
what is being written then is written to its end before another call for the same claim or the checkpoint begins.
"""

import asyncio
import logging
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from drawbar.cdi import errors as cdi_errors
from drawbar.cdi import files, spec
from drawbar.driver.api import attachments, claims, meta
from drawbar.driver.kube import client, kinds
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.node import checkpoint, devices, edits, errors
from drawbar.driver.node.plugin import servicers

log = logging.getLogger(__name__)

AttachmentsOf = Callable[[], Iterable[attachments.DeviceAttachment]]


class Preparer:
    """Implements `servicers.Preparation` on this node's files."""

    def __init__(
        self,
        *,
        driver: str,
        api: client.Client,
        arrivals: devices.Devices,
        attached: AttachmentsOf,
        cdi_dir: Path,
        checkpoint_path: Path,
        boot_id: str,
        released: Callable[[str, str], None],
    ) -> None:
        # Nothing is read or written before `restore`. `released` is told pool and device when a claim let go of it.
        self._driver = driver
        self._api = api
        self._arrivals = arrivals
        self._attached = attached
        self._cdi_dir = cdi_dir
        self._checkpoint_path = checkpoint_path
        self._content = checkpoint.Content(boot_id=boot_id)
        self._released = released
        self._writing = asyncio.Lock()
        # A lock lives as long as somebody holds it or waits for it.
        self._claims: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    def holder(self, pool: str, device: str) -> str | None:
        """The uid of the claim that has the device on this node, if any."""
        claim = self._content.holder(pool, device)
        return claim.uid if claim else None

    async def restore(self) -> None:
        """Takes up where the last instance stopped: call once, before the kubelet may call.

        Reads the checkpoint (or rebuilds it from the CDI files and the attachments when it was corrupt), writes
        again what CDI files a reboot took, and removes CDI files that no claim stands behind.

        Raises:
            errors.NodeError: the checkpoint or the CDI directory cannot be used.
        """
        known = await asyncio.to_thread(checkpoint.load, self._checkpoint_path)
        found = self._owners()
        held = known.claims if known is not None else self._rebuilt(found)
        self._content = checkpoint.Content(boot_id=self._content.boot_id, claims=held)
        for claim in held.values():
            self._write_again(claim)
        for uid in found - held.keys():
            log.info("removing the CDI file of no claim", extra={"uid": uid})
            self._remove(uid)
        await asyncio.to_thread(checkpoint.save, self._checkpoint_path, self._content)

    async def prepare(self, claim: servicers.ClaimName) -> tuple[servicers.Prepared, ...]:
        """See `servicers.Preparation`."""
        async with self._lock(claim.uid):
            current = await self._read(claim)
            wanted = self._matched(current)
            prepared = checkpoint.PreparedClaim(
                namespace=claim.namespace,
                name=claim.name,
                uid=claim.uid,
                devices=tuple(self._record(attachment, claim.uid, results) for attachment, results in wanted),
            )
            if prepared.devices:
                await self._store(prepared, [attachment for attachment, _ in wanted])
            return tuple(
                servicers.Prepared(
                    requests=held.requests, pool=held.pool, device=held.device, cdi_id=held.cdi_id
                )
                for held in prepared.devices
            )

    async def unprepare(self, claim: servicers.ClaimName) -> None:
        """See `servicers.Preparation`."""
        async with self._lock(claim.uid):
            known = self._content.claims.get(claim.uid)
            self._remove(claim.uid)
            if known is not None:
                async with self._writing:
                    await self._save(self._content.without_claim(claim.uid))
                log.info("claim unprepared", extra={"claim": known.name, "uid": claim.uid})
        for held in known.devices if known is not None else ():
            self._released(held.pool, held.device)

    async def _read(self, claim: servicers.ClaimName) -> claims.ResourceClaim:
        where = f"claim {claim.namespace}/{claim.name}"
        try:
            current = await self._api.read(
                kinds.CLAIM, claim.name, namespace=claim.namespace, into=claims.ResourceClaim
            )
        except kube_errors.NotFound as error:
            raise errors.PrepareError(f"{where} does not exist any more") from error
        except kube_errors.KubeError as error:
            raise errors.PrepareError(f"cannot read {where}: {error}") from error
        if current.metadata.uid != claim.uid:
            raise errors.PrepareError(f"{where} was replaced by another claim of that name; delete the pod")
        if current.status.allocation is None:
            raise errors.PrepareError(f"{where} is not allocated")
        return current

    def _matched(
        self, claim: claims.ResourceClaim
    ) -> list[tuple[attachments.DeviceAttachment, list[claims.AllocationResult]]]:
        """Our devices of the claim with the attachments that brought them here."""
        found: dict[str, tuple[attachments.DeviceAttachment, list[claims.AllocationResult]]] = {}
        for result in claim.results(self._driver):
            attachment = self._attachment(result, claim.metadata.uid)
            found.setdefault(attachment.metadata.name, (attachment, []))[1].append(result)
        return list(found.values())

    def _attachment(self, result: claims.AllocationResult, uid: str) -> attachments.DeviceAttachment:
        name = f"device {result.pool}/{result.device}"
        self._refuse_overlap(result.pool, result.device, uid)
        for attachment in self._attached():
            spec_ = attachment.spec
            if (spec_.pool, spec_.device) != (result.pool, result.device):
                continue
            if attachment.deleting:
                raise errors.PrepareError(f"{name} is being detached from this node; trying again")
            if spec_.claim is not None and spec_.claim.uid == uid:
                return attachment
        raise errors.PrepareError(f"{name} is not attached to this node for this claim yet; trying again")

    def _record(
        self, attachment: attachments.DeviceAttachment, uid: str, results: list[claims.AllocationResult]
    ) -> checkpoint.PreparedDevice:
        content = self._edits(attachment, uid)
        return checkpoint.PreparedDevice(
            pool=attachment.spec.pool,
            device=attachment.spec.device,
            cdi_id=f"{edits.kind(self._driver)}={content.name}",
            # A request of a prioritised list is named request/subrequest; the kubelet knows the request.
            requests=tuple(sorted({result.request.split("/", 1)[0] for result in results})),
        )

    def _edits(self, attachment: attachments.DeviceAttachment, uid: str) -> spec.Device:
        function = self._arrivals.find(attachment.spec.identity)
        if function is not None:
            return edits.device(attachment, function, uid)
        name = f"device {attachment.spec.pool}/{attachment.spec.device}"
        visible = meta.find(attachment.status.conditions, attachments.VISIBLE)
        if visible is not None and not visible.is_true:
            raise errors.PrepareError(f"{name} cannot be used on this node: {visible.message}")
        raise errors.PrepareError(
            f"{name} (serial {attachment.spec.identity.serial}) is not visible on this node yet; trying again"
        )

    async def _store(
        self, claim: checkpoint.PreparedClaim, wanted: list[attachments.DeviceAttachment]
    ) -> None:
        content = spec.Spec(
            kind=edits.kind(self._driver),
            devices=tuple(self._edits(attachment, claim.uid) for attachment in wanted),
        )
        async with self._writing:
            for held in claim.devices:
                self._refuse_overlap(held.pool, held.device, claim.uid)
            try:
                await _to_its_end(files.write, self._file(claim.uid), content)
            except cdi_errors.CdiError as error:
                raise errors.PrepareError(str(error)) from error
            before = self._content.claims.get(claim.uid)
            if before == claim:
                return
            await self._save(self._content.with_claim(claim))
        log.info(
            "claim prepared",
            extra={"claim": claim.name, "uid": claim.uid, "devices": [held.cdi_id for held in claim.devices]},
        )
        kept = {(held.pool, held.device) for held in claim.devices}
        for held in before.devices if before is not None else ():
            if (held.pool, held.device) not in kept:
                self._released(held.pool, held.device)

    async def _save(self, content: checkpoint.Content) -> None:
        """Makes it the record, on disk and here. The caller holds `_writing`."""

        def save() -> None:
            checkpoint.save(self._checkpoint_path, content)
            self._content = content

        await _to_its_end(save)

    def _refuse_overlap(self, pool: str, device: str, uid: str) -> None:
        holder = self._content.holder(pool, device)
        if holder is not None and holder.uid != uid:
            raise errors.PrepareError(
                f"device {pool}/{device} is still in use by claim {holder.namespace}/{holder.name} on this node; "
                f"trying again"
            )

    def _rebuilt(self, owners: frozenset[str]) -> dict[str, checkpoint.PreparedClaim]:
        """What the CDI files and the attachments tell when there is no checkpoint."""
        held: dict[str, checkpoint.PreparedClaim] = {}
        for attachment in self._attached():
            claim = attachment.spec.claim
            if claim is None or claim.uid not in owners:
                continue
            record = checkpoint.PreparedDevice(
                pool=attachment.spec.pool,
                device=attachment.spec.device,
                cdi_id=f"{edits.kind(self._driver)}={claim.uid}-{attachment.spec.device}",
            )
            before = held[claim.uid].devices if claim.uid in held else ()
            held[claim.uid] = checkpoint.PreparedClaim(
                namespace=claim.namespace, name=claim.name, uid=claim.uid, devices=(*before, record)
            )
        return held

    def _write_again(self, claim: checkpoint.PreparedClaim) -> None:
        names = {(held.pool, held.device) for held in claim.devices}
        here = [one for one in self._attached() if (one.spec.pool, one.spec.device) in names]
        try:
            content = tuple(self._edits(attachment, claim.uid) for attachment in here)
            if len(content) == len(names):
                files.write(self._file(claim.uid), spec.Spec(kind=edits.kind(self._driver), devices=content))
                return
        except (errors.PrepareError, cdi_errors.InvalidSpec) as error:
            log.warning(
                "cannot write the CDI file again: %s", error, extra={"claim": claim.name, "uid": claim.uid}
            )
            return
        except cdi_errors.CdiError as error:
            raise errors.PrepareError(str(error)) from error
        log.warning("a prepared device is no longer attached", extra={"claim": claim.name, "uid": claim.uid})

    def _owners(self) -> frozenset[str]:
        try:
            return files.owners(self._cdi_dir, self._driver)
        except OSError as error:
            raise errors.PrepareError(
                f"cannot list the CDI directory {self._cdi_dir}: {error.strerror}; mount it into the pod"
            ) from error

    def _remove(self, uid: str) -> None:
        try:
            files.remove(self._file(uid))
        except cdi_errors.CdiError as error:
            raise errors.PrepareError(str(error)) from error

    def _file(self, uid: str) -> Path:
        return files.path(self._cdi_dir, self._driver, uid)

    def _lock(self, uid: str) -> asyncio.Lock:
        return self._claims.setdefault(uid, asyncio.Lock())


async def _to_its_end(call: Callable[..., None], *args: Any) -> None:
    """Runs a blocking write in a thread. A cancellation waits for its end, so locks are held as long as it lasts."""
    running = asyncio.get_running_loop().run_in_executor(None, call, *args)
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise
