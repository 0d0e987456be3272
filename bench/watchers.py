"""A process full of watchers: ``python bench/watchers.py PORT TOKEN PATH VERSION COUNT``.

Every event that carries ``sent=NANOSECONDS`` (of the monotonic clock, which all processes of a Linux machine share)
is timed from there until its last byte was read.  Prints ``ready`` once all watches are open; when standard input
closes it prints one JSON object with the latencies in milliseconds, and ends.
"""

from __future__ import annotations

import array
import asyncio
import functools
import json
import re
import sys
import time

_SENT = re.compile(rb"sent=(\d+)")


class Watcher(asyncio.Protocol):
    """One watch on a connection of its own."""

    def __init__(self, request: bytes, latencies: array.array[float], opened: asyncio.Future[None]) -> None:
        self._request = request
        self._latencies = latencies
        self._opened = opened
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        if not self._opened.done():
            if not data.startswith(b"HTTP/1.1 200"):
                self._opened.set_exception(ConnectionError(data[:200].decode(errors="replace")))
                return
            self._opened.set_result(None)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            stamps = [int(stamp) for stamp in _SENT.findall(line)]
            if stamps:
                self._latencies.append((now - max(stamps)) / 1e6)


async def run(port: int, token: str, path: str, version: str, count: int) -> None:
    """Open the watches, and wait for the end of standard input."""
    loop = asyncio.get_running_loop()
    latencies: array.array[float] = array.array("d")
    request = (
        f"GET {path}?watch=true&resourceVersion={version} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {token}\r\n\r\n"
    ).encode()
    transports = []
    for _ in range(count):
        opened: asyncio.Future[None] = loop.create_future()
        transport, _ = await loop.create_connection(
            functools.partial(Watcher, request, latencies, opened), "127.0.0.1", port
        )
        transports.append(transport)
        async with asyncio.timeout(30):
            await opened
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for transport in transports:
        transport.abort()
    print(json.dumps({"latencies": list(latencies)}), flush=True)


if __name__ == "__main__":
    asyncio.run(run(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5])))
