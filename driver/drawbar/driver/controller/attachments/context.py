"""What the reconciliation of attachments needs beside the cluster."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from drawbar.driver.api import attachments
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import cluster, names
from drawbar.driver.controller.attachments import calls
from drawbar.driver.controller.operation import latency


class Borrowers(Protocol):
    """Who has devices attached by another way than an allocation of the scheduler: claims of classic allocation."""

    def wish(
        self,
        key: names.DeviceKey,
        attachment: attachments.DeviceAttachment | None,
        host_of: Mapping[str, str],
        seen_at: datetime.datetime,
    ) -> claim_index.Wish | None:
        """Who wants the device, if somebody does.

        Args:
            key: the device.
            attachment: its record, if there is one.
            host_of: by node the fabric's name of it.
            seen_at: when this process first saw that the device is for whom it is.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The settings of attaches, and what is remembered of them.

    Attributes:
        patience: from an allocation that was first seen to giving up, shorter than the scheduler's.
        binding_timeout: how long the scheduler itself waits.
        intended: node and model of the attachments that are being created at this moment.
        borrowers: who else has devices attached; None where nobody can.
    """

    cluster: cluster.Cluster
    patience: datetime.timedelta
    binding_timeout: datetime.timedelta
    calls: calls.Calls
    latency: latency.Latency
    intended: dict[names.DeviceKey, tuple[str, str]] = field(default_factory=dict)
    borrowers: Borrowers | None = None
