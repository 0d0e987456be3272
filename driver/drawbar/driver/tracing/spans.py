"""The spans of an attach, and the ids that every daemon derives from the DeviceAttachment.

Nothing is written for a trace: its id is the UID of the attachment, and the id of its root span follows from the UIDs of the
attachment and the claim. So the node's spans join the controller's trace.
"""

import hashlib
import uuid
from collections.abc import Mapping
from typing import Protocol

import msgspec

from drawbar.driver.api import attachments

SPAN_ID_BYTES = 8


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A finished span.

    Attributes:
        trace_id: of 128 bits; the same for all spans of an attachment.
        span_id: of 64 bits, or None for any.
        parent_id: the span id of the parent; None for the root.
        name: of the step.
        start_ns: nanoseconds since 1970.
        end_ns: nanoseconds since 1970.
        attributes: by name.
        failure: the reason of a failure; empty for none.
    """

    trace_id: int
    name: str
    start_ns: int
    end_ns: int
    span_id: int | None = None
    parent_id: int | None = None
    attributes: Mapping[str, str]
    failure: str = ""


class Sink(Protocol):
    """A receiver of finished spans."""

    def export(self, span: Span) -> None:
        """Take a span; return at once, never raise, and drop the span if too many wait."""


class Off:
    """A sink that drops all spans."""

    def export(self, span: Span) -> None:
        """Drop the span."""


def trace_id(attachment: attachments.DeviceAttachment) -> int:
    """Return the attachment's UID as a number, or one derived from a UID of another form."""
    uid = attachment.metadata.uid
    try:
        return uuid.UUID(uid).int
    except ValueError:
        return uuid.uuid5(uuid.NAMESPACE_OID, uid).int


def root_id(attachment: attachments.DeviceAttachment) -> int:
    """Return the id of the root span of the attach for the attachment's claim; it is never 0."""
    claim = attachment.spec.claim
    text = f"{attachment.metadata.uid}/{claim.uid if claim is not None else ''}"
    digest = hashlib.sha256(text.encode()).digest()[:SPAN_ID_BYTES]
    return int.from_bytes(digest) or 1


def attributes(attachment: attachments.DeviceAttachment) -> dict[str, str]:
    """Return the attributes of each span of an attachment."""
    spec = attachment.spec
    values = {
        "drawbar.attachment": attachment.metadata.name,
        "drawbar.fabric": spec.fabric,
        "drawbar.device": spec.device,
        "k8s.node.name": spec.node_name,
    }
    if spec.claim is not None:
        values |= {"k8s.namespace.name": spec.claim.namespace, "drawbar.claim": spec.claim.name}
    return values
