"""Detection of the `resource.k8s.io` dialect of an API server; repeated until there is an answer."""

from drawbar.driver.kube import client, discovery
from drawbar.mocks.claims import dialects


async def dialect(api: client.Client) -> dialects.Dialect:
    """Return the modern dialect if `v1` is served or no classic one is; of two classic ones the newer.

    The request is repeated with growing pauses while the API server does not answer. One that denies the request is
    assumed to be recent.
    """
    served = await discovery.await_resources(api, discovery.RESOURCE_GROUP)
    if served.get(dialects.MODERN.version):
        return dialects.MODERN
    for candidate in dialects.CLASSIC:
        context = candidate.context
        if context is not None and context.plural in served.get(candidate.version, ()):
            return candidate
    return dialects.MODERN
