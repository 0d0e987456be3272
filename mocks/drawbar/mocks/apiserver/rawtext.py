r"""Text that is no Unicode, as a Go API server takes it: kept as it is in raw values, replaced by U+FFFD everywhere else.

Opaque parameters and the data of a device's status are raw: an API server stores their bytes, and sends them again. There
an unpaired surrogate (``"\ud800"``) stays an escape, and a byte that is no UTF-8 stays that byte. Meanwhile private
characters stand for both, which no client uses.
"""

from __future__ import annotations

import re
from typing import Any

_BYTE, _HALF = 0x10F000, 0x10E000
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(rb"(?<!\\)((?:\\\\)*)(?:(%b%b)|(\\u[dD][89a-fA-F][0-9a-fA-F]{2}))" % (_HIGH, _LOW))
_INVALID = re.compile("[\udc80-\udcff]")
_STAND_INS = re.compile("[\U0010e000-\U0010f0ff]")
_ENCODED = re.compile(rb"\xf4\x8e[\x80-\xbf][\x80-\xbf]|\xf4\x8f[\x80-\x83][\x80-\xbf]")


def insert_stand_ins(body: bytes) -> bytes:
    """Return JSON with a private character in place of each unpaired surrogate and of each byte that is no UTF-8."""
    text = _ESCAPE.sub(_encode_half, body).decode(errors="surrogateescape")
    return _INVALID.sub(lambda match: chr(_BYTE + ord(match[0]) - 0xDC00), text).encode()


def restore_raw_text(body: bytes) -> bytes:
    """Return JSON with the text again that the private characters stand for."""
    return _ENCODED.sub(_restore_original, body)


def drop_stand_ins(value: Any, *, raw: bool = False) -> Any:
    """Return a decoded value with U+FFFD for each private character outside raw values."""
    if isinstance(value, str):
        return value if raw else _STAND_INS.sub("\ufffd", value)
    if isinstance(value, list):
        return [drop_stand_ins(entry, raw=raw) for entry in value]
    if isinstance(value, dict):
        has_raw = {"driver", "parameters"} <= value.keys() or {"driver", "pool", "data"} <= value.keys()
        return {
            drop_stand_ins(key, raw=raw): drop_stand_ins(
                entry, raw=raw or (has_raw and key in ("parameters", "data"))
            )
            for key, entry in value.items()
        }
    return value


def _encode_half(match: re.Match[bytes]) -> bytes:
    if match[2]:
        return match[0]
    number = int.from_bytes(bytes.fromhex(match[3][2:].decode()))
    return match[1] + chr(_HALF + number - 0xD800).encode()


def _restore_original(match: re.Match[bytes]) -> bytes:
    number = ord(match[0].decode())
    return bytes([number - _BYTE]) if number >= _BYTE else b"\\u%04x" % (number - _HALF + 0xD800)
