"""TCP connections inside one event loop, without sockets.

One side's data reaches the other side in the loop's next turn. The kernel's loopback delivers after a time that
depends on the machine. Here the order depends only on the loop, so a test gives the same result on every machine.

Limits: no TLS, half-closed connections, latency or shared ports.
"""

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Callable

Factory = Callable[[], asyncio.BaseProtocol]
Address = tuple[str, int]

# The same limit as in asyncio: with more unread bytes, the writer is asked to pause.
HIGH_WATER_BYTES = 64 * 1024


class Transport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, protocol: asyncio.BaseProtocol, peer: Address
    ) -> None:
        super().__init__({"peername": peer})
        self._loop = loop
        self._protocol: asyncio.Protocol = protocol  # type: ignore[assignment]  # stream protocols only
        self._unread: deque[bytes] = deque()
        self._unread_bytes = 0
        self._reading = True
        self._writing_paused = False
        self._ended = self._closing = False
        self.other: Transport | None = None

    # asyncio's transport interface.

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the current protocol."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the current protocol."""
        self._protocol = protocol  # type: ignore[assignment]  # stream protocols only

    def is_reading(self) -> bool:
        """Return true if received data goes to the protocol at once."""
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        """Keep received data until `resume_reading`."""
        self._reading = False

    def resume_reading(self) -> None:
        """Deliver the kept data, and later data at once."""
        self._reading = True
        self._loop.call_soon(self._deliver)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send data; after the end, drop it."""
        if not data or self._closing or self.other is None:
            return
        self.other._receive(bytes(data))  # noqa: SLF001 - the other end of the same connection

    def can_write_eof(self) -> bool:
        """Return false: connections have no half-closed state here."""
        return False

    def is_closing(self) -> bool:
        """Return true if nothing can be written any more."""
        return self._closing

    def close(self) -> None:
        """End the connection; the other end can still read the data written so far."""
        self._close(None, None)

    def abort(self) -> None:
        """End the connection at once; the other end gets a reset and loses its unread data."""
        self._close(None, ConnectionResetError("Connection reset by peer"))

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that the other end has not read."""
        return 0 if self.other is None else self.other._unread_bytes  # noqa: SLF001 - the same connection

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: the limits are fixed."""

    # Called by the other end of the connection.

    def _receive(self, data: bytes) -> None:
        if self._closing:
            return
        self._unread.append(data)
        self._unread_bytes += len(data)
        if self._unread_bytes > HIGH_WATER_BYTES and self.other is not None:
            self.other._pause_writing(True)  # noqa: SLF001 - the same connection
        self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        while self._unread and self._reading and not self._closing:
            data = self._unread.popleft()
            self._unread_bytes -= len(data)
            self._protocol.data_received(data)
        if self._unread or self._closing:
            return
        if self.other is not None:
            self.other._pause_writing(False)  # noqa: SLF001 - the same connection
        if self._ended and self._reading:
            self._protocol.eof_received()
            self._close(None, None)

    def _pause_writing(self, paused: bool) -> None:
        if paused == self._writing_paused or self._closing:
            return
        self._writing_paused = paused
        (self._protocol.pause_writing if paused else self._protocol.resume_writing)()

    def _end(self, reset: Exception | None) -> None:
        """Handle the close of the other end."""
        self._ended = True
        if reset is not None:
            self._close(reset, None)
        else:
            self._loop.call_soon(self._deliver)

    def _close(self, error: Exception | None, reset: Exception | None) -> None:
        if self._closing:
            return
        self._closing = True
        self._unread.clear()
        self._unread_bytes = 0
        if self.other is not None:
            self._loop.call_soon(self.other._end, reset)  # noqa: SLF001 - the same connection
        self._loop.call_soon(self._lose, error)

    def _lose(self, error: Exception | None) -> None:
        self.other = None
        self._protocol.connection_lost(error)


class Server(asyncio.AbstractServer):
    """A server that listens at an address."""

    def __init__(self, network: "Network", address: Address, factory: Factory, sock: socket.socket) -> None:
        self._network, self._address, self._sock = network, address, sock
        self.factory = factory
        self._closed = asyncio.Event()

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """Return the socket that reserves the port's number, or nothing after `close`. Nothing listens on it."""
        return () if self._closed.is_set() else (self._sock,)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the server's loop."""
        return self._network.loop

    def is_serving(self) -> bool:
        """Return true if connections are accepted."""
        return not self._closed.is_set()

    async def start_serving(self) -> None:
        """Do nothing: the server serves from the beginning."""

    async def serve_forever(self) -> None:
        """Wait until the server is closed."""
        await self._closed.wait()

    def close(self) -> None:
        """Stop accepting connections; existing ones go on."""
        if not self._closed.is_set():
            self._closed.set()
            self._network.forget(self._address)
            self._sock.close()

    async def wait_closed(self) -> None:
        """Wait until `close` was called."""
        await self._closed.wait()


class Network:
    """The servers of one loop, by address."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._servers: dict[Address, Server] = {}

    def listen(self, factory: Factory, sock: socket.socket, address: Address) -> Server:
        """Serve at an address; the server owns the socket from now on.

        Raises:
            OSError: a server listens there already.
        """
        if address in self._servers:
            sock.close()
            raise OSError(errno.EADDRINUSE, f"{address[0]}:{address[1]} is in use in this loop")
        server = self._servers[address] = Server(self, address, factory, sock)
        return server

    def forget(self, address: Address) -> None:
        """Refuse connections to the address from now on."""
        self._servers.pop(address, None)

    def check(self, address: Address) -> None:
        """Check that a server listens at the address.

        Raises:
            ConnectionRefusedError: no server does.
        """
        if address not in self._servers:
            raise ConnectionRefusedError(f"nothing listens at {address[0]}:{address[1]} in this loop")

    def connect(self, factory: Factory, address: Address) -> tuple[Transport, asyncio.BaseProtocol]:
        """Connect to the server at an address; return the near end and its protocol.

        Both ends are connected on return.

        Raises:
            ConnectionRefusedError: no server does.
        """
        self.check(address)
        ours, theirs = factory(), self._servers[address].factory()
        near = Transport(self.loop, ours, address)
        far = Transport(self.loop, theirs, ("127.0.0.1", 0))
        near.other, far.other = far, near
        theirs.connection_made(far)
        ours.connection_made(near)
        return near, ours
