"""The classic part of a controller, put together: its watches, its service, and what the other parts need of it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from drawbar.driver import evaluation
from drawbar.driver.api import attachments, classic
from drawbar.driver.controller.allocation import inventory, selectors
from drawbar.driver.controller.attachments import context as attachment_context
from drawbar.driver.controller.classic import lookout, service
from drawbar.driver.kube import client

Gone = Callable[[str], None]
"""Told the uid of a claim that is no more."""


@dataclass(slots=True, kw_only=True, eq=False)
class Part:
    """One for each controller, whether the cluster has classic allocation or not; without, it does nothing.

    Attributes:
        known: what the API server tells; None where there is nothing of the kind.
    """

    known: lookout.Lookout | None = None
    _rounds: service.Service | None = None
    _judge: selectors.Judge | None = None

    @property
    def borrowers(self) -> attachment_context.Borrowers | None:
        """Which claims want devices."""
        return service.Borrowers(self.known) if self.known is not None else None

    def watch(
        self,
        api: client.Client,
        driver: str,
        versions: frozenset[classic.Version],
        evaluator: evaluation.Evaluator,
        gone: Gone,
    ) -> None:
        """Prepares the watches."""
        self._judge = selectors.Judge(driver, evaluator)
        if versions:
            self.known = lookout.Lookout(
                api,
                driver=driver,
                versions=versions,
                fault=self._judge.fault,
                changed=self.look_again,
                gone=gone,
            )

    def serve(self, context: attachment_context.Context, view: inventory.View) -> None:
        """Prepares the service."""
        if self.known is not None:
            assert self._judge is not None
            self._rounds = service.Service(context, self.known, view, self._judge)

    def work(self, tasks: asyncio.TaskGroup) -> None:
        """Begins to decide, since this controller leads."""
        if self._rounds is not None:
            tasks.create_task(self._rounds.run(), name="classic")

    def look_again(self) -> None:
        """Something changed that a decision may rest on."""
        if self._rounds is not None:
            self._rounds.look_again()


def is_for(attachment: attachments.DeviceAttachment, claim_uid: str) -> bool:
    """Whether a device is attached for that claim."""
    return attachment.spec.claim is not None and attachment.spec.claim.uid == claim_uid
