"""Says things where users look: on the claim, on the pods that wait for it, and on what an operator watches."""

from drawbar.driver.api import attachments, claims
from drawbar.driver.controller import names
from drawbar.driver.kube import events

TAKEN_BACK = "DeviceTakenBack"
ROLLED_BACK = "AttachRolledBack"


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


def tell_of_return(
    recorder: events.Recorder, attachment: attachments.DeviceAttachment, what_follows: str
) -> None:
    """An Event about a device that hung on a host without a record, and has one again."""
    spec = attachment.spec
    message = (
        f"{spec.device} of fabric {spec.fabric} was connected to host {spec.host_id} by this cluster and had no "
        f"DeviceAttachment; {what_follows}"
    )
    recorder.attachment_normal(attachment, reason=TAKEN_BACK, message=message)
