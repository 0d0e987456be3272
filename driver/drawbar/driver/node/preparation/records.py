"""What was prepared, as values: claims and their devices.

What a newer Drawbar writes besides is carried along, so that it is there again after a downgrade and an upgrade.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

Json = dict[str, Any]

STARTED = "started"
COMPLETED = "completed"
# Only a CDI file tells of it; its devices are refused until somebody explains it.
UNEXPLAINED = "unexplained"


class PreparedDevice(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One device handed to a claim.

    Attributes:
        pool: empty where only a CDI file tells of the device; then the device is refused in every pool.
        cdi_id: what the container runtime resolves, `vendor/class=name`.
        requests: of the claim; empty means all of them.
        share_id: which share of a device that several claims may use at once.
        admin: given by admin access, which holds nothing.
        serial: of the device when it was prepared; empty where it has none.
        parameters: that hold for it, as `api.parameters.document` writes them.
        first_interface: the number of its first network interface, where parameters name them.
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
    unknown: Json = {}

    def document(self) -> Json:
        """As it is written."""
        said: Json = {
            **self.unknown,
            "pool": self.pool,
            "device": self.device,
            "cdiID": self.cdi_id,
            "requests": self.requests,
        }
        if self.share_id is not None:
            said["shareID"] = self.share_id
        if self.admin:
            said["admin"] = True
        if self.serial:
            said["serial"] = self.serial
        if self.parameters:
            said["parameters"] = self.parameters
        if self.first_interface:
            said["firstInterface"] = self.first_interface
        return said

    def holds(self, pool: str, device: str) -> bool:
        """Whether nobody else may have that device. Shares and admin access leave it to others."""
        return self.device == device and self.pool in ("", pool) and not self.admin and self.share_id is None


class PreparedClaim(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One claim that the kubelet may use.

    Attributes:
        state: `started`, `completed` or `unexplained`; what a newer version may write besides counts as completed.
        unknown: fields of a newer version.
    """

    namespace: str
    name: str
    uid: str
    devices: tuple[PreparedDevice, ...]
    state: str = COMPLETED
    unknown: Json = {}

    def document(self) -> Json:
        """As it is written."""
        return {
            **self.unknown,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "state": self.state,
            "devices": [device.document() for device in self.devices],
        }

    def in_state(self, state: str) -> "PreparedClaim":
        """The same in another state."""
        return self if state == self.state else msgspec.structs.replace(self, state=state)

    def replacing(self, before: "PreparedClaim | None") -> "PreparedClaim":
        """The same with what only a newer version understands of the record that it replaces."""
        if before is None:
            return self
        known = {(device.pool, device.device): device.unknown for device in before.devices}
        devices = tuple(
            msgspec.structs.replace(device, unknown=known.get((device.pool, device.device), {}))
            for device in self.devices
        )
        return msgspec.structs.replace(self, devices=devices, unknown=before.unknown)


class Content(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything the file says."""

    boot_id: str = msgspec.field(default="", name="bootID")
    claims: dict[str, PreparedClaim] = {}
    unknown: Json = {}

    def document(self) -> Json:
        """As it is written."""
        claims = {uid: claim.document() for uid, claim in self.claims.items()}
        return {**self.unknown, "bootID": self.boot_id, "claims": claims}

    def with_claim(self, claim: PreparedClaim) -> "Content":
        """The content after a Prepare."""
        return msgspec.structs.replace(self, claims={**self.claims, claim.uid: claim})

    def without_claim(self, uid: str) -> "Content":
        """The content after an Unprepare."""
        return msgspec.structs.replace(
            self, claims={key: value for key, value in self.claims.items() if key != uid}
        )

    def with_completed(self, started: Iterable[PreparedClaim]) -> "Content":
        """The content once these claims have their CDI files. A claim that was started anew since is left alone."""
        done = {
            claim.uid: claim.in_state(COMPLETED) for claim in started if self.claims.get(claim.uid) == claim
        }
        return msgspec.structs.replace(self, claims={**self.claims, **done}) if done else self

    def holder(self, pool: str, device: str) -> PreparedClaim | None:
        """The claim that alone has the device, if any."""
        # Plain loops: this is asked several times by every Prepare and for every attachment.
        for claim in self.claims.values():
            for held in claim.devices:
                if held.device == device and held.holds(pool, device):
                    return claim
        return None


def content(raw: Json) -> Content:
    """What a document says.

    Raises:
        msgspec.ValidationError: it is none.
    """
    known, unknown = _split(raw, Content)
    claims = msgspec.convert(known.get("claims", {}), dict[str, Json])
    return Content(
        boot_id=msgspec.convert(known.get("bootID", ""), str),
        claims={uid: _claim(claim) for uid, claim in claims.items()},
        unknown=unknown,
    )


def _claim(raw: Json) -> PreparedClaim:
    known, unknown = _split(raw, PreparedClaim)
    devices = tuple(_device(device) for device in msgspec.convert(known.pop("devices", None), list[Json]))
    claim = msgspec.convert({**known, "devices": ()}, PreparedClaim)
    return msgspec.structs.replace(claim, devices=devices, unknown=unknown)


def _device(raw: Json) -> PreparedDevice:
    known, unknown = _split(raw, PreparedDevice)
    return msgspec.structs.replace(msgspec.convert(known, PreparedDevice), unknown=unknown)


def _split(raw: Json, into: type[msgspec.Struct]) -> tuple[Json, Json]:
    """What this version knows of an object, and the rest."""
    # `msgspec.structs.fields` works out types as well, which costs a hundred times as much.
    names = set(into.__struct_encode_fields__) - {"unknown"}
    return {key: raw[key] for key in raw if key in names}, {key: raw[key] for key in raw if key not in names}
