"""Attributes of devices from their adapters, for claims to select by; pure.

An attribute has a name `DOMAIN/NAME` in the adapter's own domain, and a value of one type. If one attribute exceeds
the limits of a ResourceSlice, the API server refuses the whole slice. So such an attribute is refused here, with a
reason.

Source: `resource.k8s.io/v1` QualifiedName (a domain of at most 63 characters, a C identifier of at most 32) and
DeviceAttribute (texts of at most 64 bytes; versions of semver.org 2.0.0).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

ATTRIBUTES_MAX = 16
"""The most attributes of one device: a ResourceSlice has room for 32 attributes and capacities, Drawbar's own included."""
READ_MAX = 64
"""The most attributes to read; the others are refused together."""
_TEXT_BYTES = 64
_DOMAIN_CHARS = 63
_NAME_CHARS = 32
_SHOWN_CHARS = 40
_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = r"(0|[1-9][0-9]*)"
_PART = r"(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PART}(\.{_PART})*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)
RESERVED = ("drawbar.dev", "kubernetes.io", "k8s.io")
"""Domains, with their subdomains, that are closed to adapters: they are Drawbar's own and Kubernetes'."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version that claims compare by number."""

    text: str


Value = str | int | bool | Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """One attribute of a device; `name` is `DOMAIN/NAME`."""

    name: str
    value: Value

    @property
    def domain(self) -> str:
        """Return the domain of the attribute's name."""
        return self.name.partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The accepted and refused attributes of a device.

    Attributes:
        kept: in order of name, each name once.
        refused: a clause for each dropped attribute.
    """

    kept: tuple[Attribute, ...] = ()
    refused: tuple[str, ...] = ()


def collect(attributes: Iterable[tuple[str, object]]) -> Collected:
    """Return the attributes that fit, and the reason for each refused one.

    Args:
        attributes: name and value of each, from the adapter.
    """
    kept: dict[str, Attribute] = {}
    refused: list[str] = []
    for position, (name, value) in enumerate(attributes):
        if position >= READ_MAX:
            refused.append(f"more than {READ_MAX} attributes are not read")
            break
        problem = find_problem(name, value)
        if problem is None and name in kept:
            problem = "it is given twice"
        if problem is None and len(kept) >= ATTRIBUTES_MAX:
            problem = f"a device has at most {ATTRIBUTES_MAX}"
        if problem is None and isinstance(value, str | int | Version):
            kept[name] = Attribute(name=name, value=value)
        else:
            refused.append(f"attribute {_quote(name)}: {problem}")
    return Collected(kept=tuple(kept[name] for name in sorted(kept)), refused=tuple(refused))


def find_problem(name: str, value: object) -> str | None:
    """Return a clause that says why the attribute is invalid, or None if it is valid."""
    return _problem_of_name(name) or _problem_of_value(value)


def _problem_of_name(name: str) -> str | None:
    domain, separator, own = name.partition("/")
    if not separator or len(domain) > _DOMAIN_CHARS or not _DOMAIN.fullmatch(domain):
        return f"its name is not DOMAIN/NAME with a domain of at most {_DOMAIN_CHARS} lower-case characters"
    if len(own) > _NAME_CHARS or not _NAME.fullmatch(own):
        return (
            f"behind its domain it has not 1 to {_NAME_CHARS} letters, digits and _ without a digit in front"
        )
    if any(domain == reserved or domain.endswith(f".{reserved}") for reserved in RESERVED):
        return f"the domain {domain} is not the adapter's own"
    return None


def _problem_of_value(value: object) -> str | None:
    fits, problem = True, "it has no value"
    match value:
        case bool():
            return None
        case int():
            fits, problem = -(1 << 63) <= value < 1 << 63, "its number has more than 64 bits"
        case Version():
            fits = len(value.text) <= _TEXT_BYTES and _VERSION.fullmatch(value.text) is not None
            problem = "its value is no version of semver.org, such as 1.2.3"
        case str():
            fits = 0 < len(value) <= _TEXT_BYTES and value.isascii() and value.isprintable()
            problem = f"its text has not 1 to {_TEXT_BYTES} characters of printable ASCII"
        case _:
            fits = False
    return None if fits else problem


def _quote(name: str) -> str:
    return ascii(name[:_SHOWN_CHARS])
