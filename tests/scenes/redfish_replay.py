"""Serves a transcript of `drawbar fabric record`, on loopback.

A change is answered once, by the next exchange with its method and URI. A read gets the last recorded answer before
the next change, so the order of reads does not matter. Bodies of requests are not compared, and there are no events.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
from aiohttp import web

from drawbar.fabric.redfish import masking, transcripts

_CHANGES = frozenset({"POST", "PATCH", "DELETE"})


class Replay:
    """The service.

    Attributes:
        url: the URL of the service.
        left: changes of the transcript that were not requested yet.
        ended: set when the service stops, which ends unanswered requests.
    """

    def __init__(self, transcript: transcripts.Transcript) -> None:
        self.url = ""
        self.ended = asyncio.Event()
        self._exchanges = transcript.exchanges
        self.left = [position for position, entry in enumerate(self._exchanges) if entry.method in _CHANGES]

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request."""
        exchange = self._next(request.method, request.rel_url.raw_path_qs)
        if exchange is None:
            return web.json_response({"error": {"message": "not in the transcript"}}, status=404)
        if exchange.failure == "stall":
            await self.ended.wait()
        if exchange.failure and request.transport is not None:
            request.transport.abort()
            return web.Response()
        body = exchange.text.encode() if exchange.answer is None else msgspec.json.encode(exchange.answer)
        headers = {name: self._local(value) for name, value in exchange.headers.items()}
        return web.Response(status=exchange.status, headers=headers, body=self._local(body.decode()).encode())

    def _next(self, method: str, uri: str) -> transcripts.Exchange | None:
        positions = [
            position
            for position, entry in enumerate(self._exchanges)
            if (entry.method, entry.uri) == (method, uri)
        ]
        if method in _CHANGES:
            position = next((position for position in positions if position in self.left), None)
            if position is not None:
                self.left.remove(position)
            return None if position is None else self._exchanges[position]
        following = self.left[0] if self.left else len(self._exchanges)
        before = [position for position in positions if position < following]
        chosen = before[-1:] or positions[:1]
        return self._exchanges[chosen[0]] if chosen else None

    def _local(self, text: str) -> str:
        return text.replace(masking.ORIGIN, self.url)


@contextlib.asynccontextmanager
async def replaying(transcript: transcripts.Transcript) -> AsyncIterator[Replay]:
    """Serve until the block is left, at a port of the kernel's choice."""
    replay = Replay(transcript)
    runner = web.ServerRunner(web.Server(replay.handle, access_log=None), shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        replay.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield replay
    finally:
        replay.ended.set()
        await runner.cleanup()
