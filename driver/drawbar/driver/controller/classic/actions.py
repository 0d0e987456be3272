"""What `classic.negotiation` can decide to do; each action is one side effect.

Actions about one subject (a claim, or the context of a pod) are carried out in their order, and the first error ends
those of its subject; different subjects do not affect each other.
"""

from dataclasses import dataclass

from drawbar.driver.api import attachments, claims, classic, handles
from drawbar.driver.controller import names


@dataclass(frozen=True, slots=True, kw_only=True)
class Protect:
    """Add the finalizer to the claim, before anything is done for it."""

    claim: classic.Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """Create the DeviceAttachment, by which a device is attached for the claim.

    Attributes:
        request: of the claim, which gets it.
        devices: how many devices the claim gets.
        allocated_at: the moment of the attempt, the same for all its devices.
    """

    claim: classic.Claim
    key: names.DeviceKey
    pool: str
    request: str
    node: str
    host_id: str
    devices: int
    allocated_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Detach:
    """Delete the DeviceAttachment of a device that is attached for the claim.

    Attributes:
        reason: one word in CamelCase, where the claim gets an Event; else empty.
        message: why.
    """

    claim: classic.Claim
    attachment: attachments.DeviceAttachment
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocate:
    """Write the allocation, and for which pod it is reserved, at once.

    Attributes:
        config: for the node, beside the handle.
        pod: that waits for it; None where none does.
    """

    claim: classic.Claim
    handle: handles.Handle
    shareable: bool = False
    config: tuple[claims.AllocatedConfiguration, ...] = ()
    pod: claims.Consumer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """Clear the allocation and the request for deallocation; its devices are gone."""

    claim: classic.Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Unprotect:
    """Remove the finalizer: nothing is held for the claim, and nothing is under way."""

    claim: classic.Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Complain:
    """Tell the users of a claim why it cannot be served."""

    claim: classic.Claim
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Tell the scheduler which nodes are not suitable.

    Attributes:
        entries: by the name in the pod's spec; entries of other names stay.
    """

    context: classic.Context
    entries: tuple[tuple[str, tuple[str, ...]], ...]


ForClaim = Protect | Attach | Detach | Allocate | Free | Unprotect | Complain
Action = ForClaim | Answer


def subject(action: Action) -> str:
    """Return the uid of the subject, whose actions are carried out one after the other."""
    return action.context.uid if isinstance(action, Answer) else action.claim.uid
