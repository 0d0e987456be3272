"""The lookup of a claim's devices, and of their presence and readiness.

There are two sources for the devices of a claim: the attachments of this node, and the claim. Each attachment has its requests,
and the number of this driver's devices in its claim. If the attachments are complete, a Prepare reads nothing. Otherwise it reads
the claim. Each attachment belongs to one allocation, so attachments with different allocation times are no source.

This module writes nothing. Only `Lookup` waits, for the API server. After `errors.DeviceLate`, the next change may bring the
device.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from drawbar.cdi import spec
from drawbar.driver.api import attachments, bindings, claims, configurations, meta, nodepools, parameters
from drawbar.driver.catalogue import reasons
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.node import claim_versions, classes, edits, errors
from drawbar.driver.node.classes import interfaces
from drawbar.driver.node.inventory import model
from drawbar.driver.node.local import demands, nulls, pool, residents
from drawbar.driver.node.plugin import servicers
from drawbar.driver.node.preparation import claimdevices, readiness, records

CLAIM_READ_SECONDS = 5.0
AttachmentsOf = Callable[[], Iterable[attachments.DeviceAttachment]]
# Returns the card of an attachment as the kernel shows it now, or None while it is absent.
CardOf = Callable[[attachments.DeviceAttachment], model.Card | None]

# Returns this node's present work to make the device of an attachment ready, in a clause; empty if unknown.
StepOf = Callable[[attachments.DeviceAttachment], str]


class LocalDevices(Protocol):
    """The devices of this node's own pool, by their DRA names."""

    def card(self, pool: str, device: str) -> model.Card | None:
        """Return the device as it is now, or None while it is absent."""
        ...

    def device_class(self, pool: str, device: str) -> str:
        """Return the device's class, one of `drawbar.fabric.classes.DeviceClass`."""
        ...

    def lender(self, pool: str, device: str) -> attachments.DeviceAttachment | None:
        """Return the attachment of the card with this virtual function; None for any other device."""
        ...


# Returns the reason that a claim cannot have a local device yet, by pool, device, the claim's UID (None for admin access) and
# its allocation time.
Refusal = Callable[[str, str, str | None, str | None], str | None]
# Returns the state of a local device for a claim, by pool, device, the claim's UID and its allocation time.
LocalAttachment = Callable[[str, str, str, str | None], attachments.DeviceAttachment]


class Finder:
    """The lookup of devices in the attachments, in the node's own pool and in the kernel's inventory.

    Args:
        driver: the name of the DRA driver.
        node_name: the name of this node.
        boot_id: the ID of the running kernel's boot.
        attached: returns the attachments of this node.
        card: returns the card of an attachment.
        host: the host of the device files.
        pending_step: returns this node's present work on the device of an attachment.
        local: the devices of this node's own pool; None without such a pool.
        refusal: returns the reason that a claim cannot have a local device yet.
        local_attachment: returns the attachment that stands for a local device of a claim.
        occupied: returns the host's uses of network interfaces.
    """

    def __init__(
        self,
        *,
        driver: str,
        node_name: str,
        boot_id: str,
        attached: AttachmentsOf,
        card: CardOf,
        host: classes.Host,
        pending_step: StepOf = lambda _: "",
        local: LocalDevices | None = None,
        refusal: Refusal = lambda *_: None,
        local_attachment: LocalAttachment | None = None,
        occupied: pool.Interfaces | None = None,
    ) -> None:
        self.driver = driver
        self.node_name = node_name
        self._boot_id = boot_id
        self._attached = attached
        self._card = card
        self._pending_step = pending_step
        self._host = host
        self._local = local
        self._refusal = refusal
        self._local_attachment = local_attachment
        self._occupied = occupied

    def find_by_attachments(self, uid: str) -> tuple[claimdevices.AllocatedDevice, ...] | None:
        """Return the devices of a claim, or None if the attachments do not show all of them."""
        mine = self.find_attachments(uid)
        if not mine or mine[0].spec.allocation_timestamp is None:
            return None
        wanted = []
        for attachment in mine:
            claim = attachment.spec.claim
            if (
                claim is None
                or attachment.deleting
                or attachment.spec.composite is not None
                or not claim.requests
                or claim.devices != len(mine)
                or attachment.spec.allocation_timestamp != mine[0].spec.allocation_timestamp
            ):
                return None
            spec_ = attachment.spec
            wanted.append(
                claimdevices.AllocatedDevice(pool=spec_.pool, device=spec_.device, requests=claim.requests)
            )
        return tuple(wanted)

    def find_devices(self, claim: claims.ResourceClaim) -> tuple[claimdevices.AllocatedDevice, ...]:
        """Return the devices of this driver in a claim's allocation.

        Raises:
            errors.PrepareError: the parameters are invalid.
        """
        try:
            device_parameters = configurations.by_device(claim.status.allocation, self.driver)
        except parameters.Invalid as invalid:
            raise errors.PrepareError(str(invalid), reason=reasons.INVALID_PARAMETERS) from invalid
        allocation = claim.status.allocation
        requests: dict[tuple[str, str, str | None, bool], set[str]] = {}
        for result in allocation.devices.results if allocation is not None else ():
            if result.driver == self.driver:
                key = (result.pool, result.device, result.share_id, bool(result.admin_access))
                # A request of a prioritised list is named request/subrequest, and the kubelet knows only the request.
                requests.setdefault(key, set()).add(result.request.split("/", 1)[0])
        return tuple(
            claimdevices.AllocatedDevice(
                pool=pool,
                device=device,
                requests=tuple(sorted(names)),
                share_id=share_id,
                admin=admin,
                parameters=parameters.document(
                    device_parameters.get(
                        bindings.Key(pool=pool, device=allocated_device, share_id=share_id),
                        parameters.NOTHING,
                    )
                ),
                composite=composite,
                allocation_timestamp=allocation.allocation_timestamp if allocation is not None else None,
            )
            for (pool, allocated_device, share_id, admin), names in requests.items()
            for device, composite in self._members(pool, allocated_device, share_id, claim.metadata.uid)
        )

    def _members(
        self, pool: str, allocated_device: str, share_id: str | None, uid: str
    ) -> tuple[tuple[str, str], ...]:
        """Return the devices behind an allocated device, each with the allocated device's name if the two differ."""
        for attachment in self.find_attachments(uid):
            spec_ = attachment.spec
            if spec_.share is not None and (spec_.pool, spec_.share_id) == (pool, share_id):
                return ((spec_.device, allocated_device),)
            if spec_.composite is not None and (spec_.pool, spec_.allocated) == (pool, allocated_device):
                return tuple((device, allocated_device) for device in spec_.composite.devices)
        return ((allocated_device, ""),)

    def label(self, allocated: claimdevices.AllocatedDevice) -> str:
        """Return the part of the device's CDI name after the claim's UID."""
        is_null = nulls.is_here(allocated.pool, allocated.device, self.node_name)
        return nulls.label(allocated.requests) if is_null else allocated.device

    def find(
        self, allocated: claimdevices.AllocatedDevice, uid: str, *, prepared: bool = False
    ) -> claimdevices.ClaimDevice:
        """Return the device, ready for the claim with that UID.

        Args:
            allocated: the device.
            uid: the UID of the claim.
            prepared: whether the claim was prepared with the device in this boot.

        Raises:
            errors.DeviceLate: the device is not here or not ready yet.
            errors.PrepareError: the claim cannot have the device, and waiting does not help.
        """
        if nulls.is_here(allocated.pool, allocated.device, self.node_name):
            return claimdevices.Nothing(record=self._record(allocated, uid, serial=""), claim_uid=uid)
        if self._local is not None and nodepools.is_pool(allocated.pool, self.node_name):
            return self._find_local(self._local, allocated, uid, prepared=prepared)
        return self._find_attached(allocated, uid, prepared=prepared)

    def find_prepared(self, held: records.PreparedDevice, uid: str) -> spec.Device:
        """Return the CDI device of a device that was prepared in this boot.

        Raises:
            errors.PrepareError: the device is absent, or another one is in its place.
        """
        wanted = claimdevices.AllocatedDevice(**held.get_fields())
        device = self.find(wanted, uid, prepared=True)
        device = claimdevices.replace_record(
            device, msgspec.structs.replace(device.record, mounts=held.mounts)
        )
        if held.serial and device.record.serial != held.serial:
            raise errors.PrepareError(
                f"{wanted.name} had the serial {held.serial} and is now one with {device.record.serial or 'none'}",
                reason=reasons.DEVICE_REPLACED,
            )
        return device.content()

    def find_attachments(self, uid: str) -> list[attachments.DeviceAttachment]:
        """Return this driver's attachments for the claim on this node."""
        return [
            attachment
            for attachment in self._attached()
            if attachment.spec.claim is not None
            and attachment.spec.claim.uid == uid
            and attachment.spec.driver == self.driver
        ]

    def _find_attached(
        self, allocated: claimdevices.AllocatedDevice, uid: str, *, prepared: bool
    ) -> claimdevices.PresentDevice:
        use = readiness.Use(
            claim_uid=uid,
            allocation_timestamp=allocated.allocation_timestamp,
            admin=allocated.admin,
            prepared=prepared,
        )
        attachment = self._attachment(allocated, uid)
        card = self._check(attachment, self._card(attachment), use, allocated.name)
        identity = attachment.identity
        device = self._find_ready(
            allocated,
            uid,
            card,
            serial=identity.serial,
            device_class=identity.device_class,
            prepared=prepared,
        )
        adapter_attributes = {
            name: value
            for name, attribute in attachment.spec.attributes.items()
            if (value := attribute.value) is not None
        }
        origin = adapter_attributes | {"fabric": attachment.spec.fabric, "deviceID": attachment.device_id}
        return msgspec.structs.replace(device, origin=origin, companions=self._companions(attachment))

    def _check(
        self,
        attachment: attachments.DeviceAttachment,
        card: model.Card | None,
        use: readiness.Use,
        subject: str,
    ) -> model.Card:
        """Check that the claim may use the device of the attachment; return its card.

        Raises:
            errors.DeviceLate: the claim may not use the device yet.
            errors.PrepareError: the claim may not use the device, and waiting does not help.
        """
        missing = readiness.find_missing(attachment, use, boot_id=self._boot_id, card=card)
        if missing is None:
            assert card is not None
            return card
        step = self._pending_step(attachment) if missing.is_node_at_work else ""
        message = f"{subject} {missing.clause}{f': {step}' if step else ''}"
        if missing.may_come:
            raise errors.DeviceLate(f"{message}; trying again", reason=missing.reason)
        raise errors.PrepareError(message, reason=missing.reason)

    def _companions(self, attachment: attachments.DeviceAttachment) -> tuple[model.Card, ...]:
        names = attachment.spec.companions
        members = [member for member in self._attached() if member.metadata.name in names] if names else []
        cards = (self._card(member) for member in members)
        return tuple(card for card in cards if card is not None)

    def _find_local(
        self, local: LocalDevices, allocated: claimdevices.AllocatedDevice, uid: str, *, prepared: bool
    ) -> claimdevices.PresentDevice:
        lender = local.lender(allocated.pool, allocated.device)
        if lender is not None:
            # The lender's attachment does not name the claim of the virtual function.
            use = readiness.Use(claim_uid=uid, admin=True, prepared=prepared)
            self._check(
                lender,
                self._card(lender),
                use,
                f"{allocated.name} is a virtual function of {lender.spec.device}, which",
            )
        refusal = (
            None
            if prepared
            else self._refusal(
                allocated.pool,
                allocated.device,
                None if allocated.admin else uid,
                allocated.allocation_timestamp,
            )
        )
        if refusal is not None:
            raise errors.DeviceLate(
                f"{allocated.name} of this node is not clean: {refusal}", reason=reasons.NOT_CLEANED
            )
        card = local.card(allocated.pool, allocated.device)
        if card is None:
            raise errors.DeviceLate(
                f"{allocated.name} of this node is not there; look at its link and power",
                reason=reasons.DEVICE_NOT_VISIBLE,
            )
        self._check_local(allocated, uid, card, prepared=prepared)
        device_class = local.device_class(allocated.pool, allocated.device)
        device = self._find_ready(
            allocated,
            uid,
            card,
            serial=residents.serial(card) or "",
            device_class=device_class,
            prepared=prepared,
        )
        has_interfaces = bool(device.interfaces)
        return msgspec.structs.replace(device, occupied=self._occupied) if has_interfaces else device

    def _check_local(
        self, allocated: claimdevices.AllocatedDevice, uid: str, card: model.Card, *, prepared: bool
    ) -> None:
        """Check that the device was made ready for its claim, if the claim's parameters demand it."""
        device_parameters = (
            parameters.from_record(allocated.parameters) if allocated.parameters else parameters.NOTHING
        )
        if (
            self._local_attachment is None
            or allocated.admin
            or allocated.is_shared
            or not demands.asks(device_parameters)
        ):
            return
        use = readiness.Use(
            claim_uid=uid, allocation_timestamp=allocated.allocation_timestamp, prepared=prepared
        )
        attachment = self._local_attachment(
            allocated.pool, allocated.device, uid, allocated.allocation_timestamp
        )
        self._check(attachment, card, use, f"{allocated.name} of this node")

    def _find_ready(
        self,
        allocated: claimdevices.AllocatedDevice,
        uid: str,
        card: model.Card,
        *,
        serial: str,
        device_class: str,
        prepared: bool,
    ) -> claimdevices.PresentDevice:
        # A GPU's driver may be minutes late after a reboot, and a running container gets no further files.
        missing = classes.by_name(device_class).missing_requirements(card)
        if missing is None and not prepared and not allocated.admin:
            missing = interfaces.find_obstacle(card, self._host)
        if missing is not None:
            raise errors.DeviceLate(
                f"{allocated.name} is not ready on this node: {missing}", reason=reasons.DEVICE_NOT_READY
            )
        record = self._record(allocated, uid, serial=serial)
        return claimdevices.PresentDevice(
            record=record, card=card, device_class=device_class, claim_uid=uid, host=self._host
        )

    def _record(
        self, allocated: claimdevices.AllocatedDevice, uid: str, *, serial: str
    ) -> records.PreparedDevice:
        return records.PreparedDevice(
            **allocated.get_fields(),
            cdi_id=f"{edits.kind(self.driver)}={uid}-{self.label(allocated)}",
            serial=serial,
        )

    def _attachment(self, allocated: claimdevices.AllocatedDevice, uid: str) -> attachments.DeviceAttachment:
        """Return the attachment of the device, preferably the one for the claim.

        Raises:
            errors.DeviceLate: the device has no attachment on this node.
        """
        of_device = [
            attachment
            for attachment in self._attached()
            if (attachment.spec.pool, attachment.spec.device) == (allocated.pool, allocated.device)
        ]
        for attachment in of_device:
            if attachment.spec.claim is not None and attachment.spec.claim.uid == uid:
                return attachment
        if of_device:
            return of_device[0]
        raise errors.DeviceLate(
            f"{allocated.name} is not attached to this node for this claim yet; trying again",
            reason=reasons.DEVICE_NOT_ATTACHED,
        )


class Lookup:
    """The lookup of a claim's devices by the attachments, by the kubelet's handle, or by the claim.

    The claim is read only if necessary. With a handle, it is read if no attachment of this node names it: that shows whether
    the claim exists. Without a handle, it is always read on clusters without `v1`.
    """

    def __init__(
        self,
        claims_: claim_versions.Reader,
        finder: Finder,
        seen: Callable[[claims.ResourceClaim], None] = lambda _: None,
    ) -> None:
        """Read nothing yet; `seen` is called with each claim after it was read."""
        self._claims = claims_
        self._finder = finder
        self._seen = seen

    async def find_devices(self, claim: servicers.ClaimName) -> tuple[claimdevices.AllocatedDevice, ...]:
        """Return the devices of the claim.

        Raises:
            errors.PrepareError: the claim is gone, has none, or cannot be read; or the handle cannot be used.
        """
        self._check_name(claim)
        if claim.handle is not None:
            return await self._find_by_handle(claim, claim.handle)
        # A classic controller attaches devices before it has decided about all requests.
        wanted = self._finder.find_by_attachments(claim.uid) if self._claims.modern else None
        return self._finder.find_devices(await self.read(claim)) if wanted is None else wanted

    def _check_name(self, claim: servicers.ClaimName) -> None:
        """Refuse a call with the UID of one claim and the name of another, whose record would look abandoned."""
        for attachment in self._finder.find_attachments(claim.uid):
            named = attachment.spec.claim
            if named is not None and (named.namespace, named.name) != (claim.namespace, claim.name):
                raise errors.PrepareError(
                    f"the UID {claim.uid} is not that of claim {claim.namespace}/{claim.name} but of "
                    f"{named.namespace}/{named.name}; delete the pod",
                    reason=reasons.CLAIM_GONE,
                )

    async def _find_by_handle(
        self, claim: servicers.ClaimName, data: str
    ) -> tuple[claimdevices.AllocatedDevice, ...]:
        where, node = f"claim {claim.namespace}/{claim.name}", self._finder.node_name
        handle = claim_versions.for_node(claim_versions.decode(data, where), where, node)
        if not self._finder.find_attachments(claim.uid):
            await self.read(claim)
        allocated = claim_versions.from_handle(meta.ObjectMeta(), handle, self._finder.driver, node)
        return self._finder.find_devices(allocated)

    async def read(self, claim: servicers.ClaimName) -> claims.ResourceClaim:
        """Return the claim.

        Raises:
            errors.PrepareError: the claim cannot be read, is not allocated, or another claim has its name now.
        """
        where = f"claim {claim.namespace}/{claim.name}"
        try:
            async with asyncio.timeout(CLAIM_READ_SECONDS):
                current = await self._claims.read(claim.name, claim.namespace)
        except TimeoutError as error:
            raise errors.PrepareError(
                f"cannot read {where}: no answer from the API server in {CLAIM_READ_SECONDS:g} s; "
                f"look at its health",
                reason=reasons.CLAIM_UNREADABLE,
            ) from error
        except kube_errors.NotFound as error:
            raise errors.PrepareError(
                f"{where} does not exist any more", reason=reasons.CLAIM_GONE
            ) from error
        except kube_errors.KubeError as error:
            raise errors.PrepareError(
                f"cannot read {where}: {error}", reason=reasons.CLAIM_UNREADABLE
            ) from error
        if current.metadata.uid != claim.uid:
            raise errors.PrepareError(
                f"{where} was replaced by another claim of that name; delete the pod",
                reason=reasons.CLAIM_GONE,
            )
        if current.status.allocation is None:
            raise errors.PrepareError(f"{where} is not allocated", reason=reasons.CLAIM_NOT_ALLOCATED)
        self._seen(current)
        return current
