"""The node daemon: hears of attachments and of hot-plug, and serves the kubelet.

Order at the start, each step with its reason: subscribe to uevents, then read sysfs (what happens between is seen
twice, never missed); learn this node's attachments; restore what was prepared; only then tell the kubelet that we are
here, since from then on it calls.
"""

import asyncio
import datetime
import logging
from pathlib import Path

from drawbar.driver.api import attachments
from drawbar.driver.kube import client, config, events, kinds, queue, reflector
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.node import devices, errors, executor, preparation, settings, uevents
from drawbar.driver.node.plugin import server, sockets

log = logging.getLogger(__name__)

WORKERS = 4
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


async def run(options: settings.Settings) -> None:
    """Runs until cancelled.

    Raises:
        errors.DrawbarError: something this host or the configuration is to blame for.
    """
    settings.validate(options)
    where = sockets.paths(options.kubelet_dir, options.driver, options.instance)
    connection = config.load(options.kubeconfig)
    # Before anything is read or written: another instance may live here, and the files are its own.
    sockets.prepare(where)
    async with (
        client.connecting(connection) as api,
        uevents.listening(options.uevents) as source,
        asyncio.TaskGroup() as tasks,
    ):
        await _Node(options, api).serve(source, where, tasks)


def _boot_id() -> str:
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError as error:
        raise errors.NodeError(f"cannot read {BOOT_ID}: {error.strerror}; mount /proc") from error


class _Node:
    def __init__(self, options: settings.Settings, api: client.Client) -> None:
        self._options = options
        self._queue: queue.WorkQueue[str] = queue.WorkQueue()
        self._arrivals = devices.Devices(options.sysfs, self._look_at_all)
        self._recorder = events.Recorder(api, controller=options.driver, instance=options.node_name)
        self._attachments = reflector.Reflector(
            api,
            kinds.ATTACHMENT,
            into=attachments.DeviceAttachment,
            changed=self._attachment_changed,
            labels=f"{attachments.NODE_LABEL}={attachments.node_label(options.node_name)}",
        )
        boot_id = _boot_id()
        self._preparer = preparation.Preparer(
            driver=options.driver,
            api=api,
            arrivals=self._arrivals,
            attached=lambda: self._attachments,
            cdi_dir=options.cdi_dir,
            checkpoint_path=options.checkpoint,
            boot_id=boot_id,
            released=self._device_released,
        )
        self._context = executor.Context(
            api=api,
            arrivals=self._arrivals,
            recorder=self._recorder,
            boot_id=boot_id,
            since=datetime.datetime.now(datetime.UTC),
            patience=datetime.timedelta(seconds=options.visible_timeout_seconds),
            clock=lambda: datetime.datetime.now(datetime.UTC),
            holder=self._preparer.holder,
        )

    async def serve(
        self, source: uevents.UeventSource, where: sockets.Sockets, tasks: asyncio.TaskGroup
    ) -> None:
        await self._arrivals.read()
        tasks.create_task(self._arrivals.follow(source), name="uevents")
        tasks.create_task(self._attachments.run(), name="attachments")
        tasks.create_task(self._recorder.run(), name="events")
        await self._attachments.synced.wait()
        await self._preparer.restore()
        for number in range(WORKERS):
            tasks.create_task(self._work(), name=f"worker-{number}")
        sockets.sweep(self._options.kubelet_dir, self._options.driver)
        async with server.serving(self._options.driver, where, self._preparer):
            log.info("node daemon is ready", extra={"node": self._options.node_name})
            await asyncio.get_running_loop().create_future()

    async def _work(self) -> None:
        while True:
            name = await self._queue.take()
            try:
                await self._reconcile(name)
            finally:
                self._queue.done(name)

    async def _reconcile(self, name: str) -> None:
        attachment = self._attachments.get(name)
        if attachment is None:
            self._queue.forget(name)
            self._context.forget(name)
            return
        try:
            again = await executor.reconcile(self._context, attachment)
        except kube_errors.KubeError as error:
            pause = self._queue.retry(name)
            log.info("will try again: %s", error, extra={"attachment": name, "seconds": round(pause, 2)})
            return
        self._queue.forget(name)
        if again is not None:
            self._queue.add_after(name, again)

    def _attachment_changed(
        self, old: attachments.DeviceAttachment | None, new: attachments.DeviceAttachment | None
    ) -> None:
        found = new or old
        if found is not None:
            self._queue.add(found.metadata.name)

    def _device_released(self, pool: str, device: str) -> None:
        for attachment in self._attachments:
            if (attachment.spec.pool, attachment.spec.device) == (pool, device):
                self._queue.add(attachment.metadata.name)

    def _look_at_all(self) -> None:
        for attachment in self._attachments:
            self._queue.add(attachment.metadata.name)
