"""Reports of attached devices that another driver's ResourceSlice offers as well.

If a vendor's driver starts, or follows hot-plug, it may publish a card from the fabric. Then two pods may get the card. Drawbar
cannot prevent that, and its own claim keeps the device. It sets the condition `Exclusive` to False on the DeviceAttachment, and
writes Events on the attachment and its claim. The condition becomes True once the other driver has not offered the device for
the quiet time. So an update of that driver causes only one report.
"""

import datetime
from collections.abc import Callable, Iterable

from drawbar.driver.api import attachments, meta, otherslices
from drawbar.driver.catalogue import reasons
from drawbar.driver.node.attachments import reporting
from drawbar.driver.node.inventory import model
from drawbar.driver.node.local import coexistence


class Exclusiveness:
    """The condition `Exclusive` of this node's attachments."""

    def __init__(
        self,
        *,
        reporter: reporting.Reporter,
        card: Callable[[attachments.DeviceAttachment], model.Card | None],
        offered: Callable[[], Iterable[otherslices.OtherDevice]],
        quiet_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._reporter = reporter
        self._card = card
        self._offered = offered
        self._quiet_seconds = quiet_seconds
        self._clock = clock
        self._last: dict[str, float] = {}

    async def reconcile(
        self, attachment: attachments.DeviceAttachment, now: datetime.datetime
    ) -> float | None:
        """Report a change; return the seconds until the next look, or None.

        Raises:
            errors.KubeError: the report was not written.
        """
        name = attachment.metadata.name
        condition = meta.find(attachment.status.conditions, attachments.EXCLUSIVE)
        offer = self._find_offer(attachment)
        if offer is not None:
            self._last[name] = self._clock()
            message = _message(attachment, offer)
            if condition is None or condition.is_true or condition.message != meta.cut(message):
                await self._reporter.exclusive(
                    attachment,
                    status=False,
                    reason=reasons.OFFERED_BY_ANOTHER_DRIVER,
                    message=message,
                    now=now,
                )
            return None
        if condition is None or condition.is_true or attachment.deleting:
            self.forget(name)
            return None
        left = self._last.setdefault(name, self._clock()) + self._quiet_seconds - self._clock()
        if left > 0:
            return left
        self.forget(name)
        message = f"no other driver has offered the device for {self._quiet_seconds:g} s"
        await self._reporter.exclusive(
            attachment, status=True, reason=reasons.OFFERED_BY_THIS_DRIVER, message=message, now=now
        )
        return None

    def forget(self, name: str) -> None:
        """Forget an attachment after its removal."""
        self._last.pop(name, None)

    def _find_offer(self, attachment: attachments.DeviceAttachment) -> otherslices.OtherDevice | None:
        if attachment.deleting or not attachment.holds(attachments.VISIBLE):
            return None
        card = self._card(attachment)
        offers = coexistence.find_offers(card, self._offered(), whole=True) if card is not None else ()
        # The order is fixed, so that the message stays the same.
        return min(offers, key=lambda offer: (offer.driver, offer.pool, offer.name), default=None)


def count(listed: Iterable[attachments.DeviceAttachment]) -> int:
    """Return the number of attachments whose device another driver offers as well."""
    conditions = (meta.find(each.status.conditions, attachments.EXCLUSIVE) for each in listed)
    return sum(condition is not None and not condition.is_true for condition in conditions)


def _message(attachment: attachments.DeviceAttachment, offer: otherslices.OtherDevice) -> str:
    node = attachment.status.node
    where = f" ({node.pci_address})" if node is not None else ""
    return (
        f"driver {offer.driver} offers this device{where}, too, as device {offer.name} of pool {offer.pool}: two pods may get it. "
        f"Keep that driver from fabric devices: docs/beside-other-drivers.md has the settings"
    )
