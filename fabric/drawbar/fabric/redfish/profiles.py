"""The peculiarities of existing services: one table. A new service is a row, chosen by its root or by a parameter."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from drawbar.fabric.redfish.documents import Document


class MethodName(StrEnum):
    """The resources that connect devices and hosts."""

    ZONES = "zones"
    CONNECTIONS = "connections"
    APPLIANCE = "appliance"
    COMPOSITION = "composition"
    CONSTRAINED = "constrained"


class ZoneStyle(StrEnum):
    """The meaning of one zone."""

    PAIR = "pair"
    """One connection: the endpoints of a host and of a device; made and deleted."""
    PORT = "port"
    """One host port with all its devices; a zone that is there is changed."""


class ZoneBody(StrEnum):
    """The place of the endpoints in the body of a changed zone."""

    LINKS = "links"
    """`{"Links": {"Endpoints": [...]}}`, as in the schema."""
    ENDPOINTS = "endpoints"
    """`{"Endpoints": [...]}`, as in PCIe fabrics after Intel's Rack Scale Design."""


class NoteProperty(StrEnum):
    """The property of a connection that keeps a client's text."""

    DESCRIPTION = "Description"
    NAME = "Name"
    NONE = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The rules for one kind of service.

    Attributes:
        method: see `MethodName`.
        zone_style: see `ZoneStyle`; always `PAIR` except for `zones`.
        zone_body: see `ZoneBody`; for the style `PORT`.
        note_property: see `NoteProperty`.
        products: beginnings of the service root's `Product` or `Vendor`, in lower case.
        ports: the most devices of one host port.
        unverified: a sentence about functions that were never tried on the product; empty if all were.
    """

    method: MethodName = MethodName.ZONES
    zone_style: ZoneStyle = ZoneStyle.PAIR
    zone_body: ZoneBody = ZoneBody.LINKS
    note_property: NoteProperty = NoteProperty.DESCRIPTION
    products: tuple[str, ...] = ()
    ports: int = 16
    unverified: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The size of a service's listing, read by one profile.

    Attributes:
        devices: their number.
        hosts: their number.
    """

    devices: int
    hosts: int


GENERIC = "generic"
PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        GENERIC: Profile(),
        "sunfish": Profile(products=("sunfish", "openfabrics")),
        "h3": Profile(
            zone_style=ZoneStyle.PORT,
            note_property=NoteProperty.NONE,
            products=("h3", "falcon"),
            unverified=(
                "the profile h3 was never tried on a product of H3, whose documentation does not show the body of a change: attach "
                "a first device to a host without others, and if it is not shown, set the parameter `zoneBody: endpoints`"
            ),
        ),
        "connections": Profile(method=MethodName.CONNECTIONS),
        "cma": Profile(
            method=MethodName.APPLIANCE,
            note_property=NoteProperty.NONE,
            products=("memory appliance composer",),
            ports=1,
        ),
        "composition": Profile(method=MethodName.COMPOSITION, note_property=NoteProperty.NONE, ports=32),
        "constrained": Profile(method=MethodName.CONSTRAINED, note_property=NoteProperty.NONE, ports=32),
    }
)


def choose_by_root(root: Document) -> str:
    """Return the name of the service root's profile, or that of the generic one."""
    shown = (root.text("Product").lower(), root.text("Vendor").lower())
    for name, profile in PROFILES.items():
        if any(content.startswith(product) for product in profile.products for content in shown):
            return name
    has_fabrics = root.link("Fabrics") is not None
    return GENERIC if has_fabrics or root.link("CompositionService") is None else "composition"


def choose_by_fabrics(fabrics: Iterable[Document]) -> str:
    """Return the name of the profile of a service's fabrics, if its root names none."""
    linked = {name for fabric in fabrics for name in ("Zones", "Connections") if fabric.link(name)}
    return "connections" if linked == {"Connections"} else GENERIC


def suggest(listed: Mapping[str, Counts]) -> str:
    """Return a sentence with the profile that would list something and the remedy; empty if no profile would.

    Args:
        listed: each profile's reading of the service, by the profile's name.
    """
    useful = [name for name in PROFILES if name in listed and listed[name].devices]
    if not useful:
        return ""
    # Devices without a host cannot be attached.
    name = next((name for name in useful if listed[name].hosts), useful[0])
    counts = listed[name]
    devices = f"{counts.devices} device{'' if counts.devices == 1 else 's'}"
    hosts = f"{counts.hosts} host{'' if counts.hosts == 1 else 's'}"
    return f"profile: {name} would list {devices} and {hosts}; set the parameter `profile: {name}`"
