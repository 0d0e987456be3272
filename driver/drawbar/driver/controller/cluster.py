"""Who this cluster is: the UID of its namespace `kube-system`, which it keeps for ever and no other cluster has."""

import logging

import tenacity

from drawbar.driver.api import meta
from drawbar.driver.kube import client, errors, kinds

log = logging.getLogger(__name__)

NAMESPACE = "kube-system"
PAUSE_MAX_SECONDS = 30.0


class _Namespace(meta.Struct, frozen=True):
    metadata: meta.ObjectMeta


async def identity(api: client.Client) -> str:
    """The UID, once the API server tells it; empty where it may not be read, so that nothing is marked or taken back."""
    async for attempt in tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(errors.Unreachable),
        wait=tenacity.wait_exponential_jitter(max=PAUSE_MAX_SECONDS),
    ):
        with attempt:
            try:
                found = await api.read(kinds.NAMESPACE, NAMESPACE, into=_Namespace)
            except (errors.Denied, errors.NotFound) as error:
                log.warning(
                    "connections of this cluster are not marked, so lost ones are not found; "
                    "let the controller read the namespace kube-system: %s",
                    error,
                )
                return ""
    return found.metadata.uid
