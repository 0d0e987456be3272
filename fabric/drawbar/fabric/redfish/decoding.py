"""Answers of a Redfish service as values, in every compression, mark and form of refusal; pure except for the date.

DSP0266 asks for JSON in UTF-8. Services send gzip unasked, byte order marks, and refusals as text or as a page of
HTML. Names that firmware copies from a device bring bytes that are no UTF-8, or control characters.
"""

import datetime
import email.utils
import html
import json
import re
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from drawbar.fabric import budget
from drawbar.fabric.redfish import documents

_MARK = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
# Marks of other encodings, longest first.
_MARKS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
# Named in the Content-Type of services that send no UTF-8.
_CHARSETS = {
    "iso-8859-1": "latin-1",
    "latin1": "latin-1",
    "us-ascii": "latin-1",
    "utf-16": "utf-16",
    "utf-16be": "utf-16-be",
    "utf-16le": "utf-16-le",
    "windows-1252": "cp1252",
}
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9_-]{1,40})", re.IGNORECASE)
_STEP_BYTES = 64 * 1024
# White space and padding around a body.
_AROUND = b" \t\r\n\0"
# The most bytes read of a refusal.
_REFUSAL_BYTES = 64 * 1024
# The most bytes of a page or of XML whose text is shown without its marks.
_MARKED_BYTES = 4096
_MARKUP = re.compile(rb"<[^>]*>")
_SCRIPT = re.compile(rb"<(?:script|style)", re.IGNORECASE)
_TITLE = re.compile(rb"<title[^>]*>([^<]{1,1000})</title>", re.IGNORECASE)
# The halves of a character beyond 16 bits; one alone is none.
_SURROGATES = re.compile(
    r"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


class Damaged(ValueError):
    """A compressed answer that cannot be unpacked."""


def unpack(raw: bytes | bytearray, headers: Mapping[str, str], listing: budget.Listing) -> bytes:
    """Return the body without its `Content-Encoding`; its unpacked bytes count in the listing.

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
        if content.removeprefix(_MARK).lstrip()[:1] == b"{":
            # Some services name an encoding, or a character set in its place, and send plain JSON.
            continue
        if encoding not in ("gzip", "x-gzip", "deflate"):
            raise Damaged(encoding)
        content = _inflate(content, encoding, listing)
    # A proxy may drop the header. No JSON begins so.
    return _inflate(content, "gzip", listing) if content.startswith(_GZIP) else content


def _inflate(content: bytes, encoding: str, listing: budget.Listing) -> bytes:
    # Deflate is zlib's format (RFC 9110, section 8.4.1.2), and without its header where a service got that wrong.
    windows = (zlib.MAX_WBITS, -zlib.MAX_WBITS) if encoding == "deflate" else (zlib.MAX_WBITS | 16,)
    for window in windows:
        stream, made, rest = zlib.decompressobj(window), bytearray(), content
        try:
            while rest:
                part = stream.decompress(rest, _STEP_BYTES)
                listing.count(budget.Counted.BYTES, len(part))
                made += part
                rest = stream.unconsumed_tail
                # A file of gzip may have several members (RFC 1952, section 2.2).
                if stream.eof and encoding != "deflate" and stream.unused_data.startswith(_GZIP):
                    stream, rest = zlib.decompressobj(window), stream.unused_data
                elif stream.eof:
                    break
        except zlib.error:
            continue
        if stream.eof:
            listing.count(budget.Counted.VALUES, made.count(b",") + made.count(b"{") + made.count(b"["))
            return bytes(made)
    raise Damaged(encoding)


def json_object(raw: bytes, content_type: str = "") -> documents.Json | None:
    """Return the object in an answer, an empty object for an empty answer, or None for another value.

    Args:
        raw: the unpacked body.
        content_type: the header, whose character set counts if the body is no UTF-8.
    """
    content = _as_utf8(raw, content_type).strip(_AROUND)
    if not content:
        return {}
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return _damaged_object(content)


def _damaged_object(content: bytes) -> documents.Json | None:
    """Return the object in JSON with odd characters or numbers, which firmware writes unchecked; None if it is no JSON."""
    text = _SURROGATES.sub(lambda match: match[1] or r"\ufffd", content.decode(errors="replace"))
    try:
        decoded = json.loads(text, strict=False, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return decoded if isinstance(decoded, dict) else None


def _as_utf8(raw: bytes, content_type: str) -> bytes:
    """Return a body in UTF-8 without a byte order mark; unchanged if its encoding is unknown."""
    if raw.startswith(_MARK):
        return raw.removeprefix(_MARK)
    named = _CHARSET.search(content_type)
    charset = next(
        (name for mark, name in _MARKS if raw.startswith(mark)),
        _CHARSETS.get(named[1].lower(), "") if named is not None else "",
    )
    if not charset or (charset in ("cp1252", "latin-1") and _is_utf8(raw)):
        return raw
    try:
        return raw.decode(charset).encode()
    except UnicodeError:
        return raw


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def refusal(raw: bytes) -> documents.Json:
    """Return the body of a refusal as an object; words in another form become its `message`.

    Services answer with a JSON string, with plain text, or with a page and the reason in its title.
    """
    content = _as_utf8(raw[:_REFUSAL_BYTES], "").strip()
    try:
        decoded = msgspec.json.decode(content)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        decoded = _damaged_object(content) or _words(content)
    if isinstance(decoded, list) and decoded:
        decoded = decoded[0]
    if isinstance(decoded, dict):
        return decoded
    return {"message": decoded} if isinstance(decoded, str) else {}


def _words(content: bytes) -> str:
    """Return the title of a page, or the words of a text or of XML, as one line."""
    title = _TITLE.search(content)
    if title is None and not content.startswith(b"<"):
        return " ".join(content.decode(errors="replace").split())
    shown = content[:_MARKED_BYTES]
    if title is not None:
        shown = title[1]
    elif _SCRIPT.search(shown) is not None:
        return ""
    return " ".join(html.unescape(_MARKUP.sub(b" ", shown).decode(errors="replace")).split())


def retry_after_seconds(header: str | None, now: datetime.datetime | None = None) -> float | None:
    """Return the seconds of a Retry-After header, counted from now for a date, or None if it is not readable."""
    if header is None:
        return None
    if _SECONDS.fullmatch(shown := header.strip()):
        return float(shown)
    try:
        moment = email.utils.parsedate_to_datetime(header)
    except (ValueError, TypeError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return max(0.0, (moment - (now or datetime.datetime.now(datetime.UTC))).total_seconds())
