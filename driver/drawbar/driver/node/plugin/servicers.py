"""The gRPC services for the kubelet, a thin layer over `Preparation`.

Every claim of a request has an entry in the answer. An error of one claim is in its own entry, so that the others start.
Source: `k8s.io/kubelet/pkg/apis/dra/v1` and `v1beta1` (the messages have the same fields), `pluginregistration/v1`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import grpc
import msgspec

from drawbar.driver import output
from drawbar.driver.api import dnsnames
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

# A kubelet uses the first known version of each of the two services. Kubelets before 1.32 know none of them: they take
# the highest version 1.x, and try each of the services in `classic`.
SUPPORTED_VERSIONS = (
    "v1.DRAPlugin",
    "v1beta1.DRAPlugin",
    "v1.DRAResourceHealth",
    "v1alpha1.DRAResourceHealth",
    "1.0.0",
)

# A pod has far fewer claims. Each costs a task and may cost a request to the API server.
CLAIMS_LIMIT = 256
UID_LIMIT_CHARS = 128
REASON_LIMIT_CHARS = 500


class ClaimName(msgspec.Struct, frozen=True, kw_only=True):
    """A claim in the kubelet's terms.

    Attributes:
        handle: our controller's text in the allocation, from kubelets that pass it (up to 1.30); else None.
        answer_by: the kubelet's deadline in the loop's time, if shorter than 45 s.
    """

    namespace: str
    name: str
    uid: str
    handle: str | None = None
    answer_by: float | None = None

    @property
    def extra(self) -> dict[str, object]:
        """Return the claim's name and uid for the log, shortened and on one line."""
        return {
            "claim": _one_line(self.name, dnsnames.SUBDOMAIN_CHARS),
            "uid": _one_line(self.uid, UID_LIMIT_CHARS),
        }

    def check(self) -> None:
        """Refuse names that no claim can have, before the claim is looked up, recorded or reported.

        Raises:
            errors.PrepareError: no claim can have this name.
        """
        names = (self.namespace, self.name)
        if all(map(dnsnames.is_subdomain, names)) and 0 < len(self.uid) <= UID_LIMIT_CHARS:
            return
        where = f"{_one_line(self.namespace, 63)}/{_one_line(self.name, 63)} of uid {_one_line(self.uid, 63)}"
        raise errors.PrepareError(
            f"there can be no claim {where}: that is no name of Kubernetes; the caller is no kubelet",
            reason=reasons.CLAIM_GONE,
        )


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """One device for the container runtime.

    Attributes:
        requests: the claim's requests for it; empty means all of them.
        share_id: the claim's share of a shared device; only v1 has this field.
        vendor_id: the same device in its vendor's own CDI files, if a class uses these.
    """

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_id: str
    share_id: str | None = None
    vendor_id: str | None = None

    @property
    def cdi_ids(self) -> list[str]:
        """Return all CDI ids for the container runtime. Of a file in both, the runtime takes the last owner and mode."""
        return [self.cdi_id] if self.vendor_id is None else [self.vendor_id, self.cdi_id]


class Preparation(Protocol):
    """The implementation behind the service. Both calls are idempotent and may take until the kubelet's 45 s deadline."""

    async def prepare(self, claim: ClaimName) -> tuple[Prepared, ...]:
        """Return the devices of the claim, ready for a container.

        Raises:
            errors.NodeError: this claim cannot be prepared now.
        """
        ...

    async def unprepare(self, claim: ClaimName) -> None:
        """Take the claim's devices from containers. An unknown claim is a success.

        Raises:
            errors.NodeError: this claim cannot be unprepared now.
        """
        ...


class Registration(registration_grpc.RegistrationServicer):
    """The registration service: the kubelet learns the DRA service's path from it."""

    def __init__(self, driver: str, endpoint: Path, report: Callable[[bool], None] | None = None) -> None:
        # `report` is called with whether the kubelet registered the driver.
        self._driver = driver
        self._endpoint = endpoint
        self._report = report

    async def GetInfo(self, request: Any, context: Any) -> registration.PluginInfo:  # noqa: N802 - gRPC's name
        """Return the driver's name, its versions and its service's path."""
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
        """Log and report the kubelet's verdict. Always return OK: after an error the kubelet would deregister the driver."""
        del context
        if self._report is not None:
            self._report(request.plugin_registered)
        if request.plugin_registered:
            log.info("the kubelet registered the driver", extra={"driver": self._driver})
        else:
            reason = _one_line(request.error, REASON_LIMIT_CHARS)
            log.error("the kubelet refused the driver: %s", reason, extra={"driver": self._driver})
        return registration.RegistrationStatusResponse()


class BatchService:
    """The common part of all versions with a pod's claims in one call.

    Attributes:
        messages: the generated module.
    """

    messages: Any

    def __init__(self, preparation: Preparation) -> None:
        self._preparation = preparation

    async def NodePrepareResources(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Prepare all claims concurrently and return their devices or errors; a slow or wrong claim does not delay the others."""
        await _check_size(request, context)
        answers = await _call_each([self.name_claim(claim) for claim in request.claims], self._prepare)
        return self.messages.NodePrepareResourcesResponse(claims=answers)

    async def NodeUnprepareResources(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Unprepare all claims concurrently and return their errors."""
        await _check_size(request, context)
        answers = await _call_each([self.name_claim(claim) for claim in request.claims], self._unprepare)
        return self.messages.NodeUnprepareResourcesResponse(claims=answers)

    def name_claim(self, claim: Any) -> ClaimName:
        """Return the name of a claim in the request."""
        return ClaimName(namespace=claim.namespace, name=claim.name, uid=claim.uid)

    def answer(self, claim: ClaimName, device: Prepared) -> Any:
        """Return a device in the form of this claim's answer."""
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
        """Return a device with its share, a field of this version only."""
        answer = super().answer(claim, device)
        if device.share_id is not None:
            answer.share_id = device.share_id
        return answer


class ServiceV1Beta1(BatchService, dra_v1beta1_grpc.DRAPluginServicer):
    """`k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin`, kubelet 1.32 and later."""

    messages = dra_v1beta1


def _one_line(text: str, limit: int) -> str:
    """Return a caller's text as one line of at most `limit` characters."""
    return output.one_line(text[:limit]) + ("…" if len(text) > limit else "")


async def _check_size(request: Any, context: Any) -> None:
    if len(request.claims) > CLAIMS_LIMIT:
        await context.abort(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"one call names {len(request.claims)} claims; {CLAIMS_LIMIT} are the most that one pod can have",
        )


async def _call_each(
    named: Sequence[ClaimName], call: Callable[[ClaimName], Awaitable[Any]]
) -> dict[str, Any]:
    if len(named) == 1:
        # Most calls have one claim; a task would cost a round of the event loop.
        answers = [await call(named[0])]
    else:
        answers = await asyncio.gather(*(call(claim) for claim in named))
    return dict(zip((claim.uid for claim in named), answers, strict=True))


def add_service(server: grpc.aio.Server, preparation: Preparation, path: Path) -> None:
    """Add both current versions of the DRA service, listening on `path`."""
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
    """Add the registration service, listening on `path`; `report` is called with the kubelet's verdict."""
    registration_grpc.add_RegistrationServicer_to_server(Registration(driver, endpoint, report), server)
    _listen(server, path)


def _listen(server: grpc.aio.Server, path: Path) -> None:
    try:
        # The short form, because `unix:///` leaves two bytes less for the path.
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise errors.SocketError(
            f"cannot listen on {path} ({len(str(path).encode())} of {sockets.PATH_LIMIT_BYTES} bytes): "
            f"is its directory writable, and no plain file in the way?"
        ) from error
