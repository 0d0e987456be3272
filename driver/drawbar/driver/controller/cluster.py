"""Who this cluster is: the UID of its namespace `kube-system`, which it keeps for ever and no other cluster has."""

import asyncio
import logging

from drawbar.driver import backoff
from drawbar.driver.api import meta
from drawbar.driver.kube import client, errors, kinds

log = logging.getLogger(__name__)

NAMESPACE = "kube-system"
PAUSE_FIRST_SECONDS = 1.0


class _Namespace(meta.Struct, frozen=True):
    metadata: meta.ObjectMeta


async def identity(api: client.Client) -> str:
    """The UID, once the API server tells it; empty where it may not be read, so that nothing is marked or taken back."""
    pauses = backoff.Backoff(PAUSE_FIRST_SECONDS)
    while True:
        try:
            return (await api.read(kinds.NAMESPACE, NAMESPACE, into=_Namespace)).metadata.uid
        except (errors.Denied, errors.NotFound) as error:
            log.warning(
                "connections of this cluster are not marked, so lost ones are not found; "
                "let the controller read the namespace kube-system: %s",
                error,
            )
            return ""
        except errors.Unreachable:
            await asyncio.sleep(pauses.failed())
