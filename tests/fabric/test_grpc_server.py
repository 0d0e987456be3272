"""The server of a plugin: what a foreign client gets of it, where it listens, and how it cuts a listing into pages."""

import socket
from contextlib import asynccontextmanager

import grpc
import pytest

from drawbar.fabric import errors
from drawbar.fabric.grpc import server, services
from drawbar.mocks.fabric import SimulatedFabric, configuration
from drawbar.proto.fabric.v1alpha1 import fabric_pb2 as pb
from drawbar.proto.fabric.v1alpha1 import fabric_pb2_grpc as pb_grpc

DESCRIBED = configuration.parse(
    b'{"hosts": [{"id": "h1"}], "enclosures": [{"id": "e", "devices": [{"id": "d1", "class": "gpu"}]}]}'
)


@asynccontextmanager
async def stubs(endpoint, fabric):
    async with (
        server.serving(fabric, endpoint, name="t", version="2"),
        grpc.aio.insecure_channel(endpoint) as channel,
    ):
        yield pb_grpc.IdentityStub(channel), pb_grpc.FabricManagerStub(channel)


async def test_a_foreign_client_gets_one_device_and_the_identity(endpoint):
    async with SimulatedFabric.running(DESCRIBED) as fabric, stubs(endpoint, fabric) as (identity, manager):
        info = await identity.GetPluginInfo(pb.GetPluginInfoRequest())
        assert (info.name, info.version) == ("t", "2")
        assert (await identity.Probe(pb.ProbeRequest())).ready
        assert (
            await manager.GetDevice(pb.GetDeviceRequest(device_id="d1"))
        ).device_class == pb.DEVICE_CLASS_GPU
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await manager.GetDevice(pb.GetDeviceRequest(device_id="d9"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        await fabric.close()
        probe = await identity.Probe(pb.ProbeRequest())
        assert (probe.ready, probe.message) == (False, "the simulated fabric is closed")


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("AttachDevice", pb.AttachDeviceRequest(device_id="d1", host_id="h1")),
        ("AttachDevice", pb.AttachDeviceRequest(request_id="r", device_id="d1", host_id="x" * 129)),
        ("DetachDevice", pb.DetachDeviceRequest(device_id="d1", host_id="h1")),
        ("GetOperation", pb.GetOperationRequest()),
    ],
)
async def test_a_foreign_client_with_a_wrong_request_is_told(endpoint, method, message):
    async with SimulatedFabric.running(DESCRIBED) as fabric, stubs(endpoint, fabric) as (_, manager):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await getattr(manager, method)(message)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_stale_socket_file_is_replaced_and_a_served_one_is_not(endpoint, tmp_path):
    path = tmp_path / "f.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    async with SimulatedFabric.running(DESCRIBED) as fabric, stubs(endpoint, fabric) as (identity, _):
        with pytest.raises(errors.InvalidConfiguration, match="another process serves"):
            async with server.serving(fabric, endpoint, name="second", version="1"):
                pass
        assert (await identity.GetPluginInfo(pb.GetPluginInfoRequest())).name == "t"
    assert not path.exists()


async def test_an_unusable_endpoint_is_reported_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("mine")
    async with SimulatedFabric.running(DESCRIBED) as fabric:
        for path, words in [("file", "is not a socket"), ("no/such", "does not exist"), ("x" * 200, "bytes")]:
            with pytest.raises(errors.InvalidConfiguration, match=words):
                async with server.serving(fabric, f"unix:{tmp_path}/{path}", name="t", version="1"):
                    pass
    assert (tmp_path / "file").read_text() == "mine"


# --- pages ---


def test_a_listing_is_forgotten_when_many_others_were_begun():
    listings = services.Listings()
    page = listings.first(list(range(10)), size=4)
    assert (page.items, listings.further(page.token, size=4).items) == ([0, 1, 2, 3], [4, 5, 6, 7])
    for _ in range(services.KEPT_LISTINGS):
        listings.first(list(range(10)), size=4)
    with pytest.raises(errors.Aborted):
        listings.further(page.token)


@pytest.mark.parametrize(
    "token", ["", "x", "1", "1:", ":1", "-1:0", "1:x", f"{'1' * 5000}:0", f"0:{'1' * 5000}"]
)
def test_a_page_token_from_elsewhere_is_refused(token):
    with pytest.raises(errors.InvalidArgument):
        services.Listings().further(token)


def test_the_pages_of_a_listing_hold_every_item_once():
    listings = services.Listings()
    page = listings.first(range(1001))
    items = list(page.items)
    while page.token:
        page = listings.further(page.token)
        items += page.items
    assert items == list(range(1001))
