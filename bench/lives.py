"""The rest of a cluster for `classic.py`: node daemons for which everything goes well, and pods that run and end."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec
import world

from drawbar.driver.api import attachments, meta
from drawbar.driver.kube import client, kinds
from drawbar.mocks.testing import worlds

Json = dict[str, Any]
PATIENCE_SECONDS = 600.0


class PodSpec(meta.Struct, frozen=True):
    """Where a pod runs."""

    node_name: str = ""


class Pod(meta.Struct, frozen=True):
    """A pod as its kubelet has recorded it."""

    metadata: meta.ObjectMeta
    spec: PodSpec


@dataclass(slots=True, kw_only=True, eq=False)
class Life:
    """Node daemons for which everything goes well, and pods that run for a while and end.

    Attributes:
        served: by pod when it was given its node.
        most: how many devices were asked for at once at most.
        gone: how many pods have ended.
    """

    api: client.Client
    run_seconds: float
    served: dict[str, float] = field(default_factory=dict)
    most: int = 0
    gone: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _there: set[str] = field(default_factory=set)
    _reported: set[tuple[str, str]] = field(default_factory=set)
    _words: asyncio.Queue[tuple[str, str]] = field(default_factory=asyncio.Queue)
    _ended: asyncio.Queue[tuple[str, float]] = field(default_factory=asyncio.Queue)

    def attachment_changed(
        self, old: attachments.DeviceAttachment | None, new: attachments.DeviceAttachment | None
    ) -> None:
        """Queue a report of a device as visible and as released, once each."""
        attachment = new or old
        assert attachment is not None
        if new is None:
            self._there.discard(attachment.metadata.uid)
            self._reported -= {
                (attachment.metadata.uid, attachments.VISIBLE),
                (attachment.metadata.uid, attachments.RELEASED),
            }
            self.changed.set()
            return
        self._there.add(new.metadata.uid)
        self.most = max(self.most, len(self._there))
        word = attachments.RELEASED if new.deleting else attachments.VISIBLE
        ready = new.deleting or new.holds(attachments.ATTACHED)
        if ready and (new.metadata.uid, word) not in self._reported:
            self._reported.add((new.metadata.uid, word))
            self._words.put_nowait((new.metadata.name, word))

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Count a deleted pod; start the life of a pod that was given its node."""
        if new is None:
            assert old is not None
            self.gone += 1
            self.changed.set()
        elif new.spec.node_name and new.metadata.name not in self.served:
            self.served[new.metadata.name] = time.perf_counter()
            self._ended.put_nowait((new.metadata.name, time.perf_counter() + self.run_seconds))

    async def speak(self) -> None:
        """Report the conditions of attachments, as node daemons do."""
        while True:
            name, word = await self._words.get()
            reported = meta.transition((), word, status=True, reason="Said", message="", now=world.STAMP)
            await worlds.apply_status(
                self.api, name, "drawbar-node", conditions=[msgspec.to_builtins(reported)]
            )

    async def end(self) -> None:
        """Delete the pods that have run."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        while True:
            name, until = await self._ended.get()
            await asyncio.sleep(max(0.0, until - time.perf_counter()))
            await self.api.request("DELETE", kinds.POD.path(namespace="default", name=name), body=body)

    async def wait_until_over(self, pods: int) -> None:
        """Wait until that many pods are gone, and every device is back."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.gone < pods or self._there:
                self.changed.clear()
                await self.changed.wait()
