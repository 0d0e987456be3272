"""A plugin whose process has much else to do when it is connected to."""

import asyncio
from contextlib import asynccontextmanager, suppress

from drawbar.fabric import contract
from drawbar.fabric.grpc import server
from drawbar.fabric.grpc.adapter import GrpcAdapter
from drawbar.mocks.fabric import SimulatedFabric, configuration

DESCRIBED = configuration.parse(
    b'{"hosts": [{"id": "h1"}], "enclosures": [{"id": "e", "devices": [{"id": "d1", "class": "gpu"}]}]}'
)
# Longer than the pauses between attempts, shorter than a call may take.
BUSY_SECONDS = 1.0


async def pass_on(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def busy_before(path, answering):
    """Accept connections at once, and forward their data to the socket `answering` after a delay.

    The block ends once no client is connected."""

    async def serve(reader, writer):
        await asyncio.sleep(BUSY_SECONDS)  # stands for the busy process, waits for nothing
        behind_reader, behind_writer = await asyncio.open_unix_connection(answering)
        async with asyncio.TaskGroup() as both:
            both.create_task(pass_on(reader, behind_writer))
            both.create_task(pass_on(behind_reader, writer))

    async with asyncio.TaskGroup() as served:

        def accept(reader, writer):
            served.create_task(serve(reader, writer))

        async with await asyncio.start_unix_server(accept, path):
            yield


async def test_a_plugin_that_takes_its_time_to_answer_a_connection_is_waited_for(tmp_path):
    async with (
        SimulatedFabric.running(DESCRIBED) as fabric,
        server.serving(fabric, f"unix:{tmp_path}/f.sock", name="sim", version="1"),
        busy_before(f"{tmp_path}/busy.sock", f"{tmp_path}/f.sock"),
    ):
        where = contract.AdapterConfig(name="rack", endpoint=f"unix:{tmp_path}/busy.sock", timeout_seconds=10)
        async with await GrpcAdapter.connect(where) as adapter:
            assert (await adapter.devices()).device("d1") is not None
