"""Which of this node's fabric devices are watched: those that were reported visible, until they are given back.

A device whose attachment is being deleted is not watched: it is about to go, and that is no surprise. One that was
visible and is not any more stays watched, for its disappearance is to be reported.

A change of a verdict becomes an Event on the claim that has the device.
"""

from collections.abc import Callable
from typing import Protocol

from drawbar.driver.api import attachments
from drawbar.driver.catalogue import reasons
from drawbar.driver.node.health import monitor, verdicts
from drawbar.driver.node.inventory import model


class Recorder(Protocol):
    """Where Events go; as `kube.events.Recorder`: bounded, and never waits."""

    def normal(self, claim: attachments.ClaimReference | None, *, reason: str, message: str) -> None:
        """Something went as it should."""
        ...

    def warning(self, claim: attachments.ClaimReference | None, *, reason: str, message: str) -> None:
        """Something needs attention."""
        ...


class AttachedDevices:
    """Keeps a monitor's list in step with the attachments.

    Args:
        watching: the monitor.
        recorder: of Events.
        card: the card of an attachment as the inventory has it now, None while it is not there.
        acting: whether this instance of the daemon sends the Events; of two, one does.
    """

    def __init__(
        self,
        watching: monitor.Monitor,
        recorder: Recorder,
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

    def changed(
        self, old: attachments.DeviceAttachment | None, new: attachments.DeviceAttachment | None
    ) -> None:
        """An attachment of this node was added, changed or deleted; a callback of a reflector."""
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
                self._recorder.warning(
                    attachment.spec.claim, reason=reasons.DEVICE_UNHEALTHY, message=verdict.message
                )
        elif name in self._unhealthy:
            self._unhealthy.discard(name)
            message = f"device {name.device} is healthy again"
            if self._acting():
                self._recorder.normal(attachment.spec.claim, reason=reasons.DEVICE_HEALTHY, message=message)


def key(attachment: attachments.DeviceAttachment) -> verdicts.Key:
    """The device of an attachment by its DRA name."""
    return verdicts.Key(pool=attachment.spec.pool, device=attachment.spec.device)
