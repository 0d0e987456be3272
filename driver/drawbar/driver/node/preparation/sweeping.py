"""The sweeper: it settles claims whose preparation did not end, and CDI files without a record.

A `started` claim waits for the kubelet's next Prepare or Unprepare. If the kubelet has forgotten the claim, its devices are
released once the claim or its allocation is gone. If only a CDI file names a claim, the sweeper looks the claim up among
all claims. A claim that exists gets an ordinary record; the file of a deleted claim is removed. While the numbers of its
network interfaces are unknown, the devices of the claim stay refused.

The sweeper asks the API server only while claims are unsettled. After a failure it asks again with growing, jittered pauses.
"""

import asyncio
import functools
import logging
import random
from collections.abc import Collection, Mapping

from drawbar.driver import backoff, containment
from drawbar.driver.api import claims
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.node import claim_versions, errors
from drawbar.driver.node.preparation import claimdevices, lookup, preparer, records

log = logging.getLogger(__name__)

# The kubelet may take up an unfinished claim at any time, so there is no hurry.
AGAIN_SECONDS = 600.0
RETRY_FIRST_SECONDS = 1.0
RETRY_MAX_SECONDS = 60.0


class Sweeper:
    """The settling of the unsettled claims of one `Preparer`."""

    def __init__(
        self,
        prepared: preparer.Preparer,
        finder: lookup.Finder,
        reader: claim_versions.Reader,
        contained: containment.Containment | None = None,
    ) -> None:
        self._contained = contained or containment.Uncontained()
        self._claims = reader
        self._prepared = prepared
        self._finder = finder

    async def run(self) -> None:
        """Settle claims until none is unsettled."""
        while self._prepared.unsettled:
            loop = backoff.build_retrying(
                kube_errors.KubeError,
                errors.NodeError,
                first_seconds=RETRY_FIRST_SECONDS,
                max_seconds=RETRY_MAX_SECONDS,
                noted=backoff.warning_once(log, "cannot settle the last instance's claims: %s"),
            )
            await loop(self.settle)
            if self._prepared.unsettled:
                await asyncio.sleep(AGAIN_SECONDS * random.uniform(0.9, 1.1))  # noqa: S311 - spreads requests, guards nothing

    async def settle(self) -> None:
        """Make one round over the unsettled claims.

        Raises:
            kube_errors.KubeError: the API server did not answer.
            errors.NodeError: a file could not be written.
        """
        left = [claim for claim in self._prepared.unsettled if self._is_as_found(claim)]
        unexplained = {claim.uid for claim in left if claim.state == records.UNEXPLAINED}
        if unexplained:
            await self._explain(unexplained)
        for claim in left:
            with self._contained.attempt(
                "sweeper",
                claim.uid,
                extra=functools.partial(_extra, claim),
                expected=(kube_errors.KubeError, errors.NodeError),
            ):
                await self._settle(claim)
        self._prepared.unsettled = tuple(claim for claim in left if self._is_as_found(claim))

    async def _settle(self, claim: records.PreparedClaim) -> None:
        if claim.state == records.STARTED and await self._is_over(claim):
            log.info("giving back unprepared devices", extra=_extra(claim))
            await self._prepared.drop(claim.uid, states=(records.STARTED,))

    def _is_as_found(self, claim: records.PreparedClaim) -> bool:
        return self._prepared.store.claims.get(claim.uid) == claim

    async def _is_over(self, claim: records.PreparedClaim) -> bool:
        """Return whether the claim or its allocation is gone."""
        try:
            current = await self._claims.read(claim.name, claim.namespace)
        except kube_errors.NotFound:
            return True
        except errors.PrepareError as error:
            # The claim is allocated, even if its handle cannot be used.
            log.warning("cannot settle a claim: %s", error, extra={"claim": claim.name, "uid": claim.uid})
            return False
        return current.metadata.uid != claim.uid or current.status.allocation is None

    async def _explain(self, uids: set[str]) -> None:
        by_uid = {metadata.uid: metadata for metadata in await self._claims.all_names()}
        for uid in sorted(uids):
            where = by_uid.get(uid)
            if where is None:
                log.info("removing the CDI file of a claim that is gone", extra={"uid": uid})
                await self._prepared.drop(uid, states=(records.UNEXPLAINED,))
                continue
            try:
                current = await self._claims.read(where.name, where.namespace)
                record = self._record(current) if current.metadata.uid == uid else None
            except errors.PrepareError as error:
                log.warning("cannot explain a CDI file: %s", error, extra={"claim": where.name, "uid": uid})
                continue
            if record is not None:
                await self._prepared.store.explain(record)

    def _record(self, claim: claims.ResourceClaim) -> records.PreparedClaim | None:
        """Return a record of the claim with the devices of its CDI file; a device outside its allocation stays refused.

        Return None if the kubelet has settled the claim meanwhile.

        Raises:
            errors.PrepareError: the numbers of its network interfaces are unknown now.
        """
        uid = claim.metadata.uid
        before = self._prepared.store.claims.get(uid)
        if before is None or before.state != records.UNEXPLAINED:
            return None
        wanted = {self._finder.label(device): device for device in self._find_wanted(claim)}
        first = self._first_interfaces(wanted.values(), uid)
        devices = []
        for held in before.devices:
            device = wanted.get(held.device)
            devices.append(
                held
                if device is None
                else records.PreparedDevice(
                    **device.get_fields() | {"first_interface": first.get((device.pool, device.device), 0)},
                    cdi_id=held.cdi_id,
                    serial=held.serial,
                )
            )
        return records.PreparedClaim(
            namespace=claim.metadata.namespace,
            name=claim.metadata.name,
            uid=uid,
            devices=tuple(devices),
            state=records.COMPLETED,
            boot_id=before.boot_id,
        )

    def _first_interfaces(
        self, allocated: Collection[claimdevices.AllocatedDevice], uid: str
    ) -> Mapping[tuple[str, str], int]:
        """Return the number of the first network interface by device, if several devices have numbered interfaces."""
        named = [
            device for device in allocated if claimdevices.interface_prefix(device.parameters) is not None
        ]
        if len({(device.pool, device.device) for device in named}) < 2:
            return {}
        claim_devices = [self._finder.find(device, uid, prepared=True) for device in named]
        if not claimdevices.are_all_here(claim_devices):
            raise errors.PrepareError(
                "its network interfaces are not on the host, so their numbers are unknown"
            )
        numbered = claimdevices.number_interfaces(claim_devices)
        return {
            (device.record.pool, device.record.device): device.record.first_interface for device in numbered
        }

    def _find_wanted(self, claim: claims.ResourceClaim) -> tuple[claimdevices.AllocatedDevice, ...]:
        try:
            return self._finder.find_devices(claim)
        except errors.PrepareError as error:
            # A version with fewer demands prepared it.
            log.warning(
                "cannot explain the CDI file of a claim: %s", error, extra={"uid": claim.metadata.uid}
            )
            return ()


def _extra(claim: records.PreparedClaim) -> dict[str, object]:
    return {"claim": claim.name, "uid": claim.uid}
