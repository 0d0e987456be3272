"""The gate of a TLS server: every caller is counted from the first byte, not from the end of its handshake.

asyncio tells a server of a connection once the handshake is over. Until then a caller already costs a descriptor and the
buffers of TLS, 256 KiB of them, so a flood of unfinished handshakes would pass any limit that counts later. The gate bounds both:
at most `Limits.connections` are open, and a handshake lasts `Limits.handshake_seconds` at most. If one more comes, the connection
that has been silent for longest gives way: `touch` says that a connection was useful, `keep` that it never gives way. The caller
of `keep` bounds their number.
"""

import asyncio
import functools
import ssl
from collections import OrderedDict
from collections.abc import Callable

import msgspec

CONNECTIONS_LIMIT = 64
HANDSHAKE_SECONDS = 5.0
CLOSE_SECONDS = 2.0


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one server.

    Attributes:
        connections: the most at once, including those in a handshake and without those that are kept.
        handshake_seconds: the longest time of a handshake.
    """

    connections: int = CONNECTIONS_LIMIT
    handshake_seconds: float = HANDSHAKE_SECONDS


class Gate:
    """The bounds and the TLS of a server's connections, for a plain listener.

    Args:
        context: with the server's certificate.
        limits: the bounds.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        limits: Limits | None = None,
    ) -> None:
        self._context = context
        self._limits = limits or Limits()
        # The connections that may have to give way, by their raw or TLS transport, the longest silent first.
        self._open: OrderedDict[asyncio.BaseTransport, _Arrival] = OrderedDict()
        self._arrivals: set[_Arrival] = set()

    def wrap(self, factory: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        """Return the protocol factory of the listener; the protocols of `factory` get the decrypted connections."""
        return functools.partial(_Arrival, self, factory)

    def __len__(self) -> int:
        """Return the number of open connections, those in a handshake included."""
        return len(self._arrivals)

    def touch(self, transport: asyncio.BaseTransport | None) -> None:
        """Note that a connection was useful: all others give way before it."""
        if transport is not None and transport in self._open:
            self._open.move_to_end(transport)

    def keep(self, transport: asyncio.BaseTransport | None) -> None:
        """Let a connection never give way: its client is authenticated."""
        if transport is not None:
            self._open.pop(transport, None)

    def close(self) -> None:
        """Abort the connections in a handshake; the server closes the open ones."""
        for arrival in tuple(self._arrivals):
            arrival.give_up()

    def admit(self, arrival: "_Arrival", raw: asyncio.Transport) -> None:
        """Count a new connection; the longest silent one gives way if there are too many."""
        while len(self._open) >= self._limits.connections:
            _, oldest = self._open.popitem(last=False)
            self.forget(oldest)
            oldest.abort()
        self._arrivals.add(arrival)
        self._open[raw] = arrival

    def promote(self, arrival: "_Arrival", raw: asyncio.BaseTransport, tls: asyncio.BaseTransport) -> None:
        """Know a connection by its TLS transport from now on, which is the one that its server sees."""
        if self._open.pop(raw, None) is not None:
            self._open[tls] = arrival

    def forget(self, arrival: "_Arrival") -> None:
        """Drop a connection that has ended."""
        self._arrivals.discard(arrival)
        for transport in (arrival.raw, arrival.tls):
            if transport is not None:
                self._open.pop(transport, None)

    async def upgrade(self, raw: asyncio.Transport, threshold: "_Threshold") -> asyncio.Transport | None:
        """Run the handshake; return the TLS transport, or None if there is none."""
        try:
            return await asyncio.get_running_loop().start_tls(
                raw,
                threshold,
                self._context,
                server_side=True,
                ssl_handshake_timeout=self._limits.handshake_seconds,
                ssl_shutdown_timeout=CLOSE_SECONDS,
            )
        except OSError:
            # That is SSLError, ConnectionError or TimeoutError: the caller spoke no TLS, or left before the
            # end.
            return None


class _Arrival(asyncio.Protocol):
    """One connection from its first byte to its end."""

    def __init__(self, gate: Gate, factory: Callable[[], asyncio.Protocol]) -> None:
        self._gate = gate
        self._factory = factory
        self._task: asyncio.Task[None] | None = None
        self.raw: asyncio.Transport | None = None
        self.tls: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        assert isinstance(transport, asyncio.Transport)
        self.raw = transport
        # Nothing is read before the handshake has a reader for it.
        transport.pause_reading()
        self._gate.admit(self, transport)
        self._task = asyncio.get_running_loop().create_task(self._shake(transport), name="tls-handshake")

    def abort(self) -> None:
        """End the connection at once."""
        self.give_up()
        if self.raw is not None:
            self.raw.abort()

    def give_up(self) -> None:
        """End the handshake, if it goes on."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            if self.raw is not None:
                self.raw.abort()

    async def _shake(self, raw: asyncio.Transport) -> None:
        threshold = _Threshold(lambda: self._gate.forget(self))
        handed_over = False
        try:
            tls = await self._gate.upgrade(raw, threshold)
            if tls is not None and not threshold.lost:
                self.tls = tls
                self._gate.promote(self, raw, tls)
                threshold.hand_over(tls, self._factory())
                handed_over = True
        finally:
            if not handed_over:
                self._gate.forget(self)
                raw.abort()


class _Threshold(asyncio.Protocol):
    """The receiver of the bytes that arrive with the end of a handshake; later it only forwards.

    `start_tls` may deliver such bytes before it returns, when the server's protocol has no transport yet.
    """

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._early = bytearray()
        self._has_ended = False
        self._inner: asyncio.Protocol | None = None
        self.lost = False

    def hand_over(self, tls: asyncio.Transport, inner: asyncio.Protocol) -> None:
        """Give the connection, and all that has come, to the server's protocol."""
        self._inner = inner
        inner.connection_made(tls)
        if self._early:
            inner.data_received(bytes(self._early))
            self._early.clear()
        if self._has_ended:
            inner.eof_received()
            tls.close()

    def data_received(self, data: bytes) -> None:
        """Forward the bytes, or keep them for the moment."""
        if self._inner is not None:
            self._inner.data_received(data)
        else:
            # One turn of the loop at most, so no more than the buffer of TLS.
            self._early += data

    def eof_received(self) -> None:
        """Forward the end, or keep it for the moment. TLS has no half-open connections, so it closes in any case."""
        if self._inner is not None:
            self._inner.eof_received()
        self._has_ended = True

    def pause_writing(self) -> None:
        """Forward."""
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Forward."""
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forward, and count the connection no longer."""
        self.lost = True
        self._ended()
        if self._inner is not None:
            self._inner.connection_lost(exc)
