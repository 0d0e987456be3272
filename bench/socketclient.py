"""A gRPC client of one call at a time, as thin as can be: what is timed is the daemon, not a client library.

The kubelet's own client is written in Go. What Python's adds to each call, on the cores that the daemon runs on, the
benchmark shows beside.

Source: RFC 9113 (HTTP/2 frames), RFC 7541 section 6.2.2 (literal header fields), gRPC over HTTP/2 (PROTOCOL-HTTP2.md).
"""

from __future__ import annotations

import socket
import struct
from typing import Any, Self

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM = ACK = 1
END_HEADERS = 4
INITIAL_WINDOW_SIZE = 4
WINDOW = 1 << 30
SECONDS = 45.0


class Client:
    """A connection to a UNIX socket, to be closed by leaving it."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(SECONDS)
        self._socket.connect(path)
        self._received = bytearray()
        self._stream = 1
        # Windows that no answer fills, so that none has to be given back.
        settings = _frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, WINDOW))
        self._socket.sendall(PREFACE + settings + _frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, method: str, request: Any, answer: Any) -> Any:
        """Send the message to `/service/method` and wait for one of type `answer`.

        Raises:
            SystemExit: the server refused.
        """
        message = request.SerializeToString()
        stream, self._stream = self._stream, self._stream + 2
        body = b"\0" + struct.pack(">I", len(message)) + message
        self._socket.sendall(
            _frame(HEADERS, END_HEADERS, stream, _headers(method)) + _frame(DATA, END_STREAM, stream, body)
        )
        data = b""
        while True:
            kind, flags, where, payload = self._frame()
            if kind == SETTINGS and not flags & ACK:
                self._socket.sendall(_frame(SETTINGS, ACK, 0, b""))
            elif kind == PING and not flags & ACK:
                self._socket.sendall(_frame(PING, ACK, 0, payload))
            elif kind in (RST_STREAM, GOAWAY):
                raise SystemExit(f"the server ended {method} with an HTTP/2 frame of type {kind}")
            elif kind == DATA and where == stream:
                data += payload
            if where == stream and kind in (DATA, HEADERS) and flags & END_STREAM:
                if not data:
                    raise SystemExit(f"the server refused {method}")
                return answer.FromString(data[5:])

    def _frame(self) -> tuple[int, int, int, bytes]:
        head = self._take(9)
        length = int.from_bytes(head[:3], "big")
        return head[3], head[4], int.from_bytes(head[5:], "big"), self._take(length)

    def _take(self, count: int) -> bytes:
        while len(self._received) < count:
            more = self._socket.recv(65536)
            if not more:
                raise SystemExit("the server closed the connection")
            self._received += more
        taken = bytes(self._received[:count])
        del self._received[:count]
        return taken


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _headers(method: str) -> bytes:
    held = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
        "grpc-timeout": f"{SECONDS:.0f}S",
    }
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in held.items())


def _text(value: str) -> bytes:
    return bytes((len(value),)) + value.encode()
