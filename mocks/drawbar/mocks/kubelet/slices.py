"""The deletion of the node's ResourceSlices whose driver has no plugin.

When the kubelet starts, all slices with `spec.nodeName` of this node are deleted, of every driver. When a driver has
had no connected plugin for `wiping_seconds`, its slices of this node are deleted. A driver that comes back in time
keeps them. A failed wipe is tried again. Slices with a node selector, or for all nodes, are never touched.

Limit: the wiping of 1.31 is not emulated, because no driver publishes slices (of `v1alpha3`) in addition to an
allocating controller.

Source: pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go of Kubernetes 1.36, as described by the fact pages.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from drawbar.mocks.kube import backoff, client, errors, kinds
from drawbar.mocks.kubelet import settings, versions

log = logging.getLogger(__name__)

ATTEMPTS = 100


class Wiper:
    """The wiping of one node. Make it with `wiping`."""

    def __init__(
        self, api: client.Client, node: str, times: settings.Settings, group: asyncio.TaskGroup
    ) -> None:
        self._api = api
        self._node = node
        self._times = times
        self._group = group
        # The waiting drivers; a running wipe is not in it, because it cannot be cancelled.
        self._pending: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def wipe(self, driver: str = "") -> None:
        """Delete the node's slices, of one driver or of all; retry after failures, up to `ATTEMPTS` times."""
        if versions.is_classic(self._times.release):
            return
        fields = f"spec.nodeName={self._node}" + (f",spec.driver={driver}" if driver else "")
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self._api.request("DELETE", kinds.SLICE.path(), {"fieldSelector": fields})
            except errors.KubeError as error:
                pause = backoff.longest(
                    attempt, self._times.wipe_retry_first_seconds, self._times.wipe_retry_max_seconds
                )
                log.info("slices not wiped: %s", error, extra={"selector": fields, "pause_seconds": pause})
                await asyncio.sleep(pause)
            else:
                log.info("slices wiped", extra={"selector": fields})
                return

    def usable(self, driver: str, connected: bool) -> None:
        """Record whether a driver has a connected plugin; start or cancel its wipe."""
        if connected:
            waiting = self._pending.pop(driver, None)
            if waiting is not None:
                waiting.cancel()
        elif driver not in self._pending:
            task = self._group.create_task(self._wipe_later(driver), name=f"wipe-{driver}")
            self._pending[driver] = task
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Cancel waiting and running wipes."""
        for task in self._tasks:
            task.cancel()

    async def _wipe_later(self, driver: str) -> None:
        await asyncio.sleep(self._times.wiping_seconds)
        del self._pending[driver]
        await self.wipe(driver)


@asynccontextmanager
async def wiping(api: client.Client, node: str, times: settings.Settings) -> AsyncIterator[Wiper]:
    """Yield a wiper until the block ends; waiting wipes are dropped at the end."""
    async with asyncio.TaskGroup() as group:
        wiper = Wiper(api, node, times, group)
        try:
            yield wiper
        finally:
            wiper.close()
