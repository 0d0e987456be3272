"""Identifiers of machines in the form for comparison; pure.

Firmware writes them in capitals, with blanks around them, and a UUID with the bytes of its first three fields
swapped: SMBIOS 2.6 stores these little-endian, and some firmware reports them as they are stored. A maker's
placeholder is no identifier.

Source: DMTF DSP0134 (SMBIOS), 7.2.1 System UUID; the placeholders are from boards of several makers.
"""

import functools
import re

# Each change of one host compares all hosts again.
CACHED_MAX = 16_384
_HEXADECIMAL = re.compile(r"[0-9a-f]{32}")
_REPEATED = re.compile(r"(.)\1+")
_PLACEHOLDERS = frozenset(
    {
        "",
        "0",
        "(efault)",
        "(null)",
        "0123456789",
        "123456789",
        "1234567890",
        "[n/a]",
        "chassis serial number",
        "default string",
        "empty",
        "n/a",
        "na",
        "none",
        "not applicable",
        "not available",
        "not specified",
        "null",
        "o.e.m.",
        "oem",
        "serial number",
        "sn123456789",
        "system serial number",
        "tbd",
        "to be filled by o.e.m",
        "to be filled by o.e.m.",
        "undefined",
        "unknown",
    }
)
_PLACEHOLDER_PREFIXES = ("to be filled", "unspecified")
# The names of an unnamed machine, with or without a domain.
_NO_NAMES = frozenset({"", "localhost", "localhost4", "localhost6", "(none)"})
# The UUID of boards that leave the factory without one, in both orders of its bytes.
FACTORY_UUIDS = frozenset({"03000200040005000006000700080009", "00020003000400050006000700080009"})


@functools.lru_cache(CACHED_MAX)
def serial(text: str) -> str:
    """Return a serial number in the form for comparison; empty for a placeholder."""
    compared = " ".join(text.split()).casefold()
    return "" if _is_placeholder(compared) else compared


@functools.lru_cache(CACHED_MAX)
def system_uuid(text: str) -> str:
    """Return a system UUID in the form for comparison, or an empty string for a placeholder.

    The form is the same for both orders of its bytes.
    """
    compared = serial(text)
    if not is_uuid(compared):
        return compared
    digits = _digits(compared)
    if _REPEATED.fullmatch(digits) or digits in FACTORY_UUIDS:
        return ""
    swapped = _reversed(digits[:8]) + _reversed(digits[8:12]) + _reversed(digits[12:16]) + digits[16:]
    return min(digits, swapped)


def host_name(text: str) -> str:
    """Return a host name in the form for comparison; empty for a placeholder."""
    compared = serial(text).rstrip(".")
    return "" if compared.partition(".")[0] in _NO_NAMES else compared


def is_uuid(text: str) -> bool:
    """Return whether the text has the form of a UUID."""
    return _HEXADECIMAL.fullmatch(_digits(text)) is not None


def _digits(text: str) -> str:
    return text.strip().casefold().removeprefix("urn:uuid:").strip("{}").replace("-", "")


def _is_placeholder(compared: str) -> bool:
    return (
        compared in _PLACEHOLDERS
        or compared.startswith(_PLACEHOLDER_PREFIXES)
        or "?" in compared
        or _REPEATED.fullmatch(compared.replace("-", "").replace(" ", "")) is not None
    )


def _reversed(digits: str) -> str:
    """Return hexadecimal digits with their bytes in the other order."""
    return bytes.fromhex(digits)[::-1].hex()
