"""What an API server answers, read into structs, with null for an empty list, and however deep somebody nested a value.

An API server writes null for an empty list whose field has no `omitempty` in its type, as `status.devices` of a
claim without conditions, or a ResourceSlice of 1.34 without devices. Such a list is read as empty.

An API server takes JSON of 10,000 levels, and opaque parameters are anybody's to write; the decoder gives up at as many
levels as Python has frames, 1,000, even in what is passed over. One such object must not end a daemon, nor keep it from
reading all others. So what is nested too deeply is read as null: nothing of our own is nested so, and whoever looks at
the parameters finds them wrong. What can be read and is too deep to be compared is left out by `api.claims`.
"""

import re
from typing import TypeVar

import msgspec

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
