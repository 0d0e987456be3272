"""Times what the fabric managers are asked: each adapter behind an instrument that is an adapter itself."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import prometheus_client as prometheus

from drawbar.driver.controller.fabrics import redacting_adapter
from drawbar.driver.controller.operation import metrics
from drawbar.fabric import contract, errors

OK = "OK"
# Neither an answer nor an error of the contract: given up by the controller, or the adapter's defect.
UNFINISHED = "UNFINISHED"


class _Call:
    """One call, with how long it took and how it ended."""

    __slots__ = ("_began", "_call", "_calls")

    def __init__(self, calls: "Calls", call: str) -> None:
        self._calls = calls
        self._call = call
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = self._calls.clock()

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._calls.took(self._call, self._calls.clock() - self._began)
        self._calls.ended(self._call, code(error))


def code(error: BaseException | None) -> str:
    """Return how a call ended that raised this error, or none."""
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

    def timed(self, call: str) -> contextlib.AbstractContextManager[None]:
        """Return a context that times the call made within it."""
        return _Call(self, call)

    def took(self, call: str, seconds: float) -> None:
        """Note how long a call took, however it ended."""
        histogram = self._seconds.get(call)
        if histogram is None:
            if self._is_gone:
                return
            histogram = self._seconds[call] = self._metrics.call_seconds.labels(self._fabric, call)
        histogram.observe(seconds)

    def ended(self, call: str, how: str) -> None:
        """Count a call by how it ended."""
        counter = self._ended.get((call, how))
        if counter is None:
            if self._is_gone:
                return
            counter = self._ended[call, how] = self._metrics.calls.labels(self._fabric, call, how)
        counter.inc()

    @property
    def _is_gone(self) -> bool:
        return self._fabric not in self._metrics.connected


class TimedAdapter(contract.FabricAdapter):
    """An adapter that times what goes through another one."""

    def __init__(self, inner: contract.FabricAdapter, calls: Calls) -> None:
        self._inner = inner
        self._calls = calls

    @classmethod
    def validate(cls, config: contract.AdapterConfig) -> None:
        """Check nothing: `TimedClass` has the checks of the adapter within."""

    @classmethod
    async def connect(cls, config: contract.AdapterConfig) -> "TimedAdapter":
        """Refuse: `TimedClass` alone makes timed adapters.

        Raises:
            errors.Unimplemented: always.
        """
        raise errors.Unimplemented(f"fabric {config.name}: an instrument connects to nothing by itself")

    async def capabilities(self) -> contract.Capabilities:
        """See `contract.FabricAdapter`."""
        with self._calls.timed("capabilities"):
            return await self._inner.capabilities()

    async def hosts(self) -> tuple[contract.Host, ...]:
        """See `contract.FabricAdapter`."""
        with self._calls.timed("hosts"):
            return await self._inner.hosts()

    async def devices(self) -> contract.Inventory:
        """See `contract.FabricAdapter`."""
        with self._calls.timed("devices"):
            return await self._inner.devices()

    async def attach(self, request: contract.AttachRequest) -> contract.Operation:
        """See `contract.FabricAdapter`."""
        with self._calls.timed("attach"):
            return await self._inner.attach(request)

    async def detach(self, request: contract.DetachRequest) -> contract.Operation:
        """See `contract.FabricAdapter`."""
        with self._calls.timed("detach"):
            return await self._inner.detach(request)

    async def create_slice(self, request: contract.CreateSliceRequest) -> contract.Operation:
        """See `contract.FabricAdapter`."""
        with self._calls.timed("create_slice"):
            return await self._inner.create_slice(request)

    async def delete_slice(self, request: contract.DeleteSliceRequest) -> contract.Operation:
        """See `contract.FabricAdapter`."""
        with self._calls.timed("delete_slice"):
            return await self._inner.delete_slice(request)

    async def operation(
        self, *, operation_id: str | None = None, request_id: str | None = None
    ) -> contract.Operation:
        """See `contract.FabricAdapter`."""
        with self._calls.timed("operation"):
            return await self._inner.operation(operation_id=operation_id, request_id=request_id)

    async def operations(self) -> tuple[contract.Operation, ...]:
        """See `contract.FabricAdapter`."""
        with self._calls.timed("operations"):
            return await self._inner.operations()

    async def cancel(self, operation_id: str) -> contract.Operation:
        """See `contract.FabricAdapter`."""
        with self._calls.timed("cancel"):
            return await self._inner.cancel(operation_id)

    def watch(self, from_version: str) -> AbstractAsyncContextManager[AsyncIterator[contract.WatchEvent]]:
        """See `contract.FabricAdapter`; a watch counts when it ends, and has no duration."""
        return self._watched(from_version)

    @contextlib.asynccontextmanager
    async def _watched(self, from_version: str) -> AsyncIterator[AsyncIterator[contract.WatchEvent]]:
        failure: BaseException | None = asyncio.CancelledError()
        try:
            async with self._inner.watch(from_version) as events:
                yield events
            failure = None
        except errors.FabricError as error:
            failure = error
            raise
        finally:
            self._calls.ended("watch", code(failure))

    async def close(self) -> None:
        """See `contract.FabricAdapter`."""
        await self._inner.close()


class TimedClass:
    """An adapter's class whose connections are timed; implements `redacting_adapter.AdapterClass`."""

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
        """See `contract.FabricAdapter`."""
        self._inner.validate(config)

    async def connect(self, config: contract.AdapterConfig) -> contract.FabricAdapter:
        """See `contract.FabricAdapter`."""
        self._metrics.connected.add(config.name)
        calls = Calls(self._metrics, config.name, self._clock)
        with calls.timed("connect"):
            adapter = await self._inner.connect(config)
        return TimedAdapter(adapter, calls)
