"""Detection of the `resource.k8s.io` dialect of an API server; repeated until there is an answer."""

from drawbar.mocks.claims import dialects
from drawbar.mocks.kube import client, discovery, errors


async def dialect(api: client.Client) -> dialects.Dialect:
    """Return the modern dialect if `v1` is served or no classic one is; of two classic ones the newer.

    An API server that denies the question is assumed to be recent.
    """
    return await discovery.ask_until_answered(lambda: _dialect(api), discovery.RESOURCE_GROUP)


async def _dialect(api: client.Client) -> dialects.Dialect:
    try:
        served = await discovery.resources(api, discovery.RESOURCE_GROUP)
    except errors.Denied:
        return dialects.MODERN
    if served.get(dialects.MODERN.version):
        return dialects.MODERN
    for candidate in dialects.CLASSIC:
        context = candidate.context
        if context is not None and context.plural in served.get(candidate.version, ()):
            return candidate
    return dialects.MODERN
