"""The changes of a part's DeviceAttachment, and of its dependents, at the API server."""

import contextlib
import datetime
import logging
from typing import Any

import msgspec

from drawbar.driver.api import attachments, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import marks, outcomes
from drawbar.driver.controller.attachments import actions, identities, statements
from drawbar.driver.controller.attachments.context import ObservedPart
from drawbar.driver.controller.offers import offer
from drawbar.driver.kube import errors as kube_errors
from drawbar.fabric import contract

log = logging.getLogger(__name__)


class Writes:
    """The writer of the DeviceAttachment."""

    def __init__(self, part: ObservedPart) -> None:
        self._part = part

    async def taint(self) -> None:
        """Have the device's pool written.

        Raises:
            kube_errors.KubeError: the API server refuses the slice of the device.
        """
        fabric, device = self._part.key.fabric, self._part.existing.spec.allocated
        await self._part.cluster.pools.publish(fabric)
        error = self._part.cluster.pools.error_of(fabric, device)
        if error is not None and not self._part.cluster.pools.is_tainted(fabric, device):
            raise error

    async def create(self, demand: claim_index.Demand) -> None:
        """Create the attachment, before the fabric is called."""
        assert self._part.device is not None
        part = offer.Part.from_share(self._part.key, demand.share, source_id=self._part.device.id)
        body = statements.intent(
            self._part.opened.spec,
            self._part.key,
            self._part.device,
            demand,
            identity=self._identify(self._part.device, demand.host_id or ""),
            unclean=part.source_id in self._part.unclean,
            composite=self._part.realisation.composite,
        )
        # Before the first await: another worker may decide about the same node meanwhile.
        self._part.context.intended[self._part.key] = (demand.node, self._part.device.model)
        try:
            stored = await self._store(body)
        finally:
            del self._part.context.intended[self._part.key]
        if self._part.observed.owner is marks.Owner.OURS:
            kept = f"claim {demand.claim.namespace}/{demand.claim.name} keeps it"
            statements.emit_taken_back(self._part.cluster.recorder, stored, kept)
        extra = {"attachment": self._part.key.attachment, "node": demand.node, "claim": demand.claim.name}
        log.info("attachment created", extra=extra)
        self._warn_of_hook(demand)

    def _identify(self, device: contract.Device, host_id: str) -> attachments.Identity:
        shared = self._part.opened.inventory.numbers.find_shared(device)
        return identities.identify(device, shared=shared, host=self._part.opened.inventory.host(host_id))

    def _warn_of_hook(self, demand: claim_index.Demand) -> None:
        """Emit an Event if the device's hook or bitstream may take longer than the scheduler waits."""
        hook, limit = demand.claim.initialise, self._part.context.binding_timeout.total_seconds()
        claim = self._part.claim(demand)
        if hook is not None and claim is not None and hook.timeout_seconds >= limit:
            what = f"the hook {hook.hook}" if hook.hook else f"the bitstream {hook.bitstream}"
            message = (
                f"{what} may take {hook.timeout_seconds} s, and the scheduler waits {limit:.0f} s: shorten "
                "initialise.timeoutSeconds of the DeviceClass, or lengthen bindingTimeout of the scheduler and "
                "bindingTimeoutSeconds of the controller"
            )
            self._part.emit(claim, warning=True, reason=reasons.HOOK_TOO_LONG, message=message)

    async def restore(self, where: actions.Restore, now: datetime.datetime) -> None:
        """Store the lost record of a connection."""
        seen = self._part.device
        if seen is None or not await self._part.is_confirmed():
            return
        identity = self._identify(seen, where.host_id)
        stored = await self._store(
            statements.build_restored(
                self._part.opened.spec, self._part.key, seen, where, now, identity=identity
            )
        )
        statements.emit_taken_back(
            self._part.cluster.recorder, stored, "it is detached once its node has released it"
        )
        extra = {"attachment": self._part.key.attachment, "node": where.node, "host": where.host_id}
        log.warning("found a device attached by this cluster without a record; it is taken back", extra=extra)

    async def _store(self, body: object) -> attachments.DeviceAttachment:
        stored = await self._part.cluster.attachments.create(body)
        # The attachment was made just now, so the fabric was not called for it.
        for side in outcomes.Side:
            self._part.context.calls.note_no_call(stored.metadata.uid, side)
        return stored

    async def adopt(self) -> None:
        """Correct the metadata that people changed."""
        existing = self._part.existing
        metadata: dict[str, Any] = {
            "labels": {attachments.NODE_LABEL: attachments.node_label(existing.spec.node_name)}
        }
        if not existing.deleting and attachments.FINALIZER not in existing.metadata.finalizers:
            metadata["finalizers"] = [*existing.metadata.finalizers, attachments.FINALIZER]
        if not existing.held_by_hand:
            metadata["ownerReferences"] = None
        await self._patch(metadata)
        log.info("attachment made or changed by hand adopted", extra=self._part.extras())

    async def _note_cleanliness(self) -> None:
        """Record whether the device has left its node clean, before its own record goes."""
        fabric, attachment = self._part.cluster.fabrics.get(self._part.key.fabric), self._part.existing
        if fabric is None:
            return
        part = self._part.part
        device_id = part.source_id if part.is_carved else attachment.device_id
        released = attachment.holds(attachments.RELEASED)
        unclean = not released and attachment.is_used and attachment.spec.erases
        if part.is_carved and not unclean:
            # Any later chunk of the device may get that memory, and none gets all of it.
            return
        rest = [device for device in fabric.status.unclean if device != device_id]
        wanted = [*rest, device_id] if unclean else rest
        if (device_id in fabric.status.unclean) == unclean or (not unclean and not released):
            return
        body = {
            "metadata": {"uid": fabric.metadata.uid, "resourceVersion": fabric.metadata.resource_version},
            "status": {"unclean": wanted},
        }
        await self._part.cluster.fabrics.merge(
            fabric, body, manager=self._part.cluster.manager, subresource="status"
        )
        if unclean:
            node = attachment.spec.node_name
            message = (
                f"it left node {node} without being erased; the next node that it goes to erases it first"
            )
            self._part.cluster.recorder.attachment_warning(
                attachment, reason=reasons.LEFT_UNCLEAN, message=message
            )

    async def remove_finalizer(self) -> None:
        """Remove our finalizer from the attachment, since the device is free."""
        await self._note_cleanliness()
        remaining = [
            finalizer
            for finalizer in self._part.existing.metadata.finalizers
            if finalizer != attachments.FINALIZER
        ]
        await self._patch({"finalizers": remaining})
        if self._part.observed.given_up:
            spec = self._part.existing.spec
            message = (
                f"its Fabric is given up: {self._part.existing.device_id} was not detached, and stays connected to host {spec.host_id} if it "
                "was; disconnect it at the fabric manager before anybody else uses it"
            )
            self._part.cluster.recorder.attachment_warning(
                self._part.existing, reason=reasons.GIVEN_UP, message=message
            )
        if self._part.session is not None:
            self._part.session.report(self._part.key.device)
        self._part.context.calls.forget(self._part.existing.metadata.uid)
        log.info("device detached", extra=self._part.extras())

    async def take_over(self, demand: claim_index.Demand) -> None:
        """Give the device to the next claim."""
        # Fields that only the earlier claim had are removed too.
        absent = dict.fromkeys(attachments.ClaimReference.__struct_encode_fields__)
        claim = absent | msgspec.to_builtins(demand.claim)
        moment = demand.allocation_timestamp
        await self._patch(spec={"claim": claim, "allocationTimestamp": moment, "idleSince": None})
        log.info("device handed on", extra=self._part.extras() | {"claim": demand.claim.name})

    async def keep_idle(self, now: datetime.datetime) -> None:
        """Keep the device attached for the next claim on its node."""
        idle_since = {"idleSince": meta.timestamp(now)}
        await self._patch(spec={"claim": None, "allocationTimestamp": None} | idle_since)
        log.info("device kept attached", extra=self._part.extras())

    async def _patch(
        self, metadata: dict[str, Any] | None = None, *, spec: dict[str, Any] | None = None
    ) -> None:
        """Change the attachment, if it is still the observed version."""
        current = self._part.existing.metadata
        precondition = {"uid": current.uid, "resourceVersion": current.resource_version}
        body = {"metadata": precondition | (metadata or {}), "spec": spec or {}}
        # A deleted attachment needs no change.
        with contextlib.suppress(kube_errors.NotFound):
            await self._part.cluster.attachments.merge(
                self._part.existing, body, manager=self._part.cluster.manager
            )
