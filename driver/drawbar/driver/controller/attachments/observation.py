"""What is known of one device at one moment, gathered for the plan; nothing here waits or writes."""

import asyncio
import datetime
from collections import Counter

from drawbar.driver.api import attachments, claims
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import marks, names, outcomes, policies
from drawbar.driver.controller.attachments import context as attachment_context
from drawbar.driver.controller.attachments import plan


class Observation:
    """One device, looked at once.

    Attributes:
        session: with its fabric manager; None when there is no such Fabric.
        attachment: its DeviceAttachment, if there is one.
        device: as the fabric manager last told it; None when it does not list it, or never told.
    """

    def __init__(self, context: attachment_context.Context, key: names.DeviceKey) -> None:
        self._context = context
        self._cluster = context.cluster
        self._key = key
        self.session = self._cluster.sessions.get(key.fabric)
        self.attachment = self._cluster.attachments.get(key.attachment)
        self.device = self.session.device(key.device) if self.session else None

    def whole(self) -> plan.Observed:
        """Everything the plan rests on."""
        context, attachment = self._context, self.attachment
        uid, moment = (attachment.metadata.uid if attachment else ""), asyncio.get_running_loop().time()
        patience = context.patience
        if self.session is not None:
            limit = datetime.timedelta(seconds=self.session.spec.policy.attach_timeout_seconds)
            patience = min(patience, limit)
        placed, name = self._cluster.placed, self._key.attachment
        connection = self.device.connection if self.device else None
        wish = self._wish()
        if wish is not None and wish.patience is not None:
            patience = min(patience, wish.patience)
        own = self.session.mark if self.session else None
        owner = marks.owner(connection, own, recorded=attachment is not None)
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
            given_up=self.session is not None and self.session.given_up,
            patience=patience,
            ready_patience=context.patience,
            binding_timeout=context.binding_timeout,
            idle_at=placed.idle_since(name),
            keep=self._keep(),
            forbidden=self._forbidden(wish),
            rivals=self._rivals(wish),
            owner=owner,
            node=self._node(connection.host_id) if connection and owner is marks.Owner.OURS else None,
        )

    def _present(self) -> bool | None:
        """Whether the fabric has the device; None while that is not known."""
        if self.session is None or not self.session.listed:
            return None
        unlisted = self.device is None and self._key.device in self.session.missing
        return None if unlisted else self.device is not None

    def _node(self, host_id: str) -> str | None:
        """Which node has the device, where there is no record of it that says so."""
        if self.attachment is not None or self.session is None:
            return None
        return self.session.nodes.node_of(host_id)

    def _keep(self) -> datetime.timedelta | None:
        if self.session is None or self.attachment is None:
            return datetime.timedelta()
        policy, spec = self.session.spec.policy, self.attachment.spec
        if policy.models and policies.stays(policy.models, spec.model, self._models(spec.node_name)):
            return None
        return datetime.timedelta(seconds=policy.keep_attached_seconds)

    def _forbidden(self, wish: claim_index.Wish | None) -> attachments.Failure | None:
        """Why the Fabric's rules do not allow a new attachment."""
        rules = self.session.spec.policy.models if self.session else ()
        if not rules or wish is None or self.device is None or self.attachment is not None:
            return None
        return policies.forbids(rules, self.device.model, self._models(wish.node), wish.node)

    def _models(self, node: str) -> Counter[str]:
        """What the node has of this fabric, with what is being written by others now."""
        fabric, context = self._key.fabric, self._context
        found = Counter(one.spec.model for one in self._cluster.placed.on(node) if one.spec.fabric == fabric)
        found.update(
            model
            for key, (where, model) in context.intended.items()
            if where == node
            and key.fabric == fabric
            and self._cluster.attachments.get(key.attachment) is None
        )
        return found

    def _wish(self) -> claim_index.Wish | None:
        """The claim that the attachment is for, if it still wants the device, else the one that waits longest.

        One that was told of a failure waits no longer; it counts only while there is no other.
        """
        found = self._cluster.allocated.of(self._key)
        spec = self.attachment.spec if self.attachment else None
        mine = [claim for claim in found if spec and spec.claim and claim.metadata.uid == spec.claim.uid]
        wishes = [wish for claim in (*mine, *found) if (wish := self._wish_of(claim)) is not None]
        if mine and wishes:
            return wishes[0]
        first = next((wish for wish in wishes if not wish.failed_said), wishes[0] if wishes else None)
        return first or self._borrowed()

    def _borrowed(self) -> claim_index.Wish | None:
        """What somebody wants of it whom no allocation of the scheduler names."""
        context = self._context
        if context.borrowers is None:
            return None
        host_of = self.session.nodes.host_of if self.session is not None else {}
        seen_at = self._cluster.placed.held_since(self._key.attachment) or self._cluster.clock()
        return context.borrowers.wish(self._key, self.attachment, host_of, seen_at)

    def _rivals(self, wish: claim_index.Wish | None) -> tuple[claim_index.Wish, ...]:
        """Those that wait for what the wish's claim has; a device that is shared on purpose has share ids."""
        found = self._cluster.allocated.of(self._key)
        if wish is None or len(found) < 2:
            return ()
        driver = self._cluster.driver
        others = [
            self._wish_of(claim)
            for claim in found
            if claim.metadata.uid != wish.claim.uid
            and claim_index.devices(claim, driver)[self._key].share_id is None
        ]
        return tuple(one for one in others if one is not None and not one.failed_said)

    def _wish_of(self, claim: claims.ResourceClaim) -> claim_index.Wish | None:
        node = claim_index.node_of(claim)
        host_id = self.session.nodes.host_of.get(node) if self.session and node else None
        seen = self._cluster.allocated.seen(claim)
        return claim_index.wish(claim, self._cluster.driver, self._key, host_id, seen)
