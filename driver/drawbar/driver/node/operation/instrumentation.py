"""Everything an administrator sees of one daemon, put together.

The daemon hands its parts through here (`client`, `uevents`, `preparation`) and gets them back with instruments on
them; what is to be seen at any moment is told once, as functions.
"""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Protocol

from drawbar.driver.api import attachments
from drawbar.driver.kube import client
from drawbar.driver.node import settings, uevents
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.operation import address, instruments, metrics
from drawbar.driver.node.plugin import servicers
from drawbar.driver.operation import errors, readiness, requests
from drawbar.driver.operation.http import server


class Audited(Protocol):
    """What `devices.Devices` counts."""

    audits: int
    missed: int


class Instrumentation:
    """Metrics, probes and their instruments."""

    def __init__(self, options: settings.Settings) -> None:
        self._options = options
        self._uevents: instruments.CountedUevents | None = None
        self.metrics = metrics.Metrics(options.driver)
        self.watchdog = readiness.Watchdog()
        self.synced = readiness.Milestone(
            "the attachments of this node are not known yet: no answer from the API server"
        )
        self.restored = readiness.Milestone("what was prepared before is not restored yet")
        self.registered = readiness.Milestone("the kubelet has not registered the driver")
        self.acting = readiness.Milestone("another instance acts on the devices of this node")
        self.readiness = readiness.Readiness(
            {
                "attachments": self.synced.missing,
                "checkpoint": self.restored.missing,
                "kubelet": self.registered.missing,
            }
        )
        self.meter = instruments.AttachmentMeter(self.metrics, self._since_event)
        self.metrics.watch(
            "kubelet_registered",
            "Whether the kubelet has registered the driver.",
            lambda: {"": float(self.registered.reached)},
        )
        # No condition of readiness: the other instance ends only after this one is ready.
        self.metrics.watch(
            "acting",
            "Whether this instance acts on the node's devices; of several, one does.",
            lambda: {"": float(self.acting.reached)},
        )
        self.metrics.watch(
            "ready", "Whether /readyz says so.", lambda: {"": float(not self.readiness.missing())}
        )

    # Parts with instruments on them.

    def client(self, api: client.Client) -> client.Client:
        """The client, counting its requests."""
        return requests.CountingClient(api, self.metrics)

    def uevents(self, source: uevents.UeventSource) -> uevents.UeventSource:
        """The source of events, counting them."""
        self._uevents = instruments.CountedUevents(source, self.metrics)
        return self._uevents

    def preparation(self, preparation: servicers.Preparation) -> servicers.Preparation:
        """What stands behind the DRA service, timed."""
        return instruments.TimedPreparation(preparation, self.metrics)

    # What is to be seen at any moment.

    def watch_attachments(self, found: Iterable[attachments.DeviceAttachment]) -> None:
        """Shows this node's attachments."""
        watch = self.metrics.watch
        watch("attachments", "Attachments of this node.", lambda: instruments.phases(found), label="phase")
        watch(
            "blocked_releases",
            "Attachments whose device cannot be released now.",
            lambda: instruments.blocked(found),
            label="reason",
        )

    def watch_devices(self, devices: Audited) -> None:
        """Shows what the audits of the inventory found."""
        watch = self.metrics.watch
        watch(
            "audits",
            "Comparisons of the whole inventory with the kernel.",
            lambda: {"": devices.audits},
            counter=True,
        )
        watch(
            "audit_findings", "Changes that no event had told of.", lambda: {"": devices.missed}, counter=True
        )

    def watch_prepared(self, prepared: Callable[[], int]) -> None:
        """Shows how many devices claims have on this node."""
        self.metrics.watch(
            "prepared_devices", "Devices that are handed to claims.", lambda: {"": float(prepared())}
        )

    def watch_verdicts(self, judged: verdicts.Verdicts) -> None:
        """Shows how the devices are."""
        self.metrics.watch(
            "devices",
            "Devices that are watched, by their health.",
            lambda: dict(Counter(str(verdict.status) for verdict in judged.all().values())),
            label="health",
        )

    def watch_queue(self, waiting: Callable[[], int], dropped_events: Callable[[], int]) -> None:
        """Shows how much work waits, and how many Events of Kubernetes were not sent."""
        watch = self.metrics.watch
        watch("queue_length", "Attachments that wait to be looked at.", lambda: {"": float(waiting())})
        watch(
            "dropped_events",
            "Events of Kubernetes that were not sent.",
            lambda: {"": float(dropped_events())},
            counter=True,
        )

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answers probes while the context lasts; the kubelet's directory must be there.

        Raises:
            errors.AddressError: the address cannot be listened on.
        """
        options = self._options
        try:
            endpoint = address.parse(options.http.address, options.data_dir, options.instance)
        except ValueError as error:
            raise errors.AddressError(str(error)) from error
        if endpoint is None:
            yield
            return
        answers = server.pages(self.watchdog, self.readiness, self.metrics.rendered)
        server.sweep(options.data_dir)
        async with server.serving(endpoint, answers):
            yield

    def _since_event(self, found: str) -> float | None:
        return self._uevents.since(found) if self._uevents is not None else None
