"""Which dialect of `resource.k8s.io` an API server speaks, asked as often as it takes to get an answer."""

from drawbar.driver.kube import client, discovery
from drawbar.mocks.claims import dialects


async def dialect(api: client.Client) -> dialects.Dialect:
    """The modern one where `v1` is served, or none of the others is; of two classic ones the newer.

    An API server that does not answer is asked again, with growing pauses; one that does not
    allow the question is taken for a recent one.
    """
    found = await discovery.settled(api, discovery.RESOURCE_GROUP)
    if found.get(dialects.MODERN.version):
        return dialects.MODERN
    for candidate in dialects.CLASSIC:
        context = candidate.context
        if context is not None and context.plural in found.get(candidate.version, ()):
            return candidate
    return dialects.MODERN
