"""The health stream to one plugin: opened while it is registered, and opened again after every end.

Source: pkg/kubelet/cm/dra/manager.go of Kubernetes 1.36, as described by the fact pages.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

import grpc.aio

from drawbar.mocks.kubelet import health, plugins, settings, versions
from drawbar.proto.kubelet.drahealth.v1 import api_pb2, api_pb2_grpc
from drawbar.proto.kubelet.drahealth.v1alpha1 import api_pb2 as alpha_pb2
from drawbar.proto.kubelet.drahealth.v1alpha1 import api_pb2_grpc as alpha_pb2_grpc

log = logging.getLogger(__name__)

STATUSES: dict[int, health.Status] = {1: "Healthy", 2: "Unhealthy"}


async def follow(
    plugin: plugins.Plugin,
    healths: health.Healths,
    times: settings.Settings,
    changed: Callable[[str, set[health.DeviceKey]], None],
) -> None:
    """Take in the plugin's reports until cancelled; return at once without a health service.

    Args:
        plugin: the plugin.
        healths: the receiver of the reports.
        times: the pauses.
        changed: called with the driver and the changed devices.
    """
    if plugin.health_service is None:
        return
    while True:
        try:
            async for response in _responses(plugin):
                reports = [_report(device) for device in response.devices]
                if news := healths.take(plugin.driver, reports):
                    changed(plugin.driver, news)
        except grpc.aio.AioRpcError as error:
            log.info(
                "health stream ended",
                extra={"driver": plugin.driver, "code": error.code().name, "reason": error.details()},
            )
        finally:
            healths.forget(plugin.driver)
        await asyncio.sleep(times.health_reconnect_seconds)


async def _responses(plugin: plugins.Plugin) -> AsyncIterator[api_pb2.NodeWatchResourcesResponse]:
    if plugin.health_service == versions.HEALTH_V1:
        stub = api_pb2_grpc.DRAResourceHealthStub(plugin.channel)
        async for response in stub.NodeWatchResources(api_pb2.NodeWatchResourcesRequest()):
            yield response
        return
    alpha = alpha_pb2_grpc.DRAResourceHealthStub(plugin.channel)
    async for old in alpha.NodeWatchResources(alpha_pb2.NodeWatchResourcesRequest()):
        # The two versions have the same messages on the wire.
        yield api_pb2.NodeWatchResourcesResponse.FromString(old.SerializeToString())


def _report(device: api_pb2.DeviceHealth) -> health.Report:
    asked = device.health_check_timeout_seconds
    return health.Report(
        pool=device.device.pool_name,
        device=device.device.device_name,
        status=STATUSES.get(device.health, "Unknown"),
        timeout_seconds=float(asked) if asked > 0 else None,
        message=health.cut(device.message),
    )
