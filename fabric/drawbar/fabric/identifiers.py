"""Identifiers of machines in the form for comparison; pure.

Firmware writes them in capitals, with blanks around them, and a UUID with the bytes of its first three fields
swapped: SMBIOS 2.6 stores these little-endian, and some firmware reports them as they are stored. A maker's
placeholder is no identifier.

Source: DMTF DSP0134 (SMBIOS), 7.2.1 System UUID; the placeholders are from boards of several makers.
"""

import functools
import re
import string

# Each change of one host compares all hosts again.
CACHED_MAX = 16_384
_HEXADECIMAL = re.compile(r"[0-9a-f]{32}")
_REPEATED = re.compile(r"(.)\1+")
# One to four bytes again and again.
_PERIODIC = re.compile(r"((?:..){1,4})\1+")
_NUMBERED = re.compile(r"(?:0x|[a-z]{0,3})([0-9]+)")
# The last two are -1 in 32 and in 64 bits.
_UNSET_NUMBER = re.compile(r"0x(?:0+|f{8,})|[a-z]{1,3}0{6,}|4294967295|18446744073709551615")
_NEGATIVE = re.compile(r"-[0-9]+")
# Without blanks, punctuation and capitals: vendors write one placeholder in many ways. rocminfo prints GPU-XX for a GPU without a
# unique id; dmidecode prints <BAD INDEX> and <OUT OF SPEC>.
_PLACEHOLDERS = frozenset(
    {
        "",
        "0",
        "absent",
        "accessdenied",
        "badindex",
        "baseboardserialnumber",
        "blank",
        "boardserialnumber",
        "chassisserialnumber",
        "chassissn",
        "cpuxx",
        "default",
        "defaultstring",
        "efault",
        "empty",
        "err",
        "error",
        "false",
        "functionnotfound",
        "gpuxx",
        "missing",
        "na",
        "nan",
        "nil",
        "noassetinformation",
        "noassettag",
        "nodata",
        "noinformation",
        "none",
        "nonespecified",
        "noserial",
        "noserialnumber",
        "nosn",
        "notapplicable",
        "notavailable",
        "notdefined",
        "notfound",
        "notinstalled",
        "notpresent",
        "notprogrammed",
        "notprovided",
        "notset",
        "notsettable",
        "notsupported",
        "null",
        "oem",
        "oemserial",
        "outofspec",
        "readerror",
        "readfailed",
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
        "unidentified",
        "unknow",
        "unset",
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
    "unavailable",
    "uninitiali",
    "unknown",
    "unprogrammed",
    "unspecified",
    "unsupported",
)
# Sentences of letters alone, such as nvidia-smi's "[Insufficient Permissions]" and "[GPU requires reset]".
_SENTENCE_BEGINNINGS = (
    "gpuislost",
    "gpurequires",
    "insufficient",
    "not",
    "please",
    "requestedfunctionality",
    "tobe",
    "undefined",
)
# Words that name the number. A text of these alone has none, and neither has one with a placeholder after them.
_LABELS = frozenset(
    {
        "asset",
        "baseboard",
        "board",
        "chassis",
        "default",
        "device",
        "no",
        "number",
        "product",
        "serial",
        "sn",
        "system",
        "tag",
    }
)
# Test patterns of firmware: digits, or pairs of digits, that count up or down. VirtualBox gives every NVMe disk the serial number
# VB1234-56789, and Intel's CXL FPGA shows the Device Serial Number 12-34-56-78-90-00-00-00. Of a maker's numbers of nine digits,
# fewer than one in ten million is such a pattern. The first device with one costs its owner an attach by slot or sole arrival. A
# pattern that is taken for an identifier gives a claim any card of the model.
_COUNTED_DIGITS_MIN = 9
_DIGITS = "0123456789abcdef"
_BYTES = [f"{number:02x}" for number in range(16)]
_UPWARD = (
    _DIGITS * 3,
    _DIGITS[:10] * 4,
    f"{_DIGITS[1:10]}0{_DIGITS[10:]}",
    f"{_DIGITS[1:]}0" * 3,
    "".join(digit * 2 for digit in _DIGITS),
    "11223344556677889900aabbccddeeff",
    string.ascii_lowercase,
)
# One text, since each number of each device is looked for in all of them.
_COUNTED = "\n".join(
    (*_UPWARD, *(pattern[::-1] for pattern in _UPWARD), "".join(_BYTES), "".join(reversed(_BYTES)))
)
_SMALL_DIGITS = 6
# The names of an unnamed machine, with or without a domain.
_NO_NAMES = frozenset({"", "localhost", "localhost4", "localhost6", "(none)"})
# The UUIDs of boards that leave the factory without one, in both orders of their bytes: of several makers, of Intel, and of
# Dell without a service tag.
_FACTORY_UUIDS = frozenset(
    {
        "03000200040005000006000700080009",
        "00020003000400050006000700080009",
        "123456781234567890abcddeefaabbcc",
        "785634123412785690abcddeefaabbcc",
        "12345678123412341234123456789abc",
        "78563412341234121234123456789abc",
        "4c4c454400002010802080c04f202020",
        "44454c4c00001020802080c04f202020",
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
    swapped = swap_uuid(digits)
    return "" if is_factory_uuid(digits) or is_factory_uuid(swapped) else min(digits, swapped)


def is_factory_uuid(digits: str) -> bool:
    """Return whether these 32 hexadecimal digits are a UUID that boards leave the factory with."""
    fields = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    is_example = all(len(set(field)) == 1 for field in fields)
    return digits in _FACTORY_UUIDS or is_example or is_small(digits) or is_patterned(digits)


def is_small(digits: str) -> bool:
    """Return whether these are at most six digits and zeros: an organisation's prefix, or a small number."""
    return len(digits.strip("0")) <= _SMALL_DIGITS


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
    counted = digits.strip("0")
    return len(counted) >= _COUNTED_DIGITS_MIN and counted in _COUNTED


def _digits(text: str) -> str:
    return text.strip().casefold().removeprefix("urn:uuid:").strip("{}").replace("-", "")


def _is_placeholder(compared: str) -> bool:
    key = "".join(filter(str.isalnum, compared))
    if key in _PLACEHOLDERS or key.startswith(_PLACEHOLDER_PREFIXES) or "?" in compared:
        return True
    if _UNSET_NUMBER.fullmatch(key) or _REPEATED.fullmatch(key) or _NEGATIVE.fullmatch(compared):
        return True
    words = compared.split()
    if len(words) > 1 and (
        (key.isalpha() and key.startswith(_SENTENCE_BEGINNINGS)) or all(map(_is_placeholder, words))
    ):
        return True
    rest = [word for word in words if "".join(filter(str.isalnum, word)) not in _LABELS]
    if len(rest) < len(words) > 1 and _is_placeholder(" ".join(rest)):
        return True
    numbered = _NUMBERED.fullmatch(key)
    return _is_counted(numbered[1] if numbered is not None else key)


def swap_uuid(digits: str) -> str:
    """Return the 32 hexadecimal digits of a UUID with the bytes of its first three fields in the other order."""
    return "".join(map(reverse_bytes, (digits[:8], digits[8:12], digits[12:16]))) + digits[16:]


def reverse_bytes(digits: str) -> str:
    """Return hexadecimal digits with their bytes in the other order."""
    return bytes.fromhex(digits)[::-1].hex()
