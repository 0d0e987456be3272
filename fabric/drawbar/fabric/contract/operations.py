"""Requests to a fabric, and their operations.

A request carries an id chosen by the caller. The id makes it idempotent: sent twice, it is one operation. After a
crash, the caller asks for the operation by this id before it repeats the request.
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
    """The kinds of operation."""

    ATTACH = "attach"
    DETACH = "detach"
    CREATE_SLICE = "create-slice"
    DELETE_SLICE = "delete-slice"


class SerializationScope(StrEnum):
    """The scope in which a fabric runs only one operation at a time."""

    NONE = "none"
    DEVICE = "device"
    HOST = "host"
    FABRIC = "fabric"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The capabilities of an adapter and its fabric.

    Attributes:
        exact_device: attach takes a device id.
        select_by_model: attach takes a model and chooses the device.
        slices: `create_slice` and `delete_slice` are served, for devices with `Device.carving`.
        force_detach: detach takes `force`.
        watch: `watch` is served; without it the caller lists from time to time.
        cancel: `cancel` is served.
        marks: the mark of an attach is kept with the connection and reported by `devices`.
        max_concurrent_operations: None for no known limit.
        serialization_scope: the scope in which only one operation can run.
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
    """A request to connect a device to a host.

    Attributes:
        request_id: chosen by the caller, unique forever (attachment UID and attempt).
        device_id: this device; or
        model: any free device of this model, but no slice. Give exactly one of the two.
        host_id: the future host; any free port serves.
        expected_etag: if it is given and differs from the device's etag: Aborted, STALE_ETAG.
        mark: the future owner of the connection, in the caller's own words; a fabric without the capability `marks`
            ignores it. A connection keeps its mark. An attach of the same pair under another mark is refused as
            IN_USE.
    """

    request_id: str
    device_id: str | None = None
    model: str | None = None
    host_id: str
    expected_etag: str | None = None
    mark: str | None = None

    def problems(self) -> tuple[str, ...]:
        """Return one sentence for each problem that makes the request impossible on any fabric."""
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
    """A request to disconnect a device from a host.

    Attributes:
        request_id: chosen by the caller, unique forever.
        device_id: the device.
        host_id: the device's host; if the device is not there, there is nothing to do.
        host_prepared: the host has released the device, or never saw it. Without this and without force:
            FailedPrecondition, NOT_PREPARED.
        force: disconnect in any state of the host; needs `Capabilities.force_detach`.
    """

    request_id: str
    device_id: str
    host_id: str
    host_prepared: bool = False
    force: bool = False

    def problems(self) -> tuple[str, ...]:
        """Return one sentence for each problem that makes the request impossible on any fabric."""
        return _string_problems(request_id=self.request_id, device_id=self.device_id, host_id=self.host_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSliceRequest:
    """A request to make a slice of a device.

    Attributes:
        request_id: chosen by the caller, unique forever.
        device_id: the device to carve.
        memory_bytes: the size of the slice; a multiple of `Carving.step_bytes`.
        mark: the future owner of the slice, as in `AttachRequest.mark`.
    """

    request_id: str
    device_id: str
    memory_bytes: int
    mark: str | None = None

    def problems(self) -> tuple[str, ...]:
        """Return one sentence for each problem that makes the request impossible on any fabric."""
        problems = _string_problems(request_id=self.request_id, device_id=self.device_id)
        if self.mark is not None:
            problems += _string_problems(mark=self.mark)
        if self.memory_bytes <= 0:
            problems += (f"a slice of {self.memory_bytes} bytes is none; give a positive number",)
        return problems


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSliceRequest:
    """A request to return the memory of a slice to its device.

    Attributes:
        request_id: chosen by the caller, unique forever.
        device_id: the slice.
    """

    request_id: str
    device_id: str

    def problems(self) -> tuple[str, ...]:
        """Return one sentence for each problem that makes the request impossible on any fabric."""
        return _string_problems(request_id=self.request_id, device_id=self.device_id)


def _string_problems(**values: str) -> tuple[str, ...]:
    """Return the problems of required strings: empty, or too long for the wire."""
    empty = tuple(f"{name} is empty" for name, value in values.items() if not value)
    long = tuple(
        f"{name} has {len(value.encode())} bytes, the limit is {STRING_BYTES}"
        for name, value in values.items()
        if len(value.encode()) > STRING_BYTES
    )
    return empty + long


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationError:
    """The failure of an operation after its beginning; the fields are those of `errors.FabricError`."""

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
    """An operation, in flight or finished.

    Attributes:
        id: given by the fabric.
        request_id: the caller's.
        kind: see `OperationKind`.
        done: finished, with success or failure.
        percent: 0 to 100; None if unknown.
        retry_after_seconds: the time until the next question is useful; None leaves it to the caller.
        device: the device at the last change of the operation; None only if an attach by model has not chosen yet, or
            if the device is gone. For a finished creation, the slice.
        error: the failure; None on success and while it runs.
        side_effects_unknown: the fabric may or may not have changed: read it again before any retry.
        mark: the mark of its request, if the fabric has the capability `marks`; a detach or deletion has none.
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
        """Return whether the operation is done without an error."""
        return self.done and self.error is None

    def failure(self) -> errors.FabricError | None:
        """Return the error as an exception, or None; for callers that treat refusals and failures alike."""
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
