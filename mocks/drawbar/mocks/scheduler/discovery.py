"""The features of the API server: DeviceTaintRules depend on release and gates, rates of evictions on a proposal."""

import msgspec

from drawbar.mocks.kube import client, discovery, errors, kinds

PLURAL = "devicetaintrules"
# v1 since 1.37, v1beta2 since 1.36, v1alpha3 before.
VERSIONS = ("v1", "v1beta2", "v1alpha3")


TAINT_SCHEMA = "io.k8s.api.resource.v1.DeviceTaint"


ALLOCATES_FROM_COMPLETE_POOLS = 36
UNSEEN_VERSION = "v1beta2"


class _Version(msgspec.Struct):
    minor: str


class _Schema(msgspec.Struct):
    properties: dict[str, msgspec.Raw] = {}


class _Components(msgspec.Struct):
    schemas: dict[str, _Schema] = {}


class _Document(msgspec.Struct):
    components: _Components


async def taint_rules(api: client.Client) -> kinds.Kind | None:
    """Return DeviceTaintRules in the newest served version, or None.

    If the API server does not answer, the query is repeated with growing pauses.
    """
    return await discovery.ask_until_answered(lambda: _taint_rules(api), "DeviceTaintRules")


async def rules_for_scheduling(api: client.Client) -> kinds.Kind | None:
    """Return the DeviceTaintRules used by the scheduler; None if there are none, or if it does not see them.

    The scheduler of 1.36 lists them in v1beta2 but expects v1alpha3's type, so it ends with their gate on. It
    therefore runs without the gate and sees none; its eviction controller does. With the proposal the scheduler sees
    them.

    Source: deviceTaintAdd, k8s.io/dynamic-resource-allocation/resourceslice/tracker, 1.36.
    """
    rules = await taint_rules(api)
    if rules is None or rules.version != UNSEEN_VERSION or await eviction_rates(api):
        return rules
    return None


async def is_before_1_36(api: client.Client) -> bool:
    """Return true if the release's scheduler uses incomplete pools and has the older messages of failures.

    Source: allocateOne, k8s.io/dynamic-resource-allocation/structured, and isClaimReadyForBinding,
    pkg/scheduler/framework/plugins/dynamicresources, in 1.34 and 1.36.
    """
    return await discovery.ask_until_answered(
        lambda: _is_older(api, ALLOCATES_FROM_COMPLETE_POOLS), "its version"
    )


async def eviction_rates(api: client.Client) -> bool:
    """Return true if a taint can have a rate of evictions, as in no release; repeat the query until it is answered."""
    return await discovery.ask_until_answered(lambda: _eviction_rates(api), "the fields of taints")


async def _is_older(api: client.Client, minor: int) -> bool:
    try:
        version = msgspec.json.decode(await api.request("GET", "/version"), type=_Version)
        return int(version.minor.rstrip("+")) < minor
    except (msgspec.MsgspecError, ValueError) as error:
        raise errors.Unreachable(f"GET /version was answered with something else: {error}") from error


async def _eviction_rates(api: client.Client) -> bool:
    path = f"/openapi/v3/apis/{discovery.RESOURCE_GROUP}/v1"
    try:
        document = msgspec.json.decode(await api.request("GET", path), type=_Document)
    except errors.NotFound:
        return False
    except msgspec.MsgspecError as error:
        raise errors.Unreachable(f"GET {path} was answered with something else than OpenAPI") from error
    schema = document.components.schemas.get(TAINT_SCHEMA)
    return schema is not None and "evictionsPerSecond" in schema.properties


async def _taint_rules(api: client.Client) -> kinds.Kind | None:
    group = discovery.RESOURCE_GROUP
    served = await discovery.resources(api, group)
    version = next((candidate for candidate in VERSIONS if PLURAL in served.get(candidate, ())), None)
    if version is None:
        return None
    return kinds.Kind(group=group, version=version, kind="DeviceTaintRule", plural=PLURAL, namespaced=False)
