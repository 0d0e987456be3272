"""The interface of a way in which the controller gives devices to claims itself, without the scheduler."""

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
    """A way of allocation. Its mirrors are followed always; `run` works while this controller leads.

    Attributes:
        watches: the changes that wake it; their keys are its own.
        worker: its name among the workers of the daemon.
        mirrors: the collections that it follows beside those of the controller, by name.
        claim_mirrors: those among them that hold claims.
    """

    watches: tuple[watching.Watch, ...]
    worker: str
    mirrors: Mapping[str, mirror.Mirror[Any]] = types.MappingProxyType({})
    claim_mirrors: tuple[mirror.Mirror[Any], ...] = ()

    @abc.abstractmethod
    def wake(self, key: Any) -> None:
        """Have a key of the watches looked at; does not block."""

    def demand(
        self,
        key: names.DeviceKey,  # noqa: ARG002 - for ways that have claims of their own
        attachment: attachments.DeviceAttachment | None,  # noqa: ARG002
        host_of: Mapping[str, str],  # noqa: ARG002
        seen_at: datetime.datetime,  # noqa: ARG002
    ) -> claims.Demand | None:
        """Return the demand of the claim of its own that has the device, or None.

        Args:
            key: the device.
            attachment: of the device.
            host_of: the fabric's host by node.
            seen_at: since when the attachment has been for its claim.
        """
        return None

    @abc.abstractmethod
    async def run(self, context: Context) -> None:
        """Allocate until cancelled."""
