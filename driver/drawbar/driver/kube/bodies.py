"""Answers of an API server, read in bounded memory.

The size of an answer is not trusted: the body of a watch has no end, and anyone may write large objects. Every
failure of a connection comes out of aiohttp as one of `FAILURES`.
"""

from collections.abc import AsyncIterator

import aiohttp
from aiohttp import http_exceptions

LIMIT_BYTES = 16 * 1024 * 1024
"""Of one object, and of a page of objects.

etcd stores objects of 1.5 MiB, and the API server sends it no more than 2 MiB whatever etcd's limit is. JSON needs six bytes
for each `<`, `>`, `&` and control character of a string (`\\u003c`): 12 MiB, and the names of the fields.
"""

FAILURES: tuple[type[Exception], ...] = (
    aiohttp.ClientError,
    # Not a ClientError, and yet raised for some answers that break the protocol.
    http_exceptions.HttpProcessingError,
    EOFError,
    OSError,
    ValueError,
)
"""All errors of aiohttp for a connection or an answer; TimeoutError is an OSError."""


class TooLarge(Exception):
    """A body is larger than the limit."""


async def read_whole(content: aiohttp.StreamReader) -> bytes:
    """Return the whole body.

    Raises:
        TooLarge: the body is longer than `LIMIT_BYTES`.
    """
    chunks, size = [], 0
    async for chunk in content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > LIMIT_BYTES:
            raise TooLarge
    return b"".join(chunks)


async def lines(content: aiohttp.StreamReader) -> AsyncIterator[bytearray]:
    """Yield the lines of a body as they arrive, and at the end the text after the last line.

    Raises:
        TooLarge: a line is longer than `LIMIT_BYTES`.
    """
    line = bytearray()
    async for chunk in content.iter_any():
        first, *rest = chunk.split(b"\n")
        line += first
        for other in rest:
            if len(line) > LIMIT_BYTES:
                break
            yield line
            line = bytearray(other)
        if len(line) > LIMIT_BYTES:
            raise TooLarge
    if line:
        yield line
