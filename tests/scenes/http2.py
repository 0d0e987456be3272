"""A client and a server of HTTP/2 that send raw frames, as no library lets one (RFC 9113, RFC 7541)."""

import itertools
import select
import socket
import struct
import threading
import time
from pathlib import Path

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
BATCH_BYTES = 1 << 16


def frame(kind, *, flags=0, stream=0, payload=b""):
    """Return the bytes of one frame."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def make_literal_header(name, value):
    """Return a header field that is not indexed; name and value have at most 126 bytes."""
    return bytes([0, len(name)]) + name + bytes([len(value)]) + value


def call(path=b"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"):
    """Return the header block of a gRPC call."""
    fields = ((b":authority", b"localhost"), (b"content-type", b"application/grpc"), (b"te", b"trailers"))
    return (
        b"\x83\x86"
        b"\x04" + bytes([len(path)]) + path + b"".join(make_literal_header(*field) for field in fields)
    )


def repeat_frames(*frames):
    """Yield the same frames forever, in batches."""
    one = b"".join(frames)
    batch = one * max(1, BATCH_BYTES // len(one))
    while True:
        yield batch


def repeat_on_stream(*frames):
    """Open one stream, and repeat frames on it forever."""
    yield frame(HEADERS, flags=END_HEADERS, stream=1, payload=call())
    yield from repeat_frames(*frames)


def each_stream(make):
    """Yield what `make` returns for one new stream after the other, in batches."""
    streams = iter(range(1, 1 << 31, 2))
    while batch := b"".join(make(stream) for stream in itertools.islice(streams, 512)):
        yield batch


def _rapid_reset(stream):
    headers = frame(HEADERS, flags=END_HEADERS, stream=stream, payload=call())
    return headers + frame(RST_STREAM, stream=stream, payload=struct.pack(">I", 8))


def _endless_headers():
    yield frame(HEADERS, stream=1, payload=call())
    yield from repeat_frames(frame(CONTINUATION, stream=1, payload=make_literal_header(b"x", b"y" * 100) * 8))


FLOODS = {
    "pings": lambda: repeat_frames(frame(PING, payload=bytes(8))),
    "pongs": lambda: repeat_frames(frame(PING, flags=ACK, payload=bytes(8))),
    "settings": lambda: repeat_frames(frame(SETTINGS, payload=struct.pack(">HI", 4, 65535))),
    "priorities": lambda: repeat_frames(frame(PRIORITY, stream=1, payload=bytes(5))),
    "windows": lambda: repeat_on_stream(frame(WINDOW_UPDATE, stream=1, payload=struct.pack(">I", 1))),
    "empty-data": lambda: repeat_on_stream(frame(DATA, stream=1)),
    "empty-continuations": lambda: itertools.chain(
        [frame(HEADERS, stream=1, payload=call())], repeat_frames(frame(CONTINUATION, stream=1))
    ),
    "endless-headers": _endless_headers,
    "rapid-reset": lambda: each_stream(_rapid_reset),
    "open-streams": lambda: each_stream(
        lambda stream: frame(HEADERS, flags=END_HEADERS, stream=stream, payload=call())
    ),
    "unknown-frames": lambda: repeat_frames(frame(0xEE, payload=bytes(8))),
}
"""What a client may flood a server with; each makes an endless iterator of bytes."""


class Flood:
    """A hostile client in a thread of its own: it sends as fast as it can, and connects again when it is hung up on.

    Attributes:
        connections: how many it has opened.
        sent: how many bytes it has sent.
    """

    def __init__(self, path, flood):
        self._path, self._flood = str(path), flood
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flood", daemon=True)
        self.connections = self.sent = 0

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopped.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _run(self):
        while not self._stopped.is_set():
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(0.2)
                try:
                    connection.connect(self._path)
                    self.connections += 1
                    self._send(connection)
                except TimeoutError:
                    # The server reads no more of this connection.
                    continue
                except OSError:
                    # Hung up on; a hostile client comes again at once, within the rate of a busy one.
                    self._stopped.wait(0.01)

    def _send(self, connection):
        connection.sendall(PREFACE + frame(SETTINGS))
        for batch in self._flood():
            if self._stopped.is_set():
                return
            connection.sendall(batch)
            self.sent += len(batch)
            self._drop_answers(connection)

    @staticmethod
    def _drop_answers(connection):
        while select.select([connection], [], [], 0)[0]:
            if not connection.recv(1 << 16):
                raise ConnectionResetError


class Usage:
    """The processor time and the memory of a process since this was made."""

    def __init__(self, pid):
        self._folder = Path("/proc") / str(pid)
        self._began, self._cpu, self._resident = time.monotonic(), self._read_cpu(), self._read_resident()

    @property
    def cores(self):
        """The share of a core that it used."""
        return (self._read_cpu() - self._cpu) / (time.monotonic() - self._began)

    @property
    def grown_bytes(self):
        """How much its memory grew."""
        return self._read_resident() - self._resident

    @property
    def descriptors(self):
        """How many files it has open."""
        return sum(1 for _ in (self._folder / "fd").iterdir())

    def _read_cpu(self):
        fields = (self._folder / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def _read_resident(self):
        return int((self._folder / "statm").read_text().split()[1]) * 4096


class HostileServer:
    """A server of HTTP/2 in threads of its own that answers every connection with the same frames.

    Args:
        path: of its UNIX socket.
        answer: makes an iterator of bytes, sent once the client's first bytes have come.
    """

    def __init__(self, path, answer):
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._listener.settimeout(0.1)
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._accept, name="hostile", daemon=True)]
        self.connections = 0

    def __enter__(self):
        self._threads[0].start()
        return self

    def __exit__(self, *_):
        self._stopped.set()
        for thread in self._threads:
            thread.join(30)
        self._listener.close()

    def _accept(self):
        while not self._stopped.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(connection,), name="hostile", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection):
        connection.settimeout(0.2)
        with connection:
            try:
                connection.sendall(frame(SETTINGS) + frame(SETTINGS, flags=ACK))
                for batch in self._answer():
                    self._send(connection, batch)
                while not self._stopped.is_set():
                    self._drop(connection)
                    self._stopped.wait(0.01)
            except OSError:
                return

    def _send(self, connection, batch):
        while not self._stopped.is_set():
            self._drop(connection)
            if select.select([], [connection], [], 0.05)[1]:
                connection.sendall(batch)
                return
        raise ConnectionAbortedError

    @staticmethod
    def _drop(connection):
        while select.select([connection], [], [], 0)[0]:
            if not connection.recv(1 << 16):
                raise ConnectionResetError


def _headers(*fields, flags=END_HEADERS):
    """Return a response head of status 200 with further fields."""
    fields = ((b"content-type", b"application/grpc"), *fields)
    return frame(
        HEADERS,
        flags=flags,
        stream=1,
        payload=b"\x88" + b"".join(make_literal_header(*field) for field in fields),
    )


ANSWERS = {
    "nothing": lambda: iter(()),
    "pings": lambda: repeat_frames(frame(PING, payload=bytes(8))),
    "settings": lambda: repeat_frames(frame(SETTINGS, payload=struct.pack(">HI", 4, 65535))),
    "goaway": lambda: iter((frame(GOAWAY, payload=bytes(8)),)),
    "goaways": lambda: repeat_frames(frame(GOAWAY, payload=bytes(8))),
    "a stream that never ends": lambda: iter((_headers(),)),
    "empty data": lambda: itertools.chain([_headers()], repeat_frames(frame(DATA, stream=1))),
    "huge headers": lambda: iter((_headers(*[(b"x", b"y" * 100)] * 150),) * 8),
    "endless headers": lambda: itertools.chain(
        [_headers(flags=0)],
        repeat_frames(frame(CONTINUATION, stream=1, payload=make_literal_header(b"x", b"y" * 100) * 8)),
    ),
    "huge message": lambda: itertools.chain(
        [_headers(), frame(DATA, stream=1, payload=b"\x00\xff\xff\xff\xff" + bytes(100))],
        repeat_frames(frame(DATA, stream=1, payload=bytes(16000))),
    ),
    "pushes": lambda: repeat_frames(
        frame(PUSH, flags=END_HEADERS, stream=1, payload=struct.pack(">I", 2) + call())
    ),
    "no frames": lambda: repeat_frames(b"HTTP/1.1 200 OK\r\n\r\n"),
}
"""What a server may answer a gRPC client with; each makes an iterator of bytes."""
