"""Watches pods, claims, attachments and the fabric's journal, and says each step as it happens.

The only state is a `Progress`; what is seen is parsed here, at the edge, and folded into it.
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
"""The standard library cannot watch a file. This delays what is shown of the fabric, not what is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """How claims of one version are read.

    In `v1` the claim itself shows how far its device is. In the classic versions it shows nothing until the device is there;
    until then the DeviceAttachment does.

    Attributes:
        into: what one is decoded into.
        sighting: what is seen of it; None where that is of no concern.
    """

    into: Any
    sighting: Callable[[Any, str], progress.ClaimSeen | None]


class _OwnedClaim(claims.ResourceClaim, frozen=True):
    """A claim with all of its metadata: the driver itself does not keep the owners, by which the demo knows the pod."""

    def __post_init__(self) -> None:
        """Keep what was decoded."""


class Listener(Protocol):
    """Receives what happens."""

    def step(self, view: progress.View, step: progress.Step) -> None:
        """A pod's device has reached a step."""

    def fabric(self, entry: journal.Entry, at: float) -> None:
        """The fabric started or finished an operation."""


class Observer:
    """Sees; run `run()` as a task.

    Attributes:
        progress: what was seen so far.
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
        """Every pod and what became of it."""
        return self._views

    async def run(self, api: client.Client, journal_file: Path) -> None:
        """Watches until cancelled."""
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
        # Where claims say how far their devices are, that is what pods wait for.
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
