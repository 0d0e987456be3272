"""Errors of the contract as gRPC statuses, and back.

The status code carries the meaning and the status message the sentence. The other fields travel as a serialised
`FabricError` message in trailing metadata. Without such metadata, the defaults of the code apply.
"""

import errno
import os
from typing import NoReturn

import grpc
from google.protobuf.message import DecodeError

from drawbar.fabric import errors
from drawbar.proto.fabric.v1alpha1 import fabric_pb2 as pb

DETAIL_KEY = "drawbar-fabric-error-bin"


def to_message(error: errors.FabricError) -> pb.FabricError:
    """Return the error on the wire, with every field set."""
    return pb.FabricError(
        code=pb.ErrorCode.Value(f"ERROR_CODE_{error.code}"),
        reason=error.reason,
        message=error.message,
        retryable=error.retryable,
        side_effects_unknown=error.side_effects_unknown,
        host_id=error.host_id or "",
        vendor=error.vendor,
    )


def from_message(message: pb.FabricError, *, code: errors.Code | None = None) -> errors.FabricError:
    """Return the error of a message; an unknown code becomes Unavailable.

    Args:
        message: from a plugin.
        code: the meaning from the status; None for the message's own code.
    """
    return errors.BY_CODE[code or error_code(message.code)](
        message.message,
        reason=message.reason,
        retryable=message.retryable if message.HasField("retryable") else None,
        side_effects_unknown=(
            message.side_effects_unknown if message.HasField("side_effects_unknown") else None
        ),
        host_id=message.host_id or None,
        vendor=message.vendor,
    )


def error_code(value: pb.ErrorCode.ValueType) -> errors.Code:
    """Return the meaning of a wire value; an unknown value becomes Unavailable."""
    name = pb.ErrorCode.Name(value) if value in pb.ErrorCode.values() else ""
    code = errors.Code.__members__.get(name.removeprefix("ERROR_CODE_"))
    return code or errors.Code.UNAVAILABLE


async def refuse(context: "grpc.aio.ServicerContext[object, object]", error: errors.FabricError) -> NoReturn:
    """End a call on the server's side with the error."""
    detail = to_message(error)
    # The status message carries the sentence already, and metadata has little room.
    detail.message = ""
    await context.abort(
        grpc.StatusCode[error.code.name],
        error.message,
        trailing_metadata=((DETAIL_KEY, detail.SerializeToString()),),
    )


def from_rpc(
    failure: grpc.aio.AioRpcError, *, peer: str, changes_fabric: bool, is_tls: bool = False
) -> errors.FabricError:
    """Return the error of the contract for a failed call.

    Args:
        failure: gRPC's error.
        peer: the called peer, for messages.
        changes_fabric: the call was an attach or detach, so that a lost answer leaves effects unknown.
        is_tls: the connection uses TLS.
    """
    detail = _detail(failure)
    text = failure.details() or ""
    code = errors.Code.__members__.get(failure.code().name)
    if detail is not None and code is not None:
        detail.message = detail.message or text
        return from_message(detail, code=code)
    if code is None:
        return errors.Unavailable(
            f"{peer} answered {failure.code().name}: {text or 'no message'}",
            reason=f"GRPC_{failure.code().name}",
            side_effects_unknown=changes_fabric,
        )
    if code is errors.Code.RESOURCE_EXHAUSTED and "larger than max" in text:
        # Of the library itself, before the message is read.
        return errors.Unavailable(
            f"{peer} sent a message of more than 16 MiB; let it send its lists in pages, or tell its vendor",
            reason=errors.Reason.LIMIT_EXCEEDED,
            side_effects_unknown=changes_fabric,
        )
    if code is errors.Code.UNAVAILABLE and os.strerror(errno.EACCES) in text:
        return errors.Unavailable(
            f"{peer} cannot be reached: permission denied for its socket; run the sidecar as this process's user "
            f"(uid {os.getuid()}), or open the socket to a common group (mode 0660)",
            reason=errors.Reason.SOCKET_FORBIDDEN,
        )
    if code is errors.Code.UNAVAILABLE and is_tls and (trouble := _tls_trouble(text)):
        reason, sentence = trouble
        return errors.Unavailable(f"{peer} {sentence}", reason=reason)
    if code is errors.Code.UNAVAILABLE:
        return errors.Unavailable(
            f"{peer} cannot be reached ({errors.cut(text, 200)}); is the sidecar running?",
            side_effects_unknown=changes_fabric,
        )
    if code is errors.Code.DEADLINE_EXCEEDED:
        return errors.DeadlineExceeded(
            f"{peer} did not answer in time; its fabric manager may be overloaded",
            side_effects_unknown=changes_fabric,
        )
    return errors.BY_CODE[code](text or f"{peer} answered {code} without a message")


def _tls_trouble(text: str) -> tuple[str, str] | None:
    """Return the reason and the fault of a TLS connection, or None if TLS is not the cause."""
    if "CERTIFICATE_VERIFY_FAILED" in text:
        cause = text.rpartition("CERTIFICATE_VERIFY_FAILED: ")[2].removesuffix(": OK")
        sentence = f"has a certificate that is not trusted ({errors.cut(cause, 80)}); put the authority that signed it into ca.crt, or renew it"
        return "CERTIFICATE_REFUSED", sentence
    if "Hostname Verification Check failed" in text:
        return (
            "CERTIFICATE_REFUSED",
            "has a certificate for another name; set tls.serverName to the name in it",
        )
    if "handshake failed" in text:
        return "TLS_REFUSED", "speaks no TLS that this adapter can use; look at the endpoint"
    # The library does not show the alert by which a server refuses a certificate (RFC 8446, section 6.2).
    if text.startswith("failed to connect") and text.endswith("Socket closed"):
        sentence = (
            "ended the connection before its first answer; where it refuses this adapter's certificate, put one into tls.crt "
            "that it trusts and that has not expired"
        )
        return "TLS_REFUSED", sentence
    return None


def _detail(failure: grpc.aio.AioRpcError) -> pb.FabricError | None:
    """Return the error message in the metadata, or None if it is absent or unreadable."""
    for key, value in failure.trailing_metadata() or ():
        if key == DETAIL_KEY and isinstance(value, bytes):
            try:
                return pb.FabricError.FromString(value)
            except DecodeError:
                return None
    return None
