"""What is asked of a fabric, and what becomes of it.

A request carries an id chosen by the caller. The id makes it idempotent: sent twice, it is one operation, and
after a crash the caller asks for the operation by this id before it ever repeats the request.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from drawbar.fabric import errors
from drawbar.fabric.contract import inventory

STRING_BYTES = 128
"""The longest id, name or model on the wire (fabric.proto, "Rules for every call")."""


class OperationKind(StrEnum):
    """What an operation does."""

    ATTACH = "attach"
    DETACH = "detach"
    CREATE_SLICE = "create-slice"
    DELETE_SLICE = "delete-slice"


class SerializationScope(StrEnum):
    """Within what a fabric can run only one operation at a time."""

    NONE = "none"
    DEVICE = "device"
    HOST = "host"
    FABRIC = "fabric"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an adapter can do with its fabric.

    Attributes:
        exact_device: attach takes a device id.
        select_by_model: attach takes a model and picks the device.
        slices: `create_slice` and `delete_slice` are served, for the devices that have `Device.carving`.
        force_detach: detach takes `force`.
        watch: `watch` is served; without it the caller lists now and then.
        cancel: `cancel` is served.
        marks: the mark of an attach is kept with the connection and told by `devices`.
        max_concurrent_operations: None: no limit known.
        serialization_scope: within what only one operation can run.
    """

    exact_device: bool = True
    select_by_model: bool = False
    slices: bool = False
    force_detach: bool = False
    watch: bool = False
    cancel: bool = False
    marks: bool = False
    max_concurrent_operations: int | None = None
    serialization_scope: SerializationScope = SerializationScope.DEVICE


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachRequest:
    """Connect a device to a host.

    Attributes:
        request_id: chosen by the caller, unique for ever (attachment UID and attempt).
        device_id: this device; or
        model: any free device of this model, but no slice. Exactly one of the two.
        host_id: the host that is to have it, at any free port.
        expected_etag: when given and no longer the device's etag: Aborted, STALE_ETAG.
        mark: whose connection it will be, in the caller's own words; a fabric without the capability `marks` does
            not look at it. A connection keeps the mark it was made with, and an attach of the same pair under
            another mark is refused as IN_USE.
    """

    request_id: str
    device_id: str | None = None
    model: str | None = None
    host_id: str
    expected_etag: str | None = None
    mark: str | None = None

    def problems(self) -> tuple[str, ...]:
        """One sentence for everything that makes the request impossible, whatever the fabric."""
        problems = _string_problems(request_id=self.request_id, host_id=self.host_id)
        problems += _string_problems(
            **{
                name: value
                for name, value in (
                    ("device_id", self.device_id),
                    ("model", self.model),
                    ("expected_etag", self.expected_etag),
                    ("mark", self.mark),
                )
                if value is not None
            }
        )
        if (self.device_id is None) == (self.model is None):
            problems += ("an attach names either a device id or a model",)
        return problems


@dataclass(frozen=True, slots=True, kw_only=True)
class DetachRequest:
    """Disconnect a device from a host.

    Attributes:
        request_id: chosen by the caller, unique for ever.
        device_id: the device.
        host_id: the host that has it; if another host or none has it, there is nothing to do.
        host_prepared: the host let go of it, or never saw it. Without this and without force:
            FailedPrecondition, NOT_PREPARED.
        force: take it away whatever the host does; needs `Capabilities.force_detach`.
    """

    request_id: str
    device_id: str
    host_id: str
    host_prepared: bool = False
    force: bool = False

    def problems(self) -> tuple[str, ...]:
        """One sentence for everything that makes the request impossible, whatever the fabric."""
        return _string_problems(request_id=self.request_id, device_id=self.device_id, host_id=self.host_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSliceRequest:
    """Make a slice of a device.

    Attributes:
        request_id: chosen by the caller, unique for ever.
        device_id: the device that is carved.
        memory_bytes: of the slice; a multiple of `Carving.step_bytes`.
        mark: whose slice it will be, as `AttachRequest.mark`.
    """

    request_id: str
    device_id: str
    memory_bytes: int
    mark: str | None = None

    def problems(self) -> tuple[str, ...]:
        """Return one sentence for everything that makes the request impossible, whatever the fabric."""
        problems = _string_problems(request_id=self.request_id, device_id=self.device_id)
        if self.mark is not None:
            problems += _string_problems(mark=self.mark)
        if self.memory_bytes <= 0:
            problems += (f"a slice of {self.memory_bytes} bytes is none; give a positive number",)
        return problems


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSliceRequest:
    """Give the memory of a slice back to the device that it was carved from.

    Attributes:
        request_id: chosen by the caller, unique for ever.
        device_id: the slice.
    """

    request_id: str
    device_id: str

    def problems(self) -> tuple[str, ...]:
        """Return one sentence for everything that makes the request impossible, whatever the fabric."""
        return _string_problems(request_id=self.request_id, device_id=self.device_id)


def _string_problems(**values: str) -> tuple[str, ...]:
    """What is wrong with required strings: empty, or too long for the wire."""
    empty = tuple(f"{name} is empty" for name, value in values.items() if not value)
    long = tuple(
        f"{name} has {len(value.encode())} bytes, the limit is {STRING_BYTES}"
        for name, value in values.items()
        if len(value.encode()) > STRING_BYTES
    )
    return empty + long


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationError:
    """Why an operation failed after it had begun; the fields are those of `errors.FabricError`."""

    code: errors.Code
    reason: str
    message: str
    retryable: bool
    host_id: str | None = None
    vendor: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_error(cls, error: errors.FabricError) -> Self:
        """Return the error as a value."""
        return cls(
            code=error.code,
            reason=error.reason,
            message=error.message,
            retryable=error.retryable,
            host_id=error.host_id,
            vendor=dict(error.vendor),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What was asked for, under way or finished.

    Attributes:
        id: given by the fabric.
        request_id: the caller's.
        kind: see `OperationKind`.
        done: finished, well or not.
        percent: 0 to 100; None when not known.
        retry_after_seconds: when it is worth asking again; None: the caller chooses.
        device: the device as it was when the operation last changed; None only while an attach by model has not chosen, or
            if the device is gone. Of a finished creation, the slice.
        error: why it failed; None on success and while it runs.
        side_effects_unknown: the fabric may or may not have changed: read it again before any retry.
        mark: that of its request where the fabric has the capability `marks`; a detach or deletion has none.
    """

    id: str
    request_id: str
    kind: OperationKind
    done: bool
    percent: int | None = None
    retry_after_seconds: float | None = None
    device: inventory.Device | None = None
    error: OperationError | None = None
    side_effects_unknown: bool = False
    mark: str | None = None

    @property
    def succeeded(self) -> bool:
        """Finished without an error."""
        return self.done and self.error is None

    def failure(self) -> errors.FabricError | None:
        """The error as an exception, for callers that treat refusals and failures alike; None without one."""
        if self.error is None:
            return None
        return errors.BY_CODE[self.error.code](
            self.error.message,
            reason=self.error.reason,
            retryable=self.error.retryable,
            side_effects_unknown=self.side_effects_unknown,
            host_id=self.error.host_id,
            vendor=self.error.vendor,
        )
