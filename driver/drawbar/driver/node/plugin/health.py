"""The health service: the kubelet shows the health of devices in the status of their pods.

A stream sends the full list at once, after every change, and every 10 s. The kubelet trusts no health for longer than the
timeout in the list. It has one stream for each registered instance. More than a few are refused, so that no client makes
the daemon write to thousands. The streams end when the service stops.

Source: `k8s.io/kubelet/pkg/apis/dra-health/v1` (kubelet 1.37 and later) and `v1alpha1` (1.34 and later), whose messages
have the same fields.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from drawbar.driver.node.health import verdicts
from drawbar.proto.kubelet.drahealth.v1 import api_pb2 as health_v1
from drawbar.proto.kubelet.drahealth.v1 import api_pb2_grpc as health_v1_grpc
from drawbar.proto.kubelet.drahealth.v1alpha1 import api_pb2 as health_v1alpha1
from drawbar.proto.kubelet.drahealth.v1alpha1 import api_pb2_grpc as health_v1alpha1_grpc

STREAMS_LIMIT = 8
REPEAT_SECONDS = 10.0
# A device becomes Unknown to the kubelet after three lost lists.
TIMEOUT_SECONDS = 30
MESSAGE_LIMIT_CHARS = 1024

_WIRE = {
    verdicts.Status.UNKNOWN: health_v1.UNKNOWN,
    verdicts.Status.HEALTHY: health_v1.HEALTHY,
    verdicts.Status.UNHEALTHY: health_v1.UNHEALTHY,
}


class Streams:
    """All open streams, of both versions."""

    def __init__(self, node_verdicts: verdicts.Verdicts, *, repeat_seconds: float = REPEAT_SECONDS) -> None:
        self._judged = node_verdicts
        self._repeat_seconds = repeat_seconds
        self._open: set[asyncio.Event] = set()
        self._closed = False

    def close(self) -> None:
        """End every stream; new ones end at once."""
        self._closed = True
        for changed in self._open:
            changed.set()

    async def lists(
        self, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Yield the fields of every device's `DeviceHealth`, at once, after each change and at intervals."""
        if len(self._open) >= STREAMS_LIMIT:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"there are {STREAMS_LIMIT} health streams already"
            )
        async with self._listening() as changed:
            while not self._closed:
                changed.clear()
                yield self._devices()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._repeat_seconds):
                        await changed.wait()

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[asyncio.Event]:
        changed = asyncio.Event()
        self._open.add(changed)
        unsubscribe = self._judged.subscribe(lambda _key: changed.set())
        try:
            yield changed
        finally:
            unsubscribe()
            self._open.discard(changed)

    def _devices(self) -> list[dict[str, Any]]:
        now = int(time.time())
        return [
            {
                "device": {"pool_name": key.pool, "device_name": key.device},
                "health": _WIRE[verdict.status],
                "last_updated_time": now,
                "health_check_timeout_seconds": TIMEOUT_SECONDS,
                "message": verdict.message[:MESSAGE_LIMIT_CHARS],
            }
            for key, verdict in sorted(self._judged.all().items())
        ]


class _Service:
    """The service in both versions, which differ only in their names."""

    messages: Any

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    async def NodeWatchResources(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802 - gRPC's name
        """Yield the health of all devices until the kubelet disconnects or the service stops."""
        del request
        async with contextlib.aclosing(self._streams.lists(context)) as lists:
            async for devices in lists:
                yield self.messages.NodeWatchResourcesResponse(
                    devices=[self.messages.DeviceHealth(**device) for device in devices]
                )


class ServiceV1(_Service, health_v1_grpc.DRAResourceHealthServicer):
    """`v1.DRAResourceHealth`, kubelet 1.37 and later."""

    messages = health_v1


class ServiceV1Alpha1(_Service, health_v1alpha1_grpc.DRAResourceHealthServicer):
    """`v1alpha1.DRAResourceHealth`, kubelet 1.34 and later; 1.36 opens it by default."""

    messages = health_v1alpha1


def add_services(server: grpc.aio.Server, streams: Streams) -> None:
    """Add both versions of the health service."""
    health_v1_grpc.add_DRAResourceHealthServicer_to_server(ServiceV1(streams), server)
    health_v1alpha1_grpc.add_DRAResourceHealthServicer_to_server(ServiceV1Alpha1(streams), server)
