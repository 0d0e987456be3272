"""Says things where users look: on the claim, and on the pods that wait for it."""

from drawbar.driver.api import attachments, claims
from drawbar.driver.controller import names
from drawbar.driver.kube import events


def tell(
    recorder: events.Recorder,
    claim: claims.ResourceClaim,
    key: names.DeviceKey,
    *,
    warning: bool,
    reason: str,
    message: str,
) -> None:
    """Events about one device of the claim."""
    metadata = claim.metadata
    reference = attachments.ClaimReference(namespace=metadata.namespace, name=metadata.name, uid=metadata.uid)
    text = f"{key.device} of fabric {key.fabric}: {message}"
    (recorder.warning if warning else recorder.normal)(reference, reason=reason, message=text)
    recorder.tell_pods(claim, warning=warning, reason=reason, message=text)
