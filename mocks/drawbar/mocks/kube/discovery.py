"""The versions and resources that an API server serves, and questions that are repeated until it answers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from drawbar.mocks.kube import backoff, client, errors

log = logging.getLogger(__name__)

RESOURCE_GROUP = "resource.k8s.io"
T = TypeVar("T")


async def ask_until_answered(ask: Callable[[], Awaitable[T]], what: str) -> T:
    """Return the answer to a question, which is repeated with growing pauses while the API server does not answer."""
    pauses = backoff.Backoff()
    while True:
        try:
            return await ask()
        except errors.KubeError as error:
            log.warning("cannot ask for %s, trying again: %s", what, error)
        await asyncio.sleep(pauses.count_failure())


async def resources(api: client.Client, group: str) -> Mapping[str, frozenset[str]]:
    """Return the plurals of each served version of a group; empty if the group is not served."""
    served = {}
    for version in (await _read(api, f"/apis/{group}")).get("versions", ()):
        answer = await _read(api, f"/apis/{group}/{version['version']}")
        served[version["version"]] = frozenset(each["name"] for each in answer.get("resources", ()))
    return served


async def _read(api: client.Client, path: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(await api.request("GET", path), type=dict[str, Any])
    except errors.NotFound:
        return {}
    except msgspec.MsgspecError as error:
        raise errors.Unreachable(f"GET {path} was answered with something else: {error}") from error
