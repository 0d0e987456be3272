"""The local pool of a running daemon: what lives in the node, and the publisher that keeps the API server told of it.

At the start it also says where another CDI file names a device of ours: what comes of that shows in no pod's events.
"""

import asyncio
import contextlib
import logging
from pathlib import Path

from drawbar.cdi import directories, files
from drawbar.cdi import errors as cdi_errors
from drawbar.driver import evaluation
from drawbar.driver.api import meta
from drawbar.driver.kube import client, events
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.local import nulls, pool, publisher, selection

log = logging.getLogger(__name__)

NULLS_SHORT = "NullDeviceNotShared"


class Service:
    """One node's own devices. `run` publishes; everything else is called in the event loop."""

    def __init__(
        self,
        api: client.Client,
        *,
        driver: str,
        node_name: str,
        wanted: selection.Selection,
        surroundings: pool.Surroundings,
        health: pool.Health | None,
        clock: publisher.Clock,
        null: nulls.NullDevice,
        recorder: events.Recorder,
    ) -> None:
        # A process only where there is a selector, and only while devices change.
        self._evaluator = evaluation.Process()
        self._recorder = recorder
        self.devices = pool.LocalPool(
            driver=driver,
            node_name=node_name,
            wanted=wanted,
            surroundings=surroundings,
            health=health,
            evaluator=self._evaluator,
        )
        self.publisher = publisher.Publisher(
            api,
            driver=driver,
            node_name=node_name,
            offers=self.devices.survey,
            watch=self.devices.watch,
            clock=clock,
            null=null,
            tell=self._tell,
        )

    def changed(self) -> None:
        """The inventory, an attachment, or what claims hold has changed."""
        self.publisher.changed()

    def judged(self, key: verdicts.Key) -> None:
        """The health of a device has changed."""
        if self.devices.owns(key.pool):
            self.publisher.changed()

    async def run(self) -> None:
        """Publishes until cancelled."""
        async with contextlib.aclosing(self._evaluator):
            await self.publisher.run()

    def _tell(self, node: meta.OwnerReference, message: str) -> None:
        log.warning("%s", message)
        self._recorder.node_warning(node.name, node.uid, reason=NULLS_SHORT, message=message)


async def say_conflicts(cdi_dir: Path, driver: str) -> None:
    """Logs where a file that is not ours names a device of ours."""
    try:
        found = await asyncio.to_thread(conflicts, cdi_dir, driver)
    except cdi_errors.CdiError as error:
        log.warning("cannot look for CDI files that name our devices, too: %s", error)
        return
    for one in found:
        log.warning("%s", one, extra={"device": one.device, "file": str(one.file)})


def conflicts(cdi_dir: Path, driver: str) -> list[directories.Conflict]:
    """Every device of our files that another file names, too. Reads all of them, so call it in a thread.

    Raises:
        cdi.errors.CdiError: one of our files, or the directory, cannot be read.
    """
    found: list[directories.Conflict] = []
    for owner in sorted(files.owners(cdi_dir, driver)):
        file = files.path(cdi_dir, driver, owner)
        content = files.read(file)
        if content is not None:
            found += directories.conflicts(directories.read_by_runtimes(cdi_dir), file, content)
    return found
