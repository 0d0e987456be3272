"""Managers and plugins that misuse TLS: each attempt to connect ends in time, with one sentence."""

import asyncio
import contextlib
import ssl

import pytest
import trustme

from drawbar.fabric import contract, errors
from drawbar.fabric.grpc.adapter import GrpcAdapter
from drawbar.fabric.redfish.adapter import RedfishAdapter

TIMEOUT_SECONDS = 1.0
RECORD = b"\x16\x03\x03"


async def silence(reader, writer):
    await reader.read()


async def trickle(reader, writer):
    """Send a ServerHello byte by byte, slowly."""
    await reader.read(1)
    for byte in RECORD + b"\x40\x00\x02\x00\x3f\xfc" + bytes(60_000):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.02)  # the pace of the attack


async def records(reader, writer):
    """Send handshake records without end, of a message of 16 MiB."""
    writer.write(RECORD + b"\x40\x00\x02\xff\xff\xff" + bytes(0x4000 - 4))
    while True:
        writer.write(RECORD + b"\x40\x00" + bytes(0x4000))
        await writer.drain()


async def alerts(reader, writer):
    """Send warnings without end."""
    while True:
        writer.write(b"\x15\x03\x03\x00\x02\x01\x5a" * 1000)
        await writer.drain()


async def answer_without_tls(reader, writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    await reader.read()


async def half(reader, writer):
    await reader.read(1)
    writer.write_eof()
    await reader.read()


MISUSES = [silence, trickle, records, alerts, answer_without_tls, half]


@contextlib.asynccontextmanager
async def serving(answer, context=None):
    async def serve(reader, writer):
        try:
            with contextlib.suppress(ConnectionError):
                await answer(reader, writer)
        finally:
            writer.transport.abort()

    async with asyncio.TaskGroup() as tasks:
        served = []
        server = await asyncio.start_server(
            lambda *streams: served.append(tasks.create_task(serve(*streams))), "127.0.0.1", 0, ssl=context
        )
        yield server.sockets[0].getsockname()[1]
        server.close()
        for task in served:
            task.cancel()


async def expect_refusal(adapter, port, authority):
    mine = authority.issue_cert("client")
    credentials = contract.Credentials(
        authority=authority.cert_pem.bytes().decode(),
        certificate=b"".join(blob.bytes() for blob in mine.cert_chain_pems).decode(),
        key=mine.private_key_pem.bytes().decode(),
    )
    scheme = "https" if adapter is RedfishAdapter else "tls"
    config = contract.AdapterConfig(
        name="rack",
        endpoint=f"{scheme}://127.0.0.1:{port}",
        credentials=credentials,
        timeout_seconds=TIMEOUT_SECONDS,
    )
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(errors.FabricError) as raised:
        await adapter.connect(config)
    assert loop.time() - began < TIMEOUT_SECONDS + 8
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 2048


@pytest.mark.parametrize("misuse", MISUSES)
@pytest.mark.parametrize("adapter", [RedfishAdapter, GrpcAdapter])
async def test_a_server_that_misuses_tls_fails_in_time(adapter, misuse):
    async with serving(misuse) as port:
        await expect_refusal(adapter, port, trustme.CA())


@pytest.mark.parametrize("adapter", [RedfishAdapter, GrpcAdapter])
async def test_a_chain_of_certificates_beyond_any_use_is_not_followed(adapter, tmp_path):
    """OpenSSL and BoringSSL read 100 KiB of certificates at most."""
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    chain = b"".join(blob.bytes() for blob in own.cert_chain_pems) + authority.cert_pem.bytes() * 400
    (tmp_path / "chain").write_bytes(chain)
    (tmp_path / "key").write_bytes(own.private_key_pem.bytes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "chain", tmp_path / "key")
    async with serving(silence, context) as port:
        await expect_refusal(adapter, port, authority)
