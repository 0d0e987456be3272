"""The watched devices among this node's fabric devices: from the report that they are visible until their release.

A device with an attachment in deletion is not watched, because its disappearance is expected. Any other device stays
watched after it disappears, so that this is reported.

A change of a verdict becomes an Event on the device's claim.
"""

from collections.abc import Callable

from drawbar.driver.api import attachments
from drawbar.driver.catalogue import reasons
from drawbar.driver.kube import events
from drawbar.driver.node.health import monitor, verdicts
from drawbar.driver.node.inventory import model


class AttachedDevices:
    """The monitor's list of devices, kept in step with the attachments.

    Args:
        watching: the monitor.
        recorder: records Events.
        card: returns the inventory's current card of an attachment, or None while it is absent.
        acting: whether this instance of the daemon sends the Events; only one of two does.
    """

    def __init__(
        self,
        watching: monitor.Monitor,
        recorder: events.Recorder,
        card: Callable[[attachments.DeviceAttachment], model.Card | None],
        acting: Callable[[], bool] = lambda: True,
    ) -> None:
        self._monitor = watching
        self._recorder = recorder
        self._card = card
        self._acting = acting
        self._attachments: dict[verdicts.Key, attachments.DeviceAttachment] = {}
        self._unhealthy: set[verdicts.Key] = set()
        watching.subscribe(self._verdict_changed)

    def note_change(
        self, old: attachments.DeviceAttachment | None, new: attachments.DeviceAttachment | None
    ) -> None:
        """Apply a change of an attachment of this node; a callback of a reflector."""
        if old is not None and (new is None or new.deleting or new.metadata.uid != old.metadata.uid):
            self._drop(key(old))
        if new is None or new.deleting:
            return
        name = key(new)
        if name not in self._attachments and not new.holds(attachments.VISIBLE):
            return
        first = name not in self._attachments
        self._attachments[name] = new
        if first:
            self._monitor.watch(name, lambda: self._find(name))

    def _drop(self, name: verdicts.Key) -> None:
        if self._attachments.pop(name, None) is not None:
            self._unhealthy.discard(name)
            self._monitor.unwatch(name)

    def _find(self, name: verdicts.Key) -> model.Card | None:
        attachment = self._attachments.get(name)
        return self._card(attachment) if attachment is not None else None

    def _verdict_changed(self, name: verdicts.Key) -> None:
        attachment, verdict = self._attachments.get(name), self._monitor.verdict(name)
        if attachment is None:
            return
        if verdict.status is verdicts.Status.UNHEALTHY:
            self._unhealthy.add(name)
            if self._acting():
                self._recorder.record_warning(
                    attachment.spec.claim, reason=reasons.DEVICE_UNHEALTHY, message=verdict.message
                )
                self._recorder.attachment_warning(
                    attachment, reason=reasons.DEVICE_UNHEALTHY, message=verdict.message
                )
        elif name in self._unhealthy:
            self._unhealthy.discard(name)
            message = f"device {name.device} is healthy again"
            if self._acting():
                self._recorder.record_normal(
                    attachment.spec.claim, reason=reasons.DEVICE_HEALTHY, message=message
                )
                self._recorder.attachment_normal(attachment, reason=reasons.DEVICE_HEALTHY, message=message)


def key(attachment: attachments.DeviceAttachment) -> verdicts.Key:
    """Return the attachment's device by its DRA name."""
    return verdicts.Key(pool=attachment.spec.pool, device=attachment.spec.device)
