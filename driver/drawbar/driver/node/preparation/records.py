"""What is prepared on a node, as values: claims and their devices, and their form in the record.

Fields of a newer Drawbar are kept, so that they are there again after a downgrade and an upgrade.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from drawbar.driver.catalogue import reasons
from drawbar.driver.node import errors

Json = dict[str, Any]

STARTED = "started"
COMPLETED = "completed"
# Only a CDI file names the claim; its devices are refused until the claim was read.
UNEXPLAINED = "unexplained"


class Network(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The first network interface of a device, as its pod gets it.

    Attributes:
        interface_name: in the pod.
        hardware_address: such as `02:00:00:00:00:01`; empty where the kernel shows none.
    """

    interface_name: str
    hardware_address: str = ""


class Mount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A file of the host that is in the containers of a device, read-only."""

    host_path: str
    container_path: str


class PreparedDevice(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One device handed to a claim.

    Attributes:
        pool: empty where only a CDI file names the device; then the device is refused in every pool.
        cdi_id: what the container runtime resolves, `vendor/class=name`.
        requests: of the claim; empty means all of them.
        share_id: which share of a device that several claims may use at once.
        admin: given by admin access, which holds nothing.
        serial: of the device when it was prepared; empty where it has none.
        parameters: of the device, as `api.parameters.document` writes them.
        first_interface: the number of its first network interface, where parameters name them.
        composite: the name of the DRA device that the claim was given, where the device is a member or a share of it; else empty.
        network: of a device whose interfaces the container runtime moves into the pod.
        mounts: the files that describe the devices of its requests; see `metadata`.
        unknown: fields of a newer version.
    """

    pool: str
    device: str
    cdi_id: str = msgspec.field(name="cdiID")
    requests: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(default=None, name="shareID")
    admin: bool = False
    serial: str = ""
    parameters: Json = {}
    first_interface: int = 0
    composite: str = ""
    network: Network | None = None
    mounts: tuple[Mount, ...] = ()
    unknown: Json = {}

    @property
    def is_shared(self) -> bool:
        """Whether other claims may use the same device; a share that is a device of its own has its claim alone."""
        return self.share_id is not None and not self.composite

    def holds(self, pool: str, device: str) -> bool:
        """Whether no other claim may have that device. Shares and admin access leave it to others."""
        return self.device == device and self.pool in ("", pool) and not self.admin and not self.is_shared


class PreparedClaim(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One claim that the kubelet may use.

    Attributes:
        state: `started`, `completed` or `unexplained`; any other, of a newer version, counts as completed.
        boot_id: of the boot in which the record was written; empty where that is not known.
        unknown: fields of a newer version.
    """

    namespace: str
    name: str
    uid: str
    state: str
    devices: tuple[PreparedDevice, ...]
    boot_id: str = msgspec.field(default="", name="bootID")
    unknown: Json = {}

    def document(self) -> Json:
        """Return the claim as it is written."""
        document = _document(self)
        document["devices"] = [_document(device) for device in self.devices]
        return document

    def in_state(self, state: str) -> "PreparedClaim":
        """Return the same claim in another state."""
        return self if state == self.state else msgspec.structs.replace(self, state=state)

    def replacing(self, before: "PreparedClaim | None") -> "PreparedClaim":
        """Return the same claim with the unknown fields of the record that it replaces."""
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
    """Return the claim that alone has the device, or None."""
    # Plain loops: every Prepare and every attachment calls this several times.
    for claim in claims.values():
        for held in claim.devices:
            if held.device == device and held.holds(pool, device):
                return claim
    return None


def refuse_overlap(claims: Claims, pool: str, device: str, uid: str) -> None:
    """Check that no claim but this one has the device.

    Raises:
        errors.PrepareError: another claim has it.
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
        message = f"{name} is still in use by claim {other.namespace}/{other.name} on this node; trying again"
    raise errors.PrepareError(message, reason=reasons.DEVICE_IN_USE)


def with_started(claims: Claims, claim: PreparedClaim) -> Claims:
    """Return the claims with this one added; an equal record in any state stays.

    Raises:
        errors.PrepareError: another claim has one of its devices.
    """
    for wanted in claim.devices:
        # Shares and admin access leave the device to other claims.
        if wanted.holds(wanted.pool, wanted.device):
            refuse_overlap(claims, wanted.pool, wanted.device, claim.uid)
    before = claims.get(claim.uid)
    started = claim.replacing(before)
    if before is not None and before.state != UNEXPLAINED and started.in_state(before.state) == before:
        return claims
    return {**claims, claim.uid: started}


def with_completed(claims: Claims, claim: PreparedClaim) -> Claims:
    """Return the claims with this record completed, if it is still there."""
    return {**claims, claim.uid: claim.in_state(COMPLETED)} if claims.get(claim.uid) == claim else claims


def with_explained(claims: Claims, claim: PreparedClaim) -> Claims:
    """Return the claims with this record, if only a CDI file named the claim before."""
    before = claims.get(claim.uid)
    return {**claims, claim.uid: claim} if before is not None and before.state == UNEXPLAINED else claims


def parse(raw: Json) -> PreparedClaim:
    """Return the claim of a document.

    Raises:
        msgspec.ValidationError: the document is none of a claim.
    """
    fields, unknown = _split(raw, PreparedClaim)
    devices = []
    for device in msgspec.convert(fields.pop("devices", None), list[Json]):
        fields_of_device, unknown_of_device = _split(device, PreparedDevice)
        devices.append(msgspec.convert({**fields_of_device, "unknown": unknown_of_device}, PreparedDevice))
    # The first version wrote no state, and only what was completed.
    claim = msgspec.convert({"state": COMPLETED, **fields, "devices": (), "unknown": unknown}, PreparedClaim)
    return msgspec.structs.replace(claim, devices=tuple(devices))


def _document(value: PreparedClaim | PreparedDevice) -> Json:
    document: Json = msgspec.to_builtins(value)
    return {**document.pop("unknown", {}), **document}


def _split(raw: Json, into: type[msgspec.Struct]) -> tuple[Json, Json]:
    """Return the fields that this version has, and the others."""
    # `msgspec.structs.fields` works out types as well, which costs a hundred times as much.
    names = set(into.__struct_encode_fields__) - {"unknown"}
    return {key: raw[key] for key in raw if key in names}, {key: raw[key] for key in raw if key not in names}
