"""Reports of the network interfaces of prepared devices in their claims: `status.devices[].networkData`.

A report follows the preparation of a claim, because only then is the interface's name in the pod certain. Soon after, the
interface is in the pod's network namespace, and invisible to this daemon. So reports are made from the record of prepared
claims. After a restart the daemon writes them again, and an equal report changes nothing.

Reports have a field manager of their own, so they neither repeat nor remove the node's reports of readiness. The field `ips`
is left to the network plugin.

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
    """The queue of claims with network interfaces to report; see `run`."""

    def __init__(
        self,
        api: client.Client,
        *,
        driver: str,
        files: store.Store,
        tells_claims: Callable[[], bool],
        contained: containment.Containment | None = None,
    ) -> None:
        """Report nothing before `run`.

        Args:
            api: the client of the API server.
            driver: the name of the DRA driver.
            files: the record of prepared claims.
            tells_claims: returns whether claims have a status of their devices (`resource.k8s.io/v1`).
            contained: contains an unexpected error of one claim; without it, the error is raised.
        """
        self._contained = contained
        self._api = api
        self._driver = driver
        self._files = files
        self._tells_claims = tells_claims
        self._queue: workers.WorkQueue[str] = workers.WorkQueue()

    def report(self, uid: str) -> None:
        """Have the network interfaces of that claim's devices reported, if there are any."""
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
        body = build_apply(claim, self._driver, record)
        if body is not None:
            await claimstatus.apply(self._api, claim, body, manager=drivers.manager(MANAGER, self._driver))


def build_apply(
    claim: claims.ResourceClaim, driver: str, record: records.PreparedClaim
) -> dict[str, Any] | None:
    """Return the object for a server-side apply to the claim's status; None if there is nothing to report.

    For a composite with several network devices, it contains the interface of the first one.
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
