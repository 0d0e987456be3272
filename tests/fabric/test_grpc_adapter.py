"""The adapter against real servers on UNIX sockets, well-behaved and not."""
# ruff: noqa: N802 -- gRPC fixes the names of a plugin's methods

import asyncio
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from drawbar.fabric import contract, errors
from drawbar.fabric.grpc import server, services, statuses
from drawbar.fabric.grpc.adapter import GrpcAdapter
from drawbar.mocks.fabric import SimulatedFabric, configuration
from drawbar.proto.fabric.v1alpha1 import fabric_pb2 as pb
from drawbar.proto.fabric.v1alpha1 import fabric_pb2_grpc as pb_grpc

DESCRIBED = configuration.parse(
    b'{"hosts": [{"id": "h1"}], "enclosures": [{"id": "e", "devices": [{"id": "d1", "class": "gpu"}]}]}'
)
ATTACH = contract.AttachRequest(request_id="r1", device_id="d1", host_id="h1")
DETACH = contract.DetachRequest(request_id="r2", device_id="d1", host_id="h1", host_prepared=True)


def config(endpoint, **changes):
    return contract.AdapterConfig(
        **{"name": "rack-7", "endpoint": endpoint, "timeout_seconds": 10, **changes}
    )


class Plugin(pb_grpc.IdentityServicer, pb_grpc.FabricManagerServicer):
    """A plugin of another vendor, which does as little as it can."""

    async def GetPluginInfo(self, request, context):
        return pb.GetPluginInfoResponse(name="acme", version="1")


@asynccontextmanager
async def connected_to(plugin, endpoint, *, silence_seconds=30.0, **changes):
    """Serve the plugin; yield an adapter that talks to it."""
    grpc_server = grpc.aio.server()
    pb_grpc.add_IdentityServicer_to_server(plugin, grpc_server)
    pb_grpc.add_FabricManagerServicer_to_server(plugin, grpc_server)
    grpc_server.add_insecure_port(endpoint)
    await grpc_server.start()
    channel = grpc.aio.insecure_channel(endpoint)
    try:
        async with GrpcAdapter(
            config(endpoint, **changes), channel, silence_seconds=silence_seconds
        ) as adapter:
            yield adapter
    finally:
        await grpc_server.stop(None)


# --- configuration and life ---


def test_a_wrong_configuration_is_told_whole_and_without_any_connection():
    with pytest.raises(errors.InvalidConfiguration) as caught:
        GrpcAdapter.validate(
            config(
                "tcp:10.0.0.1:50051",
                timeout_seconds=0,
                parameters={"zone": "1"},
                credentials=contract.Credentials(username="a"),
            )
        )
    assert len(caught.value.problems) == 4


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("unix:relative/path", "not absolute"),
        ("unix:///var/run/x.sock", "two slashes too many"),
        ("unix:/" + "x" * 107, "has 108 bytes"),
        ("localhost:50051", "not an address of a plugin"),
    ],
)
def test_an_endpoint_that_cannot_work_is_told(endpoint, words):
    with pytest.raises(errors.InvalidConfiguration, match=words):
        GrpcAdapter.validate(config(endpoint))


def test_a_path_of_107_bytes_is_accepted():
    GrpcAdapter.validate(config("unix:/" + "x" * 106))


async def test_without_a_sidecar_connecting_asks_whether_it_runs(endpoint):
    with pytest.raises(errors.Unavailable, match="is the sidecar running") as caught:
        await GrpcAdapter.connect(config(endpoint))
    assert "rack-7" in caught.value.message
    assert not caught.value.side_effects_unknown


OPENING = """\
import asyncio, os, sys
from drawbar.fabric import contract, errors
from drawbar.fabric.grpc import adapter

async def main():
    os.setresuid(65534, 65534, 65534)
    config = contract.AdapterConfig(name="rack-7", endpoint=sys.argv[1], parameters={}, timeout_seconds=5)
    try:
        await adapter.GrpcAdapter.connect(config)
    except errors.Unavailable as error:
        print(error.reason, error.message)

asyncio.run(main())
"""


@pytest.fixture
def open_folder():
    """Create a directory that another user may enter, whatever the mode of pytest's directories."""
    with tempfile.TemporaryDirectory(prefix="drawbar-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.tool("root")
async def test_a_socket_that_may_not_be_opened_is_called_that_with_the_remedy(open_folder):
    endpoint = f"unix:{open_folder}/f.sock"
    async with (
        SimulatedFabric.running(DESCRIBED) as fabric,
        server.serving(fabric, endpoint, name="t", version="1"),
    ):
        await asyncio.to_thread((open_folder / "f.sock").chmod, 0o600)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", OPENING, endpoint, stdout=subprocess.PIPE
        )
        reported, _ = await process.communicate()
    reason, _, message = reported.decode().partition(" ")
    assert reason == errors.Reason.SOCKET_FORBIDDEN
    assert "permission denied for its socket" in message
    assert "this process's user (uid 65534)" in message


async def test_a_restarted_sidecar_is_found_again_by_the_same_adapter(endpoint):
    async with SimulatedFabric.running(DESCRIBED) as fabric:
        async with server.serving(fabric, endpoint, name="t", version="1"):
            adapter = await GrpcAdapter.connect(config(endpoint))
        async with adapter:
            with pytest.raises(errors.Unavailable):
                await adapter.devices()
            async with server.serving(fabric, endpoint, name="t", version="1"):
                assert (await _until_it_answers(adapter)).device("d1") is not None


async def _until_it_answers(adapter):
    while True:
        try:
            return await adapter.devices()
        except errors.Unavailable:
            await asyncio.sleep(0.02)


async def test_a_closed_adapter_answers_unavailable(endpoint):
    async with (
        SimulatedFabric.running(DESCRIBED) as fabric,
        server.serving(fabric, endpoint, name="t", version="1"),
    ):
        adapter = await GrpcAdapter.connect(config(endpoint))
        await adapter.close()
        await adapter.close()
        with pytest.raises(errors.Unavailable, match="is closed"):
            await adapter.attach(ATTACH)
        with pytest.raises(errors.Unavailable, match="is closed"):
            async with adapter.watch("1"):
                pass


class Slow(Plugin):
    """Accepts an attach and never answers."""

    def __init__(self):
        self.asked = asyncio.Event()

    async def AttachDevice(self, request, context):
        self.asked.set()
        await asyncio.Event().wait()

    DetachDevice = AttachDevice
    ListHosts = AttachDevice


async def test_closing_ends_a_call_in_flight_with_unavailable_and_not_with_a_cancellation(endpoint):
    plugin = Slow()
    async with connected_to(plugin, endpoint) as adapter:
        async with asyncio.TaskGroup() as tasks:

            async def refused_attach():
                with pytest.raises(errors.Unavailable) as caught:
                    await adapter.attach(ATTACH)
                return caught.value

            # A cancelled task would end silently, so its result is looked at outside.
            task = tasks.create_task(refused_attach())
            await plugin.asked.wait()
            await adapter.close()
        assert task.result().side_effects_unknown


async def test_cancelling_the_caller_is_a_cancellation(endpoint):
    plugin = Slow()
    async with connected_to(plugin, endpoint) as adapter:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(adapter.attach(ATTACH))
            await plugin.asked.wait()
            task.cancel()
        assert task.cancelled()


# --- errors ---


@pytest.mark.parametrize(("call", "request_"), [("attach", ATTACH), ("detach", DETACH)])
async def test_an_attach_or_detach_without_an_answer_in_time_has_unknown_effects(endpoint, call, request_):
    plugin = Slow()
    async with connected_to(plugin, endpoint, timeout_seconds=0.2) as adapter:
        with pytest.raises(errors.DeadlineExceeded) as caught:
            await getattr(adapter, call)(request_)
        assert caught.value.side_effects_unknown


async def test_a_listing_without_an_answer_in_time_has_no_effects(endpoint):
    async with connected_to(Slow(), endpoint, timeout_seconds=0.2) as adapter:
        with pytest.raises(errors.DeadlineExceeded) as caught:
            await adapter.hosts()
        assert not caught.value.side_effects_unknown


class Deadlines(Plugin):
    """Notes which calls came with a deadline; gRPC gives None for one without."""

    def __init__(self):
        self.bounded = {}

    async def AttachDevice(self, request, context):
        self.bounded[type(request).__name__] = context.time_remaining() is not None
        await context.abort(grpc.StatusCode.NOT_FOUND, "noted")

    DetachDevice = CancelOperation = GetOperation = GetCapabilities = AttachDevice
    ListHosts = ListDevices = ListOperations = AttachDevice


async def test_every_call_but_the_watch_has_a_deadline(endpoint):
    plugin = Deadlines()
    async with connected_to(plugin, endpoint) as adapter:
        for call in (
            adapter.capabilities(),
            adapter.hosts(),
            adapter.devices(),
            adapter.attach(ATTACH),
            adapter.detach(DETACH),
            adapter.operation(request_id="r"),
            adapter.operations(),
            adapter.cancel("o"),
        ):
            with pytest.raises(errors.NotFound):
                await call
    assert len(plugin.bounded) == 8
    assert all(plugin.bounded.values())


class Refusing(Plugin):
    """Answers every attach with one status."""

    def __init__(self, code, details="", metadata=()):
        self.answer = (code, details, metadata)

    async def AttachDevice(self, request, context):
        await context.abort(*self.answer)


@pytest.mark.parametrize("code", sorted(errors.Code))
async def test_every_status_of_the_contract_is_its_error(endpoint, code):
    async with connected_to(Refusing(grpc.StatusCode[code], "because"), endpoint) as adapter:
        with pytest.raises(errors.BY_CODE[code]):
            await adapter.attach(ATTACH)


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.CANCELLED]
)
async def test_any_other_status_is_unavailable_with_unknown_effects(endpoint, code):
    async with connected_to(Refusing(code, "oops"), endpoint) as adapter:
        with pytest.raises(errors.Unavailable, match="oops") as caught:
            await adapter.attach(ATTACH)
        assert caught.value.side_effects_unknown
        assert caught.value.reason == f"GRPC_{code.name}"


async def test_a_plugin_without_a_method_is_unimplemented(endpoint):
    async with connected_to(Plugin(), endpoint) as adapter:
        with pytest.raises(errors.Unimplemented):
            await adapter.cancel("o")


async def test_details_that_cannot_be_read_do_not_hide_the_status(endpoint):
    plugin = Refusing(grpc.StatusCode.NOT_FOUND, "no such thing", ((statuses.DETAIL_KEY, b"\xff\xff\xff"),))
    async with connected_to(plugin, endpoint) as adapter:
        with pytest.raises(errors.NotFound, match="no such thing"):
            await adapter.attach(ATTACH)


class Complaining(SimulatedFabric):
    """Refuses every attach with the longest error that there is."""

    error = errors.ResourceExhausted(
        "ж" * 2000,
        reason="NO_WINDOW",
        retryable=True,
        side_effects_unknown=True,
        host_id="h" * 128,
        vendor={f"{number:02}" * 40: "é" * 400 for number in range(20)},
    )

    async def attach(self, request):
        raise self.error


async def test_the_longest_error_arrives_whole(endpoint):
    async with (
        Complaining.running(DESCRIBED) as fabric,
        server.serving(fabric, endpoint, name="t", version="1"),
        await GrpcAdapter.connect(config(endpoint)) as adapter,
    ):
        with pytest.raises(errors.ResourceExhausted) as caught:
            await adapter.attach(ATTACH)
    assert vars(caught.value) == vars(Complaining.error)


# --- listings ---


class Crowded(SimulatedFabric):
    """Has more devices than a page holds, and one more with every listing."""

    count = 2 * services.PAGE_ITEMS

    async def devices(self):
        self.count += 1
        devices = tuple(
            contract.Device(id=f"d{number}", device_class=contract.DeviceClass.GPU)
            for number in range(self.count)
        )
        return contract.Inventory(version=f"v{self.count}", devices=devices)


async def test_all_pages_of_a_listing_show_one_moment(endpoint):
    async with (
        Crowded.running(DESCRIBED) as fabric,
        server.serving(fabric, endpoint, name="t", version="1"),
        await GrpcAdapter.connect(config(endpoint)) as adapter,
    ):
        first = await adapter.devices()
        assert len(first.devices) == 2 * services.PAGE_ITEMS + 1
        assert first.version == f"v{2 * services.PAGE_ITEMS + 1}"
        assert len((await adapter.devices()).devices) == 2 * services.PAGE_ITEMS + 2


class Sick(SimulatedFabric):
    """Cannot show parts of its listing."""

    async def devices(self):
        unread = tuple(f"part {number} cannot be read{'.' * 300}" for number in range(40))
        return contract.Inventory(version="1", devices=(), unread=unread, oddities=("SAS is left out",))


async def test_the_parts_that_a_listing_leaves_out_arrive_within_bounds(endpoint):
    async with (
        Sick.running(DESCRIBED) as fabric,
        server.serving(fabric, endpoint, name="t", version="1"),
        await GrpcAdapter.connect(config(endpoint)) as adapter,
    ):
        inventory = await adapter.devices()
    assert inventory.oddities == ("SAS is left out",)
    assert len(inventory.unread) == contract.SENTENCES_MAX
    assert inventory.unread[-1] == "25 more parts"
    assert max(len(sentence.encode()) for sentence in inventory.unread) <= contract.SENTENCE_BYTES


class Endless(Plugin):
    """Its listing was always changed since the page before."""

    calls = 0

    async def ListHosts(self, request, context):
        self.calls += 1
        if request.page_token:
            await context.abort(grpc.StatusCode.ABORTED, "too old")
        return pb.ListHostsResponse(next_page_token="2")


async def test_a_listing_that_always_changes_fails_after_a_few_attempts(endpoint):
    plugin = Endless()
    async with connected_to(plugin, endpoint) as adapter:
        with pytest.raises(errors.Aborted):
            await adapter.hosts()
    assert plugin.calls == 6


# --- watch ---


class Silent(Plugin):
    """Opens a watch and says nothing, or ends it."""

    def __init__(self, *, ends=False):
        self.ends = ends

    async def Watch(self, request, context):
        yield pb.WatchEvent(version=request.from_version, bookmark=pb.Bookmark())
        if not self.ends:
            await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("plugin", "words"), [(Silent(), "silent for 1 s"), (Silent(ends=True), "ended the watch")]
)
async def test_a_watch_that_goes_quiet_or_ends_is_a_lost_connection(endpoint, plugin, words):
    async with (
        connected_to(plugin, endpoint, silence_seconds=1) as adapter,
        adapter.watch("7") as events,
    ):
        assert await anext(events) == contract.Bookmark(version="7")
        with pytest.raises(errors.Unavailable, match=words):
            await anext(events)


async def test_a_watch_without_a_sidecar_is_unavailable(endpoint):
    async with (
        GrpcAdapter(config(endpoint), grpc.aio.insecure_channel(endpoint)) as adapter,
        adapter.watch("1") as events,
    ):
        with pytest.raises(errors.Unavailable, match="is the sidecar running"):
            await anext(events)


async def test_leaving_a_watch_ends_it_on_the_server(endpoint):
    ended = asyncio.Event()

    class Watched(Plugin):
        async def Watch(self, request, context):
            try:
                yield pb.WatchEvent(version="1", bookmark=pb.Bookmark())
                await asyncio.Event().wait()
            finally:
                ended.set()

    async with connected_to(Watched(), endpoint) as adapter:
        async with adapter.watch("1") as events:
            await anext(events)
        async with asyncio.timeout(120):
            await ended.wait()
