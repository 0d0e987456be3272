"""The gRPC services the kubelet calls, thin over `Preparation`.

Every claim the kubelet asked for gets an entry in the answer: what is wrong with one claim stands in its entry, so
the others start. Source: `k8s.io/kubelet/pkg/apis/dra/v1` and `v1beta1` (the messages have the same fields),
`pluginregistration/v1`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import grpc

from drawbar.driver import output
from drawbar.driver.api import drivers
from drawbar.driver.catalogue import reasons
from drawbar.driver.node import errors
from drawbar.driver.node.plugin import sockets
from drawbar.proto.kubelet.dra.v1 import api_pb2 as dra_v1
from drawbar.proto.kubelet.dra.v1 import api_pb2_grpc as dra_v1_grpc
from drawbar.proto.kubelet.dra.v1beta1 import api_pb2 as dra_v1beta1
from drawbar.proto.kubelet.dra.v1beta1 import api_pb2_grpc as dra_v1beta1_grpc
from drawbar.proto.kubelet.pluginregistration.v1 import api_pb2 as registration
from drawbar.proto.kubelet.pluginregistration.v1 import api_pb2_grpc as registration_grpc

log = logging.getLogger(__name__)

# A kubelet takes the first that it knows, of each of the two services. One of before 1.32 knows no services: it looks for
# the highest version 1.x, and tries which of the services in `classic` there are.
SUPPORTED_VERSIONS = (
    "v1.DRAPlugin",
    "v1beta1.DRAPlugin",
    "v1.DRAResourceHealth",
    "v1alpha1.DRAResourceHealth",
    "1.0.0",
)

# A pod has far fewer claims. Each costs a task and may cost a request to the API server.
CLAIMS_LIMIT = 256
NAME_LIMIT_CHARS = 253
UID_LIMIT_CHARS = 128
REASON_LIMIT_CHARS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimName:
    """A claim as the kubelet names it.

    Attributes:
        handle: what our controller wrote into the allocation, from a kubelet that passes that (up to 1.30); else None.
        answer_by: when the kubelet gives up, in the loop's time, where that is sooner than after 45 s.
    """

    namespace: str
    name: str
    uid: str
    handle: str | None = None
    answer_by: float | None = None

    @property
    def extra(self) -> dict[str, object]:
        """The claim for the log, whatever the caller sent as its name."""
        return {"claim": _shown(self.name, NAME_LIMIT_CHARS), "uid": _shown(self.uid, UID_LIMIT_CHARS)}

    def check(self) -> None:
        """Refuse what no API server calls a claim, before it is looked up, recorded or reported.

        Raises:
            errors.PrepareError: there can be no such claim.
        """
        names = (self.namespace, self.name)
        if all(len(name) <= NAME_LIMIT_CHARS and drivers.SUBDOMAIN.fullmatch(name) for name in names) and (
            0 < len(self.uid) <= UID_LIMIT_CHARS
        ):
            return
        where = f"{_shown(self.namespace, 63)}/{_shown(self.name, 63)} of uid {_shown(self.uid, 63)}"
        raise errors.PrepareError(
            f"there can be no claim {where}: that is no name of Kubernetes; the caller is no kubelet",
            reason=reasons.CLAIM_GONE,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """One device for the container runtime.

    Attributes:
        requests: of the claim; none means all of them.
        share_id: which share of a device that several claims use; only v1 can say it.
        vendor_id: the same device by its vendor's own CDI files, where a class wants them used.
    """

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_id: str
    share_id: str | None = None
    vendor_id: str | None = None

    @property
    def cdi_ids(self) -> list[str]:
        """All that the container runtime is to resolve."""
        return [self.cdi_id] if self.vendor_id is None else [self.cdi_id, self.vendor_id]


class Preparation(Protocol):
    """What stands behind the service. Both calls are idempotent and may take until the kubelet's 45 s deadline."""

    async def prepare(self, claim: ClaimName) -> tuple[Prepared, ...]:
        """The devices of the claim, ready for a container.

        Raises:
            errors.NodeError: this claim cannot be prepared now.
        """
        ...

    async def unprepare(self, claim: ClaimName) -> None:
        """Takes the claim's devices from containers. An unknown claim is success.

        Raises:
            errors.NodeError: this claim cannot be unprepared now.
        """
        ...


class Registration(registration_grpc.RegistrationServicer):
    """Tells the kubelet where the DRA service is."""

    def __init__(self, driver: str, endpoint: Path, report: Callable[[bool], None] | None = None) -> None:
        # `report` is called with whether the kubelet registered the driver.
        self._driver = driver
        self._endpoint = endpoint
        self._report = report

    async def GetInfo(self, request: Any, context: Any) -> registration.PluginInfo:  # noqa: N802 - gRPC's name
        """Who we are, what we speak, and where."""
        del request, context
        return registration.PluginInfo(
            type="DRAPlugin",
            name=self._driver,
            endpoint=str(self._endpoint),
            supported_versions=list(SUPPORTED_VERSIONS),
        )

    async def NotifyRegistrationStatus(  # noqa: N802 - gRPC's name
        self, request: registration.RegistrationStatus, context: Any
    ) -> registration.RegistrationStatusResponse:
        """The kubelet's verdict. The answer is always OK: an error would make it deregister us again."""
        del context
        if self._report is not None:
            self._report(request.plugin_registered)
        if request.plugin_registered:
            log.info("the kubelet registered the driver", extra={"driver": self._driver})
        else:
            reason = _shown(request.error, REASON_LIMIT_CHARS)
            log.error("the kubelet refused the driver: %s", reason, extra={"driver": self._driver})
        return registration.RegistrationStatusResponse()


class BatchService:
    """What all versions have in common that take the claims of a pod in one call.

    Attributes:
        messages: the generated module.
    """

    messages: Any

    def __init__(self, preparation: Preparation) -> None:
        self._preparation = preparation

    async def NodePrepareResources(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Prepares all claims side by side; one that is slow or wrong does not hold up another."""
        await _bound(request, context)
        answers = await _each([self.named(claim) for claim in request.claims], self._prepare)
        return self.messages.NodePrepareResourcesResponse(claims=answers)

    async def NodeUnprepareResources(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Unprepares all claims side by side."""
        await _bound(request, context)
        answers = await _each([self.named(claim) for claim in request.claims], self._unprepare)
        return self.messages.NodeUnprepareResourcesResponse(claims=answers)

    def named(self, claim: Any) -> ClaimName:
        """A claim of the request."""
        return ClaimName(namespace=claim.namespace, name=claim.name, uid=claim.uid)

    def answer(self, claim: ClaimName, device: Prepared) -> Any:
        """A device as the answer for this claim has it."""
        del claim
        return self.messages.Device(
            request_names=device.requests,
            pool_name=device.pool,
            device_name=device.device,
            cdi_device_ids=device.cdi_ids,
        )

    async def _prepare(self, claim: ClaimName) -> Any:
        try:
            claim.check()
            devices = await self._preparation.prepare(claim)
        except errors.NodeError as error:
            log.warning("cannot prepare claim: %s", error, extra=claim.extra)
            return self.messages.NodePrepareResourceResponse(error=str(error))
        return self.messages.NodePrepareResourceResponse(
            devices=[self.answer(claim, device) for device in devices]
        )

    async def _unprepare(self, claim: ClaimName) -> Any:
        try:
            claim.check()
            await self._preparation.unprepare(claim)
        except errors.NodeError as error:
            log.warning("cannot unprepare claim: %s", error, extra=claim.extra)
            return self.messages.NodeUnprepareResourceResponse(error=str(error))
        return self.messages.NodeUnprepareResourceResponse()


class ServiceV1(BatchService, dra_v1_grpc.DRAPluginServicer):
    """`k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin`, kubelet 1.34 and later."""

    messages = dra_v1

    def answer(self, claim: ClaimName, device: Prepared) -> Any:
        """With its share, which only this version knows."""
        answer = super().answer(claim, device)
        if device.share_id is not None:
            answer.share_id = device.share_id
        return answer


class ServiceV1Beta1(BatchService, dra_v1beta1_grpc.DRAPluginServicer):
    """`k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin`, kubelet 1.32 and later."""

    messages = dra_v1beta1


def _shown(text: str, limit: int) -> str:
    """Return a caller's text as one line of at most `limit` characters."""
    return output.one_line(text[:limit]) + ("…" if len(text) > limit else "")


async def _bound(request: Any, context: Any) -> None:
    if len(request.claims) > CLAIMS_LIMIT:
        await context.abort(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"one call names {len(request.claims)} claims; {CLAIMS_LIMIT} are the most that one pod can have",
        )


async def _each(named: Sequence[ClaimName], call: Callable[[ClaimName], Awaitable[Any]]) -> dict[str, Any]:
    if len(named) == 1:
        # Most calls: no task of its own, which costs a round of the event loop.
        answers = [await call(named[0])]
    else:
        answers = await asyncio.gather(*(call(claim) for claim in named))
    return dict(zip((claim.uid for claim in named), answers, strict=True))


def add_service(server: grpc.aio.Server, preparation: Preparation, path: Path) -> None:
    """Adds both versions of today's DRA service, listening on `path`."""
    dra_v1_grpc.add_DRAPluginServicer_to_server(ServiceV1(preparation), server)
    dra_v1beta1_grpc.add_DRAPluginServicer_to_server(ServiceV1Beta1(preparation), server)
    _listen(server, path)


def add_registration(
    server: grpc.aio.Server,
    driver: str,
    endpoint: Path,
    path: Path,
    report: Callable[[bool], None] | None = None,
) -> None:
    """Adds the registration service, listening on `path`; `report` is called with the kubelet's verdict."""
    registration_grpc.add_RegistrationServicer_to_server(Registration(driver, endpoint, report), server)
    _listen(server, path)


def _listen(server: grpc.aio.Server, path: Path) -> None:
    try:
        # The short form: `unix:///` leaves two bytes less for the path.
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise errors.SocketError(
            f"cannot listen on {path} ({len(str(path).encode())} of {sockets.PATH_LIMIT_BYTES} bytes): "
            f"is its directory writable, and no plain file in the way?"
        ) from error
