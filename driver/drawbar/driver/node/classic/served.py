"""In which versions this cluster serves claims, asked at the start and followed while there is no `v1`.

A cluster that is upgraded under a running daemon gets `v1` some day, and then everything is done that waited for it.
Several versions may be served at once; the newest that this daemon knows comes first.
"""

import asyncio
import dataclasses
import logging
import random

from drawbar.driver import backoff
from drawbar.driver.kube import client, discovery, errors, kinds

log = logging.getLogger(__name__)

V1ALPHA2 = "v1alpha2"
V1ALPHA3 = "v1alpha3"
# Of Kubernetes 1.34 and later, 1.33, 1.32, 1.31, and 1.27 to 1.30.
KNOWN = ("v1", "v1beta2", "v1beta1", V1ALPHA3, V1ALPHA2)
# A control plane is upgraded within minutes, and a node has nothing to do with it until pods are there.
FOLLOW_SECONDS = 60.0
RETRY_FIRST_SECONDS = 0.2
RETRY_MAX_SECONDS = 30.0
_CLAIMS = tuple(dataclasses.replace(kinds.CLAIM, version=version) for version in KNOWN)


class Served:
    """The versions of claims. Before `known`, and where nobody may ask, `v1` alone."""

    def __init__(self, api: client.Client, *, follow_seconds: float = FOLLOW_SECONDS) -> None:
        self._api = api
        self._follow_seconds = follow_seconds
        self.claims: tuple[kinds.Kind, ...] = (kinds.CLAIM,)
        self.known = asyncio.Event()
        """The API server has answered once."""
        self.modern = asyncio.Event()
        """There is `v1`: ResourceSlices of it, and conditions in the status of claims."""

    async def run(self) -> None:
        """Asks until there is `v1`, and returns then."""
        pauses, said = backoff.Backoff(RETRY_FIRST_SECONDS, RETRY_MAX_SECONDS), ""
        while not self.modern.is_set():
            try:
                await self.ask()
                pauses.reset()
                said, pause = "", self._follow_seconds * random.uniform(0.8, 1.2)  # noqa: S311 - spreads requests
            except errors.KubeError as error:
                if str(error) != said:
                    said = str(error)
                    log.warning("cannot ask in which versions claims are served, trying again: %s", error)
                pause = pauses.failed()
            if not self.modern.is_set():
                await asyncio.sleep(pause)

    async def ask(self) -> None:
        """Asks once.

        Raises:
            errors.KubeError: the API server did not tell.
        """
        try:
            # `v1alpha3` of later releases has device taint rules alone.
            served = await discovery.resources(self._api, kinds.CLAIM.group)
            found = tuple(kind for kind in _CLAIMS if kind.plural in served.get(kind.version, ()))
        except errors.Denied as error:
            log.warning("nobody may ask which versions are served; taking it for v1: %s", error)
            found = (kinds.CLAIM,)
        self._say(found)
        self.claims = found
        if kinds.CLAIM in found:
            self.modern.set()
        self.known.set()

    def _say(self, found: tuple[kinds.Kind, ...]) -> None:
        if self.known.is_set() and found == self.claims:
            return
        versions = {"served": ",".join(kind.version for kind in found) or "none"}
        if not found:
            log.error(
                "this cluster serves claims in no version that is known here; nothing can be prepared",
                extra=versions,
            )
        elif kinds.CLAIM not in found:
            log.warning(
                "this cluster has no resource.k8s.io/v1: the node's own devices are not published, and claims are told "
                "nothing of their devices; the attachments say it all",
                extra=versions,
            )
        elif self.known.is_set():
            log.info("this cluster has resource.k8s.io/v1 now; everything is published", extra=versions)
