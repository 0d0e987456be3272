"""The calls to each service of a plugin, in the messages of its kubelets, with one type of answer.

The services before 1.32 are named after their folders in Kubernetes' source. For example, 1.31 calls `v1alpha4`, whose
package on the wire is `v1alpha3`, as that of the previous service.

Source: pkg/kubelet/cm/dra/plugin of Kubernetes 1.27 to 1.37; the messages are those of `proto/`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
import grpc.aio

from drawbar.mocks.kubelet import errors, versions
from drawbar.proto.kubelet.dra.v1 import api_pb2 as v1_pb2
from drawbar.proto.kubelet.dra.v1alpha2 import api_pb2 as v1alpha2_pb2
from drawbar.proto.kubelet.dra.v1alpha3 import devices_pb2, handles_pb2
from drawbar.proto.kubelet.dra.v1beta1 import api_pb2 as v1beta1_pb2

T = TypeVar("T")

CLOSED = "rpc error: code = Canceled desc = grpc: the client connection is closing"
_BATCHES: Mapping[str, tuple[str, Any]] = {
    versions.V1: ("/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", v1_pb2),
    versions.V1BETA1: ("/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin", v1beta1_pb2),
    versions.V1ALPHA4: ("/v1alpha3.Node", devices_pb2),
    versions.V1ALPHA3: ("/v1alpha3.Node", handles_pb2),
}
_SINGLES: Mapping[str, tuple[str, Any]] = {
    versions.V1ALPHA2: ("/v1alpha2.Node", v1alpha2_pb2),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim to prepare or unprepare.

    Attributes:
        handle: the data from the plugin's controller, in releases with handles.
        cdi: the CDI ids of the answer to Prepare.
    """

    namespace: str
    name: str
    uid: str
    handle: str = ""
    cdi: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device of an answer. Before 1.31 there are only CDI ids, and each id counts as a device."""

    pool: str = ""
    device: str = ""
    requests: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    share_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer about one claim."""

    error: str = ""
    devices: tuple[Device, ...] = ()


class _Unimplemented(errors.CallFailed):
    """The plugin has no such service."""


async def prepare(
    channel: grpc.aio.Channel, service: str, claims: Sequence[Claim], timeout_seconds: float
) -> dict[str, Answer]:
    """Prepare the claims; return the answers by uid.

    Raises:
        errors.CallFailed: a call failed as a whole.
    """
    return await _call(channel, service, "Prepare", claims, timeout_seconds)


async def unprepare(
    channel: grpc.aio.Channel, service: str, claims: Sequence[Claim], timeout_seconds: float
) -> dict[str, Answer]:
    """Unprepare the claims; return the answers by uid. Raises as `prepare` does."""
    return await _call(channel, service, "Unprepare", claims, timeout_seconds)


async def _call(
    channel: grpc.aio.Channel, service: str, verb: str, claims: Sequence[Claim], timeout_seconds: float
) -> dict[str, Answer]:
    if service in _SINGLES:
        return {
            claim.uid: await _call_single(channel, service, verb, claim, timeout_seconds) for claim in claims
        }
    try:
        return await _call_batch(channel, service, verb, claims, timeout_seconds)
    except _Unimplemented:
        if service != versions.V1ALPHA3:
            raise
    # From 1.28 to 1.30 an older plugin is called claim by claim, and an error belongs to its claim.
    answers = {}
    for claim in claims:
        try:
            answers[claim.uid] = await _call_single(channel, versions.V1ALPHA2, verb, claim, timeout_seconds)
        except errors.CallFailed as error:
            answers[claim.uid] = Answer(error=str(error))
    return answers


async def _call_batch(
    channel: grpc.aio.Channel, service: str, verb: str, claims: Sequence[Claim], timeout_seconds: float
) -> dict[str, Answer]:
    path, messages = _BATCHES[service]
    asked = [
        _fill_message(
            messages.Claim,
            namespace=claim.namespace,
            name=claim.name,
            uid=claim.uid,
            resource_handle=claim.handle,
        )
        for claim in claims
    ]
    request = getattr(messages, f"Node{verb}ResourcesRequest")(claims=asked)
    response = getattr(messages, f"Node{verb}ResourcesResponse")
    answer = await _unary(channel, f"{path}/Node{verb}Resources", request, response, timeout_seconds)
    return {
        uid: Answer(error=reported.error, devices=tuple(_devices(reported)) if verb == "Prepare" else ())
        for uid, reported in answer.claims.items()
    }


async def _call_single(
    channel: grpc.aio.Channel, service: str, verb: str, claim: Claim, timeout_seconds: float
) -> Answer:
    path, messages = _SINGLES[service]
    request = _fill_message(
        getattr(messages, f"Node{verb}ResourceRequest"),
        namespace=claim.namespace,
        claim_name=claim.name,
        claim_uid=claim.uid,
        resource_handle=claim.handle,
        cdi_devices=claim.cdi,
    )
    response = getattr(messages, f"Node{verb}ResourceResponse")
    answer = await _unary(channel, f"{path}/Node{verb}Resource", request, response, timeout_seconds)
    return Answer(devices=tuple(_devices(answer)) if verb == "Prepare" else ())


def _fill_message(message: Any, **values: Any) -> Any:
    """Return the message with the values for its fields; drop the others."""
    return message(
        **{name: value for name, value in values.items() if name in message.DESCRIPTOR.fields_by_name}
    )


def _devices(reported: Any) -> list[Device]:
    if "cdi_devices" in reported.DESCRIPTOR.fields_by_name:
        return [Device(cdi=(name,)) for name in reported.cdi_devices]
    return [
        Device(
            pool=device.pool_name,
            device=device.device_name,
            requests=tuple(device.request_names),
            cdi=tuple(device.cdi_device_ids),
            share_id=_share(device),
        )
        for device in reported.devices
    ]


def _share(device: Any) -> str | None:
    shared = "share_id" in device.DESCRIPTOR.fields_by_name and device.HasField("share_id")
    return str(device.share_id) if shared else None


async def _unary(
    channel: grpc.aio.Channel, method: str, request: Any, response: Any, timeout_seconds: float
) -> Any:
    call = channel.unary_unary(
        method, request_serializer=type(request).SerializeToString, response_deserializer=response.FromString
    )
    return await _translate_errors(lambda: call(request, timeout=timeout_seconds))


async def _translate_errors(call: Callable[[], Awaitable[T]]) -> T:
    """Return the answer of a call, or raise its error in the words of the real kubelet's gRPC library."""
    try:
        return await call()
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            raise _Unimplemented(_words(error)) from error
        raise errors.CallFailed(_words(error)) from error
    except grpc.aio.UsageError as error:
        raise errors.CallFailed(CLOSED) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # Only the call is cancelled, because the plugin was deregistered meanwhile.
        raise errors.CallFailed(CLOSED) from error


def _words(error: grpc.aio.AioRpcError) -> str:
    code = error.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    name = "".join(part.capitalize() for part in code.name.split("_"))
    return f"rpc error: code = {name} desc = {error.details()}"
