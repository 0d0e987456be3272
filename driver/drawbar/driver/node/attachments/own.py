"""The attachments of this daemon's driver, among all that its node has.

Several drivers may have attachments on one node. Their devices are not this daemon's to prepare, judge or release; it
knows of them all the same, so that it does not offer as the node's own what came over a fabric.
"""

from collections.abc import Iterator

from drawbar.driver.api import attachments
from drawbar.driver.kube import mirror


class Own:
    """Those of one driver; read from the local copy whenever somebody asks."""

    def __init__(self, known: mirror.Mirror[attachments.DeviceAttachment], driver: str) -> None:
        self._known = known
        self._driver = driver

    def __iter__(self) -> Iterator[attachments.DeviceAttachment]:
        return (one for one in self._known if self.has(one))

    def has(self, attachment: attachments.DeviceAttachment) -> bool:
        """Whether it is one of them."""
        return attachment.spec.driver == self._driver

    def get(self, name: str) -> attachments.DeviceAttachment | None:
        """The one of that name, if there is one."""
        found = self._known.get(name)
        return found if found is not None and self.has(found) else None
