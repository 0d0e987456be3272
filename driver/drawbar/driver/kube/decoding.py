"""What an API server answers: bodies read in bounded memory, and decoded into structs, however deeply a value is nested.

Nothing here trusts the size of an answer: the body of a watch has no end, and what stands in an object is anybody's to
write. Every failure of a connection comes out of aiohttp as one of `FAILURES`.

An API server writes null for an empty list whose field has no `omitempty` in its type, as `status.devices` of a
claim without conditions, or a ResourceSlice of 1.34 without devices. Such a list is read as empty.

An API server takes JSON of 10,000 levels, and opaque parameters are anybody's to write; the decoder gives up at as many
levels as Python has frames, 1,000, even in what is passed over. One such object must not end a daemon, nor keep it from
reading all others. So what is nested too deeply is read as null: nothing of our own is nested so, and whoever looks at
the parameters finds them wrong. What can be read and is too deep to be compared is left out by `api.claims`.
"""

import re
from collections.abc import AsyncIterator
from typing import TypeVar

import aiohttp
import msgspec
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
"""All that aiohttp raises for a connection or an answer; TimeoutError is an OSError."""


class TooLarge(Exception):
    """There is more of it than is read."""


async def whole(content: aiohttp.StreamReader) -> bytes:
    """The whole body.

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
    """The lines of a body as they come, and what stands after the last of them.

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


T = TypeVar("T")

LEVELS_MAX = 100
# The lists without `omitempty` in what is read here. Within a string a quotation mark is escaped, so nothing there is taken.
_NULL = re.compile(rb'("(?:conditions|devices|items|nodeSelectorTerms|requests)":\s*)null\b')
# As far as the next run of brackets that open or close, over strings and all else: a body of megabytes has few of them.
# Possessive: to go back on a string of a megabyte would cost 120 bytes of memory for each escaped character.
_RUN = re.compile(
    rb'(?:[^\[\]{}"]++|"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z))*+(?:(?P<open>[\[{]+)|(?P<close>[\]}]+)|\Z)',
    re.DOTALL,
)


def decode(body: bytes | bytearray | msgspec.Raw, into: type[T]) -> T:
    """The object in `body`; beyond `LEVELS_MAX` levels it may be cut.

    Raises:
        msgspec.MsgspecError: it is something else.
    """
    try:
        return msgspec.json.decode(body, type=into)
    except (RecursionError, msgspec.ValidationError):
        # By the text, for an object may be of 8 MiB, and a tenant's: as Python's objects it would take seconds.
        text = _NULL.sub(rb"\1[]", bytes(body))
    try:
        return msgspec.json.decode(text, type=into)
    except RecursionError:
        return msgspec.json.decode(_shallow(text), type=into)


def _shallow(body: bytes) -> bytes:
    """The same JSON with null for each value beyond `LEVELS_MAX` levels."""
    kept: list[bytes] = []
    level, begin = 0, 0
    for run in _RUN.finditer(body):
        if run["open"]:
            if level <= LEVELS_MAX < level + len(run["open"]):
                kept += [body[begin : run.start("open") + LEVELS_MAX - level], b"null"]
                # Until its end is found: where there is none, all of the rest goes.
                begin = len(body)
            level += len(run["open"])
        elif run["close"]:
            level -= len(run["close"])
            if level <= LEVELS_MAX < level + len(run["close"]):
                begin = run.end() - (LEVELS_MAX - level)
    return b"".join((*kept, body[begin:]))
