"""A node plugin that answers as told, and its sockets."""

import asyncio
from contextlib import asynccontextmanager

import grpc.aio

from drawbar.proto.kubelet.dra.v1 import api_pb2, api_pb2_grpc
from drawbar.proto.kubelet.dra.v1beta1 import api_pb2 as beta_pb2
from drawbar.proto.kubelet.dra.v1beta1 import api_pb2_grpc as beta_pb2_grpc
from drawbar.proto.kubelet.drahealth.v1 import api_pb2 as health_pb2
from drawbar.proto.kubelet.drahealth.v1 import api_pb2_grpc as health_pb2_grpc
from drawbar.proto.kubelet.drahealth.v1alpha1 import api_pb2 as alpha_pb2
from drawbar.proto.kubelet.drahealth.v1alpha1 import api_pb2_grpc as alpha_pb2_grpc
from drawbar.proto.kubelet.pluginregistration.v1 import api_pb2 as registration_pb2
from drawbar.proto.kubelet.pluginregistration.v1 import api_pb2_grpc as registration_pb2_grpc

DRIVER = "drawbar.dev"
DEADLINE_SECONDS = 120
STATUSES = {"Unknown": 0, "Healthy": 1, "Unhealthy": 2}


def device(name="slot-1", *requests, cdi=None):
    ids = [f"drawbar.dev/claim={name}"] if cdi is None else cdi
    return api_pb2.Device(
        request_names=requests or ["one"], pool_name="chassis-1", device_name=name, cdi_device_ids=ids
    )


def all_prepared(claims):
    return {claim.uid: api_pb2.NodePrepareResourceResponse(devices=[device()]) for claim in claims}


class Plugin(
    registration_pb2_grpc.RegistrationServicer,
    api_pb2_grpc.DRAPluginServicer,
    beta_pb2_grpc.DRAPluginServicer,
):
    """Answers each call with the next of its answers, the last one forever. An answer that is an exception aborts.

    `calls` holds (method, claim names); `blocked` holds calls up while it is cleared.
    """

    def __init__(self, *answers, versions=("v1.DRAPlugin",), kind="DRAPlugin", driver=DRIVER, endpoint=""):
        self.answers = list(answers) or [all_prepared]
        self.unprepare_answers = [lambda claims: {claim.uid: "" for claim in claims}]
        self.notify_answers = [None]
        self.info_answers = [None]
        self.versions = versions
        self.kind = kind
        self.driver = driver
        self.endpoint = endpoint
        self.calls = []
        self.called = asyncio.Queue()
        self.entered = asyncio.Queue()
        self.statuses = asyncio.Queue()
        self.told = []
        self.blocked = asyncio.Event()
        self.blocked.set()
        self.unprepare_hook = None
        self.services = []

    @property
    def prepares(self):
        return [names for method, names in self.calls if method == "prepare"]

    @property
    def unprepares(self):
        return [names for method, names in self.calls if method == "unprepare"]

    async def GetInfo(self, request, context):  # noqa: N802 - the name is the wire's
        await _take_answer(self.info_answers, context)
        return registration_pb2.PluginInfo(
            type=self.kind, name=self.driver, endpoint=self.endpoint, supported_versions=self.versions
        )

    async def NotifyRegistrationStatus(self, request, context):  # noqa: N802 - the name is the wire's
        self.told.append(request)
        self.statuses.put_nowait(request)
        await _take_answer(self.notify_answers, context)
        return registration_pb2.RegistrationStatusResponse()

    async def NodePrepareResources(self, request, context):  # noqa: N802 - the name is the wire's
        names = self._note("prepare", request)
        await self.blocked.wait()
        answer = await _take_answer(self.answers, context)
        response = api_pb2.NodePrepareResourcesResponse(claims=answer(list(request.claims)))
        self.called.put_nowait(("prepare", names))
        if isinstance(request, beta_pb2.NodePrepareResourcesRequest):
            return beta_pb2.NodePrepareResourcesResponse.FromString(response.SerializeToString())
        return response

    async def NodeUnprepareResources(self, request, context):  # noqa: N802 - the name is the wire's
        names = self._note("unprepare", request)
        if self.unprepare_hook is not None:
            await self.unprepare_hook()
        answer = await _take_answer(self.unprepare_answers, context)
        outcomes = {
            uid: api_pb2.NodeUnprepareResourceResponse(error=error)
            for uid, error in answer(list(request.claims)).items()
        }
        self.called.put_nowait(("unprepare", names))
        return api_pb2.NodeUnprepareResourcesResponse(claims=outcomes)

    def _note(self, method, request):
        self.services.append(type(request).__module__)
        names = [claim.name for claim in request.claims]
        self.calls.append((method, names))
        self.entered.put_nowait((method, names))
        return names

    async def wait_for_registration(self):
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self.statuses.get()

    async def wait_for_call(self):
        """Return the next call that began."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self.entered.get()

    async def next_call(self):
        """Wait for the next call that was answered, and return it."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self.called.get()


async def _take_answer(answers, context):
    answer = answers.pop(0) if len(answers) > 1 else answers[0]
    if isinstance(answer, Exception):
        await context.abort(grpc.StatusCode.INTERNAL, str(answer))
    if answer == "silence":
        await asyncio.Event().wait()
    return answer


class HealthService(health_pb2_grpc.DRAResourceHealthServicer, alpha_pb2_grpc.DRAResourceHealthServicer):
    """Sends what `say` gives it to every stream; `end` ends the streams that are open."""

    def __init__(self):
        self.opened = asyncio.Queue()
        self.streams = []
        self.refusals = 0

    def say(self, **devices):
        """Send one complete list of devices, each as `name=status` or `name=(status, timeout, message)`."""
        for stream in self.streams:
            stream.put_nowait(devices)

    def end(self):
        for stream in self.streams:
            stream.put_nowait(None)

    async def NodeWatchResources(self, request, context):  # noqa: N802 - the name is the wire's
        messages = alpha_pb2 if isinstance(request, alpha_pb2.NodeWatchResourcesRequest) else health_pb2
        if self.refusals:
            self.refusals -= 1
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown service")
        stream = asyncio.Queue()
        self.streams.append(stream)
        self.opened.put_nowait(messages.DESCRIPTOR.package)
        try:
            while (devices := await stream.get()) is not None:
                reports = [_report(messages, name, reported) for name, reported in devices.items()]
                yield messages.NodeWatchResourcesResponse(devices=reports)
        finally:
            self.streams.remove(stream)

    async def open(self):
        """Wait for the next stream; return the package of its service."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self.opened.get()


def _report(messages, name, reported):
    status, timeout, message = reported if isinstance(reported, tuple) else (reported, 0, "")
    return messages.DeviceHealth(
        device=messages.DeviceIdentifier(pool_name="chassis-1", device_name=name.replace("_", "-")),
        health=STATUSES[status],
        health_check_timeout_seconds=timeout,
        message=message,
        last_updated_time=1,
    )


@asynccontextmanager
async def running(plugin, directory, name="1", *, health=None, folder="", listening=True):
    """Run the plugin: open its service socket first and its registration socket second."""
    service, registrar = grpc.aio.server(), grpc.aio.server()
    api_pb2_grpc.add_DRAPluginServicer_to_server(plugin, service)
    beta_pb2_grpc.add_DRAPluginServicer_to_server(plugin, service)
    registration_pb2_grpc.add_RegistrationServicer_to_server(plugin, registrar)
    if health is not None:
        health_pb2_grpc.add_DRAResourceHealthServicer_to_server(health, service)
        alpha_pb2_grpc.add_DRAResourceHealthServicer_to_server(health, service)
    plugin.endpoint = plugin.endpoint or str(directory / "plugins" / f"dra-{name}.sock")
    plugin.service = service
    if listening:
        service.add_insecure_port(f"unix:{plugin.endpoint}")
        await service.start()
    plugin.registration = directory / "plugins_registry" / folder / f"{plugin.driver}-{name}-reg.sock"
    registrar.add_insecure_port(f"unix:{plugin.registration}")
    await registrar.start()
    try:
        yield plugin
    finally:
        await registrar.stop(None)
        await service.stop(None)
