"""The demo's view of pods, claims, attachments and the fabric's journal; it reports each step at once.

The only state is a `Progress`. Sightings are parsed here, at the edge, and folded into it.
"""

import asyncio
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from drawbar.driver.api import (
    attachments,
    bindings,
    claims,
    classic,
    classic_v1alpha2,
    classic_v1alpha3,
    drivers,
)
from drawbar.driver.kube import client, kinds, mirror
from drawbar.fabric import contract
from drawbar.mocks.claims import dialects, documents
from drawbar.mocks.demo import pods, progress
from drawbar.mocks.fabric import journal
from drawbar.mocks.kubelet import server as kubelet

DRIVER = drivers.DEFAULT
JOURNAL_LOOK_SECONDS = 0.05
"""The pause between two reads of the journal, in seconds. It delays the display, not the measured times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """The way to read claims of one API version.

    In `v1` the claim itself shows the progress of its device. In the classic versions it shows nothing until the
    device is there; until then the DeviceAttachment does.

    Attributes:
        into: the type to decode a claim into.
        sighting: the function from a claim to its sighting; None if the claim is irrelevant.
    """

    into: Any
    sighting: Callable[[Any, str], progress.ClaimSeen | None]


class _OwnedClaim(claims.ResourceClaim, frozen=True):
    """A claim with all of its metadata. The driver's own type omits the owners, and the demo finds the pod by them."""

    def __post_init__(self) -> None:
        """Accept the decoded values unchanged."""


class Listener(Protocol):
    """A receiver of events."""

    def step(self, view: progress.View, step: progress.Step) -> None:
        """Report that a pod's device reached a step."""

    def fabric(self, entry: journal.Entry, at: float) -> None:
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
        self._reading = _READINGS[dialect.version]
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
                into=self._reading.into,
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
        self.progress = progress.seen(self.progress, sighting, self._clock())
        fresh = progress.views(self.progress)
        for pod, view in fresh.items():
            for step, at in view.steps.items():
                if self._views[pod].steps.get(step) != at:
                    self._listener.step(view, step)
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

    def _claim(self, _old: Any, new: Any) -> None:
        if new is None:
            return
        owner = next(
            (reference.name for reference in new.metadata.owner_references if reference.kind == "Pod"), ""
        )
        sighting = self._reading.sighting(new, owner) if owner else None
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


def _modern(claim: claims.ResourceClaim, pod: str) -> progress.ClaimSeen | None:
    results = claim.results(DRIVER)
    if claim.status.allocation is None or not results:
        return None
    result = results[0]
    key = bindings.Key(pool=result.pool, device=result.device)
    return progress.ClaimSeen(
        uid=claim.metadata.uid,
        pod=pod,
        pool=result.pool,
        device=result.device,
        node=claim.status.allocation.node or "",
        attached=bindings.is_true(claim, DRIVER, key, bindings.ATTACHED),
        visible=bindings.is_true(claim, DRIVER, key, bindings.VISIBLE),
    )


def _v1alpha3(claim: classic_v1alpha3.ResourceClaim, pod: str) -> progress.ClaimSeen:
    return _classic(classic_v1alpha3.claim(claim, DRIVER), pod)


def _v1alpha2(claim: classic_v1alpha2.ResourceClaim, pod: str) -> progress.ClaimSeen:
    return _classic(classic_v1alpha2.claim(claim, DRIVER), pod)


def _classic(claim: classic.Claim, pod: str) -> progress.ClaimSeen:
    handle = claim.allocation.handle if claim.allocation is not None else None
    if claim.allocation is None or handle is None or not handle.devices:
        return progress.ClaimSeen(uid=claim.uid, pod=pod, allocated=False)
    device = handle.devices[0]
    node = claim.allocation.node or ""
    return progress.ClaimSeen(uid=claim.uid, pod=pod, pool=device.pool, device=device.device, node=node)


_READINGS = {
    "v1": _Reading(into=_OwnedClaim, sighting=_modern),
    "v1alpha3": _Reading(into=classic_v1alpha3.ResourceClaim, sighting=_v1alpha3),
    "v1alpha2": _Reading(into=classic_v1alpha2.ResourceClaim, sighting=_v1alpha2),
}
