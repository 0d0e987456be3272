"""The demo's view of pods, claims, attachments and the fabric's journal; it reports each step at once.

The only state is a `Progress`. Sightings are parsed here, at the edge, and folded into it.
"""

import asyncio
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

import msgspec

from drawbar.fabric import contract
from drawbar.mocks import attachments
from drawbar.mocks.claims import dialects, documents
from drawbar.mocks.demo import pods, progress
from drawbar.mocks.fabric import journal
from drawbar.mocks.kube import client, kinds, mirror
from drawbar.mocks.kubelet import server as kubelet

JOURNAL_LOOK_SECONDS = 0.05
"""The pause between two reads of the journal, in seconds. It delays the display, not the measured times."""


class Listener(Protocol):
    """A receiver of events."""

    def report_step(self, view: progress.View, step: progress.Step) -> None:
        """Report that a pod's device reached a step."""

    def report_fabric(self, entry: journal.Entry, at: float) -> None:
        """Report that the fabric started or finished an operation."""


class Observer:
    """An observer of the run; run `run()` as a task.

    Attributes:
        progress: the sightings so far.
    """

    def __init__(
        self,
        initial: progress.Progress,
        listener: Listener,
        clock: Callable[[], float],
        dialect: dialects.Dialect = dialects.MODERN,
    ) -> None:
        self.progress = initial
        self._dialect = dialect
        self._listener = listener
        self._clock = clock
        self._views = progress.views(initial)
        self._changed = asyncio.Event()

    @property
    def views(self) -> dict[str, progress.View]:
        """Return every pod's view, by the pod's name."""
        return self._views

    async def run(self, api: client.Client, journal_file: Path) -> None:
        """Watch until cancelled."""
        watches = (
            mirror.Mirror(
                api, kinds.POD, into=documents.Document, changed=self._pod, namespace=pods.NAMESPACE
            ),
            mirror.Mirror(
                api,
                self._dialect.claim,
                into=documents.Document,
                changed=self._claim,
                namespace=pods.NAMESPACE,
            ),
            mirror.Mirror(api, kinds.ATTACHMENT, into=attachments.DeviceAttachment, changed=self._attachment),
        )
        async with asyncio.TaskGroup() as tasks:
            for watch in watches:
                tasks.create_task(watch.run())
            tasks.create_task(self._read_journal(journal_file))

    async def until(self, step: progress.Step, pods: Collection[str] | None = None) -> None:
        """Return once these pods, or all, have reached a step; the caller sets the deadline."""
        while not all(step in self._views[pod].steps for pod in pods or self._views):
            await self._changed.wait()

    def see(self, sighting: progress.Sighting) -> None:
        """Take in a sighting at the current time, and report the steps reached by it."""
        self.progress = progress.record_sighting(self.progress, sighting, self._clock())
        fresh = progress.views(self.progress)
        for pod, view in fresh.items():
            for step, at in view.steps.items():
                if self._views[pod].steps.get(step) != at:
                    self._listener.report_step(view, step)
        self._views = fresh
        # Present waiters wake up; later ones wait for the next change.
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

    def _claim(self, _old: documents.Document | None, new: documents.Document | None) -> None:
        owner = documents.owning_pod(new) if new is not None else None
        if new is not None and owner is not None:
            sighting = _claim_seen(new, owner.name, self._dialect)
            if sighting is not None:
                self.see(sighting)

    def _attachment(
        self, old: attachments.DeviceAttachment | None, new: attachments.DeviceAttachment | None
    ) -> None:
        attachment = new or old
        if attachment is None or attachment.spec.claim is None:
            return
        uid = attachment.spec.claim.uid
        if new is None:
            self.see(progress.AttachmentGone(claim_uid=uid))
            return
        # In `v1` pods wait for the claim's own conditions, so the attachment's are ignored.
        silent = self._dialect.context is not None
        self.see(
            progress.AttachmentSeen(
                claim_uid=uid,
                device_id=new.spec.device_id,
                pool=new.spec.pool,
                device=new.spec.device,
                node=new.spec.node_name,
                serial=new.spec.identity.serial,
                slot=new.status.connection.slot if new.status.connection is not None else "",
                attached=silent and new.holds(attachments.ATTACHED),
                visible=silent and new.holds(attachments.VISIBLE),
                released=new.holds(attachments.RELEASED),
            )
        )

    async def _read_journal(self, file: Path) -> None:
        with file.open("rb") as lines:
            while True:
                # The fabric writes each line in one piece, so there are no partial lines.
                for line in lines:
                    self._journal(msgspec.json.decode(line, type=journal.Entry))
                await asyncio.sleep(JOURNAL_LOOK_SECONDS)

    def _journal(self, entry: journal.Entry) -> None:
        self._listener.report_fabric(entry, self._clock())
        self.see(
            progress.FabricReport(
                device_id=entry.device,
                operation=entry.operation or "",
                attach=entry.kind is contract.OperationKind.ATTACH,
                finished=entry.event == "finished",
                failed=entry.error is not None,
                time=entry.time,
            )
        )


def _claim_seen(claim: documents.Document, pod: str, dialect: dialects.Dialect) -> progress.ClaimSeen | None:
    """Return the sighting of a pod's claim; None if it does not matter.

    In `v1` the claim itself shows the progress of its device. In the classic versions it shows nothing until the device
    is there; until then the DeviceAttachment does.
    """
    device = next(iter(_devices(claim, dialect)), None)
    if device is None:
        return (
            None
            if dialect.context is None
            else progress.ClaimSeen(uid=claim.metadata.uid, pod=pod, allocated=False)
        )
    entries = claim.status.get("devices") or ()
    conditions = [
        condition["type"]
        for entry in entries
        if entry["driver"] == attachments.DRIVER and (entry["pool"], entry["device"]) == device
        for condition in entry.get("conditions") or ()
        if condition["status"] == "True"
    ]
    return progress.ClaimSeen(
        uid=claim.metadata.uid,
        pod=pod,
        pool=device[0],
        device=device[1],
        node=_node(claim),
        attached=f"{attachments.DRIVER}/attached" in conditions,
        visible=f"{attachments.DRIVER}/visible" in conditions,
    )


def _devices(claim: documents.Document, dialect: dialects.Dialect) -> list[tuple[str, str]]:
    """Return pool and name of each allocated device."""
    if dialect is not dialects.V1ALPHA2:
        return [
            (result["pool"], result["device"])
            for result in documents.results(claim)
            if result["driver"] == attachments.DRIVER
        ]
    handles = (documents.allocation(claim) or {}).get("resourceHandles") or ()
    return [
        (device["pool"], device["device"])
        for handle in handles
        for device in json.loads(handle["data"]).get("devices", ())
    ]


def _node(claim: documents.Document) -> str:
    """Return the only node on which the claim can be used; empty if there are others."""
    terms = (dialects.usable_on(claim) or {}).get("nodeSelectorTerms") or ()
    names = [field["values"] for term in terms for field in term.get("matchFields") or ()]
    return str(names[0][0]) if names else ""
