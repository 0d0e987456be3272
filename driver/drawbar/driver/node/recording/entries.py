"""What a recorded tree consists of, and its form as JSON.

A snapshot is one JSON object: path, beginning with /sys/, to one of `{"text", "mode"}` or `{"b64", "mode"}` (content),
`{"link"}` (target), `{"mode", "size"}` (there, and not read), `{"errno"}` (the kernel refused), `{"folder": true}`
(an empty one; others are implied).
"""

import base64
import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A file that was read; `mode` are its permission bits."""

    data: bytes
    mode: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A symbolic link, as it says."""

    target: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A file that is there and was not read: it can only be written, or reading it is not known to be harmless."""

    mode: int
    size: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A file or directory that could not be read; `number` is the errno."""

    number: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A directory with nothing recorded in it."""


Entry = Content | Link | Unread | Refused | Folder


def encoded(entry: Entry) -> dict[str, Any]:
    """The entry as it stands in a snapshot."""
    match entry:
        case Content(data=data, mode=mode):
            text = _text(data)
            if text is None:
                return {"mode": oct(mode), "b64": base64.b64encode(data).decode()}
            return {"mode": oct(mode), "text": text}
        case Link(target=target):
            return {"link": target}
        case Unread(mode=mode, size=size):
            return {"mode": oct(mode), "size": size}
        case Refused(number=number):
            return {"errno": number}
        case Folder():
            return {"folder": True}


def _text(data: bytes) -> str | None:
    """Text, unless there are NULs: JSON needs six bytes for each."""
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
