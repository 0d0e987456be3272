"""What the API server serves of an API group.

Source: Kubernetes API concepts, "Discovery API"; `/apis/<group>`.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from drawbar.driver import backoff
from drawbar.driver.kube import client, decoding, errors

log = logging.getLogger(__name__)

RESOURCE_GROUP = "resource.k8s.io"


class _Version(msgspec.Struct):
    version: str = ""


class _Group(msgspec.Struct):
    versions: tuple[_Version, ...] = ()


class _Resource(msgspec.Struct):
    name: str = ""


class _Resources(msgspec.Struct):
    resources: tuple[_Resource, ...] = ()


T = TypeVar("T")


async def resources(api: client.Client, group: str) -> Mapping[str, frozenset[str]]:
    """By version of the group the resources that it serves; nothing where the group is not served.

    Raises:
        errors.KubeError: the API server does not tell.
    """
    found = {}
    for one in (await _asked(api, f"/apis/{group}", _Group)).versions:
        listed = await _asked(api, f"/apis/{group}/{one.version}", _Resources)
        found[one.version] = frozenset(resource.name for resource in listed.resources)
    return found


async def _asked(api: client.Client, path: str, into: type[T]) -> T:
    try:
        answer = await api.request("GET", path)
    except errors.NotFound:
        return into()
    try:
        return decoding.decode(answer, into)
    except msgspec.MsgspecError as error:
        raise errors.Unreachable(f"GET {path} was answered with something else: {error}") from error


async def settled(api: client.Client, group: str) -> Mapping[str, frozenset[str]]:
    """The same, asked until the API server answers; nothing where it does not allow the question."""
    pauses, said = backoff.Backoff(), ""
    while True:
        try:
            return await resources(api, group)
        except errors.Denied as error:
            log.warning("may not learn what the API server serves, taking it for a recent one: %s", error)
            return {}
        except errors.KubeError as error:
            if str(error) != said:
                said = str(error)
                log.warning("cannot learn what the API server serves, trying again: %s", error)
        await asyncio.sleep(pauses.failed())
