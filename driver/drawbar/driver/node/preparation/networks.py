"""Reports the network interfaces of prepared devices in their claims: `status.devices[].networkData`.

Once a claim is prepared: only then is it certain what an interface is called in the pod, and soon after it is in the
pod's network namespace, where this daemon sees it no more. What is reported is taken from the record of prepared
claims, so a daemon that is started anew reports it again, which changes nothing where it is there already.

Under a field manager of its own: what the node says of a device's readiness is neither repeated nor taken back here.
`ips` is left to whoever gives the interface its addresses.

Source: `resource.k8s.io/v1` NetworkDeviceData.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from drawbar.driver import containment
from drawbar.driver.api import bindings, claims, drivers
from drawbar.driver.kube import claimstatus, client, kinds, workers
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.node.preparation import records, store

MANAGER = "drawbar-node-network"


class Networks:
    """What is to be reported, by claim; see `run`."""

    def __init__(
        self,
        api: client.Client,
        *,
        driver: str,
        files: store.Store,
        tells_claims: Callable[[], bool],
        contained: containment.Containment | None = None,
    ) -> None:
        """Nothing is reported before `run`.

        Args:
            api: to the API server.
            driver: whose devices.
            files: the record of prepared claims.
            tells_claims: whether claims have a status of their devices (`resource.k8s.io/v1`).
            contained: keeps an unexpected error over one claim from the others; without it, that is raised.
        """
        self._contained = contained
        self._api = api
        self._driver = driver
        self._files = files
        self._tells_claims = tells_claims
        self._queue: workers.WorkQueue[str] = workers.WorkQueue()

    def report(self, uid: str) -> None:
        """Have the interfaces of that claim's devices reported, if it has any."""
        record = self._files.claims.get(uid)
        if record is not None and any(device.network is not None for device in record.devices):
            self._queue.add(uid)

    async def run(self) -> None:
        """Report until cancelled."""
        await self._queue.run(
            self._reconcile, lambda uid: {"uid": uid}, worker="networks", contained=self._contained
        )

    async def _reconcile(self, uid: str) -> None:
        record = self._files.claims.get(uid)
        if record is None or not self._tells_claims():
            return
        try:
            claim = await self._api.read(
                kinds.CLAIM, record.name, namespace=record.namespace, into=claims.ResourceClaim
            )
        except kube_errors.NotFound:
            return
        body = applied(claim, self._driver, record)
        if body is not None:
            await claimstatus.apply(self._api, claim, body, manager=drivers.manager(MANAGER, self._driver))


def applied(claim: claims.ResourceClaim, driver: str, record: records.PreparedClaim) -> dict[str, Any] | None:
    """Return the object for a server-side apply to the claim's status; None where there is nothing to report.

    Of a composite with several network devices it has the first one's interface.
    """
    if claim.metadata.uid != record.uid:
        return None
    networks: dict[tuple[str, str, str | None], records.Network] = {}
    for device in record.devices:
        if device.network is not None:
            networks.setdefault(
                (device.pool, device.composite or device.device, device.share_id), device.network
            )
    devices = {
        key: bindings.entry(result) | {"networkData": msgspec.to_builtins(networks[key])}
        for result in claim.results(driver)
        for key in ((result.pool, result.device, result.share_id),)
        if key in networks
    }
    return bindings.document(claim, list(devices.values())) if devices else None
