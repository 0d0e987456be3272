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
# One to four bytes again and again.
_PERIODIC = re.compile(r"((?:..){1,4})\1+")
_NUMBERED = re.compile(r"[a-z]{0,3}([0-9]+)")
_UNSET_NUMBER = re.compile(r"0x(?:0+|f{8,})")
# Without blanks, punctuation and capitals: vendors write one placeholder in many ways.
_PLACEHOLDERS = frozenset(
    {
        "",
        "0",
        "baseboardserialnumber",
        "boardserialnumber",
        "chassisserialnumber",
        "chassissn",
        "default",
        "defaultstring",
        "efault",
        "empty",
        "na",
        "nil",
        "noassettag",
        "none",
        "nonespecified",
        "noserialnumber",
        "notapplicable",
        "notavailable",
        "notdefined",
        "notpresent",
        "notprovided",
        "notset",
        "notsettable",
        "null",
        "oem",
        "oemserial",
        "serial",
        "serialno",
        "serialnumber",
        "sernum",
        "sernum0",
        "string",
        "systemserialnumber",
        "tba",
        "tbd",
        "undefined",
        "unknow",
    }
)
_PLACEHOLDER_PREFIXES = (
    "fillby",
    "filledby",
    "invalid",
    "notspecified",
    "tobefiled",
    "tobefilled",
    "tobeset",
    "unknown",
    "unspecified",
)
# Test patterns of firmware: digits, or pairs of digits, that count up.
_COUNTED_DIGITS_MIN = 9
_DIGITS = "0123456789abcdef"
_COUNTED = (
    _DIGITS * 3,
    _DIGITS[:10] * 4,
    f"{_DIGITS[1:]}0" * 3,
    "".join(f"{number:02x}" for number in range(16)),
    "".join(digit * 2 for digit in _DIGITS),
    "11223344556677889900aabbccddeeff",
)
# The names of an unnamed machine, with or without a domain.
_NO_NAMES = frozenset({"", "localhost", "localhost4", "localhost6", "(none)"})
# The UUIDs of boards that leave the factory without one, in both orders of their bytes: of several makers, of Intel, and of
# Dell without a service tag.
_FACTORY_UUIDS = frozenset(
    {
        *("03000200040005000006000700080009", "00020003000400050006000700080009"),
        *("123456781234567890abcddeefaabbcc", "785634123412785690abcddeefaabbcc"),
        *("4c4c454400002010802080c04f202020", "44454c4c00001020802080c04f202020"),
    }
)


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
    swapped = _reversed(digits[:8]) + _reversed(digits[8:12]) + _reversed(digits[12:16]) + digits[16:]
    return "" if is_factory_uuid(digits) or is_factory_uuid(swapped) else min(digits, swapped)


def is_factory_uuid(digits: str) -> bool:
    """Return whether these 32 hexadecimal digits are a UUID that boards leave the factory with."""
    return digits in _FACTORY_UUIDS or is_patterned(digits)


def is_patterned(digits: str) -> bool:
    """Return whether hexadecimal digits are a test pattern: a few bytes again and again, or digits that count up."""
    return (
        _REPEATED.fullmatch(digits) is not None
        or _PERIODIC.fullmatch(digits) is not None
        or _is_counted(digits)
    )


def host_name(text: str) -> str:
    """Return a host name in the form for comparison; empty for a placeholder."""
    compared = serial(text).rstrip(".")
    return "" if compared.partition(".")[0] in _NO_NAMES else compared


def is_uuid(text: str) -> bool:
    """Return whether the text has the form of a UUID."""
    return _HEXADECIMAL.fullmatch(_digits(text)) is not None


def _is_counted(digits: str) -> bool:
    counted = digits.lstrip("0")
    return len(counted) >= _COUNTED_DIGITS_MIN and any(counted in pattern for pattern in _COUNTED)


def _digits(text: str) -> str:
    return text.strip().casefold().removeprefix("urn:uuid:").strip("{}").replace("-", "")


def _is_placeholder(compared: str) -> bool:
    key = "".join(filter(str.isalnum, compared))
    if key in _PLACEHOLDERS or key.startswith(_PLACEHOLDER_PREFIXES) or "?" in compared:
        return True
    if _UNSET_NUMBER.fullmatch(key) or _REPEATED.fullmatch(key):
        return True
    numbered = _NUMBERED.fullmatch(key)
    return numbered is not None and _is_counted(numbered[1])


def _reversed(digits: str) -> str:
    """Return hexadecimal digits with their bytes in the other order."""
    return bytes.fromhex(digits)[::-1].hex()
