"""The errors between Drawbar and a fabric manager: a closed set, one meaning each.

The tree is split by the caller's possible reactions::

    FabricError
    ├── Refused                 the same request cannot succeed as things are
    │   ├── InvalidArgument     give up: the request itself is wrong
    │   ├── NotFound            give up: no such device, host, port or operation
    │   ├── AlreadyExists       give up: the request id was used for something else
    │   ├── FailedPrecondition  read again, then decide: IN_USE (names the host), NOT_PREPARED, ...
    │   ├── ResourceExhausted   choose another host or device: NO_FREE_PORT, NO_DEVICE, ...
    │   ├── Unimplemented       never ask again: the fabric cannot do this
    │   └── DataLoss            report it: a device was lost while it was in use
    ├── Transient               it may succeed later
    │   ├── Aborted             read again, retry with a new request id: OPERATION_PENDING, STALE_ETAG, CANCELLED
    │   ├── Unavailable         retry with back-off and the same request id
    │   └── DeadlineExceeded    effects unknown: read again before any retry
    └── Misconfigured           an administrator must act; retry slowly
        ├── Unauthenticated     the credentials are missing or wrong
        ├── PermissionDenied    the credentials do not allow this
        └── InvalidConfiguration  the adapter's configuration is wrong; `problems` lists everything

Adapters raise no other errors: no exception of a library crosses the contract. In every class,
`side_effects_unknown` means that the fabric may have changed: read it again before any retry.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar

MESSAGE_BYTES = 1024
VENDOR_VALUE_BYTES = 256
VENDOR_ENTRIES = 12
"""Foreign text is cut: 12 entries of at most 64 + 256 bytes stay below the 4 KiB that the wire allows."""
VENDOR_KEY_BYTES = 64


class Code(StrEnum):
    """The meanings of errors, with the names of gRPC's status codes."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    ABORTED = "ABORTED"
    UNAVAILABLE = "UNAVAILABLE"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    DATA_LOSS = "DATA_LOSS"


class Reason(StrEnum):
    """The reasons with a meaning for callers; vendors add words of their own, in the same form."""

    IN_USE = "IN_USE"
    """FAILED_PRECONDITION: another host has the device; `host_id` names it."""
    NOT_PREPARED = "NOT_PREPARED"
    """FAILED_PRECONDITION: a detach without the host's preparation and without force."""
    INCOMPATIBLE = "INCOMPATIBLE"
    """FAILED_PRECONDITION: this device cannot go to this host (zone, generation, power)."""
    CARVED = "CARVED"
    """FAILED_PRECONDITION: the device has slices, or is a pool of memory, so it is not attached as a whole."""
    NO_CAPACITY = "NO_CAPACITY"
    """RESOURCE_EXHAUSTED: the device has less free memory than the slice needs."""
    NO_FREE_PORT = "NO_FREE_PORT"
    """RESOURCE_EXHAUSTED: `host_id` has no port left."""
    NO_DEVICE = "NO_DEVICE"
    """RESOURCE_EXHAUSTED: no free device of the model."""
    OPERATION_PENDING = "OPERATION_PENDING"
    """ABORTED: the device has an operation in flight."""
    STALE_ETAG = "STALE_ETAG"
    """ABORTED: the device changed since it was read."""
    OTHERS_LOST = "OTHERS_LOST"
    """FAILED_PRECONDITION: the change took other devices from `host_id` too."""
    NOT_CONFIGURED = "NOT_CONFIGURED"
    """UNAUTHENTICATED: a plugin that was restarted has no credentials yet; they are sent again."""
    SOCKET_FORBIDDEN = "SOCKET_FORBIDDEN"
    """UNAVAILABLE: this process may not open the plugin's socket."""
    CANCELLED = "CANCELLED"
    """ABORTED: the operation was cancelled."""
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"
    """UNAVAILABLE: the manager lists or streams more than its `budget` allows; the caller keeps its previous state."""


def cut(text: str, limit_bytes: int) -> str:
    """Return foreign text, cut to a length in bytes of UTF-8; a cut text ends in an ellipsis."""
    if len(text.encode()) <= limit_bytes:
        return text
    return text.encode()[: limit_bytes - 3].decode(errors="ignore") + "…"


class FabricError(Exception):
    """The base of all errors; never raised itself.

    Attributes:
        code: the meaning.
        reason: a word in upper case for programs; the code's name if no more precise reason is known.
        message: a sentence for people: what, which object, what to do. Never holds a secret.
        retryable: whether the same request may succeed later without an administrator's action.
        side_effects_unknown: the fabric may have changed; read it again before any retry.
        host_id: the host in the way (IN_USE) or without a port (NO_FREE_PORT).
        vendor: the fabric manager's own words, cut to a length.
    """

    code: ClassVar[Code]
    retryable_by_default: ClassVar[bool] = False
    effects_unknown_by_default: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        retryable: bool | None = None,
        side_effects_unknown: bool | None = None,
        host_id: str | None = None,
        vendor: Mapping[str, str] | None = None,
    ) -> None:
        self.message = cut(message, MESSAGE_BYTES)
        super().__init__(self.message)
        self.reason = str(reason) or self.code.value
        self.retryable = self.retryable_by_default if retryable is None else retryable
        self.side_effects_unknown = (
            self.effects_unknown_by_default if side_effects_unknown is None else side_effects_unknown
        )
        self.host_id = host_id
        first = list((vendor or {}).items())[:VENDOR_ENTRIES]
        self.vendor: Mapping[str, str] = MappingProxyType(
            {cut(key, VENDOR_KEY_BYTES): cut(value, VENDOR_VALUE_BYTES) for key, value in first}
        )


class Refused(FabricError):
    """The same request cannot succeed as things are."""


class Transient(FabricError):
    """The request may succeed later."""

    retryable_by_default = True


class Misconfigured(FabricError):
    """An administrator must act."""


class InvalidArgument(Refused):
    """The request itself is wrong and can never succeed."""

    code = Code.INVALID_ARGUMENT


class NotFound(Refused):
    """No such device, host, port or operation."""

    code = Code.NOT_FOUND


class AlreadyExists(Refused):
    """The request id was used for something else."""

    code = Code.ALREADY_EXISTS


class FailedPrecondition(Refused):
    """The state of the fabric forbids it; see `Reason`."""

    code = Code.FAILED_PRECONDITION


class ResourceExhausted(Refused):
    """No resource is left; another host or device may serve."""

    code = Code.RESOURCE_EXHAUSTED


class Unimplemented(Refused):
    """The fabric cannot do this at all."""

    code = Code.UNIMPLEMENTED


class DataLoss(Refused):
    """A device was lost while it was in use."""

    code = Code.DATA_LOSS


class Aborted(Transient):
    """Another operation interfered; read again and retry with a new request id."""

    code = Code.ABORTED


class Unavailable(Transient):
    """The fabric manager cannot be reached or is not ready."""

    code = Code.UNAVAILABLE


class DeadlineExceeded(Transient):
    """No answer in time; whether an attach or detach happened is unknown."""

    code = Code.DEADLINE_EXCEEDED
    effects_unknown_by_default = True


class Unauthenticated(Misconfigured):
    """The credentials are missing or wrong."""

    code = Code.UNAUTHENTICATED


class PermissionDenied(Misconfigured):
    """The credentials do not allow this."""

    code = Code.PERMISSION_DENIED


class InvalidConfiguration(Misconfigured):
    """The configuration of an adapter is wrong.

    Attributes:
        problems: one sentence for each problem, so that all can be corrected at once.
    """

    code = Code.INVALID_ARGUMENT

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems), reason="INVALID_CONFIGURATION")
        self.problems = tuple(problems)


BY_CODE: Mapping[Code, type[FabricError]] = MappingProxyType(
    {
        error.code: error
        for error in (
            InvalidArgument,
            NotFound,
            AlreadyExists,
            FailedPrecondition,
            ResourceExhausted,
            Unimplemented,
            DataLoss,
            Aborted,
            Unavailable,
            DeadlineExceeded,
            Unauthenticated,
            PermissionDenied,
        )
    }
)
"""The error class of each code on the wire and in an `Operation`."""
