"""A quirk: an observed deviation of a Redfish server from the specification.

A quirk stands between the client and the service. It forwards a request, as it is or changed, and changes the answer,
or it answers instead of the service. Some quirks change the initial resources of the service. The service itself knows
no quirk.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from drawbar.mocks.redfish.configuration import Configuration
from drawbar.mocks.redfish.exchange import Answer, Asked
from drawbar.mocks.redfish.tree import Body, Tree

Forward = Callable[[Asked], Awaitable[Answer]]
LINK = "@odata.id"


class Form(StrEnum):
    """How a service connects devices with hosts."""

    PAIR = "pair"
    """A zone for each connection."""
    PORT = "port"
    """A zone for each host port."""
    CONNECTIONS = "connections"
    """Connections of memory chunks."""
    APPLIANCE = "appliance"
    """The same of a memory appliance."""
    COMPOSITION = "composition"
    """Composition of named resource blocks."""
    CONSTRAINED = "constrained"
    """Composition by counts."""


ALL = frozenset(Form)
WITH_ZONES = frozenset({Form.PAIR, Form.PORT})
WITH_BLOCKS = frozenset({Form.COMPOSITION, Form.CONSTRAINED})
WITH_FABRIC = ALL - WITH_BLOCKS


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The service that has a quirk.

    Attributes:
        configuration: the configuration of the service.
        closed: set once the service ends.
        memory: values that the quirk keeps from request to request.
    """

    configuration: Configuration
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    memory: dict[str, Any] = field(default_factory=dict)

    @property
    def last_device(self) -> str:
        """Return the id of the last device, which is the one in bad health if a quirk needs one.

        Empty if there are none.
        """
        listed = [device.id for each in self.configuration.enclosures for device in each.devices]
        return listed[-1] if listed else ""


async def _forward(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    return await forward(asked)


def _leave(_tree: Tree, _configuration: Configuration) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirk:
    """A deviation of a server from the specification.

    Attributes:
        name: the name for the option `--quirk`.
        text: its effect, in one sentence.
        seen: the server or the report in which it was seen.
        forms: the forms of the services that can have it.
        wrap: answers a request, with the help of the service behind it.
        furnish: changes the initial resources of the service.
    """

    name: str
    text: str
    seen: str
    forms: frozenset[Form] = ALL
    wrap: Callable[[Asked, Forward, Setting], Awaitable[Answer]] = _forward
    furnish: Callable[[Tree, Configuration], None] = _leave


def form(configuration: Configuration) -> Form:
    """Return the form of a service."""
    if configuration.method == "composition":
        return Form.CONSTRAINED if configuration.constrained else Form.COMPOSITION
    if configuration.method == "connections":
        return Form.APPLIANCE if configuration.is_appliance else Form.CONNECTIONS
    return Form.PORT if configuration.zones == "port" else Form.PAIR


def map_uris(value: Any, change: Callable[[str], str]) -> Any:
    """Return a value of JSON with all links and targets of actions changed."""
    if isinstance(value, dict):
        return {
            name: change(inner)
            if name in {LINK, "target"} and isinstance(inner, str)
            else map_uris(inner, change)
            for name, inner in value.items()
        }
    return [map_uris(inner, change) for inner in value] if isinstance(value, list) else value


def map_objects(value: Any, change: Callable[[Body], Body]) -> Any:
    """Return a value of JSON with all its objects changed, the inner ones first."""
    if isinstance(value, dict):
        return change({name: map_objects(inner, change) for name, inner in value.items()})
    return [map_objects(inner, change) for inner in value] if isinstance(value, list) else value


def is_resource(body: Body) -> bool:
    """Return whether an object is a resource, and no link to one."""
    return LINK in body and len(body) > 1


def is_of_schema(body: Body, name: str) -> bool:
    """Return whether an object is a resource of this schema."""
    return is_resource(body) and str(body.get("@odata.type", "")).startswith(f"#{name}.")
