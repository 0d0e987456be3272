"""The gate of all TLS servers, and what callers do before, during and after a handshake."""

import asyncio
import contextlib
import socket
import ssl
import subprocess

import pytest
from tests.scenes import waiting

from drawbar.driver.operation import certificates, gate
from drawbar.mocks.apiserver import listeners

LIMITS = gate.Limits(connections=8, handshake_seconds=0.5)


class Echo(asyncio.Protocol):
    """Sends back what it gets."""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)


class Server:
    """A listener with a gate before it."""

    def __init__(self, entrance, port):
        self.entrance, self.port = entrance, port

    @contextlib.asynccontextmanager
    async def raw(self):
        """Yield a connection without TLS."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    @contextlib.asynccontextmanager
    async def client(self, context=None):
        """Yield a connection with TLS, of whatever version the context allows."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=context or make_trusting_context()
        )
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def open(self):
        """Return the number of connections, including those in a handshake."""
        return len(self.entrance)

    async def answers(self):
        """Return whether an honest client is served."""
        async with asyncio.timeout(120), self.client() as (reader, writer):
            writer.write(b"hello")
            return await reader.readexactly(5) == b"hello"


def make_trusting_context(**versions):
    """Return a client's context that trusts everybody."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    for name, version in versions.items():
        setattr(made, name, version)
    return made


def client_hello():
    """Return the first bytes of a handshake."""
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        make_trusting_context().wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    return out.read()


async def wait_until_closed(reader):
    """Wait until the server has closed the connection."""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(120):
            while await reader.read(4096):
                pass


@pytest.fixture
async def server(tmp_path):
    certificate, key = listeners.issue_certificate()
    (tmp_path / "crt").write_bytes(certificate)
    (tmp_path / "key").write_bytes(key)
    context = await certificates.Certificates(tmp_path / "crt", tmp_path / "key").load()
    entrance = gate.Gate(context, LIMITS)
    listener = await asyncio.get_running_loop().create_server(entrance.wrap(Echo), "127.0.0.1", 0)
    async with listener:
        yield Server(entrance, listener.sockets[0].getsockname()[1])
        entrance.close()


@pytest.mark.parametrize(
    "sent", [b"", client_hello()[:1], client_hello()[:40]], ids=["nothing", "byte", "part"]
)
async def test_unfinished_handshakes_are_counted_and_keep_no_client_out(server, sent):
    async with contextlib.AsyncExitStack() as stack:
        for number in range(10 * LIMITS.connections):
            _, writer = await stack.enter_async_context(server.raw())
            writer.write(sent)
            if number % LIMITS.connections == 0:
                assert await server.answers()
            assert len(server.entrance) <= LIMITS.connections
        assert await server.answers()


async def test_a_hello_of_one_byte_at_a_time_ends_at_the_deadline_of_the_handshake(server):
    loop = asyncio.get_running_loop()
    async with server.raw() as (reader, writer):
        began = loop.time()
        ended = asyncio.Task(wait_until_closed(reader))
        for byte in client_hello()[:-1]:
            writer.write(bytes([byte]))
            await asyncio.wait([ended], timeout=0.02)
            if ended.done():
                break
        await ended
        assert LIMITS.handshake_seconds / 2 <= loop.time() - began < 10
    await waiting.until(server.open, lambda number: number == 0)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        # A record of the greatest length, and one of type 0.
        b"\x16\x03\x01\xff\xff" + bytes(65535),
        bytes(4096),
    ],
    ids=["http", "http2", "long", "zeros"],
)
async def test_a_connection_without_tls_is_closed_without_a_log_line(server, sent, caplog):
    async with server.raw() as (reader, writer):
        writer.write(sent)
        await wait_until_closed(reader)
    await waiting.until(server.open, lambda number: number == 0)
    assert caplog.records == []
    assert await server.answers()


@pytest.mark.parametrize("after", [0, 40, 10_000], ids=["at once", "in the hello", "after it"])
async def test_a_client_that_closes_its_half_leaves_no_connection(server, after):
    async with server.raw() as (reader, writer):
        writer.write(client_hello()[:after])
        writer.write_eof()
        await wait_until_closed(reader)
    await waiting.until(server.open, lambda number: number == 0)


async def test_a_client_that_closes_its_half_after_the_handshake_leaves_no_connection(server):
    async with server.client() as (_, writer):
        writer.write(b"x")
        writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
        await waiting.until(server.open, lambda number: number == 0)


async def test_bytes_that_come_with_the_end_of_the_handshake_reach_the_server(server):
    """TLS 1.3 lets a client send them in the same packet as its last message."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = make_trusting_context().wrap_bio(incoming, outgoing)
    async with server.raw() as (reader, writer), asyncio.timeout(120):
        while True:
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(65536))
            else:
                break
        tls.write(b"early")
        writer.write(outgoing.read())
        answer = b""
        while answer != b"early":
            try:
                answer += tls.read(5)
            except ssl.SSLWantReadError:
                incoming.write(await reader.read(65536))


async def test_of_open_connections_the_one_that_was_useful_longest_ago_gives_way(server):
    async with contextlib.AsyncExitStack() as stack:
        opened = []
        for _ in range(LIMITS.connections):
            opened.append(await stack.enter_async_context(server.client()))
            opened[-1][1].write(b"x")
            await opened[-1][0].readexactly(1)
        first, second, third = tuple(server.entrance._open)[:3]  # as their server knows them
        server.entrance.touch(first)
        server.entrance.keep(second)
        await stack.enter_async_context(server.client())  # takes the place of the kept one
        assert await server.answers()
        await wait_until_closed(opened[2][0])
        for reader, writer in (opened[0], opened[1], opened[-1]):
            writer.write(b"y")
            assert await reader.readexactly(1) == b"y"
        assert third.is_closing()


async def test_a_client_cannot_have_the_keys_negotiated_again(server):
    """Renegotiation in TLS 1.2 costs the server more than the client."""
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-tls1_2", "-quiet"]
    process = await asyncio.create_subprocess_exec(
        *command[:-1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    process.stdin.write(b"R\n")
    await process.stdin.drain()
    async with asyncio.timeout(120):
        reported = await process.stdout.read()
        await process.wait()
    assert b"RENEGOTIATING" in reported
    assert b"no renegotiation" in reported
    assert await server.answers()
