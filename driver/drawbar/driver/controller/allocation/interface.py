"""The interface of a method of allocation: the controller gives devices to claims itself, without the scheduler."""

import abc
import datetime
import types
from collections.abc import Mapping
from typing import Any

from drawbar.driver import watching
from drawbar.driver.api import attachments
from drawbar.driver.controller import claims, names
from drawbar.driver.controller.attachments.context import Context
from drawbar.driver.kube import mirror


class Allocation(abc.ABC):
    """A method of allocation. Its mirrors are always followed; `run` works while this controller leads.

    Attributes:
        watches: the changes that wake it; it defines their keys.
        worker: its name among the daemon's workers.
        mirrors: the collections that it follows in addition to the controller's, by name.
        claim_mirrors: those of its mirrors with claims.
    """

    watches: tuple[watching.Watch, ...]
    worker: str
    mirrors: Mapping[str, mirror.Mirror[Any]] = types.MappingProxyType({})
    claim_mirrors: tuple[mirror.Mirror[Any], ...] = ()

    @abc.abstractmethod
    def wake(self, key: Any) -> None:
        """Have a key of the watches processed; do not block."""

    def demand(
        self,
        key: names.DeviceKey,  # noqa: ARG002 - for ways that have claims of their own
        attachment: attachments.DeviceAttachment | None,  # noqa: ARG002
        host_of: Mapping[str, str],  # noqa: ARG002
        seen_at: datetime.datetime,  # noqa: ARG002
    ) -> claims.Demand | None:
        """Return the demand of this method's claim for the device, or None.

        Args:
            key: the device.
            attachment: the device's attachment.
            host_of: the fabric's host by node.
            seen_at: the time since when the attachment has been for its claim.
        """
        return None

    @abc.abstractmethod
    async def run(self, context: Context) -> None:
        """Allocate until cancelled."""
