"""The choice of a profile and its method: named by a parameter, shown by the service, or suggested to the user."""

import contextlib
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from drawbar.fabric import errors
from drawbar.fabric.redfish import (
    appliance,
    client,
    composition,
    connections,
    constrained,
    entities,
    methods,
    profiles,
    reading,
    zones,
)

_logger = logging.getLogger(__name__)


async def choose_profile(connection: client.Client, fabrics: frozenset[str]) -> str:
    """Return the name of the profile that the service root shows, or else its fabrics.

    Args:
        connection: to the service.
        fabrics: the ids of the fabrics to look at; empty for all of a suitable type.

    Raises:
        FabricError: the service cannot be read.
    """
    name = profiles.choose_by_root(connection.root)
    if name != profiles.GENERIC or connection.root.link("Fabrics") is None:
        return name
    reader = reading.Reader(connection)
    try:
        listed = await reading.read_linked(reader.root, "Fabrics", reader.members)
    except errors.Unimplemented:
        # The first reading reports it, with a profile that lists something.
        return name
    return profiles.choose_by_fabrics(
        fabric for fabric in listed if (fabric.id in fabrics if fabrics else entities.has_devices(fabric))
    )


def build_method(profile: profiles.Profile, fabrics: frozenset[str]) -> methods.Method:
    """Return the method of a profile, without a reading."""
    match profile.method:
        case profiles.MethodName.ZONES:
            return zones.Zones(profile, fabrics=fabrics)
        case profiles.MethodName.CONNECTIONS:
            return connections.Connections(profile, fabrics=fabrics)
        case profiles.MethodName.APPLIANCE:
            return appliance.Appliance(profile, fabrics=fabrics)
        case profiles.MethodName.CONSTRAINED:
            return constrained.Constrained(profile)
        case profiles.MethodName.COMPOSITION:
            return composition.Composition(profile)


class Suggester:
    """The search for another profile that would list something; it reads the service once for a connection."""

    def __init__(
        self,
        connection: client.Client,
        profile: profiles.Profile,
        fabrics: frozenset[str],
        *,
        bounded: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        """Begin without a search.

        Args:
            connection: to the service.
            profile: the one in use.
            fabrics: the ids of the fabrics to use; empty for all.
            bounded: returns a context with the deadline of one search.
        """
        self._client = connection
        self._profile = profile
        self._fabrics = fabrics
        self._bounded = bounded
        # None until it is looked for.
        self._sentence: str | None = None

    async def suggest(self) -> str:
        """Return which other profile would list something, in a sentence; empty if none would.

        Each method reads the service once and changes nothing.
        """
        if self._sentence is None:
            self._sentence = ""
            counts: dict[str, profiles.Counts] = {}
            read = {self._profile.method}
            with contextlib.suppress(errors.FabricError):
                async with self._bounded():
                    for name, profile in profiles.PROFILES.items():
                        if profile.method not in read:
                            read.add(profile.method)
                            counts[name] = await self._count(profile)
            self._sentence = profiles.suggest(counts)
        return self._sentence

    async def _count(self, profile: profiles.Profile) -> profiles.Counts:
        """Return the size of the service's listing by a profile; nothing if it cannot be read so."""
        method = build_method(profile, self._fabrics)
        try:
            await method.read(reading.Reader(self._client))
        except errors.FabricError as error:
            _logger.debug("a profile is not suggested", extra={"error": error.message})
            return profiles.Counts(devices=0, hosts=0)
        view = method.view()
        return profiles.Counts(devices=len(view.devices), hosts=len(view.hosts))
