"""The services of old kubelets, called over real gRPC in each kubelet's own messages."""

import asyncio
import contextlib

import grpc
import grpc.aio
import pytest

from drawbar.driver.catalogue import reasons
from drawbar.driver.node import errors
from drawbar.driver.node.plugin import classic, servicers
from drawbar.mocks.kubelet import errors as kubelet_errors
from drawbar.mocks.kubelet import protocols, versions
from drawbar.proto.kubelet.dra.v1alpha2 import api_pb2 as v1alpha2
from drawbar.proto.kubelet.dra.v1alpha2 import api_pb2_grpc as v1alpha2_grpc

SINGLE = (versions.V1ALPHA2,)
HANDED = (*SINGLE, versions.V1ALPHA3)
EVERY = (*HANDED, versions.V1ALPHA4)
TWO = tuple(
    servicers.Prepared(requests=("disk",), pool="p", device=name, cdi_id=f"drawbar.dev/device=u-{name}")
    for name in ("d1", "d2")
)


class Preparation:
    """Answers with two devices, or fails as told; keeps what it was asked."""

    def __init__(self, error=None):
        self.error, self.asked = error, []

    async def prepare(self, claim):
        self.asked.append(claim)
        if self.error is not None:
            raise self.error
        return TWO

    async def unprepare(self, claim):
        self.asked.append(claim)
        if self.error is not None:
            raise self.error


@contextlib.asynccontextmanager
async def serving(tmp_path, preparation):
    server, path = grpc.aio.server(), tmp_path / "dra.sock"
    classic.add_services(server, preparation)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
            yield channel
    finally:
        await server.stop(None)


def claim(uid="u", handle="{}", cdi=()):
    return protocols.Claim(namespace="default", name="c1", uid=uid, handle=handle, cdi=cdi)


@pytest.mark.parametrize("service", EVERY)
async def test_the_answer_is_the_same_cdi_devices_in_the_kubelets_own_messages_however_often(
    tmp_path, service
):
    preparation = Preparation()
    async with serving(tmp_path, preparation) as channel:
        first = await protocols.prepare(channel, service, [claim()], 20)
        second = await protocols.prepare(channel, service, [claim()], 20)
    ids = [(device.cdi_id,) for device in TWO]
    assert [device.cdi for device in first["u"].devices] == ids
    assert second == first
    named = [(device.pool, device.device, device.requests) for device in first["u"].devices]
    if service in HANDED:
        assert named == [("", "", ())] * 2
    else:
        assert named == [("p", "d1", ("disk",)), ("p", "d2", ("disk",))]
    passed = "{}" if service in HANDED else None
    assert [(asked.name, asked.uid, asked.handle) for asked in preparation.asked] == [("c1", "u", passed)] * 2


async def test_the_two_protocols_of_one_name_are_distinguished_claim_by_claim(tmp_path):
    """A kubelet uses one of them per call; no call depends on the protocol of an earlier call."""
    async with serving(tmp_path, Preparation()) as channel:
        old = await protocols.prepare(channel, versions.V1ALPHA3, [claim("a"), claim("b")], 20)
        new = await protocols.prepare(channel, versions.V1ALPHA4, [claim("a"), claim("b")], 20)
    assert [len(answer.devices) for answer in (*old.values(), *new.values())] == [2] * 4
    assert {device.device for answer in old.values() for device in answer.devices} == {""}
    assert {device.device for answer in new.values() for device in answer.devices} == {"d1", "d2"}


@pytest.mark.parametrize("service", EVERY)
async def test_unprepare_names_the_claim_and_is_a_success_for_an_unknown_one(tmp_path, service):
    preparation = Preparation()
    async with serving(tmp_path, preparation) as channel:
        answers = await protocols.unprepare(channel, service, [claim(cdi=("x/y=z",))], 20)
    assert answers == {"u": protocols.Answer()}
    assert [(asked.namespace, asked.name, asked.uid) for asked in preparation.asked] == [
        ("default", "c1", "u")
    ]


WRONG = errors.PrepareError("claim default/c1 does not exist any more", reason=reasons.CLAIM_GONE)


@pytest.mark.parametrize("verb", ["prepare", "unprepare"])
@pytest.mark.parametrize("service", [versions.V1ALPHA3, versions.V1ALPHA4])
async def test_a_call_for_several_claims_returns_errors_per_claim(tmp_path, service, verb):
    async with serving(tmp_path, Preparation(WRONG)) as channel:
        answers = await getattr(protocols, verb)(channel, service, [claim("a"), claim("b")], 20)
    assert answers == {uid: protocols.Answer(error=str(WRONG)) for uid in ("a", "b")}


CODES = [
    pytest.param(WRONG, "NotFound", id="unknown claim"),
    pytest.param(
        errors.PrepareError("no handle", reason=reasons.RESOURCE_HANDLE_WRONG),
        "InvalidArgument",
        id="malformed handle",
    ),
    pytest.param(errors.DeviceLate("not here yet"), "Unavailable", id="late device"),
    pytest.param(
        errors.PrepareError("another has it", reason=reasons.DEVICE_IN_USE), "FailedPrecondition", id="in use"
    ),
    pytest.param(errors.CheckpointError("cannot be written"), "Internal", id="checkpoint"),
]


@pytest.mark.parametrize(("error", "code"), CODES)
async def test_a_call_for_one_claim_returns_the_error_as_its_status(tmp_path, error, code):
    async with serving(tmp_path, Preparation(error)) as channel:
        for service in SINGLE:
            for call in (protocols.prepare, protocols.unprepare):
                with pytest.raises(kubelet_errors.CallFailed) as caught:
                    await call(channel, service, [claim()], 20)
                assert str(caught.value) == f"rpc error: code = {code} desc = {error}"


async def test_the_preparation_receives_how_soon_an_impatient_kubelet_gives_up(tmp_path):
    preparation = Preparation()
    request = v1alpha2.NodePrepareResourceRequest(namespace="n", claim_name="c", claim_uid="u")
    before = asyncio.get_running_loop().time()
    async with serving(tmp_path, preparation) as channel:
        await v1alpha2_grpc.NodeStub(channel).NodePrepareResource(request, timeout=10)
        await v1alpha2_grpc.NodeStub(channel).NodePrepareResource(request)
    limited, unlimited = (asked.answer_by for asked in preparation.asked)
    # The wire rounds a little.
    assert before < limited < asyncio.get_running_loop().time() + 11
    assert unlimited is None
    assert [asked.handle for asked in preparation.asked] == ["", ""]
