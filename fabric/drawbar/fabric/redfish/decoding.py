"""Answers of a Redfish service as values, in every compression, mark and form of refusal; pure except for the date.

DSP0266 asks for JSON in UTF-8. Services send gzip unasked, byte order marks, and refusals as text or as a page of
HTML.
"""

import datetime
import email.utils
import re
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from drawbar.fabric import budget
from drawbar.fabric.redfish import documents

_MARK = b"\xef\xbb\xbf"
_STEP_BYTES = 64 * 1024
# The most bytes read of a refusal.
_REFUSAL_BYTES = 64 * 1024
_TITLE = re.compile(rb"<title[^>]*>([^<]{1,1000})</title>", re.IGNORECASE)
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


class Damaged(ValueError):
    """A compressed answer that cannot be unpacked."""


def unpack(raw: bytes | bytearray, headers: Mapping[str, str], listing: budget.Listing) -> bytes:
    """Return the body without its `Content-Encoding`; what it unpacks to counts in the listing.

    Raises:
        Damaged: it cannot be unpacked, or has an encoding that was not asked for.
        FabricError: it is larger than the listing permits.
    """
    content = bytes(raw)
    for encoding in reversed(
        [name.strip().casefold() for name in headers.get("Content-Encoding", "").split(",")]
    ):
        if encoding in ("", "identity"):
            continue
        if encoding not in ("gzip", "x-gzip", "deflate"):
            raise Damaged(encoding)
        content = _inflated(content, encoding, listing)
    return content


def _inflated(content: bytes, encoding: str, listing: budget.Listing) -> bytes:
    # Deflate is zlib's format (RFC 9110, section 8.4.1.2), and without its header where a service got that wrong.
    windows = (zlib.MAX_WBITS, -zlib.MAX_WBITS) if encoding == "deflate" else (zlib.MAX_WBITS | 16,)
    for window in windows:
        stream, made, rest = zlib.decompressobj(window), bytearray(), content
        try:
            while rest and not stream.eof:
                part = stream.decompress(rest, _STEP_BYTES)
                listing.count(budget.Counted.BYTES, len(part))
                made += part
                rest = stream.unconsumed_tail
        except zlib.error:
            continue
        if stream.eof:
            listing.count(budget.Counted.VALUES, made.count(b",") + made.count(b"{") + made.count(b"["))
            return bytes(made)
    raise Damaged(encoding)


def json_object(raw: bytes) -> documents.Json | None:
    """Return the object in an answer, an empty object for an empty answer, or None for another value."""
    content = raw.removeprefix(_MARK)
    if not content.strip():
        return {}
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def refusal(raw: bytes) -> documents.Json:
    """Return the body of a refusal as an object; words in another form become its `message`.

    Services answer with a JSON string, with plain text, or with a page and the reason in its title.
    """
    content = raw[:_REFUSAL_BYTES].removeprefix(_MARK).strip()
    try:
        decoded = msgspec.json.decode(content)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        title = _TITLE.search(content)
        is_page = content.startswith(b"<")
        decoded = (
            title[1].decode(errors="replace")
            if title
            else ""
            if is_page
            else content.decode(errors="replace")
        )
    if isinstance(decoded, dict):
        return decoded
    return {"message": decoded} if isinstance(decoded, str) else {}


def retry_after_seconds(header: str | None, now: datetime.datetime | None = None) -> float | None:
    """Return the seconds of a Retry-After header, counted from now for a date, or None if it is not readable."""
    if header is None:
        return None
    if _SECONDS.fullmatch(header.strip()):
        return float(header)
    try:
        moment = email.utils.parsedate_to_datetime(header)
    except (ValueError, TypeError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return max(0.0, (moment - (now or datetime.datetime.now(datetime.UTC))).total_seconds())
