"""The actions of `classic.negotiation`; each is one side effect.

Actions about one subject (a claim, or the context of a pod) are carried out in their order. The first error ends the
actions of its subject; different subjects do not affect each other.
"""

import msgspec

from drawbar.driver.api import attachments, claims, classic, handles
from drawbar.driver.controller import names


class Protect(msgspec.Struct, frozen=True, kw_only=True):
    """Add the finalizer to the claim, before anything else is done for it."""

    claim: classic.Claim


class Attach(msgspec.Struct, frozen=True, kw_only=True):
    """Create the DeviceAttachment, by which a device is attached for the claim.

    Attributes:
        request: the claim's request that gets the device.
        devices: the number of devices for the claim.
        allocated_at: the time of the attempt, the same for all its devices.
    """

    claim: classic.Claim
    key: names.DeviceKey
    pool: str
    request: str
    node: str
    host_id: str
    devices: int
    allocated_at: str


class Detach(msgspec.Struct, frozen=True, kw_only=True):
    """Delete the DeviceAttachment of a device that is attached for the claim.

    Attributes:
        reason: one word in CamelCase for an Event on the claim; empty for no Event.
        message: the reason in words.
    """

    claim: classic.Claim
    attachment: attachments.DeviceAttachment
    reason: str = ""
    message: str = ""


class Allocate(msgspec.Struct, frozen=True, kw_only=True):
    """Write the allocation and the reservation for its pod, at once.

    Attributes:
        config: the entries for the node, in addition to the handle.
        pod: the waiting pod; None if there is none.
    """

    claim: classic.Claim
    handle: handles.Handle
    shareable: bool = False
    config: tuple[claims.AllocatedConfiguration, ...] = ()
    pod: claims.Consumer | None = None


class Free(msgspec.Struct, frozen=True, kw_only=True):
    """Clear the allocation and the request for deallocation; its devices are gone."""

    claim: classic.Claim


class Unprotect(msgspec.Struct, frozen=True, kw_only=True):
    """Remove the finalizer: the claim has no attachment, and nothing is in progress."""

    claim: classic.Claim


class Complain(msgspec.Struct, frozen=True, kw_only=True):
    """Report to the claim's users why it cannot be served."""

    claim: classic.Claim
    reason: str
    message: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Answer the scheduler with the unsuitable nodes.

    Attributes:
        entries: by the claim's name in the pod's spec; entries of other names stay.
    """

    context: classic.Context
    entries: tuple[tuple[str, tuple[str, ...]], ...]


ForClaim = Protect | Attach | Detach | Allocate | Free | Unprotect | Complain
Action = ForClaim | Answer


def subject(action: Action) -> str:
    """Return the UID of the subject; its actions are carried out in their order."""
    return action.context.uid if isinstance(action, Answer) else action.claim.uid
