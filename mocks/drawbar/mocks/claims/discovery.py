"""Which dialect of `resource.k8s.io` an API server speaks, asked as often as it takes to get an answer."""

from drawbar.driver.kube import client, discovery
from drawbar.mocks.claims import dialects


async def dialect(api: client.Client) -> dialects.Dialect:
    """Return the modern dialect where `v1` is served, or no classic one is; of two classic ones the newer.

    An API server that does not answer is asked again, with growing pauses; one that denies the request is assumed to
    be recent.
    """
    served = await discovery.settled(api, discovery.RESOURCE_GROUP)
    if served.get(dialects.MODERN.version):
        return dialects.MODERN
    for candidate in dialects.CLASSIC:
        context = candidate.context
        if context is not None and context.plural in served.get(candidate.version, ()):
            return candidate
    return dialects.MODERN
