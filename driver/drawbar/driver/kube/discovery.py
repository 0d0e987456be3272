"""The served versions and resources of an API group.

Source: Kubernetes API concepts, "Discovery API"; `/apis/<group>`.
"""

import logging
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from drawbar.driver import backoff
from drawbar.driver.kube import client, decoding, errors, kinds

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
    """Return the resources of each version of a group; empty where the group is not served.

    Raises:
        errors.KubeError: the API server does not answer, or not allow the request.
    """
    served = {}
    for version in (await _read(api, f"/apis/{group}", _Group)).versions:
        answer = await _read(api, f"/apis/{group}/{version.version}", _Resources)
        served[version.version] = frozenset(resource.name for resource in answer.resources)
    return served


def taint_rules(served: Mapping[str, frozenset[str]]) -> kinds.Kind | None:
    """Return DeviceTaintRule in the newest version among the resources of its group, or None if there is none."""
    return next((kind for kind in kinds.TAINT_RULES if kind.plural in served.get(kind.version, ())), None)


async def _read(api: client.Client, path: str, into: type[T]) -> T:
    try:
        answer = await api.request("GET", path)
    except errors.NotFound:
        return into()
    try:
        return decoding.decode(answer, into)
    except decoding.Malformed as error:
        raise errors.Unreachable(f"GET {path} was answered with something else: {error}") from error


async def await_resources(api: client.Client, group: str) -> Mapping[str, frozenset[str]]:
    """Return `resources`, repeated until the API server answers; empty if it denies the request."""
    noted = backoff.warning_once(log, "cannot list the API server's resources, trying again: %s")
    loop = backoff.build_retrying(errors.KubeError, unless=(errors.Denied,), noted=noted)
    try:
        return await loop(resources, api, group)
    except errors.Denied as error:
        log.warning("may not list the API server's resources, taking it for a recent one: %s", error)
        return {}
