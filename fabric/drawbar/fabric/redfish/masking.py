"""Masks for the secrets, serial numbers, addresses, host and user names of a Redfish service; pure.

A value has the same mask everywhere, also in links, so that the masked documents still fit together. Names and
descriptions from people stay, except for such values in them.
"""

import re
from collections.abc import Iterable
from typing import Any

DEPTH = 64
CUT = "[cut]"
ORIGIN = "https://manager.invalid"
HOST = "manager.invalid"

_SECRET = re.compile(
    r"password|passphrase|passcode|token|secret|privatekey|apikey|sharedkey|encryptionkey|authenticationkey",
    re.IGNORECASE,
)
_NAMED = (
    (re.compile(r"(.*serialnumber|assettag|servicetag)$", re.IGNORECASE), "serial"),
    (re.compile(r"(.*hostname|fqdn|.*domainname|.*initiatorname|.*targetname)$", re.IGNORECASE), "host"),
    (re.compile(r"(.*username|.*email.*|contactname|phonenumber)$", re.IGNORECASE), "user"),
    (re.compile(r"durablename$", re.IGNORECASE), "id"),
)
# A value that is one of these identifies nothing, and is part of links and enumerations.
_RESERVED = frozenset(
    {
        "redfish",
        "v1",
        "none",
        "n/a",
        "na",
        "null",
        "unknown",
        "default",
        "ok",
        "enabled",
        "disabled",
        "absent",
        "on",
        "off",
        "system",
        "systems",
        "fabric",
        "fabrics",
        "chassis",
        "zones",
        "endpoints",
        "drawbar",
        "admin",
        "root",
        "administrator",
    }
)
# Shorter values are replaced only where they stand by themselves.
_ANYWHERE_CHARS = 6

_UUID = r"(?i:\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b)"
# MAC addresses, EUI-64 and the GCXLID of CXL devices.
_BYTES = r"(?i:(?<![0-9a-f:-])(?:[0-9a-f]{2}[:-]){5,15}[0-9a-f]{2}(?::[0-9a-f]{4})?(?![0-9a-f:-]))"
_IPV4 = r"(?<![0-9.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9.])"
_IPV6 = r"(?i:(?<![0-9a-f:.])(?=[0-9a-f:]*::|(?:[0-9a-f]{1,4}:){7})[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}(?![0-9a-f:]))"
_HEX = re.compile(r"[0-9a-fA-F]")


class Masks:
    """The masks of all sensitive values; first `collect` everything, then mask it.

    Args:
        secrets: values to mask everywhere.
        origin: scheme, host and port of the service.
        host: its name or address.
    """

    def __init__(self, secrets: Iterable[str], *, origin: str, host: str) -> None:
        self._secrets = {value: f"masked-secret-{number}" for number, value in enumerate(secrets, 1) if value}
        self._masks = {origin: ORIGIN, host: HOST}
        self._counts: dict[str, int] = {}
        self._patterns: dict[str, str] = {}
        self._regex: re.Pattern[str] | None = None

    def add_secret(self, value: str) -> None:
        """Mask a value everywhere."""
        if value:
            self._regex = None
            self._secrets.setdefault(value, f"masked-secret-{len(self._secrets) + 1}")

    def collect(self, body: Any) -> None:
        """Take note of the sensitive values of a body, by the names of its properties."""
        left = [("", body)]
        while left:
            name, value = left.pop()
            if isinstance(value, dict):
                left += reversed(value.items())
            elif isinstance(value, list):
                left += [(name, entry) for entry in reversed(value)]
            elif isinstance(value, str) and value:
                self._collect(name, value)

    def _collect(self, name: str, value: str) -> None:
        if value.lower() in _RESERVED:
            return
        if _SECRET.search(name) and not value.startswith("/"):
            self.add_secret(value)
            return
        kind = next((kind for pattern, kind in _NAMED if pattern.match(name)), None)
        if kind is None or value in self._masks or _is_pattern(value):
            return
        self._regex = None
        self._masks[value] = f"masked-{kind}-{self._number(kind)}"

    def _number(self, kind: str) -> int:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return self._counts[kind]

    def body(self, value: Any, *, name: str = "", depth: int = 0) -> Any:
        """Return a body with masks, cut below the depth `DEPTH`."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, (dict, list)) and depth >= DEPTH:
            return CUT
        if isinstance(value, dict):
            return {
                self._key(key): self.body(entry, name=key, depth=depth + 1) for key, entry in value.items()
            }
        if isinstance(value, list):
            return [self.body(entry, name=name, depth=depth + 1) for entry in value]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return 0 if is_number and _SECRET.search(name) else value

    def text(self, text: str) -> str:
        """Return a text with masks."""
        if self._regex is None:
            self._regex = self._compile()
        return self._regex.sub(lambda match: self._mask(match.group()), text)

    def _key(self, text: str) -> str:
        for value, mask in self._secrets.items():
            text = text.replace(value, mask)
        return text

    def _compile(self) -> re.Pattern[str]:
        longest_first = sorted({*self._secrets, *self._masks}, key=len, reverse=True)
        values = []
        for value in longest_first:
            escaped = re.escape(value)
            if value in self._secrets or len(value) >= _ANYWHERE_CHARS:
                values.append(escaped)
            elif value:
                values.append(rf"(?<![A-Za-z0-9]){escaped}(?![A-Za-z0-9])")
        return re.compile("|".join([*values, _UUID, _BYTES, _IPV4, _IPV6]))

    def _mask(self, value: str) -> str:
        mask = self._secrets.get(value) or self._masks.get(value)
        if mask is not None:
            return mask
        key = value.lower()
        if key not in self._patterns:
            self._patterns[key] = self._mask_shape(value)
        return self._patterns[key]

    def _mask_shape(self, value: str) -> str:
        """Return a value of the same shape, with the next number in it."""
        if "." in value:
            number = self._number("ipv4")
            return f"198.18.{number >> 8 & 255}.{number & 255}"
        if re.fullmatch(_UUID, value) or re.fullmatch(_BYTES, value):
            digits = iter(f"{self._number('hex'):0{len(_HEX.findall(value))}x}")
            return _HEX.sub(lambda _: next(digits), value)
        return f"2001:db8::{self._number('ipv6'):x}"


def _is_pattern(value: str) -> bool:
    return re.fullmatch(f"{_UUID}|{_BYTES}|{_IPV4}|{_IPV6}", value) is not None
