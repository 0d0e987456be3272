"""The observation of one part: the whole input of the plan."""

import asyncio
import datetime
from collections import Counter

import msgspec

from drawbar.driver.api import attachments, claims, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import marks, names, outcomes, policies
from drawbar.driver.controller.attachments import contradictions, identities
from drawbar.driver.controller.attachments.context import Context, ObservedPart, ahead_of
from drawbar.driver.controller.attachments.plans import part_state
from drawbar.driver.controller.fabrics import losses
from drawbar.driver.controller.fabrics.session import Session
from drawbar.driver.controller.offers import group, memory_chunk, offer
from drawbar.fabric import contract


class _Demands(msgspec.Struct, frozen=True, kw_only=True):
    """The claims that need the part's offer."""

    context: Context
    key: names.DeviceKey
    session: Session | None
    attachment: attachments.DeviceAttachment | None
    realisation: offer.Realisation

    def find(self) -> claim_index.Demand | None:
        """Return the demand of the attachment's claim if it still has the device, else the oldest demand.

        A claim with a failure in its status waits no longer; it counts only while there is no other.
        """
        all_claims = self.context.cluster.allocated.find_claims(self.realisation.offer)
        spec = self.attachment.spec if self.attachment else None
        mine = [claim for claim in all_claims if spec and spec.claim and claim.metadata.uid == spec.claim.uid]
        demands = (demand for claim in (*mine, *all_claims) if (demand := self._demand_of(claim)) is not None)
        first = next(demands, None)
        if first is not None:
            if mine or not first.failure_reported:
                return first
            return next((demand for demand in demands if not demand.failure_reported), first)
        if self.context.other_demand is None:
            return None
        host_of = self.session.nodes.host_of if self.session is not None else {}
        seen_at = (
            self.context.cluster.placed.find_claim_time(self.key.attachment) or self.context.cluster.clock()
        )
        return self.context.other_demand(self.key, self.attachment, host_of, seen_at)

    def find_competing(self, demand: claim_index.Demand | None) -> tuple[claim_index.Demand, ...]:
        """Return the demands of other claims for the device; an intentionally shared device has share ids and no competitors."""
        all_claims = self.context.cluster.allocated.find_claims(self.realisation.offer)
        if demand is None or len(all_claims) < 2:
            return ()
        driver = self.context.cluster.driver
        competing = (
            self._demand_of(claim)
            for claim in all_claims
            if claim.metadata.uid != demand.claim.uid
            and claim_index.devices(claim, driver)[self.realisation.offer].share_id is None
        )
        return tuple(demand for demand in competing if demand is not None and not demand.failure_reported)

    def _demand_of(self, claim: claims.ResourceClaim) -> claim_index.Demand | None:
        node = claim.status.allocation.node if claim.status.allocation else None
        host_id = self.session.nodes.host_of.get(node) if self.session and node else None
        seen = self.context.cluster.allocated.find_first_seen(claim)
        demand = claim_index.demand(
            claim,
            self.context.cluster.driver,
            self.realisation.offer,
            host_id,
            seen,
            origin=self._find_listed,
        )
        return (
            demand
            if demand is None or not demand.claim.memory_interleave
            else self._judge_interleaving(demand)
        )

    def _judge_interleaving(self, demand: claim_index.Demand) -> claim_index.Demand:
        """Return a demand for interleaved memory, with the reason if it is impossible."""
        allocated = demand.share.device if demand.share is not None else self.realisation.offer.device
        parts = self.realisation.parts
        members = (allocated,) if len(parts) == 1 else tuple(part.device for part in parts)
        devices = {name: self._find_listed(name) for name in members}
        problem = group.find_problem(allocated, devices)
        if demand.failure is not None or problem is None:
            return demand
        failure = attachments.Failure(
            reason=reasons.INVALID_PARAMETERS, message=f"opaque parameters: {problem}"
        )
        return msgspec.structs.replace(demand, failure=failure)

    def _find_listed(self, name: str) -> contract.Device | None:
        return self.session.device(name) if self.session is not None else None

    def patience(self, demand: claim_index.Demand | None) -> datetime.timedelta:
        limits = []
        if self.session is not None:
            limits.append(datetime.timedelta(seconds=self.session.spec.policy.attach_timeout_seconds))
        if demand is not None and demand.patience is not None:
            limits.append(demand.patience)
        # The attach has its whole time after the pause, as far as the scheduler waits.
        begins, pause = self.attaches_at(demand), datetime.timedelta()
        if begins is not None and demand is not None:
            pause = begins - demand.seen_at
        return min([self.context.patience, *(limit + pause for limit in limits)])

    def attaches_at(self, demand: claim_index.Demand | None) -> datetime.datetime | None:
        """Return when the attach for the demand may begin, or None if at once."""
        if demand is None:
            return None
        retries, patience = self.context.cluster.retries, self.context.patience
        return retries.attaches_at(demand.claim.uid, self.realisation.offer, demand.seen_at, patience)


class _Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of a Fabric for one part: whether it may be attached, and how long it stays attached."""

    context: Context
    part: offer.Part
    session: Session

    def forbid(self, device: contract.Device, demand: claim_index.Demand) -> attachments.Failure | None:
        """Return why the Fabric's rules, or an earlier refusal by its manager, forbid a new attachment, or None."""
        rules = self.session.spec.policy.models
        ruled_out = rules and policies.forbids(rules, device.model, self._models(demand.node), demand.node)
        return ruled_out or self._find_unreached(device, demand) or self._refused_before(demand)

    def _find_unreached(
        self, device: contract.Device, demand: claim_index.Demand
    ) -> attachments.Failure | None:
        """Return why the demand's host cannot have the device, by their reachability groups, or None if it can."""
        host = self.session.inventory.host(demand.host_id or "")
        if host is None or host.reaches(device):
            return None
        message = (
            f"host {host.id} is in none of its reachability groups ({', '.join(sorted(device.reach_groups))}); let the pod go "
            f"to another node: kubectl get fabric {self.session.name} -o jsonpath='{{.status.reachGroups}}' shows the groups"
        )
        return attachments.Failure(reason=reasons.DEVICE_INCOMPATIBLE, message=message)

    def _refused_before(self, demand: claim_index.Demand) -> attachments.Failure | None:
        """Return the remembered refusal of the device at the demand's host by the fabric manager, or None."""
        probation = datetime.timedelta(seconds=self.session.spec.policy.probation_seconds)
        refusal = self.session.pairs.refusal(
            self.part.source, demand.host_id or "", probation, self.context.cluster.clock()
        )
        if refusal is None:
            return None
        message = (
            f"the fabric manager refused it at host {demand.host_id} at {refusal.reported_at} and is not asked again yet: "
            f"{refusal.message}; let the pod go to another node, or select another device"
        )
        return attachments.Failure(reason=reasons.DEVICE_INCOMPATIBLE, message=message)

    def keep(self, spec: attachments.AttachmentSpec) -> datetime.timedelta | None:
        """Return how long the part stays attached without a claim, or None for forever."""
        if self.part.is_carved:
            # No other claim ever has this chunk.
            return datetime.timedelta()
        policy = self.session.spec.policy
        if policy.models and policies.stays(policy.models, spec.model, self._models(spec.node_name)):
            return None
        return datetime.timedelta(seconds=policy.keep_attached_seconds)

    def _models(self, node: str) -> Counter[str]:
        """Return the node's number of devices of each model from this fabric, with those that other workers are writing now."""
        fabric = self.part.key.fabric
        models = Counter(
            attachment.spec.model
            for attachment in self.context.cluster.placed.list_on(node)
            if attachment.spec.fabric == fabric
        )
        models.update(
            model
            for key, (where, model) in self.context.intended.items()
            if where == node
            and key.fabric == fabric
            and self.context.cluster.attachments.get(key.attachment) is None
        )
        return models


class _Observation:
    """One part at one moment; see `ObservedPart` for the attributes."""

    def __init__(self, context: Context, key: names.DeviceKey) -> None:
        self._context = context
        self._cluster = context.cluster
        self._key = key
        self.session = self._cluster.sessions.get(key.fabric)
        self.attachment = self._cluster.attachments.get(key.attachment)
        self.device = self.session.device(key.device) if self.session is not None else None
        self.realisation = self._cluster.realisation(key, self.attachment)
        self._demands = _Demands(
            context=context,
            key=key,
            session=self.session,
            attachment=self.attachment,
            realisation=self.realisation,
        )

    def observe(self) -> part_state.PartState:
        """Return the whole input of the plan."""
        context, attachment, session = self._context, self.attachment, self.session
        uid, moment = (attachment.metadata.uid if attachment else ""), asyncio.get_running_loop().time()
        connection = self.device.connection if self.device else None
        attach = context.calls.view(uid, outcomes.Side.ATTACH, moment)
        demand = self._demands.find()
        self._find_share(demand)
        owner = marks.owner(connection, session.mark if session else None, recorded=attachment is not None)
        # Only if the device has no record.
        is_lost = connection is not None and owner is marks.Owner.OURS and attachment is None
        return part_state.PartState(
            attachment=attachment,
            demand=demand,
            present=self._present(),
            host_id=connection.host_id if connection else None,
            attach=attach,
            detach=context.calls.view(uid, outcomes.Side.DETACH, moment),
            tainted=(
                attachment is not None
                and outcomes.problem(attachment) is not None
                and self._cluster.pools.is_tainted(self._key.fabric, attachment.spec.allocated)
            ),
            node_gone_at=(
                self._cluster.absences.gone_at(attachment.spec.node_name, (self._key.fabric,))
                if attachment is not None
                else None
            ),
            given_up=session is not None and session.given_up,
            patience=self._demands.patience(demand),
            ready_patience=context.patience,
            binding_timeout=context.binding_timeout,
            idle_at=self._cluster.placed.idle_since(self._key.attachment),
            keep=self._keep(),
            forbidden=self._find_refusal(demand),
            attaches_at=self._demands.attaches_at(demand),
            competing_demands=self._demands.find_competing(demand),
            owner=owner,
            node=session.nodes.node_of(connection.host_id) if session and connection and is_lost else None,
            is_whole=self._is_whole(),
            orphaned_at=self._find_orphan_time(),
            is_claim_unreadable=self._is_claim_unreadable(),
            misfit=self._misfit(),
            ahead=ahead_of(context, attachment) if attachment is not None else "",
            is_acknowledged=attachment is None or identities.is_acknowledged(attachment),
            listed_since=self._cluster.placed.find_claim_time(self._key.attachment),
            queue=self._describe_queue(demand, attach.state),
            contradiction=self._contradiction(owner, attach.state, moment),
        )

    def _contradiction(
        self, owner: marks.Owner, state: part_state.CallState, moment: float
    ) -> contradictions.Contradiction | None:
        """Return how the fabric manager contradicts the record that the device is attached, or None if it does not."""
        attachment, known = self.attachment, self._context.contradicted
        contradiction = outcomes.contradiction(attachment) if attachment is not None else None
        if attachment is None or attachment.deleting:
            known.forget(self._key)
            return None
        is_attached = attachment.holds(attachments.ATTACHED)
        # A connection can be lost in the moment in which the attach succeeds, before it is recorded.
        if not (is_attached or contradiction is not None or state is part_state.CallState.SUCCEEDED):
            known.forget(self._key)
            return None
        is_told = self.session is not None and self.session.connection.connected and bool(self._present())
        connection = self.device.connection if self.device is not None else None
        shown: tuple[str | None] | None = None
        # A device that is being attached again is not shown yet.
        if is_told and (is_attached or connection is not None or state is part_state.CallState.SUCCEEDED):
            here = owner is not marks.Owner.OTHERS and connection is not None
            if not (here and connection is not None and connection.host_id == attachment.spec.host_id):
                shown = (connection.host_id if connection is not None else None,)
        return known.see(
            self._key,
            shown,
            call=self._context.calls.request_id(attachment.metadata.uid, outcomes.Side.ATTACH),
            now=moment,
            date=meta.timestamp(self._cluster.time_of_day()),
            listings=self.session.inventory.listings if self.session is not None else losses.Listings(),
        )

    def _describe_queue(self, demand: claim_index.Demand | None, state: part_state.CallState) -> str:
        if self.session is None or demand is None or state not in part_state.UNBEGUN:
            return ""
        return self.session.describe_queue(self._key, demand.claim.namespace, self._cluster.clock())

    def _misfit(self) -> attachments.Failure | None:
        """Return why an operator's attachment does not fit: it would be another device, or another machine; None if it fits."""
        attachment, session, device = self.attachment, self.session, self.device
        if attachment is None or session is None or not attachment.held_by_hand or attachment.spec.share:
            return None
        spec, name = attachment.spec, attachment.metadata.name
        host = session.nodes.host_of.get(spec.node_name)
        problem = ""
        if device is not None and device.id != spec.device_id:
            problem = (
                f"spec.deviceID is {spec.device_id}, and device {spec.device} of the Fabric is {device.id}"
            )
        elif host is not None and host != spec.host_id:
            problem = f"spec.hostID is {spec.host_id}, and node {spec.node_name} is host {host}"
        if not problem or attachment.holds(attachments.ATTACHED):
            return None
        message = (
            f"{problem}: run kubectl delete deviceattachment {name}, and make it again with the right value"
        )
        return attachments.Failure(reason=reasons.ATTACHMENT_MISMATCH, message=message)

    def _find_share(self, demand: claim_index.Demand | None) -> None:
        """Treat the share that a claim waits for as a device; its attachment makes it one."""
        if self.session is None or self.attachment is not None or demand is None or demand.share is None:
            return
        share, opened = demand.share, self.session
        source = opened.device(share.device)
        self.device = opened.inventory.parts.chunk(self._key.device, share.memory_bytes, source)

    def _keep(self) -> datetime.timedelta | None:
        if self.session is None or self.attachment is None:
            return datetime.timedelta()
        part = offer.Part.from_attachment(self.attachment)
        return _Rules(context=self._context, part=part, session=self.session).keep(self.attachment.spec)

    def _find_refusal(self, demand: claim_index.Demand | None) -> attachments.Failure | None:
        if self.session is None or demand is None or self.device is None or self.attachment is not None:
            return None
        part = offer.Part.from_share(self._key, demand.share)
        return _Rules(context=self._context, part=part, session=self.session).forbid(self.device, demand)

    @property
    def _share_of_slice(self) -> names.DeviceKey | None:
        """Return the share of this memory chunk, if the share has no attachment and the chunk is shown as itself, or None."""
        device, session = self.device, self.session
        if session is None or device is None or device.slice_of is None or self.attachment is not None:
            return None
        name = memory_chunk.name_of(device) if memory_chunk.is_ours(device, session.mark) else None
        return names.DeviceKey(fabric=self._key.fabric, device=name) if name is not None else None

    @property
    def awaits_record(self) -> bool:
        """Return whether the device is the memory chunk of a share with a waiting claim, to be shown as the share later.

        A failed claim gets no attachment any more.
        """
        share, driver = self._share_of_slice, self._cluster.driver
        share_claims = self._cluster.allocated.find_claims(share) if share is not None else ()
        return not all(claim_index.has_failed(claim, driver) for claim in share_claims)

    def _find_orphan_time(self) -> datetime.datetime | None:
        orphans, device = self._context.orphans, self.device
        is_orphan = device is not None and device.connection is None and self._share_of_slice is not None
        # An unreadable attachment may have the chunk.
        is_orphan = is_orphan and not self._cluster.attachments.unreadable
        orphans.see(self._key, device.id if is_orphan and device is not None else None, self._cluster.clock())
        if not is_orphan:
            self._context.calls.blockers.end(self._key.attachment)
        return orphans.since(self._key)

    def _is_claim_unreadable(self) -> bool:
        claim = self.attachment.spec.claim if self.attachment is not None else None
        return claim is not None and any(
            followed.is_unreadable(claim.name, claim.namespace) for followed in self._context.claim_mirrors
        )

    def _is_whole(self) -> bool:
        """Return whether all other parts of the realisation are attached."""
        attachment, by_name = self.attachment, self._cluster.attachments
        return attachment is None or all(
            attachment.is_used_with(by_name.get(part.attachment), attachments.ATTACHED)
            for part in self.realisation.parts
            if part != self._key
        )

    def _present(self) -> bool | None:
        """Return whether the fabric has the device, or None while that is not known."""
        if self.session is None or not self.session.has_listing:
            return None
        unlisted = self.device is None and self._key.device in self.session.missing
        return None if unlisted else self.device is not None


def observe(context: Context, key: names.DeviceKey) -> tuple[ObservedPart, bool]:
    """Return the part's present state, and whether it is a chunk whose record is on its way: then nothing is decided yet."""
    seen = _Observation(context, key)
    observed = seen.observe()
    part = ObservedPart(
        context=context,
        key=key,
        observed=observed,
        session=seen.session,
        attachment=seen.attachment,
        device=seen.device,
        realisation=seen.realisation,
    )
    return part, seen.awaits_record
