"""What an API server answers, read into structs, with null for an empty list, and however deep somebody nested a value.

An API server writes null for an empty list or map whose field has no `omitempty` in its type, as `status.devices` of a
claim without conditions, or a ResourceSlice of 1.34 without devices. Such a field is read as absent.

An API server takes JSON of 10,000 levels, and opaque parameters are anybody's to write; the decoder gives up at as many
levels as Python has frames, 1,000, even in what is passed over. One such object must not end a daemon, nor keep it from
reading all others. So what is nested too deeply is read as null: nothing of our own is nested so, and whoever looks at
the parameters finds them wrong. What can be read and is too deep to be compared is left out by `api.claims`.
"""

import re
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

LEVELS_MAX = 100
OPAQUE = "parameters"
# Possessive: to go back on a string of a megabyte would cost 120 bytes of memory for each escaped character.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)


def decode(body: bytes | bytearray | msgspec.Raw, into: type[T]) -> T:
    """The object in `body`; beyond `LEVELS_MAX` levels it may be cut.

    Raises:
        msgspec.MsgspecError: it is something else.
    """
    try:
        return msgspec.json.decode(body, type=into)
    except (RecursionError, msgspec.ValidationError):
        present = _without_nulls(msgspec.json.decode(_shallow(bytes(body))))
        return msgspec.json.decode(msgspec.json.encode(present), type=into)


def _without_nulls(value: Any) -> Any:
    """The value without keys that are null; opaque parameters are their driver's, to whom null may mean something."""
    if isinstance(value, list):
        return [_without_nulls(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: one if key == OPAQUE else _without_nulls(one) for key, one in value.items() if one is not None
    }


def _shallow(body: bytes) -> bytes:
    """The same JSON with null for each value beyond `LEVELS_MAX` levels."""
    kept: list[bytes] = []
    level, begin = 0, 0
    for token in _TOKEN.finditer(body):
        if token[0] in b"[{":
            level += 1
            if level == LEVELS_MAX + 1:
                kept += [body[begin : token.start()], b"null"]
                # Until its end is found: where there is none, all of the rest goes.
                begin = len(body)
        elif token[0] in b"]}":
            if level == LEVELS_MAX + 1:
                begin = token.end()
            level -= 1
    return b"".join((*kept, body[begin:]))
