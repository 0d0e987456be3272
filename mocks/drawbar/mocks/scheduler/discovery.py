"""Which optional kinds this API server serves: DeviceTaintRules come with the release and its feature gates."""

import asyncio
import logging

import msgspec

from drawbar.driver.kube import client, errors, kinds, reflector

log = logging.getLogger(__name__)

GROUP = "resource.k8s.io"
PLURAL = "devicetaintrules"
# v1 since 1.37, v1beta2 since 1.36, before that only v1alpha3.
VERSIONS = ("v1", "v1beta2", "v1alpha3")


class _Resource(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct):
    resources: list[_Resource]


async def taint_rules(api: client.Client) -> kinds.Kind | None:
    """DeviceTaintRules in the newest version that is served; None where there are none.

    An API server that does not answer is asked again, with growing pauses.
    """
    backoff = reflector.Backoff()
    while True:
        try:
            return await _taint_rules(api)
        except errors.KubeError as error:
            log.warning("cannot ask for DeviceTaintRules, trying again: %s", error)
        await asyncio.sleep(backoff.after(0.0))


async def _taint_rules(api: client.Client) -> kinds.Kind | None:
    for version in VERSIONS:
        path = f"/apis/{GROUP}/{version}"
        try:
            listed = msgspec.json.decode(await api.request("GET", path), type=_Resources)
        except errors.NotFound:
            continue
        except msgspec.MsgspecError as error:
            raise errors.Unreachable(f"GET {path} was answered with something else than resources") from error
        if any(resource.name == PLURAL for resource in listed.resources):
            return kinds.Kind(
                group=GROUP, version=version, kind="DeviceTaintRule", plural=PLURAL, namespaced=False
            )
    return None
