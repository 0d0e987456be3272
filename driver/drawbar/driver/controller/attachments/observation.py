"""Gathers what the plan of one device rests on; nothing here waits or writes."""

import asyncio
import datetime
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from drawbar.driver.api import attachments, claims
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import cluster, marks, names, outcomes, policies
from drawbar.driver.controller.attachments import calls, plan
from drawbar.driver.controller.operation import latency

ClassicWish = Callable[
    [names.DeviceKey, attachments.DeviceAttachment | None, Mapping[str, str], datetime.datetime],
    claim_index.Wish | None,
]
"""Returns the wish of a claim of classic allocation, given the device, its attachment, the fabric's host by node, and since
when the attachment has been for its claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the reconciliation of attachments needs beside the cluster.

    Attributes:
        patience: from an allocation that was first seen to giving up, shorter than the scheduler's.
        binding_timeout: how long the scheduler itself waits.
        intended: node and model of the attachments that are being created at this moment.
        classic_wish: None where there is no classic allocation.
    """

    cluster: cluster.Cluster
    patience: datetime.timedelta
    binding_timeout: datetime.timedelta
    calls: calls.Calls
    latency: latency.Latency
    intended: dict[names.DeviceKey, tuple[str, str]] = field(default_factory=dict)
    classic_wish: ClassicWish | None = None


class Observation:
    """One device at one moment.

    Attributes:
        session: with its fabric manager; None when there is no such Fabric.
        attachment: its DeviceAttachment, if there is one.
        device: as the fabric manager last reported it; None when it does not list it.
    """

    def __init__(self, context: Context, key: names.DeviceKey) -> None:
        self._context = context
        self._cluster = context.cluster
        self._key = key
        self.session = self._cluster.sessions.get(key.fabric)
        self.attachment = self._cluster.attachments.get(key.attachment)
        self.device = self.session.device(key.device) if self.session else None

    def whole(self) -> plan.Observed:
        """Return everything that the plan rests on."""
        context, attachment, session = self._context, self.attachment, self.session
        uid, moment = (attachment.metadata.uid if attachment else ""), asyncio.get_running_loop().time()
        connection = self.device.connection if self.device else None
        wish = self._wish()
        owner = marks.owner(connection, session.mark if session else None, recorded=attachment is not None)
        # Where a record does not say so already.
        is_lost = connection is not None and owner is marks.Owner.OURS and attachment is None
        return plan.Observed(
            attachment=attachment,
            wish=wish,
            present=self._present(),
            host_id=connection.host_id if connection else None,
            attach=context.calls.view(uid, outcomes.Side.ATTACH, moment),
            detach=context.calls.view(uid, outcomes.Side.DETACH, moment),
            tainted=(
                attachment is not None
                and outcomes.problem(attachment) is not None
                and self._cluster.pools.is_tainted(self._key.fabric, self._key.device)
            ),
            node_gone_at=(
                self._cluster.absences.gone_at(attachment.spec.node_name, (self._key.fabric,))
                if attachment is not None
                else None
            ),
            given_up=session is not None and session.given_up,
            patience=self._patience(wish),
            ready_patience=context.patience,
            binding_timeout=context.binding_timeout,
            idle_at=self._cluster.placed.idle_since(self._key.attachment),
            keep=self._keep(),
            forbidden=self._forbidden(wish),
            rivals=self._rivals(wish),
            owner=owner,
            node=session.nodes.node_of(connection.host_id) if session and connection and is_lost else None,
        )

    def _patience(self, wish: claim_index.Wish | None) -> datetime.timedelta:
        limits = [self._context.patience]
        if self.session is not None:
            limits.append(datetime.timedelta(seconds=self.session.spec.policy.attach_timeout_seconds))
        if wish is not None and wish.patience is not None:
            limits.append(wish.patience)
        return min(limits)

    def _present(self) -> bool | None:
        """Return whether the fabric has the device; None while that is not known."""
        if self.session is None or not self.session.listed:
            return None
        unlisted = self.device is None and self._key.device in self.session.missing
        return None if unlisted else self.device is not None

    def _keep(self) -> datetime.timedelta | None:
        if self.session is None or self.attachment is None:
            return datetime.timedelta()
        policy, spec = self.session.spec.policy, self.attachment.spec
        if policy.models and policies.stays(policy.models, spec.model, self._models(spec.node_name)):
            return None
        return datetime.timedelta(seconds=policy.keep_attached_seconds)

    def _forbidden(self, wish: claim_index.Wish | None) -> attachments.Failure | None:
        """Return why the Fabric's rules do not allow a new attachment."""
        rules = self.session.spec.policy.models if self.session else ()
        if not rules or wish is None or self.device is None or self.attachment is not None:
            return None
        return policies.forbids(rules, self.device.model, self._models(wish.node), wish.node)

    def _models(self, node: str) -> Counter[str]:
        """Count what the node has of this fabric, with what other workers are writing now."""
        fabric = self._key.fabric
        models = Counter(one.spec.model for one in self._cluster.placed.on(node) if one.spec.fabric == fabric)
        models.update(
            model
            for key, (where, model) in self._context.intended.items()
            if where == node
            and key.fabric == fabric
            and self._cluster.attachments.get(key.attachment) is None
        )
        return models

    def _wish(self) -> claim_index.Wish | None:
        """Return the wish of the claim that the attachment is for, if it still has the device, else the oldest one.

        A claim that says that it failed waits no longer; it counts only while there is no other.
        """
        given = self._cluster.allocated.of(self._key)
        spec = self.attachment.spec if self.attachment else None
        mine = [claim for claim in given if spec and spec.claim and claim.metadata.uid == spec.claim.uid]
        wishes = [wish for claim in (*mine, *given) if (wish := self._wish_of(claim)) is not None]
        if wishes:
            waiting = (wish for wish in wishes if not wish.failed_said)
            return wishes[0] if mine else next(waiting, wishes[0])
        if self._context.classic_wish is None:
            return None
        host_of = self.session.nodes.host_of if self.session is not None else {}
        seen_at = self._cluster.placed.held_since(self._key.attachment) or self._cluster.clock()
        return self._context.classic_wish(self._key, self.attachment, host_of, seen_at)

    def _rivals(self, wish: claim_index.Wish | None) -> tuple[claim_index.Wish, ...]:
        """Return those that wait for what the wish's claim has; a device that is shared on purpose has share ids."""
        given = self._cluster.allocated.of(self._key)
        if wish is None or len(given) < 2:
            return ()
        driver = self._cluster.driver
        rivals = (
            self._wish_of(claim)
            for claim in given
            if claim.metadata.uid != wish.claim.uid
            and claim_index.devices(claim, driver)[self._key].share_id is None
        )
        return tuple(rival for rival in rivals if rival is not None and not rival.failed_said)

    def _wish_of(self, claim: claims.ResourceClaim) -> claim_index.Wish | None:
        node = claim.status.allocation.node if claim.status.allocation else None
        host_id = self.session.nodes.host_of.get(node) if self.session and node else None
        seen = self._cluster.allocated.seen(claim)
        return claim_index.wish(claim, self._cluster.driver, self._key, host_id, seen)
