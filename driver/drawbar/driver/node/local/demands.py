"""The demands of claims for a node's own devices, each in the form of a DeviceAttachment. Pure.

A device built into its node has no DeviceAttachment in the API server. The node derives one from the claim's allocation
and from the mark of the device's last use, a file on the node's disk. One plan can therefore prepare fabric devices and
local devices.

Invariant: the attachment is always `Attached`. It is `Visible` only if the mark shows that the device was made ready for
this very allocation in this boot.

Source: KEP-5007, user story 1.
"""

import msgspec

from drawbar.driver.api import (
    attachments,
    bindings,
    claims,
    configurations,
    meta,
    nodepools,
    parameters,
    references,
)
from drawbar.driver.catalogue import reasons
from drawbar.driver.node.inventory import model
from drawbar.driver.node.local import residents
from drawbar.fabric.classes import DeviceClass

NAME_PREFIX = "local/"
"""No object of the API server has a name with this prefix."""
_ATTACHED = meta.Condition(type=attachments.ATTACHED, status="True")
_VISIBLE = meta.Condition(type=attachments.VISIBLE, status="True", reason=reasons.DEVICE_READY)


class Mark(meta.Struct, frozen=True):
    """The last use of a device, as stored on the node's disk.

    Attributes:
        uid: the claim's uid; empty if unknown.
        over: the claim, or its allocation, is gone.
        allocation_timestamp: the time of the claim's allocation; empty if unknown.
        boot_id: the boot in which the device was made ready for the claim; empty before that.
        pci_address: the device's address at that time.
        arrival: the device's arrival at that time.
        drain: the hook to end other uses of the device after the claim.
        clean_up: the hook to clean the device after the claim.
        makes_functions: virtual functions were made for the claim.
    """

    pool: str
    device: str
    namespace: str = ""
    name: str = ""
    uid: str = ""
    over: bool = False
    allocation_timestamp: str = ""
    boot_id: str = ""
    pci_address: str = ""
    arrival: int = 0
    drain: attachments.Hook | None = None
    clean_up: attachments.Hook | None = None
    makes_functions: bool = False

    def is_of(self, uid: str | None, allocation_timestamp: str | None) -> bool:
        """Return whether it belongs to this allocation; an unknown timestamp matches any."""
        timestamps = {self.allocation_timestamp, allocation_timestamp} - {"", None}
        return self.uid == uid and len(timestamps) < 2


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """A claim's demand for a device of this node.

    Attributes:
        claim: the claim, with the parameters in force before a container starts.
        allocation_timestamp: the time of its allocation; empty if the allocation has none.
        failure: why the claim's parameters cannot be applied.
        needs_work: its parameters require work before a container starts.
        is_awaited: the scheduler waits for the device's conditions.
        loads_own: the claim, not its class, names the bitstream.
    """

    pool: str
    device: str
    node_name: str
    driver: str
    claim: attachments.ClaimReference
    allocation_timestamp: str = ""
    failure: attachments.Failure | None = None
    needs_work: bool = False
    is_awaited: bool = False
    loads_own: bool = False

    @property
    def is_followed(self) -> bool:
        """Return whether the node has any work or report for it."""
        return self.is_awaited or self.needs_work

    @property
    def user(self) -> tuple[str, str]:
        """Return its allocation: the claim's uid and the timestamp."""
        return self.claim.uid, self.allocation_timestamp


def asks(device_parameters: parameters.DeviceParameters) -> bool:
    """Return whether the parameters require any work before a container starts."""
    return bool(
        device_parameters.initialise.hook is not None
        or device_parameters.fpga.bitstream is not None
        or device_parameters.virtual_functions.groups
        or device_parameters.minimum_versions != parameters.Versions()
    )


def list_demands(claim: claims.ResourceClaim | None, driver: str, node_name: str) -> tuple[Demand, ...]:
    """Return a claim's demands for this node's own devices. Shares, admin access and the null device need no work."""
    allocation = claim.status.allocation if claim is not None else None
    if claim is None or allocation is None:
        return ()
    results = {
        bindings.Key.from_result(result): result
        for result in claim.results(driver)
        if nodepools.is_pool(result.pool, node_name)
        and result.share_id is None
        and residents.class_of(result.device) is not None
    }
    if not results:
        return ()
    device_parameters, failure = configurations.try_by_device(allocation, driver)
    loads_own = configurations.has_own_bitstream(allocation, driver)
    visible = bindings.condition_type(driver, bindings.VISIBLE)
    demands = (
        Demand(
            pool=key.pool,
            device=key.device,
            node_name=node_name,
            driver=driver,
            claim=references.make_reference(
                claim, driver, key, device_parameters.get(key, parameters.NOTHING)
            ),
            allocation_timestamp=allocation.allocation_timestamp or "",
            failure=failure,
            needs_work=asks(device_parameters.get(key, parameters.NOTHING)),
            is_awaited=visible in result.binding_conditions,
            loads_own=loads_own,
        )
        for key, result in results.items()
    )
    return tuple(demand for demand in demands if demand.is_followed)


def attachment(
    demand: Demand, mark: Mark | None, boot_id: str, *, serial: str = ""
) -> attachments.DeviceAttachment:
    """Return the demand as an attachment, with the status from the mark.

    Args:
        demand: the claim's demand.
        mark: the device's last use; None without one.
        boot_id: the running kernel's boot id.
        serial: the device's serial number, for messages.
    """
    device_class = residents.class_of(demand.device) or DeviceClass.OTHER
    value = attachments.DeviceAttachment(
        metadata=meta.ObjectMeta(
            name=NAME_PREFIX + demand.device, uid=f"{demand.claim.uid}/{demand.allocation_timestamp}"
        ),
        spec=attachments.AttachmentSpec(
            fabric=attachments.LOCAL,
            device_id=demand.device,
            driver=demand.driver,
            pool=demand.pool,
            device=demand.device,
            node_name=demand.node_name,
            host_id=demand.node_name,
            identity=attachments.Identity(device_class=device_class.value, serial=serial),
            claim=demand.claim,
            allocation_timestamp=demand.allocation_timestamp or None,
        ),
    )
    is_ready_for_it = (
        mark is not None and not mark.over and (mark.uid, mark.allocation_timestamp) == value.user
    )
    if mark is None or not is_ready_for_it or not mark.boot_id:
        return msgspec.structs.replace(value, status=attachments.AttachmentStatus(conditions=(_ATTACHED,)))
    report = attachments.NodeReport(
        pci_address=mark.pci_address,
        arrival=mark.arrival,
        boot_id=mark.boot_id,
        claim_uid=mark.uid,
        allocation_timestamp=mark.allocation_timestamp,
    )
    conditions = (_ATTACHED, _VISIBLE) if mark.boot_id == boot_id else (_ATTACHED,)
    status = attachments.AttachmentStatus(conditions=conditions, node=report)
    return msgspec.structs.replace(value, status=status)


def build_mark(demand: Demand) -> Mark:
    """Return the mark of a device before it is made ready."""
    claim = demand.claim
    return Mark(
        pool=demand.pool,
        device=demand.device,
        namespace=claim.namespace,
        name=claim.name,
        uid=claim.uid,
        allocation_timestamp=demand.allocation_timestamp,
        drain=claim.drain,
        clean_up=claim.clean_up,
        makes_functions=bool(claim.virtual_functions.groups),
    )


def is_failed(value: attachments.DeviceAttachment) -> bool:
    """Return whether the device did not become ready for its claim; one that was ready before may recover."""
    visible = meta.find(value.status.conditions, attachments.VISIBLE)
    return visible is not None and visible.status == "False" and not value.is_made_ready


def build_attachment(mark: Mark, card: model.Card) -> attachments.DeviceAttachment:
    """Return the device of a mark as an attachment, for the hooks to treat it."""
    demand = Demand(
        pool=mark.pool,
        device=mark.device,
        node_name="",
        driver="",
        claim=attachments.ClaimReference(namespace=mark.namespace, name=mark.name, uid=mark.uid),
        allocation_timestamp=mark.allocation_timestamp,
    )
    return attachment(demand, None, "", serial=card.serial or "")
