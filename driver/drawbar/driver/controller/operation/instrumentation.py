"""The instruments of one controller for its administrator.

The daemon passes its parts through here (`client`, `adapters`) and gets them back with instruments. It reports events
by `latency`, and its work by `watchdog`. Each adapter of a fabric manager is wrapped in one that measures its calls.
"""

import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager

import prometheus_client as prometheus

from drawbar.driver.controller import settings
from drawbar.driver.controller.fabrics import redacting_adapter
from drawbar.driver.controller.operation import gauges, latency, metrics, traces
from drawbar.driver.kube import client
from drawbar.driver.operation import address, readiness, server
from drawbar.driver.tracing import activation
from drawbar.fabric import contract, errors, wrapping

OK = "OK"
# Neither an answer nor an error of the contract: the controller gave up, or the adapter has a defect.
UNFINISHED = "UNFINISHED"


def code(error: BaseException | None) -> str:
    """Return the outcome of a call that raised this error, or none."""
    if error is None:
        return OK
    return error.code.value if isinstance(error, errors.FabricError) else UNFINISHED


class Calls:
    """The calls to one fabric manager; each metric's child is looked up once."""

    def __init__(self, measured: metrics.Metrics, fabric: str, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._metrics = measured
        self._fabric = fabric
        self._seconds: dict[str, prometheus.Histogram] = {}
        self._ended: dict[tuple[str, str], prometheus.Counter] = {}

    @contextlib.asynccontextmanager
    async def time_call(self, call: str) -> AsyncIterator[None]:
        """Time and count the call within the context; a watch counts when it ends, and has no duration."""
        began = self.clock()
        failure: BaseException | None = None
        try:
            yield
        except BaseException as error:
            failure = error
            raise
        finally:
            if call != "watch":
                self.took(call, self.clock() - began)
            self.count_call(call, code(failure))

    def took(self, call: str, seconds: float) -> None:
        """Count the duration of a call with any outcome."""
        histogram = self._seconds.get(call)
        if histogram is None:
            if self._is_gone:
                return
            histogram = self._seconds[call] = self._metrics.call_seconds.labels(self._fabric, call)
        histogram.observe(seconds)

    def count_call(self, call: str, how: str) -> None:
        """Count a call by its outcome."""
        counter = self._ended.get((call, how))
        if counter is None:
            if self._is_gone:
                return
            counter = self._ended[call, how] = self._metrics.calls.labels(self._fabric, call, how)
        counter.inc()

    @property
    def _is_gone(self) -> bool:
        return self._fabric not in self._metrics.connected


class TimedAdapter(wrapping.WrappingAdapter):
    """An adapter that times the calls to another one."""

    def __init__(self, inner: contract.FabricAdapter, calls: Calls) -> None:
        super().__init__(inner)
        self._calls = calls

    def _guard(self, call: str) -> AbstractAsyncContextManager[None]:
        return contextlib.nullcontext() if call == "close" else self._calls.time_call(call)


class TimedClass:
    """A class of adapters with timed connections; implements `redacting_adapter.AdapterClass`."""

    def __init__(
        self,
        inner: redacting_adapter.AdapterClass,
        measured: metrics.Metrics,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._inner = inner
        self._metrics = measured
        self._clock = clock

    def validate(self, config: contract.AdapterConfig) -> None:
        """Validate as in `contract.FabricAdapter`."""
        self._inner.validate(config)

    async def connect(self, config: contract.AdapterConfig) -> contract.FabricAdapter:
        """Connect as in `contract.FabricAdapter`, and return the timed adapter."""
        self._metrics.connected.add(config.name)
        calls = Calls(self._metrics, config.name, self._clock)
        async with calls.time_call("connect"):
            adapter = await self._inner.connect(config)
        return TimedAdapter(adapter, calls)


class Instrumentation:
    """Metrics, probes and their instruments."""

    def __init__(self, options: settings.Settings) -> None:
        self._options = options
        self._gauges: gauges.Gauges | None = None
        self._synced: dict[str, Callable[[], bool]] = {}
        self.metrics = metrics.Metrics(options.driver)
        self.watchdog = readiness.Watchdog()
        self.contained = self.metrics.contained
        self.readiness = readiness.Readiness(
            {"caches": self._not_synced, "workers": self.contained.find_missing}
        )
        self._tracing = activation.Switch("drawbar-controller", os.environ)
        self.latency = latency.Latency(
            self.metrics, traced=traces.Traces(self._tracing) if self._tracing.wanted else None
        )
        self.metrics.watch(
            "ready",
            "1 while ready; a follower is ready.",
            lambda: {"": float(not self.readiness.find_missing())},
        )

    # Parts with instruments.

    def client(self, api: client.Client) -> client.Client:
        """Return a client that counts its requests."""
        return api.count_requests(self.metrics.request_done)

    def adapters(self, adapter_of: redacting_adapter.AdapterOf) -> redacting_adapter.AdapterOf:
        """Return the adapters' classes with timed calls to the fabric managers."""
        return lambda name: TimedClass(adapter_of(name), self.metrics)

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
        endpoint = address.parse(self._options.http.address)
        answers = server.pages(self.watchdog, self.readiness, self.metrics.render, self._role, self.contained)
        async with self._tracing.exporting(), server.serving(endpoint, answers, contained=self.contained):
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
