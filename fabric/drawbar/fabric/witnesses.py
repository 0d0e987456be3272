"""Identifiers of devices: closed kinds, each with one normal form; pure.

A fabric manager and a kernel describe one card by different numbers. Only numbers of one kind can be compared, so each
identifier has a kind, and a number of an undeclared kind is `SERIAL`. Values that the maker never filled in are no identifiers.

Sources: PCI Express Base Specification 6.0, 7.9.3 (Device Serial Number); NVM Express Base 2.0, 5.17.2 (serial number,
NGUID, EUI64, NQN); DMTF DSP2046, `DurableNameFormat` (GCXLID: eight pairs of hexadecimal digits, then the logical device).
"""

import enum
import functools
import re
from dataclasses import dataclass

from drawbar.fabric import identifiers

VALUE_MAX = 128
"""The most characters of an identifier. A longer text identifies nothing."""
IDENTIFIERS_MAX = 64
"""The most identifiers of one device."""
CARD_IDENTIFIERS_MAX = 1024
"""The most identifiers of a card, which has up to 256 functions."""
_CACHED_MAX = 16_384
# With the blanks that some managers pad with.
_TEXT_MAX = 4 * VALUE_MAX

# The logical device of a GCXLID may follow.
PAIRS = re.compile(r"((?:[0-9a-f]{2}[-:]){7}[0-9a-f]{2})(?:[-:][0-9a-f]{1,4})?")
_GCXLID = re.compile(r"([0-9a-f]{16}):[0-9a-f]{1,4}")
_HEXADECIMAL = re.compile(r"[0-9a-f]+")
_PADDING = re.compile(r"[-: ]")
# The part of an address that the maker numbers, if it did not. One address in 16.7 million of a maker's prefix ends like this by
# right, and its card usually has a second one. Taking it for an identifier gives a claim any card without an address.
_UNSET_TAILS = ("000000", "ffffff")
# Addresses that are no card's own: of IANA (virtual routers and examples, RFC 9542, 2.1), and of Intel's images for controllers
# that nobody programmed.
_IANA = "00005e"
_SHARED_MACS = frozenset({"888888888788"})
# The same in a Device Serial Number that was made of a MAC address: 00-00-00-ff-ff-00-00-00.
_UNSET_EUI = re.compile(r"ff(?:ff|fe)(?:000000|ffffff)$")
# The names that QEMU gives to the namespaces of each disk.
_QEMU_EUI = re.compile(r"52540000000000[0-9a-f]{2}")
_DISCOVERY_NQN = "nqn.2014-08.org.nvmexpress.discovery"
_VENDOR = re.compile(r"[a-z0-9][a-z0-9.-]*=.+")
# amd-smi before ROCm 7.12 writes the unique_id AABBCCDDEEFFGGHH as AAffDDDD-0000-1000-80BB-CCDDEEFFGGHH.
AMD_UUID = re.compile(r"([0-9a-f]{2})ff[0-9a-f]{4}-0000-1000-80([0-9a-f]{2})-([0-9a-f]{12})")
# The fuse version of a Gaudi, which hl-smi shows as the UUID.
FUSE_VERSION = re.compile(r"[0-9a-z]{4}-hl[0-9a-z]+-[0-9a-z-]+")
# The prefix of an organisation has up to three zeros before its first other digit.
_SIXTEEN_DIGITS_MIN = 13
_OCTETS = re.compile(r"[0-9a-f]{1,2}(?:[-:][0-9a-f]{1,2}){5}")
_DASHED_PAIRS = re.compile(r"(?:[0-9a-f]{2}-){7}[0-9a-f]{2}(?::[0-9a-f]{4})?")
# Serial numbers that whole models show (Realtek, VIA), those that test boards have, and the default of Xilinx's PCIe blocks.
_SHARED_DSNS = frozenset(
    {
        *("0000000000000001", "0000000012345678", "1234561012300086"),
        *("01000000684ce000", "00000001004ce000", "0000000101000a35"),
    }
)
# PLX: its prefix, its PCI vendor id in either order, and the model with its revision; 00-0e-df-b5-10-00-87-ca in lspci's old order.
# Realtek: the prefix 00-e0-4c, and the model, such as 00-e0-4c-ff-fe-c8-22-01 of the RTL8822CE.
_MODEL_DSN = re.compile(r"000edf(?:10b5|b510).{6}|00e04cfffe.{6}")


class Kind(enum.StrEnum):
    """The kind of an identifier. Values of different kinds never contradict each other."""

    PCIE_DSN = "pcie-dsn"
    """PCIe Device Serial Number, CXL serial number, or the number of a GCXLID: eight dashed pairs of hexadecimal digits."""
    GPU_UUID = "gpu-uuid"
    """UUID of an NVIDIA GPU, without `GPU-`: lower case, with dashes."""
    GPU_UNIQUE_ID = "gpu-unique-id"
    """The `unique_id` of an AMD GPU: sixteen lower-case hexadecimal digits."""
    BOARD_SERIAL = "board-serial"
    """Serial number that the maker printed on the board, in lower case."""
    VPD_SERIAL = "vpd-serial"
    """Field SN of the Vital Product Data, in lower case."""
    PART_NUMBER = "part-number"
    """Part number, in lower case. It names a model, never a device."""
    NVME_SERIAL = "nvme-serial"
    """Serial number of an NVMe controller or drive, in lower case."""
    NVME_NQN = "nvme-nqn"
    """NVMe Qualified Name of the subsystem."""
    EUI64 = "eui64"
    """EUI-64 of a namespace: sixteen lower-case hexadecimal digits."""
    NGUID = "nguid"
    """NGUID of a namespace: 32 lower-case hexadecimal digits."""
    MAC = "mac"
    """Permanent MAC address: six pairs of hexadecimal digits with colons. A card may have several."""
    NODE_GUID = "node-guid"
    """Node GUID of an RDMA device: sixteen lower-case hexadecimal digits."""
    SERIAL = "serial"
    """Serial number of an undeclared kind, in lower case. It can support, never contradict."""
    VENDOR = "vendor"
    """Identifier of a vendor's own, as `NAME=VALUE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identifier:
    """One identifier of a device, in the normal form of its kind.

    Attributes:
        value: as `identifier` makes it.
        source: where it was read, such as `Processor.UUID` or `nvme0/serial`; for people.
    """

    kind: Kind
    value: str
    source: str = ""


def identifier(kind: Kind, text: str, source: str = "") -> Identifier | None:
    """Return the identifier of this kind, or None where the text is a placeholder or has another form."""
    value = normal(kind, text) if len(text) <= _TEXT_MAX else ""
    return Identifier(kind=kind, value=value, source=source) if value else None


def from_form(text: str, source: str = "") -> Identifier | None:
    """Return the identifier that a serial number is by its form alone, or None where numbers of other kinds have this form.

    Managers show `GPU-` and a UUID (FTI), a UUID of amd-smi, the fuse version of a Gaudi, or eight dashed pairs (a PCIe Device
    Serial Number) as serial numbers.
    """
    compared = text.strip().casefold() if len(text) <= _TEXT_MAX else ""
    if spelt := AMD_UUID.fullmatch(compared):
        return identifier(Kind.GPU_UNIQUE_ID, "".join(spelt.groups()), source)
    if FUSE_VERSION.fullmatch(compared):
        return identifier(Kind.VENDOR, f"fuse-ver={compared}", source)
    if compared.startswith("gpu-"):
        return identifier(Kind.GPU_UUID, compared, source) or identifier(Kind.GPU_UNIQUE_ID, compared, source)
    return identifier(Kind.PCIE_DSN, compared, source) if _DASHED_PAIRS.fullmatch(compared) else None


@functools.lru_cache(_CACHED_MAX)
def normal(kind: Kind, text: str) -> str:
    """Return the text in the normal form of its kind; empty for a placeholder, and for a text of another form."""
    # A field of fixed width is padded with blanks or zeros.
    stripped = text.strip().strip("\0").strip()
    if len(stripped) > VALUE_MAX or not stripped.isprintable():
        return ""
    compared = identifiers.serial(stripped)
    if not compared:
        return ""
    return _FORMS.get(kind, str)(compared)


def _dsn(compared: str) -> str:
    pairs = PAIRS.fullmatch(compared) or _GCXLID.fullmatch(compared)
    digits = _PADDING.sub("", (pairs[1] if pairs else compared).removeprefix("0x"))
    if len(digits) > 16 or _HEXADECIMAL.fullmatch(digits) is None:
        return ""
    if len(digits) < 16 and not compared.startswith("0x"):
        return ""
    number = int(digits, 16)
    # An organisation's prefix (six digits) and nothing else numbers no device: GB10 shows 00-00-00-00-00-2d-b0-48, and Realtek
    # 00-e0-4c-00-00-00-00-00. A maker that numbers its devices gets 32 zeros at the end once in four billion devices. Small numbers
    # are serial numbers of emulated memory, in any notation.
    if 1 << 16 <= number < 1 << 24 or not number & 0xFFFFFFFF:
        return ""
    spelt = number.to_bytes(8, "big")
    return "" if _is_no_dsn(spelt.hex()) or _is_no_dsn(spelt[::-1].hex()) else spelt.hex("-")


def _is_no_dsn(digits: str) -> bool:
    """Return whether these sixteen digits are of a whole model, unset, or a test pattern; older versions of lspci reverse them."""
    return (
        digits in _SHARED_DSNS
        or _MODEL_DSN.fullmatch(digits) is not None
        or _UNSET_EUI.search(digits) is not None
        or identifiers.is_patterned(digits)
    )


def _uuid(compared: str) -> str:
    if compared.startswith("mig-"):
        return ""
    digits = compared.removeprefix("urn:uuid:").removeprefix("gpu-").strip("{}").replace("-", "")
    if len(digits) != 32 or not _is_telling(digits) or identifiers.is_factory_uuid(digits):
        return ""
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _sixteen(compared: str) -> str:
    plain = compared.removeprefix("nvme-").removeprefix("eui.").removeprefix("gpu-").removeprefix("0x")
    digits = _PADDING.sub("", plain)
    if compared.startswith("0x") and len(digits) >= _SIXTEEN_DIGITS_MIN:
        # rocm-smi writes the number without the zeros before it, as most printers of hexadecimal numbers do.
        digits = digits.zfill(16)
    return digits if len(digits) == 16 and _is_telling(digits) and not identifiers.is_small(digits) else ""


def _eui64(compared: str) -> str:
    digits = _sixteen(compared)
    return "" if _QEMU_EUI.fullmatch(digits) else digits


def _thirty_two(compared: str) -> str:
    plain = compared.removeprefix("nvme-").removeprefix("eui.").removeprefix("nguid.").removeprefix("0x")
    digits = _PADDING.sub("", plain)
    return digits if len(digits) == 32 and _is_telling(digits) and not identifiers.is_small(digits) else ""


def _nqn(compared: str) -> str:
    """Return the name of a subsystem; empty for the name of a discovery service, and for one with an unset UUID."""
    uuid = compared.rpartition(":uuid:")[2]
    is_unset = compared == _DISCOVERY_NQN or (identifiers.is_uuid(uuid) and not identifiers.system_uuid(uuid))
    return "" if is_unset or not identifiers.serial(compared.rpartition(":")[2]) else compared


def _mac(compared: str) -> str:
    if _OCTETS.fullmatch(compared):
        compared = "".join(octet.zfill(2) for octet in re.split("[-:]", compared))
    digits = _PADDING.sub("", compared.removeprefix("0x").replace(".", ""))
    if (
        len(digits) != 12
        or not _is_telling(digits)
        or digits[6:] in _UNSET_TAILS
        or digits.startswith(("000000", _IANA))
        or digits in _SHARED_MACS
    ):
        return ""
    # Group addresses and locally administered ones are no card's own (IEEE 802, 8.2).
    return ":".join(digits[at : at + 2] for at in range(0, 12, 2)) if int(digits[:2], 16) & 3 == 0 else ""


def _vendor(compared: str) -> str:
    return compared if _VENDOR.fullmatch(compared) and identifiers.serial(compared.partition("=")[2]) else ""


def _is_telling(digits: str) -> bool:
    """Return whether these are hexadecimal digits, and no test pattern."""
    return _HEXADECIMAL.fullmatch(digits) is not None and not identifiers.is_patterned(digits)


_FORMS = {
    Kind.PCIE_DSN: _dsn,
    Kind.GPU_UUID: _uuid,
    Kind.GPU_UNIQUE_ID: _sixteen,
    Kind.NVME_NQN: _nqn,
    Kind.EUI64: _eui64,
    Kind.NGUID: _thirty_two,
    Kind.MAC: _mac,
    Kind.NODE_GUID: _sixteen,
    Kind.VENDOR: _vendor,
}
