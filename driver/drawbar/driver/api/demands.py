"""The requests of a ResourceClaim and their DeviceClasses, read only for immediate allocation.

The watch of all claims (`api.claims`) leaves the spec out, since no other reader needs it.

Source: `resource.k8s.io/v1` ResourceClaimSpec, DeviceClass.
"""

from typing import Any

from drawbar.driver.api import claims, meta

IMMEDIATE = "Immediate"
SHOWN_CHARS = 100


class Cel(meta.Struct, frozen=True):
    """An expression over one device."""

    expression: str = ""


class Selector(meta.Struct, frozen=True):
    """One of several conditions on a device."""

    cel: Cel | None = None


class Way(meta.Struct, frozen=True):
    """One way to meet a request; `name` is set for those of `firstAvailable`."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[Selector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool = False
    capacity: Any = None


class Request(meta.Struct, frozen=True):
    """Devices under one name; exactly one of the two alternatives is set."""

    name: str = ""
    exactly: Way | None = None
    first_available: tuple[Way, ...] = ()

    def ways(self) -> tuple[tuple[str, Way], ...]:
        """Return the alternatives of the request, the best first, with their names in an allocation."""
        if self.exactly is not None:
            return ((self.name, self.exactly),)
        return tuple((f"{self.name}/{way.name}", way) for way in self.first_available)


class Devices(meta.Struct, frozen=True):
    """All requests of a claim."""

    requests: tuple[Request, ...] = ()
    constraints: tuple[Any, ...] = ()
    config: tuple[claims.AllocatedConfiguration, ...] = ()


class ClaimSpec(meta.Struct, frozen=True):
    """The request part of a claim."""

    devices: Devices = Devices()


class Claim(meta.Struct, frozen=True):
    """A claim with its requests."""

    metadata: meta.ObjectMeta
    spec: ClaimSpec = ClaimSpec()
    status: claims.ClaimStatus = claims.ClaimStatus()


class ClassSpec(meta.Struct, frozen=True):
    """The definition of a class of devices."""

    selectors: tuple[Selector, ...] = ()
    config: tuple[claims.AllocatedConfiguration, ...] = ()


class DeviceClass(meta.Struct, frozen=True):
    """A class of devices that a request can name."""

    metadata: meta.ObjectMeta
    spec: ClassSpec = ClassSpec()


def is_immediate(metadata: meta.ObjectMeta) -> bool:
    """Return whether a claim requests immediate allocation."""
    return metadata.annotations.get(claims.MODE_ANNOTATION) == IMMEDIATE


def expressions(selectors: tuple[Selector, ...]) -> tuple[str, ...]:
    """Return the CEL expressions, all of which must be true."""
    return tuple(selector.cel.expression for selector in selectors if selector.cel is not None)


def shorten(expression: str) -> str:
    """Return an expression for a message, cut if it is long."""
    return repr(expression) if len(expression) <= SHOWN_CHARS else f"{expression[:SHOWN_CHARS]!r}..."
