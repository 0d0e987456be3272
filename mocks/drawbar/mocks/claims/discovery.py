"""Which dialect of `resource.k8s.io` an API server speaks, asked as often as it takes to get an answer."""

import asyncio
import logging

import msgspec

from drawbar.driver.kube import client, errors, reflector
from drawbar.mocks.claims import dialects

log = logging.getLogger(__name__)


class _Resource(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct):
    resources: list[_Resource]


async def dialect(api: client.Client) -> dialects.Dialect:
    """The modern one where `v1` is served, or none of the others is; of two classic ones the newer.

    An API server that does not answer is asked again, with growing pauses.
    """
    backoff = reflector.Backoff()
    while True:
        try:
            return await _dialect(api)
        except errors.KubeError as error:
            log.warning("cannot ask for the versions of %s, trying again: %s", dialects.GROUP, error)
        await asyncio.sleep(backoff.after(0.0))


async def _dialect(api: client.Client) -> dialects.Dialect:
    if await _served(api, dialects.MODERN.version):
        return dialects.MODERN
    for candidate in dialects.CLASSIC:
        if candidate.context is not None and candidate.context.plural in await _served(
            api, candidate.version
        ):
            return candidate
    return dialects.MODERN


async def _served(api: client.Client, version: str) -> frozenset[str]:
    path = f"/apis/{dialects.GROUP}/{version}"
    try:
        listed = msgspec.json.decode(await api.request("GET", path), type=_Resources)
    except errors.NotFound:
        return frozenset()
    except msgspec.MsgspecError as error:
        raise errors.Unreachable(f"GET {path} was answered with something else than resources") from error
    return frozenset(resource.name for resource in listed.resources)
