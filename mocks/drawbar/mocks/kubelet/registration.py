"""The handshake at a registration socket: dial, GetInfo, judge, take in, notify.

Source: pkg/kubelet/pluginmanager/operationexecutor of Kubernetes 1.36, as described by the fact pages.

Not emulated: plugin types other than DRA, and (as in every release up to 1.36) any notice that a socket is stale.
"""

import asyncio
import contextlib
import os
from pathlib import Path

import grpc.aio

from drawbar.mocks.kubelet import errors, plugins, settings, versions
from drawbar.proto.kubelet.pluginregistration.v1 import api_pb2, api_pb2_grpc

SOCKET_PATH_LIMIT_BYTES = 107


async def register(path: Path, held: plugins.Plugins, times: settings.Settings) -> plugins.Plugin:
    """Registers the plugin behind a registration socket.

    The plugin is told the outcome. If it does not take the good news (an error, or no answer in time), it is
    deregistered again.

    Raises:
        errors.RegistrationError: the plugin is refused, or the path is too long.
        grpc.aio.AioRpcError: it did not answer.
        TimeoutError: nobody listens.
    """
    if len(os.fsencode(path)) > SOCKET_PATH_LIMIT_BYTES:
        raise errors.RegistrationError(
            f"{path} is longer than {SOCKET_PATH_LIMIT_BYTES} bytes: use a shorter directory or driver name"
        )
    async with grpc.aio.insecure_channel(f"unix:{path}", options=plugins.CHANNEL_OPTIONS) as channel:
        async with asyncio.timeout(times.dial_timeout_seconds):
            await channel.channel_ready()
        stub = api_pb2_grpc.RegistrationStub(channel)
        info = await stub.GetInfo(api_pb2.InfoRequest(), timeout=times.info_timeout_seconds)
        try:
            plugin = _take_in(path, info, held, times.release)
        except errors.RegistrationError as error:
            refusal = api_pb2.RegistrationStatus(plugin_registered=False, error=str(error))
            await stub.NotifyRegistrationStatus(refusal, timeout=times.notify_timeout_seconds)
            raise
        async with contextlib.AsyncExitStack() as untold:
            # Whatever keeps the news from it: a plugin that was not told is not used.
            untold.push_async_callback(held.remove, plugin)
            accepted = api_pb2.RegistrationStatus(plugin_registered=True)
            await stub.NotifyRegistrationStatus(accepted, timeout=times.notify_timeout_seconds)
            untold.pop_all()
    return plugin


def _take_in(path: Path, info: api_pb2.PluginInfo, held: plugins.Plugins, release: str) -> plugins.Plugin:
    if info.type != versions.PLUGIN_TYPE:
        raise errors.RegistrationError(
            f"RegisterPlugin error -- no handler registered for plugin type: {info.type} at socket {path}"
        )
    endpoint = info.endpoint or str(path)
    supported = tuple(info.supported_versions)
    try:
        service = versions.service(release, info.name, endpoint, supported)
    except errors.RegistrationError as error:
        raise errors.RegistrationError(
            f"RegisterPlugin error -- plugin validation failed with err: {error}"
        ) from error
    if versions.is_classic(release) and info.name in held.drivers():
        # Whichever comes second: it would have to have a higher version than the first.
        raise errors.RegistrationError(
            f"RegisterPlugin error -- plugin validation failed with err: invalid versions of plugin {info.name}: another "
            f"plugin instance is already registered with a higher supported version"
        )
    try:
        return held.add(
            driver=info.name,
            endpoint=endpoint,
            service=service,
            health_service=versions.health_service(release, supported),
        )
    except errors.EndpointTaken as error:
        raise errors.EndpointTaken(
            f"RegisterPlugin error -- plugin registration failed with err: {error}"
        ) from error
