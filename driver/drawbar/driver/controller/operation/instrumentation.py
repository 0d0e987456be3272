"""The instruments of one controller for its administrator.

The daemon passes its parts through here (`client`, `adapters`) and gets them back with instruments. It reports events
by `latency`, and its work by `watchdog`.
"""

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

from drawbar.driver.controller import settings
from drawbar.driver.controller.fabrics import redacting_adapter
from drawbar.driver.controller.operation import adapters, gauges, latency, metrics, traces
from drawbar.driver.kube import client
from drawbar.driver.operation import address, readiness, server
from drawbar.driver.tracing import activation


class Instrumentation:
    """Metrics, probes and their instruments."""

    def __init__(self, options: settings.Settings) -> None:
        self._options = options
        self._gauges: gauges.Gauges | None = None
        self._synced: dict[str, Callable[[], bool]] = {}
        self.metrics = metrics.Metrics(options.driver)
        self.watchdog = readiness.Watchdog()
        self.contained = self.metrics.contained
        self.readiness = readiness.Readiness({"caches": self._not_synced, "workers": self.contained.missing})
        self._tracing = activation.Switch("drawbar-controller", os.environ)
        self.latency = latency.Latency(
            self.metrics, traced=traces.Traces(self._tracing) if self._tracing.wanted else None
        )
        self.metrics.watch(
            "ready", "1 while ready; a follower is ready.", lambda: {"": float(not self.readiness.missing())}
        )

    # Parts with instruments.

    def client(self, api: client.Client) -> client.Client:
        """Return a client that counts its requests."""
        return api.count_requests(self.metrics.request_done)

    def adapters(self, adapter_of: redacting_adapter.AdapterOf) -> redacting_adapter.AdapterOf:
        """Return the adapters' classes with timed calls to the fabric managers."""
        return lambda name: adapters.TimedClass(adapter_of(name), self.metrics)

    # The state at any moment.

    def watch(self, shown: gauges.Gauges, synced: Mapping[str, Callable[[], bool]]) -> None:
        """Show the controller's state.

        Args:
            shown: the gauges to show.
            synced: by resource, returns whether all of it is known.
        """
        self._gauges = shown
        self._gauges.show(self.metrics)
        self._synced = dict(synced)

    @contextlib.contextmanager
    def leading(self) -> Iterator[None]:
        """Mark this controller as the leader while the context lasts."""
        assert self._gauges is not None
        self.metrics.terms.inc()
        # Operations of an earlier term continued without this controller.
        self.latency.clear()
        self._gauges.leading = True
        try:
            yield
        finally:
            self._gauges.leading = False

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer probes, and send traces if they are on, while the context lasts.

        Raises:
            errors.AddressError: the address cannot be listened on.
            errors.UsageError: traces are on, and their packages are not installed.
        """
        try:
            endpoint = settings.endpoint(self._options)
        except ValueError as error:
            raise address.AddressError(str(error)) from error
        async with self._tracing.exporting():
            if endpoint is None:
                yield
                return
            answers = server.pages(
                self.watchdog, self.readiness, self.metrics.render, self._role, self.contained
            )
            async with server.serving(endpoint, answers, contained=self.contained):
                yield

    def _role(self) -> dict[str, object]:
        """Return the role for the probes; a follower is as ready as it can be."""
        leads = self._gauges is not None and self._gauges.leading
        return {"role": "leader" if leads else "follower"}

    def _not_synced(self) -> str | None:
        missing = sorted(name for name, synced in self._synced.items() if not synced())
        if self._synced and not missing:
            return None
        what = ", ".join(missing) or "the cluster"
        return f"not known yet: {what}; no answer from the API server, or a permission is missing"
