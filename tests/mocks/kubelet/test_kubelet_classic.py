"""Kubelets of before 1.32: which calls they make, with what, and which plugins they take."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest

from drawbar.driver.kube import kinds
from drawbar.mocks.kubelet import errors, protocols, versions
from drawbar.proto.kubelet.dra.v1alpha2 import api_pb2 as v1alpha2
from drawbar.proto.kubelet.dra.v1alpha2 import api_pb2_grpc as v1alpha2_grpc
from drawbar.proto.kubelet.pluginregistration.v1 import api_pb2 as registration
from drawbar.proto.kubelet.pluginregistration.v1 import api_pb2_grpc as registration_grpc

CLAIM = kinds.CLASSIC_CLAIMS["v1alpha2"]


@pytest.mark.parametrize(
    ("release", "supported", "chosen"),
    [
        pytest.param("1.27", ("v1.DRAPlugin", "1.0.0"), versions.V1ALPHA2, id="1.27"),
        pytest.param("1.28", ("v1.2",), versions.V1ALPHA3, id="1.28"),
        pytest.param("1.30", ("1.0.0", "2.0.0"), versions.V1ALPHA3, id="1.30"),
        pytest.param("1.31", ("1.0.0",), versions.V1ALPHA4, id="1.31"),
    ],
)
def test_a_plugin_of_any_version_1_x_is_called_as_the_release_calls_every_plugin(release, supported, chosen):
    assert versions.service(release, "d", "/e", supported) == chosen


@pytest.mark.parametrize(
    ("supported", "words"),
    [
        ((), "empty list for supported versions"),
        (("v1.DRAPlugin", "2.0.0"), r"none of the versions are supported: .*\[v1.DRAPlugin 2.0.0\]"),
    ],
)
def test_a_plugin_without_a_version_1_x_is_refused(supported, words):
    with pytest.raises(errors.RegistrationError, match=words):
        versions.service("1.30", "d", "/e", supported)


def test_kubelets_of_before_1_28_are_impatient():
    limits = {
        release: versions.call_timeout_seconds(release, 45.0) for release in versions.SERVICES_BY_RELEASE
    }
    assert {release for release, seconds in limits.items() if seconds == 10.0} == {"1.27"}
    assert set(limits.values()) == {10.0, 45.0}
    assert versions.call_timeout_seconds("1.27", 3.0) == 3.0


class Plugin(registration_grpc.RegistrationServicer, v1alpha2_grpc.NodeServicer):
    """Answers with the world's CDI device, or fails; keeps what it was asked."""

    def __init__(self, endpoint="", fails=False):
        self.endpoint, self.fails, self.asked = endpoint, fails, []
        self.registered = asyncio.Queue()

    async def GetInfo(self, request, context):  # noqa: N802 - the name is the wire's
        return registration.PluginInfo(
            type="DRAPlugin", name="drawbar.dev", endpoint=self.endpoint, supported_versions=["1.0.0"]
        )

    async def NotifyRegistrationStatus(self, request, context):  # noqa: N802 - the name is the wire's
        self.registered.put_nowait(request)
        return registration.RegistrationStatusResponse()

    async def NodePrepareResource(self, request, context):  # noqa: N802 - the name is the wire's
        self.asked.append(request)
        if self.fails:
            await context.abort(grpc.StatusCode.NOT_FOUND, "who?")
        return v1alpha2.NodePrepareResourceResponse(cdi_devices=["drawbar.dev/claim=slot-1"])

    async def NodeUnprepareResource(self, request, context):  # noqa: N802 - the name is the wire's
        self.asked.append(request)
        return v1alpha2.NodeUnprepareResourceResponse()


@asynccontextmanager
async def serving(plugin, path, *adders):
    server = grpc.aio.server()
    for add in adders:
        add(plugin, server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield plugin
    finally:
        await server.stop(None)


@asynccontextmanager
async def plugging(directory, **options):
    plugin = Plugin(str(directory / "plugins" / "dra.sock"), **options)
    socket = directory / "plugins_registry" / "drawbar.dev-reg.sock"
    async with (
        serving(plugin, plugin.endpoint, v1alpha2_grpc.add_NodeServicer_to_server),
        serving(plugin, socket, registration_grpc.add_RegistrationServicer_to_server),
    ):
        yield plugin


async def test_from_1_28_to_1_30_an_older_plugin_is_asked_claim_by_claim(tmp_path):
    add, path = v1alpha2_grpc.add_NodeServicer_to_server, tmp_path / "dra.sock"
    claims = [protocols.Claim(namespace="n", name=uid, uid=uid, handle="h") for uid in ("a", "b")]
    async with (
        serving(Plugin(), path, add) as plugin,
        grpc.aio.insecure_channel(f"unix:{path}") as channel,
    ):
        answers = await protocols.prepare(channel, versions.V1ALPHA3, claims, 20)
        assert [answers[uid].devices[0].cdi for uid in ("a", "b")] == [("drawbar.dev/claim=slot-1",)] * 2
        assert [(request.claim_uid, request.resource_handle) for request in plugin.asked] == [
            ("a", "h"),
            ("b", "h"),
        ]
        plugin.fails = True
        answers = await protocols.prepare(channel, versions.V1ALPHA3, claims, 20)
        assert answers["b"].error == "rpc error: code = NotFound desc = who?"
        assert await protocols.unprepare(channel, versions.V1ALPHA3, claims, 20) == {
            uid: protocols.Answer() for uid in ("a", "b")
        }
        with pytest.raises(errors.CallFailed, match="Unimplemented"):
            await protocols.prepare(channel, versions.V1ALPHA4, claims, 20)


async def create_pod_with_claims(world, name, *claims, used):
    """Create a pod with these claims, allocated by handles; of them one container uses some."""
    for claim in claims:
        await world.create(CLAIM, claim, spec={"resourceClassName": "any"})
    pod = await world.create(
        kinds.POD,
        name,
        spec={
            "nodeName": "node-a",
            "containers": [
                {
                    "name": "main",
                    "image": "none",
                    "resources": {"claims": [{"name": claim} for claim in used]},
                }
            ],
            "resourceClaims": [{"name": claim, "source": {"resourceClaimName": claim}} for claim in claims],
        },
    )
    consumer = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
    for claim in claims:
        allocation = {"resourceHandles": [{"driverName": "drawbar.dev", "data": f"handle of {claim}"}]}
        status = {"driverName": "drawbar.dev", "allocation": allocation, "reservedFor": [consumer]}
        await world.patch(CLAIM, claim, {"status": status}, "status")


async def test_handles_of_used_claims_are_passed_even_after_a_restart(classic_world):
    world = classic_world
    async with plugging(world.directory) as plugin, world.kubelets(release="1.27") as kubelets:
        assert (await plugin.registered.get()).plugin_registered
        await create_pod_with_claims(world, "p1", "c1", "c2", used=["c1"])
        await world.runs()
        (asked,) = plugin.asked
        assert (asked.claim_name, asked.resource_handle) == ("c1", "handle of c1")
        await kubelets.restart("node-a")
        await plugin.registered.get()
        await world.delete(kinds.POD, "p1")
        await world.wait_until_pod_gone()
    _, undone = plugin.asked
    assert undone.claim_name == "c1"
    assert undone.resource_handle == "handle of c1"


async def test_a_call_that_fails_keeps_the_pod_from_starting_and_is_made_again(classic_world):
    world = classic_world
    async with plugging(world.directory, fails=True) as plugin, world.kubelet(release="1.27"):
        await plugin.registered.get()
        await create_pod_with_claims(world, "p1", "c1", used=["c1"])
        await world.event("FailedPrepareDynamicResources", "code = NotFound desc = who?")
        plugin.fails = False
        await world.runs()
