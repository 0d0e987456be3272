"""What is special to the services that exist: one table. A new service is a row, chosen by its root or by a parameter."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from drawbar.fabric.redfish.documents import Document


class MethodName(StrEnum):
    """By which resources devices and hosts are connected."""

    ZONES = "zones"
    CONNECTIONS = "connections"
    APPLIANCE = "appliance"
    COMPOSITION = "composition"
    CONSTRAINED = "constrained"


class ZoneStyle(StrEnum):
    """What one zone stands for."""

    PAIR = "pair"
    """One connection: the endpoints of a host and of a device; made and deleted."""
    PORT = "port"
    """One host port with all its devices; a zone that is there is changed."""


class ZoneBody(StrEnum):
    """Where the body of a changed zone has its endpoints."""

    LINKS = "links"
    """`{"Links": {"Endpoints": [...]}}`, as in the schema."""
    ENDPOINTS = "endpoints"
    """`{"Endpoints": [...]}`, as in PCIe fabrics after Intel's Rack Scale Design."""


class NotePlace(StrEnum):
    """Which property of a connection keeps a client's text."""

    DESCRIPTION = "Description"
    NAME = "Name"
    NONE = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How one kind of service is spoken to.

    Attributes:
        method: see `MethodName`.
        zone_style: see `ZoneStyle`; `PAIR` but for `zones`.
        zone_body: see `ZoneBody`; of the style `PORT`.
        note_place: see `NotePlace`.
        products: what the service root's `Product` or `Vendor` begins with, in lower case.
        ports: how many devices one host port carries.
        unverified: what was never tried on the product, in a sentence; empty where it was.
    """

    method: MethodName = MethodName.ZONES
    zone_style: ZoneStyle = ZoneStyle.PAIR
    zone_body: ZoneBody = ZoneBody.LINKS
    note_place: NotePlace = NotePlace.DESCRIPTION
    products: tuple[str, ...] = ()
    ports: int = 16
    unverified: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What a service lists, read by one profile.

    Attributes:
        devices: how many.
        hosts: how many.
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
            note_place=NotePlace.NONE,
            products=("h3", "falcon"),
            unverified=(
                "the profile h3 was never tried on a product of H3, whose documentation does not show the body of a change: attach "
                "a first device to a host without others, and if it is not shown, set the parameter `zoneBody: endpoints`"
            ),
        ),
        "connections": Profile(method=MethodName.CONNECTIONS),
        "cma": Profile(
            method=MethodName.APPLIANCE,
            note_place=NotePlace.NONE,
            products=("memory appliance composer",),
            ports=1,
        ),
        "composition": Profile(method=MethodName.COMPOSITION, note_place=NotePlace.NONE, ports=32),
        "constrained": Profile(method=MethodName.CONSTRAINED, note_place=NotePlace.NONE, ports=32),
    }
)


def by_root(root: Document) -> str:
    """Return the name of the profile that a service root shows, or that of the generic one."""
    shown = (root.text("Product").lower(), root.text("Vendor").lower())
    for name, profile in PROFILES.items():
        if any(content.startswith(product) for product in profile.products for content in shown):
            return name
    has_fabrics = root.link("Fabrics") is not None
    return GENERIC if has_fabrics or root.link("CompositionService") is None else "composition"


def by_fabrics(fabrics: Iterable[Document]) -> str:
    """Return the name of the profile that the fabrics of a service with none of its own show."""
    linked = {name for fabric in fabrics for name in ("Zones", "Connections") if fabric.link(name)}
    return "connections" if linked == {"Connections"} else GENERIC


def suggest(listed: Mapping[str, Counts]) -> str:
    """Return which profile would list something, in a sentence with the remedy; empty if none would.

    Args:
        listed: by the name of a profile its reading of the service.
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
