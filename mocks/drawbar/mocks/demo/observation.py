"""Watches pods, claims, attachments and the fabric's journal, and says each step as it happens.

The only state is a `Progress`; what is seen is parsed here, at the edge, and folded into it.
"""

import asyncio
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

import msgspec

from drawbar.driver.api import attachments, bindings, claims
from drawbar.driver.kube import client, kinds, reflector
from drawbar.driver.node import settings
from drawbar.fabric import contract
from drawbar.mocks.claims import documents
from drawbar.mocks.demo import pods, progress
from drawbar.mocks.fabric import journal
from drawbar.mocks.kubelet import server as kubelet

DRIVER = settings.DRIVER
JOURNAL_LOOK_SECONDS = 0.05
"""The standard library cannot watch a file. This delays what is shown of the fabric, not what is measured."""


class Listener(Protocol):
    """Who hears of what happens."""

    def step(self, view: progress.View, step: progress.Step) -> None:
        """A pod's device has reached a step."""

    def fabric(self, entry: journal.Entry, at: float) -> None:
        """The fabric started or finished an operation."""


class Observer:
    """Sees; run `run()` as a task.

    Attributes:
        progress: what was seen so far.
    """

    def __init__(self, known: progress.Progress, listener: Listener, clock: Callable[[], float]) -> None:
        self.progress = known
        self._listener = listener
        self._clock = clock
        self._views = progress.views(known)
        self._changed = asyncio.Event()

    @property
    def views(self) -> dict[str, progress.View]:
        """Every pod and what became of it."""
        return self._views

    async def run(self, api: client.Client, journal_file: Path) -> None:
        """Watches until cancelled."""
        watches = (
            reflector.Reflector(
                api, kinds.POD, into=documents.Document, changed=self._pod, namespace=pods.NAMESPACE
            ),
            reflector.Reflector(
                api, kinds.CLAIM, into=claims.ResourceClaim, changed=self._claim, namespace=pods.NAMESPACE
            ),
            reflector.Reflector(
                api, kinds.ATTACHMENT, into=attachments.DeviceAttachment, changed=self._attachment
            ),
        )
        async with asyncio.TaskGroup() as tasks:
            for watch in watches:
                tasks.create_task(watch.run())
            tasks.create_task(self._read_journal(journal_file))

    async def until(self, step: progress.Step, pods: Collection[str] | None = None) -> None:
        """Returns when these pods, or all, have reached a step; the caller sets the deadline."""
        while not all(step in self._views[pod].steps for pod in pods or self._views):
            await self._changed.wait()

    def see(self, sighting: progress.Sighting) -> None:
        """Takes in what was seen now."""
        self.progress = progress.seen(self.progress, sighting, self._clock())
        fresh = progress.views(self.progress)
        for pod, view in fresh.items():
            for step, at in view.steps.items():
                if self._views[pod].steps.get(step) != at:
                    self._listener.step(view, step)
        self._views = fresh
        # Everybody who waits now wakes up and looks; whoever comes later waits for the next change.
        self._changed.set()
        self._changed = asyncio.Event()

    def _pod(self, _old: documents.Document | None, new: documents.Document | None) -> None:
        if new is None:
            return
        prepared = json.loads(new.metadata.annotations.get(kubelet.PREPARED_ANNOTATION, "[]"))
        self.see(
            progress.PodSeen(
                pod=new.metadata.name,
                node=documents.node_name(new),
                cdi=tuple(name for device in prepared for name in device["cdi"]),
                running=new.status.get("phase") == "Running",
            )
        )

    def _claim(self, _old: claims.ResourceClaim | None, new: claims.ResourceClaim | None) -> None:
        owner = (
            next((one.name for one in new.metadata.owner_references if one.kind == "Pod"), "") if new else ""
        )
        results = new.results(DRIVER) if new else ()
        if new is None or new.status.allocation is None or not results or not owner:
            return
        result = results[0]
        key = bindings.Key(pool=result.pool, device=result.device)
        self.see(
            progress.ClaimSeen(
                uid=new.metadata.uid,
                pod=owner,
                pool=result.pool,
                device=result.device,
                node=new.status.allocation.node or "",
                attached=bindings.said(new, DRIVER, key, bindings.ATTACHED),
                visible=bindings.said(new, DRIVER, key, bindings.VISIBLE),
            )
        )

    def _attachment(
        self, old: attachments.DeviceAttachment | None, new: attachments.DeviceAttachment | None
    ) -> None:
        found = new or old
        if found is None or found.spec.claim is None:
            return
        uid = found.spec.claim.uid
        if new is None:
            self.see(progress.AttachmentGone(claim_uid=uid))
            return
        self.see(
            progress.AttachmentSeen(
                claim_uid=uid,
                device_id=new.spec.device_id,
                serial=new.spec.identity.serial,
                slot=new.status.connection.slot if new.status.connection is not None else "",
                released=new.holds(attachments.RELEASED),
            )
        )

    async def _read_journal(self, file: Path) -> None:
        with file.open("rb") as lines:
            while True:
                # The fabric writes a line at once, so there are no halves.
                for line in lines:
                    self._journal(msgspec.json.decode(line, type=journal.Entry))
                await asyncio.sleep(JOURNAL_LOOK_SECONDS)

    def _journal(self, entry: journal.Entry) -> None:
        self._listener.fabric(entry, self._clock())
        self.see(
            progress.FabricSaid(
                device_id=entry.device,
                operation=entry.operation or "",
                attach=entry.kind is contract.OperationKind.ATTACH,
                finished=entry.event == "finished",
                failed=entry.error is not None,
                time=entry.time,
            )
        )
