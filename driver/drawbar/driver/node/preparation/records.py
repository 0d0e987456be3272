"""The prepared claims of a node and their devices, as values, and their format in the record.

Unknown fields of a newer Drawbar are kept, so that they survive a downgrade and an upgrade.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from drawbar.driver.catalogue import reasons
from drawbar.driver.node import errors

Json = dict[str, Any]

STARTED = "started"
COMPLETED = "completed"
# Only a CDI file names the claim. Its devices are refused until the claim has been read.
UNEXPLAINED = "unexplained"


class Network(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The first network interface of a device, as its pod gets it.

    Attributes:
        interface_name: the name in the pod.
        hardware_address: an address such as `02:00:00:00:00:01`; empty if the kernel shows none.
    """

    interface_name: str
    hardware_address: str = ""


class Mount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A file of the host, mounted read-only into the containers of a device."""

    host_path: str
    container_path: str


class Device(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A device of a claim.

    Attributes:
        pool: the device's pool; empty if only a CDI file names the device, which is then refused in every pool.
        device: the device's name in its pool.
        requests: the claim's requests for the device, without the names of chosen alternatives; empty means all requests.
        share_id: the claim's share of a device with several users; None for a whole device.
        admin: the claim has admin access, and does not hold the device.
        parameters: the device's parameters, in the format of `api.parameters.document`.
        first_interface: the number of the first network interface, if the parameters name interfaces.
        composite: the allocated DRA device, if this device is a member or a share of it; else empty.
    """

    pool: str
    device: str
    requests: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(default=None, name="shareID")
    admin: bool = False
    parameters: Json = {}
    first_interface: int = 0
    composite: str = ""

    @property
    def is_shared(self) -> bool:
        """Return whether other claims may use the same device; False for a share realised by a device of its own."""
        return self.share_id is not None and not self.composite

    def get_fields(self) -> dict[str, Any]:
        """Return the fields of every `Device`, by name."""
        return {name: getattr(self, name) for name in Device.__struct_fields__}


class PreparedDevice(Device, frozen=True):
    """One device handed to a claim.

    Attributes:
        cdi_id: the name for the container runtime, `vendor/class=name`.
        serial: the serial number at the time of preparation; empty if the device has none.
        network: the first network interface, if the container runtime moves it into the pod.
        mounts: the files that describe the devices of its requests; see `metadata`.
        unknown: the fields of a newer version.
    """

    cdi_id: str = msgspec.field(name="cdiID")
    serial: str = ""
    network: Network | None = None
    mounts: tuple[Mount, ...] = ()
    unknown: Json = {}

    def holds(self, pool: str, device: str) -> bool:
        """Return whether this keeps that device from other claims. Shares and admin access do not."""
        return self.device == device and self.pool in ("", pool) and not self.admin and not self.is_shared


class PreparedClaim(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A prepared claim, or one whose preparation has begun.

    Attributes:
        namespace: the claim's namespace.
        name: the claim's name.
        uid: the claim's UID.
        state: `started`, `completed` or `unexplained`; other states, of a newer version, count as completed.
        devices: the claim's devices on this node.
        boot_id: the ID of the boot in which the record was written; empty if unknown.
        unknown: the fields of a newer version.
    """

    namespace: str
    name: str
    uid: str
    state: str
    devices: tuple[PreparedDevice, ...]
    boot_id: str = msgspec.field(default="", name="bootID")
    unknown: Json = {}

    def document(self) -> Json:
        """Return the claim in the format of the record."""
        document = _document(self)
        document["devices"] = [_document(device) for device in self.devices]
        return document

    def in_state(self, state: str) -> "PreparedClaim":
        """Return the same claim in another state."""
        return self if state == self.state else msgspec.structs.replace(self, state=state)

    def with_unknown_of(self, before: "PreparedClaim | None") -> "PreparedClaim":
        """Return the same claim with the unknown fields of its former record."""
        if before is None:
            return self
        unknown = {(device.pool, device.device): device.unknown for device in before.devices}
        devices = tuple(
            msgspec.structs.replace(device, unknown=unknown.get((device.pool, device.device), {}))
            for device in self.devices
        )
        return msgspec.structs.replace(self, devices=devices, unknown=before.unknown)


# By uid.
Claims = Mapping[str, PreparedClaim]


def holder(claims: Claims, pool: str, device: str) -> PreparedClaim | None:
    """Return the claim that holds the device, or None."""
    # Plain loops: every Prepare and every attachment calls this several times.
    for claim in claims.values():
        for held in claim.devices:
            if held.device == device and held.holds(pool, device):
                return claim
    return None


def refuse_overlap(claims: Claims, pool: str, device: str, uid: str) -> None:
    """Check that no other claim holds the device.

    Raises:
        errors.PrepareError: another claim holds it.
    """
    other = holder(claims, pool, device)
    if other is None or other.uid == uid:
        return
    name = f"device {pool}/{device}"
    if other.state == UNEXPLAINED:
        message = (
            f"{name} is in the CDI file of a claim with uid {other.uid} that is not known here, so a container may still use "
            f"it; trying again once the API server has answered for that claim"
        )
    else:
        message = (
            f"{name} is still in use by claim {other.namespace}/{other.name} on this node; trying again; if no pod has that "
            "claim, the kubelet has lost it: restart the node"
        )
    raise errors.PrepareError(message, reason=reasons.DEVICE_IN_USE)


def add_started(claims: Claims, claim: PreparedClaim) -> Claims:
    """Return the claims with this one added. An equal record stays, unless it is unexplained.

    Raises:
        errors.PrepareError: another claim holds one of its devices.
    """
    for wanted in claim.devices:
        # Shares and admin access leave the device to other claims.
        if wanted.holds(wanted.pool, wanted.device):
            refuse_overlap(claims, wanted.pool, wanted.device, claim.uid)
    before = claims.get(claim.uid)
    started = claim.with_unknown_of(before)
    if before is not None and before.state != UNEXPLAINED and started.in_state(before.state) == before:
        return claims
    return {**claims, claim.uid: started}


def add_completed(claims: Claims, claim: PreparedClaim) -> Claims:
    """Return the claims with this record completed; without the same record, return them unchanged."""
    return {**claims, claim.uid: claim.in_state(COMPLETED)} if claims.get(claim.uid) == claim else claims


def add_explained(claims: Claims, claim: PreparedClaim) -> Claims:
    """Return the claims with this record in place of an unexplained one; else return them unchanged."""
    before = claims.get(claim.uid)
    return {**claims, claim.uid: claim} if before is not None and before.state == UNEXPLAINED else claims


def parse(raw: Json) -> PreparedClaim:
    """Return the claim of a document.

    Raises:
        msgspec.ValidationError: the document does not describe a claim.
    """
    fields, unknown = _split(raw, PreparedClaim)
    devices = []
    for device in msgspec.convert(fields.pop("devices", None), list[Json]):
        fields_of_device, unknown_of_device = _split(device, PreparedDevice)
        devices.append(msgspec.convert({**fields_of_device, "unknown": unknown_of_device}, PreparedDevice))
    # The first version recorded only completed claims, and no state.
    claim = msgspec.convert({"state": COMPLETED, **fields, "devices": (), "unknown": unknown}, PreparedClaim)
    return msgspec.structs.replace(claim, devices=tuple(devices))


def _document(value: PreparedClaim | PreparedDevice) -> Json:
    document: Json = msgspec.to_builtins(value)
    return {**document.pop("unknown", {}), **document}


def _split(raw: Json, into: type[msgspec.Struct]) -> tuple[Json, Json]:
    """Return the fields of this version, and the unknown ones."""
    # `msgspec.structs.fields` resolves types as well, and costs a hundred times as much.
    names = set(into.__struct_encode_fields__) - {"unknown"}
    return {key: raw[key] for key in raw if key in names}, {key: raw[key] for key in raw if key not in names}
