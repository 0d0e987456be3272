"""Masks for the identifiers of single cards, hosts and persons: each is replaced by one pseudonym everywhere.

Masked are serial numbers in each notation, MAC addresses, WWNs, NQNs and UUIDs, in contents, names, links and events. Serial
numbers are masked in configuration space, too. A masked recording still shows the function of each memory device, and the
functions of each card. The pseudonyms are consecutive numbers, and reveal nothing about the originals. Not masked are models,
firmware, PCI ids and addresses, sizes, and interface names without a MAC address.
"""

import re
from collections.abc import Callable, Iterable

from drawbar.driver.node.inventory import model, pci
from drawbar.driver.node.recording import kinds, tree

_UUID = re.compile(r"(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])", re.IGNORECASE)
# Ethernet addresses have six octets, those of InfiniBand twenty.
_OCTETS = re.compile(r"(?<![0-9a-f:])[0-9a-f]{2}(?::[0-9a-f]{2}){5,}(?![0-9a-f:])", re.IGNORECASE)
_DASHED = re.compile(r"(?<![0-9a-f-])[0-9a-f]{2}(?:-[0-9a-f]{2}){7}(?![0-9a-f-])", re.IGNORECASE)
_NAMED_AFTER_MAC = re.compile(r"(?<![0-9a-z])((?:en|wl|ww|ib|sl|roce|iw)x)([0-9a-f]{12})(?![0-9a-z])")
_PARTITION_NAME = re.compile(r"^(PARTNAME|NVME_TRADDR|NVME_HOST_TRADDR|HID_UNIQ|HID_NAME)=.*$", re.MULTILINE)
_HEXADECIMAL = re.compile(r"0x[0-9a-f]{1,16}", re.IGNORECASE)
_NOTHING = re.compile(r"(0x)?[0:-]*|(0x)?[f:-]*|\(?(null|none)\)?|\s*", re.IGNORECASE)

_SERIAL_FILES = frozenset({"fuse_ver", "serial", "serial_num", "serial_number"})
_OPAQUE_FILES = frozenset(
    {"eui", "hostid", "hostnqn", "id", "nguid", "node_guid", "phys_port_id", "phys_switch_id"}
)
_OPAQUE_FILES |= {"subsysnqn", "sys_image_guid", "unique_id", "uuid", "wwid", "wwn"}
_EUI = re.compile(r"(eui\.)?((?:[0-9a-f][-: ]?){15}[0-9a-f])", re.IGNORECASE)
_NGUID = re.compile(r"(eui\.)?((?:[0-9a-f][-: ]?){31}[0-9a-f])", re.IGNORECASE)
_DIGIT = re.compile(r"[0-9a-f]", re.IGNORECASE)
# A maker's address keeps that form, so that it still counts as an identifier after masking (IEEE 802, 8.2).
_MAKERS_HEAD, _LOCAL_HEAD = "00:fa:ce:", "02:"
_GROUP_OR_LOCAL = 3
_NUMBER_BASE = 0xFACE_0000_0000_0000
_SHORTEST_ANYWHERE = 6
"""The least length, in characters, of a serial number to search for in other texts. Shorter ones match by chance."""
_DSN_HEADER_BYTES, _DSN_BYTES = 4, 8
_ALL_ONES = (1 << 64) - 1


class Masks:
    """The pseudonyms of one recording."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._anywhere: re.Pattern[str] | None = None
        self._parts: dict[str, str] = {}

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of different identifiers that were masked, by kind."""
        return dict(self._counts)

    def snapshot(self, snapshot: tree.Snapshot) -> tree.Snapshot:
        """Return the masked tree; its serial numbers, and those of earlier trees, are masked in all texts."""
        self._learn(snapshot)
        return {self._path(path): self._entry(path, entry) for path, entry in snapshot.items()}

    def text(self, text: str) -> str:
        """Return a text, or an event, with its identifiers masked."""
        if len(text) < _SHORTEST_ANYWHERE:
            return text
        text = _PARTITION_NAME.sub(r"\1=masked", text)
        text = _UUID.sub(lambda match: self._uuid(match[0]), text)
        text = _OCTETS.sub(lambda match: self._octets(match[0]), text)
        text = _DASHED.sub(
            lambda match: model.format_serial(self._number(int(match[0].replace("-", ""), 16))), text
        )
        text = _NAMED_AFTER_MAC.sub(
            lambda match: match[1] + self._octets(_colons(match[2])).replace(":", ""), text
        )
        if self._anywhere is not None:
            text = self._anywhere.sub(lambda match: self._serial(match[0]), text)
        return text

    def _path(self, path: str) -> str:
        """Return a path or link target with each name masked. Names are cached, because few of them recur often."""
        for part in path.split("/"):
            if part not in self._parts:
                self._parts[part] = self.text(part)
        return "/".join(self._parts[part] for part in path.split("/"))

    def _learn(self, snapshot: tree.Snapshot) -> None:
        """Learn all serial numbers of a tree, before the tree's texts are masked."""
        learnt = set()
        for path, entry in snapshot.items():
            if path.rpartition("/")[2] in _SERIAL_FILES and isinstance(entry, kinds.Content):
                serial = entry.data.decode("utf-8", "replace").strip()
                if not _NOTHING.fullmatch(serial) and not _HEXADECIMAL.fullmatch(serial):
                    self._serial(serial)
                    learnt.add(serial)
        long = {serial for serial in learnt if len(serial) >= _SHORTEST_ANYWHERE}
        if long:
            before = [self._anywhere.pattern] if self._anywhere is not None else []
            self._anywhere = re.compile("|".join((*before, _match_any(long))), re.IGNORECASE)
            self._parts.clear()

    def _entry(self, path: str, entry: kinds.Entry) -> kinds.Entry:
        match entry:
            case kinds.Link(target=target):
                return kinds.Link(target=self._path(target))
            case kinds.Content(data=data, mode=mode):
                return kinds.Content(data=self._content(path.rpartition("/")[2], data), mode=mode)
            case _:
                return entry

    def _content(self, name: str, data: bytes) -> bytes:
        if name == "config":
            return self._config(data)
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return data
        if name in _SERIAL_FILES:
            return _mask_padded(text, self._serial).encode()
        if name in _OPAQUE_FILES:
            return _mask_padded(text, self._opaque).encode()
        return self.text(text).encode()

    def _config(self, data: bytes) -> bytes:
        """Return the configuration space with its Device Serial Number masked."""
        asked = []

        def read(length: int, offset: int) -> bytes:
            asked.append(offset)
            return data[offset : offset + length]

        number = pci.find_serial_number(read, lambda: len(data))
        if number is None:
            return data
        start = asked[-1] + _DSN_HEADER_BYTES  # the last read found the capability
        return data[:start] + self._number(number).to_bytes(_DSN_BYTES, "little") + data[start + _DSN_BYTES :]

    # --- pseudonyms ---

    def _serial(self, serial: str) -> str:
        if _NOTHING.fullmatch(serial):
            return serial
        if _HEXADECIMAL.fullmatch(serial):
            return f"{self._number(int(serial, 16)):#x}"
        if _DASHED.fullmatch(serial):
            return model.format_serial(self._number(int(serial.replace("-", ""), 16)))
        return self._pseudonym("serials", model.canonical_serial(serial), lambda count: f"MASKED{count:06}")

    def _opaque(self, value: str) -> str:
        if _NOTHING.fullmatch(value):
            return value
        if _UUID.fullmatch(value):
            return self._uuid(value)
        if match := _EUI.fullmatch(value):
            number = self._number(int(_plain(match[2]), 16))
            return (match[1] or "") + _format_like(f"{number:016x}", match[2])
        if match := _NGUID.fullmatch(value):
            digits = _plain(match[2])
            pseudonym = self._uuid(
                "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
            )
            return (match[1] or "") + _format_like(_plain(pseudonym), match[2])
        head = "nqn.2014-08.org.nvmexpress:" if value.startswith("nqn.") else ""
        return self._pseudonym("identifiers", value.casefold(), lambda count: f"{head}masked-{count:06}")

    def _number(self, number: int) -> int:
        if number in (0, _ALL_ONES):
            return number
        return int(self._pseudonym("numbers", str(number), lambda count: str(_NUMBER_BASE + count)))

    def _octets(self, text: str) -> str:
        if _NOTHING.fullmatch(text):
            return text
        more = text.count(":") - 5
        is_makers = more == 0 and int(text[:2], 16) & _GROUP_OR_LOCAL == 0
        head = _MAKERS_HEAD if is_makers else _LOCAL_HEAD + "00:" * more
        digits = 6 if is_makers else 10
        return self._pseudonym(
            "addresses", text.casefold(), lambda count: head + _colons(f"{count:0{digits}x}")
        )

    def _uuid(self, text: str) -> str:
        if _NOTHING.fullmatch(text):
            return text
        return self._pseudonym(
            "uuids", text.casefold(), lambda count: f"00000000-0000-4000-8000-{count:012x}"
        )

    def _pseudonym(self, kind: str, key: str, make: Callable[[int], str]) -> str:
        if (kind, key) not in self._known:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._known[kind, key] = make(self._counts[kind])
        return self._known[kind, key]


def _match_any(words: Iterable[str]) -> str:
    longest_first = sorted(words, key=lambda word: (-len(word), word))
    return rf"(?<![0-9a-z])(?:{'|'.join(re.escape(word) for word in longest_first)})(?![0-9a-z])"


def _mask_padded(text: str, mask: Callable[[str], str]) -> str:
    """Return the masked text with the same padding and line end; NVMe pads serial numbers with spaces."""
    bare = text.strip()
    tail = text[len(text.rstrip()) :]
    masked = mask(bare)
    line_end = tail.lstrip(" ")
    blanks = max(0, len(tail) - len(line_end) + len(bare) - len(masked)) if tail.startswith(" ") else 0
    return masked + " " * blanks + line_end


def _plain(text: str) -> str:
    """Return the hexadecimal digits of a text."""
    return "".join(_DIGIT.findall(text)).lower()


def _format_like(digits: str, like: str) -> str:
    """Return the digits with the separators of another number."""
    remaining = iter(digits)
    return _DIGIT.sub(lambda _: next(remaining), like)


def _colons(digits: str) -> str:
    return ":".join(digits[index : index + 2] for index in range(0, len(digits), 2))
