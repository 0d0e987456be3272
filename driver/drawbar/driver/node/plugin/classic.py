"""The services of kubelets before 1.32, on top of the same `Preparation` and with the same CDI devices.

| kubelet | service | claims in a call | what it passes | what it wants |
|---|---|---|---|---|
| 1.27 | `v1alpha2.Node` | one | the handle | CDI names |
| 1.28 to 1.30 | `v1alpha3.Node` | a pod's | the handle | CDI names |
| 1.31 | `v1alpha3.Node` | a pod's | | devices |

The claim distinguishes the two services of one name: for kubelets with handles, our controller gives every allocation
one. In a call for one claim, an error is the status of the call. It is NOT_FOUND for a claim that does not exist, as the
first draft of KEP-3063 asks. Unprepare of such a claim succeeds, because that draft wants every call idempotent, and a
kubelet would retry without end.

Source: `k8s.io/kubelet/pkg/apis/dra/v1alpha2` and `v1alpha3` (1.30) and `v1alpha4` (1.31, whose package is `v1alpha3`);
KEP-3063, first draft, "NodePrepareResource Errors".
"""

import asyncio
import logging
from typing import Any

import grpc

from drawbar.driver.catalogue import reasons
from drawbar.driver.node import errors
from drawbar.driver.node.plugin import servicers
from drawbar.proto.kubelet.dra.v1alpha2 import api_pb2 as dra_v1alpha2
from drawbar.proto.kubelet.dra.v1alpha2 import api_pb2_grpc as dra_v1alpha2_grpc
from drawbar.proto.kubelet.dra.v1alpha3 import api_pb2 as dra_v1alpha3
from drawbar.proto.kubelet.dra.v1alpha3 import api_pb2_grpc as dra_v1alpha3_grpc

log = logging.getLogger(__name__)


class ServiceV1Alpha2(dra_v1alpha2_grpc.NodeServicer):
    """`v1alpha2.Node`, kubelet 1.27: one claim in a call, with a time limit of 10 s."""

    def __init__(self, preparation: servicers.Preparation) -> None:
        self._preparation = preparation

    async def NodePrepareResource(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Prepare the claim and return its CDI names, or abort the call with the error's status."""
        remaining = context.time_remaining()
        claim = servicers.ClaimName(
            namespace=request.namespace,
            name=request.claim_name,
            uid=request.claim_uid,
            handle=request.resource_handle,
            answer_by=None if remaining is None else asyncio.get_running_loop().time() + remaining,
        )
        try:
            claim.check()
            devices = await self._preparation.prepare(claim)
        except errors.NodeError as error:
            log.warning("cannot prepare claim: %s", error, extra=claim.extra)
            return await context.abort(_code(error), str(error))
        return dra_v1alpha2.NodePrepareResourceResponse(cdi_devices=[device.cdi_id for device in devices])

    async def NodeUnprepareResource(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Unprepare the claim, or abort the call with the error's status."""
        claim = servicers.ClaimName(
            namespace=request.namespace, name=request.claim_name, uid=request.claim_uid
        )
        try:
            claim.check()
            await self._preparation.unprepare(claim)
        except errors.NodeError as error:
            log.warning("cannot unprepare claim: %s", error, extra=claim.extra)
            return await context.abort(_code(error), str(error))
        return dra_v1alpha2.NodeUnprepareResourceResponse()


class ServiceV1Alpha3(servicers.BatchService, dra_v1alpha3_grpc.NodeServicer):
    """`v1alpha3.Node`, kubelet 1.28 to 1.30 and, with other messages, 1.31."""

    messages = dra_v1alpha3

    def name_claim(self, claim: Any) -> servicers.ClaimName:
        """Return the claim's name, with its handle if it has one."""
        return servicers.ClaimName(
            namespace=claim.namespace, name=claim.name, uid=claim.uid, handle=claim.resource_handle or None
        )

    def answer(self, claim: servicers.ClaimName, device: servicers.Prepared) -> bytes:
        """Return one entry of field 1: a CDI name for a claim with a handle, otherwise a message."""
        if claim.handle is not None:
            return device.cdi_id.encode()
        message: bytes = super().answer(claim, device).SerializeToString()
        return message


def add_services(server: grpc.aio.Server, preparation: servicers.Preparation) -> None:
    """Add all classic services to a server, before or after it starts to listen."""
    dra_v1alpha2_grpc.add_NodeServicer_to_server(ServiceV1Alpha2(preparation), server)
    dra_v1alpha3_grpc.add_NodeServicer_to_server(ServiceV1Alpha3(preparation), server)


def _code(error: errors.NodeError) -> grpc.StatusCode:
    match error:
        case errors.PrepareError(reason=reasons.CLAIM_GONE):
            return grpc.StatusCode.NOT_FOUND
        case errors.PrepareError(reason=reasons.RESOURCE_HANDLE_WRONG):
            return grpc.StatusCode.INVALID_ARGUMENT
        case errors.DeviceLate():
            return grpc.StatusCode.UNAVAILABLE
        case errors.PrepareError():
            return grpc.StatusCode.FAILED_PRECONDITION
        case _:
            return grpc.StatusCode.INTERNAL
