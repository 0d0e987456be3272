"""A card's Vital Product Data: a name, a read-only part with fields, an end tag.

Source: PCI Local Bus Specification 3.0, appendix I.
"""

from collections.abc import Mapping

_NAME, _READ_ONLY, _END = 0x82, 0x90, 0x78
_CHECKSUM_FIELD_BYTES = 4


def image(name: str, fields: Mapping[str, str]) -> bytes:
    """Return the data of a card with this name and these fields; the fields have names of two letters."""
    inner = b"".join(
        keyword.encode() + bytes([len(text.encode())]) + text.encode() for keyword, text in fields.items()
    )
    head = _resource(_NAME, name.encode())
    length = len(inner) + _CHECKSUM_FIELD_BYTES
    head += bytes([_READ_ONLY]) + length.to_bytes(2, "little") + inner + b"RV\x01"
    return head + bytes([-sum(head) & 0xFF, _END])


def _resource(tag: int, data: bytes) -> bytes:
    return bytes([tag]) + len(data).to_bytes(2, "little") + data
