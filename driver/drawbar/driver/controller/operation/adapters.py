"""The times of the calls to fabric managers: each adapter is wrapped in an adapter that measures it."""

import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import prometheus_client as prometheus

from drawbar.driver.controller.fabrics import redacting_adapter
from drawbar.driver.controller.operation import metrics
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

    def _around(self, call: str) -> AbstractAsyncContextManager[None]:
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
