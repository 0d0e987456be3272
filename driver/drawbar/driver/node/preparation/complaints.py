"""Says on the claim why it cannot be prepared: once per reason, however often the kubelet tries.

The kubelet's own event is on the pod and says only that it failed. Bounded: of the claims with trouble the oldest are
forgotten first, and may then be told of the same reason again.
"""

from collections import OrderedDict
from typing import Protocol

from drawbar.driver.api import attachments
from drawbar.driver.node import errors
from drawbar.driver.node.plugin import servicers

CLAIMS_LIMIT = 1000
CHECKPOINT_FAILED = "CheckpointFailed"


class Recorder(Protocol):
    """Where events go; `kube.events.Recorder`."""

    def warning(self, claim: attachments.ClaimReference | None, *, reason: str, message: str) -> None:
        """Something needs attention."""
        ...


class Complaints:
    """What claims were told."""

    def __init__(self, recorder: Recorder | None) -> None:
        self._recorder = recorder
        self._told: OrderedDict[str, str] = OrderedDict()

    def say(self, claim: servicers.ClaimName, error: errors.NodeError) -> None:
        """Tells the claim, unless that was the last thing it was told. One that is gone is told nothing."""
        reason = error.reason if isinstance(error, errors.PrepareError) else CHECKPOINT_FAILED
        if self._recorder is None or reason == errors.CLAIM_GONE or self._told.get(claim.uid) == reason:
            return
        self._told[claim.uid] = reason
        self._told.move_to_end(claim.uid)
        if len(self._told) > CLAIMS_LIMIT:
            self._told.popitem(last=False)
        reference = attachments.ClaimReference(namespace=claim.namespace, name=claim.name, uid=claim.uid)
        self._recorder.warning(reference, reason=reason, message=str(error))

    def forget(self, uid: str) -> None:
        """The claim has no trouble any more."""
        self._told.pop(uid, None)
