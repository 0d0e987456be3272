"""The health of the devices as the kubelet receives it, over a real socket."""

import asyncio
import contextlib

import grpc
import pytest
from tests.scenes.verdicts import Verdicts

from drawbar.driver.node.health import verdicts
from drawbar.driver.node.plugin import health
from drawbar.proto.kubelet.drahealth.v1 import api_pb2, api_pb2_grpc
from drawbar.proto.kubelet.drahealth.v1alpha1 import api_pb2 as alpha_pb2
from drawbar.proto.kubelet.drahealth.v1alpha1 import api_pb2_grpc as alpha_pb2_grpc

ONE, TWO = verdicts.Key(pool="p", device="d1"), verdicts.Key(pool="p", device="d2")
HEALTHY = verdicts.Verdict(status=verdicts.Status.HEALTHY)
SICK = verdicts.Verdict(status=verdicts.Status.UNHEALTHY, message="the link is narrow")


class Served:
    def __init__(self, channel, streams, server):
        self.channel, self.streams, self.server = channel, streams, server

    def watch(self, version="v1"):
        if version == "v1":
            return api_pb2_grpc.DRAResourceHealthStub(self.channel).NodeWatchResources(
                api_pb2.NodeWatchResourcesRequest(), timeout=30
            )
        return alpha_pb2_grpc.DRAResourceHealthStub(self.channel).NodeWatchResources(
            alpha_pb2.NodeWatchResourcesRequest(), timeout=30
        )


@contextlib.asynccontextmanager
async def serving(folder, judged, **more):
    server = grpc.aio.server()
    streams = health.Streams(judged, **more)
    health.add_services(server, streams)
    server.add_insecure_port(f"unix:{folder}/h.sock")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"unix:{folder}/h.sock") as channel:
            yield Served(channel, streams, server)
    finally:
        streams.close()
        await server.stop(2)


async def read_health(stream):
    """Return the next list: by device status, message and time-out."""
    response = await stream.read()
    return {
        entry.device.device_name: (entry.health, entry.message, entry.health_check_timeout_seconds)
        for entry in response.devices
    }


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
async def test_the_full_list_comes_at_once_and_again_on_every_change(tmp_path, version):
    judged = Verdicts({ONE: HEALTHY, TWO: verdicts.UNKNOWN})
    async with serving(tmp_path, judged) as served:
        stream = served.watch(version)
        assert await read_health(stream) == {"d1": (1, "", 30), "d2": (0, "", 30)}
        judged.judge(TWO, SICK)
        assert await read_health(stream) == {"d1": (1, "", 30), "d2": (2, "the link is narrow", 30)}
        stream.cancel()


async def test_the_full_list_is_repeated_without_a_change(tmp_path):
    async with serving(tmp_path, Verdicts({ONE: HEALTHY}), repeat_seconds=0.02) as served:
        stream = served.watch()
        for _ in range(4):
            assert await read_health(stream) == {"d1": (1, "", 30)}
        stream.cancel()


def test_lists_are_repeated_well_before_the_kubelet_forgets():
    assert health.REPEAT_SECONDS == 10
    assert health.TIMEOUT_SECONDS >= 2 * health.REPEAT_SECONDS


async def test_a_list_without_devices_is_a_list_as_well(tmp_path):
    async with serving(tmp_path, Verdicts()) as served:
        stream = served.watch()
        assert await read_health(stream) == {}
        stream.cancel()


async def test_a_message_that_is_too_long_is_cut(tmp_path):
    long = verdicts.Verdict(status=verdicts.Status.UNHEALTHY, message="x" * 2000)
    async with serving(tmp_path, Verdicts({ONE: long})) as served:
        stream = served.watch()
        assert len((await read_health(stream))["d1"][1]) == 1024
        stream.cancel()


async def test_more_streams_than_a_kubelet_opens_are_refused_and_the_others_go_on(tmp_path):
    judged = Verdicts({ONE: HEALTHY})
    async with serving(tmp_path, judged) as served:
        streams = [served.watch() for _ in range(health.STREAMS_LIMIT)]
        for stream in streams:
            await read_health(stream)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await read_health(served.watch())
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        judged.judge(ONE, SICK)
        assert [await read_health(stream) for stream in streams] == [
            {"d1": (2, "the link is narrow", 30)}
        ] * len(streams)
        for stream in streams:
            stream.cancel()


async def test_a_stream_that_the_kubelet_left_counts_no_longer(tmp_path):
    judged = Verdicts({ONE: HEALTHY})
    async with serving(tmp_path, judged) as served:
        for _ in range(3):
            streams = [served.watch() for _ in range(health.STREAMS_LIMIT)]
            for stream in streams:
                await read_health(stream)
                stream.cancel()
            async with asyncio.timeout(120):
                while judged.subscribers:  # noqa: ASYNC110 - the server notices it asynchronously
                    await asyncio.sleep(0.001)


async def test_streams_end_at_once_when_the_service_stops(tmp_path):
    judged = Verdicts({ONE: HEALTHY})
    async with serving(tmp_path, judged) as served:
        stream = served.watch()
        await read_health(stream)
        served.streams.close()
        assert await stream.read() is grpc.aio.EOF
        assert await served.watch().read() is grpc.aio.EOF
        async with asyncio.timeout(120):
            # Without a grace period to wait for: nothing is open any more.
            await served.server.stop(None)
    assert judged.subscribers == []
