"""Carries out what `attachments.plan` decided, one side effect per action.

On any error it stops; the device comes back after a pause and everything is observed again.
"""

import asyncio
import contextlib
import datetime
import functools
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

import msgspec

from drawbar.driver import sightings
from drawbar.driver.api import attachments, claims, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import cluster, marks, names, outcomes, policies
from drawbar.driver.controller.attachments import (
    actions,
    calls,
    contradictions,
    identities,
    plan,
    statements,
)
from drawbar.driver.controller.fabrics import losses, session
from drawbar.driver.controller.offers import group, memory_chunk
from drawbar.driver.controller.operation import latency
from drawbar.driver.kube import client, kinds, mirror, workers
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.operation import readiness
from drawbar.fabric import contract
from drawbar.fabric import errors as fabric_errors

log = logging.getLogger(__name__)

# A device that waits for a place is woken when it gets one; this is for the deadline that may pass meanwhile.
WAIT_SECONDS = 5.0
# An operation without a record is waited for so long: less than a claim waits for its device.
BLOCKER_SECONDS = 60.0
# Of each fabric.
WORKERS = 4
_ORPHAN_ATTEMPT_SECONDS = 10
_LASTING = (kube_errors.Denied, kube_errors.Invalid, fabric_errors.Misconfigured)


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
        claim_mirrors: the claims, of classic allocation, too.
        orphans: slices of ours that no attachment has, with their ids.
        contradicted: attached devices whose connections the fabric managers do not show.
        ignored: devices whose attachments were reported to have no Fabric, by the attachments' uids.
    """

    cluster: cluster.Cluster
    patience: datetime.timedelta
    binding_timeout: datetime.timedelta
    calls: calls.Calls
    latency: latency.Latency
    watchdog: readiness.Watchdog = field(default_factory=readiness.Watchdog)
    intended: dict[names.DeviceKey, tuple[str, str]] = field(default_factory=dict)
    classic_wish: ClassicWish | None = None
    claim_mirrors: tuple[mirror.Mirror[Any], ...] = ()
    orphans: sightings.Sightings[names.DeviceKey] = field(default_factory=sightings.Sightings)
    contradicted: contradictions.Contradictions = field(default_factory=contradictions.Contradictions)
    ignored: dict[names.DeviceKey, str] = field(default_factory=dict)


def ahead_of(context: Context, attachment: attachments.DeviceAttachment) -> str:
    """Return an attachment of the node whose card could be taken for this device; empty for none.

    Only a device that is recognised by its arrival waits. Of two of them one is always begun first, for this is asked again
    right before the call to the fabric.
    """
    if not identities.is_due_alone(attachment):
        return ""
    rivals = (
        other.metadata.name
        for other in context.cluster.placed.on(attachment.spec.node_name)
        if other.metadata.uid != attachment.metadata.uid
        and identities.could_be_mistaken(attachment, other)
        and identities.awaits_recognition(
            other, begun=context.calls.is_begun(other.metadata.uid, outcomes.Side.ATTACH)
        )
    )
    return min(rivals, default="")


class _Observation:
    """One device at one moment.

    Attributes:
        session: with its fabric manager; None when there is no such Fabric.
        attachment: its DeviceAttachment, if there is one.
        device: as the fabric manager last reported it; None when it does not list it.
        composite: what the device is attached as a member of; None where it is given by itself.
        given_as: what claims were given, the device or its composite.
    """

    def __init__(self, context: Context, key: names.DeviceKey) -> None:
        self._context = context
        self._cluster = context.cluster
        self._key = key
        self.session = self._cluster.sessions.get(key.fabric)
        self.attachment = self._cluster.attachments.get(key.attachment)
        self.device = self._listed(key.device)
        self.composite = self.attachment.spec.composite if self.attachment is not None else None
        arranged = self._cluster.composites(key.fabric) if self.attachment is None else None
        if arranged is not None:
            self.composite = arranged.composite_of(key.device)
        self.given_as = key
        if self.composite is not None:
            self.given_as = names.DeviceKey(fabric=key.fabric, device=self.composite.name)

    def whole(self) -> plan.Observed:
        """Return everything that the plan rests on."""
        context, attachment, session = self._context, self.attachment, self.session
        uid, moment = (attachment.metadata.uid if attachment else ""), asyncio.get_running_loop().time()
        connection = self.device.connection if self.device else None
        wish = self._wish()
        self._find_share(wish)
        owner = marks.owner(connection, session.mark if session else None, recorded=attachment is not None)
        # Only where there is no record of it.
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
                and self._cluster.pools.is_tainted(self._key.fabric, attachment.spec.allocated)
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
            attaches_at=self._attaches_at(wish),
            rivals=self._rivals(wish),
            owner=owner,
            node=session.nodes.node_of(connection.host_id) if session and connection and is_lost else None,
            is_whole=self._is_whole(),
            orphaned_at=self._orphaned_at(),
            is_claim_unreadable=self._is_claim_unreadable(),
            misfit=self._misfit(),
            ahead=ahead_of(context, attachment) if attachment is not None else "",
            is_acknowledged=attachment is None or identities.is_acknowledged(attachment),
            listed_since=self._cluster.placed.held_since(self._key.attachment),
            contradiction=self._contradiction(owner),
            renewals=context.calls.renewals(uid),
        )

    def _contradiction(self, owner: marks.Owner) -> contradictions.Contradiction | None:
        """Return how the fabric manager contradicts the record that the device is attached; None where it does not."""
        attachment, known = self.attachment, self._context.contradicted
        said = outcomes.contradiction(attachment) if attachment is not None else None
        is_attached = attachment is not None and attachment.holds(attachments.ATTACHED)
        if attachment is None or attachment.deleting or not (is_attached or said is not None):
            known.forget(self._key)
            return None
        uid, side, moment = attachment.metadata.uid, outcomes.Side.ATTACH, asyncio.get_running_loop().time()
        state = self._context.calls.view(uid, side, moment).state
        is_told = self.session is not None and self.session.connection.connected and bool(self._present())
        connection = self.device.connection if self.device is not None else None
        shown: tuple[str | None] | None = None
        # What is being attached anew is not shown yet.
        if is_told and (is_attached or connection is not None or state is plan.CallState.SUCCEEDED):
            here = owner is not marks.Owner.OTHERS and connection is not None
            if not (here and connection is not None and connection.host_id == attachment.spec.host_id):
                shown = (connection.host_id if connection is not None else None,)
        return known.see(
            self._key,
            shown,
            call=self._context.calls.request_id(uid, side),
            now=moment,
            date=meta.timestamp(self._cluster.time_of_day()),
            listings=self.session.listings if self.session is not None else losses.Listings(),
        )

    def _misfit(self) -> attachments.Failure | None:
        """Return why what an operator attaches does not fit: it would be another device, or another machine."""
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

    def _find_share(self, wish: claim_index.Wish | None) -> None:
        """Take the share of a device that a claim waits for as a device, which it becomes with its attachment."""
        if self.session is None or self.attachment is not None or wish is None or wish.share is None:
            return
        share = wish.share
        self.device = self.session.share(self._key.device, share.memory_bytes, share.device)

    @property
    def _share_of_slice(self) -> names.DeviceKey | None:
        """The share whose slice the device is, where that is shown by itself, for the share has no attachment."""
        device, session = self.device, self.session
        if session is None or device is None or device.slice_of is None or self.attachment is not None:
            return None
        name = memory_chunk.name_of(device) if memory_chunk.is_ours(device, session.mark) else None
        return names.DeviceKey(fabric=self._key.fabric, device=name) if name is not None else None

    @property
    def awaits_record(self) -> bool:
        """Whether the device is the slice of a share that a claim waits for: with its attachment it is shown as the share.

        A claim that has failed gets no attachment any more.
        """
        share, driver = self._share_of_slice, self._cluster.driver
        given = self._cluster.allocated.with_device(share) if share is not None else ()
        return not all(claim_index.has_failed(claim, driver) for claim in given)

    def _orphaned_at(self) -> datetime.datetime | None:
        orphans, device = self._context.orphans, self.device
        is_orphan = device is not None and device.connection is None and self._share_of_slice is not None
        # An attachment that cannot be read may have the slice.
        is_orphan = is_orphan and not self._cluster.attachments.unreadable
        orphans.see(self._key, device.id if is_orphan and device is not None else None, self._cluster.clock())
        if not is_orphan:
            self._context.calls.unblocked(self._key.attachment)
        return orphans.since(self._key)

    def _is_claim_unreadable(self) -> bool:
        claim = self.attachment.spec.claim if self.attachment is not None else None
        return claim is not None and any(
            followed.is_unreadable(claim.name, claim.namespace) for followed in self._context.claim_mirrors
        )

    def _is_whole(self) -> bool:
        """Return whether all other members of the composite are attached."""
        attachment, by_name = self.attachment, self._cluster.attachments
        return attachment is None or all(
            attachment.is_used_with(by_name.get(name), attachments.ATTACHED)
            for name in attachment.spec.companions
        )

    def _patience(self, wish: claim_index.Wish | None) -> datetime.timedelta:
        limits = []
        if self.session is not None:
            limits.append(datetime.timedelta(seconds=self.session.spec.policy.attach_timeout_seconds))
        if wish is not None and wish.patience is not None:
            limits.append(wish.patience)
        # The attach has its whole time after the pause, as far as the scheduler waits.
        begins, pause = self._attaches_at(wish), datetime.timedelta()
        if begins is not None and wish is not None:
            pause = begins - wish.seen_at
        return min([self._context.patience, *(limit + pause for limit in limits)])

    def _attaches_at(self, wish: claim_index.Wish | None) -> datetime.datetime | None:
        """Return when the attach for the wish may begin; None if at once."""
        if wish is None:
            return None
        retries, patience = self._cluster.retries, self._context.patience
        return retries.attaches_at(wish.claim.uid, self.given_as, wish.seen_at, patience)

    def _present(self) -> bool | None:
        """Return whether the fabric has the device; None while that is not known."""
        if self.session is None or not self.session.listed:
            return None
        unlisted = self.device is None and self._key.device in self.session.missing
        return None if unlisted else self.device is not None

    def _keep(self) -> datetime.timedelta | None:
        if self.session is None or self.attachment is None:
            return datetime.timedelta()
        if self.attachment.spec.share is not None:
            # No other claim ever has this share.
            return datetime.timedelta()
        policy, spec = self.session.spec.policy, self.attachment.spec
        if policy.models and policies.stays(policy.models, spec.model, self._models(spec.node_name)):
            return None
        return datetime.timedelta(seconds=policy.keep_attached_seconds)

    def _forbidden(self, wish: claim_index.Wish | None) -> attachments.Failure | None:
        """Return why the Fabric's rules, or an earlier refusal by its manager, do not allow a new attachment."""
        if self.session is None or wish is None or self.device is None or self.attachment is not None:
            return None
        rules = self.session.spec.policy.models
        ruled_out = rules and policies.forbids(rules, self.device.model, self._models(wish.node), wish.node)
        unreached = self._unreached(self.session, self.device, wish)
        return ruled_out or unreached or self._refused_before(self.session, wish)

    @staticmethod
    def _unreached(
        opened: session.Session, device: contract.Device, wish: claim_index.Wish
    ) -> attachments.Failure | None:
        """Return why the wish's host cannot have the device, by their reachability groups; None if it can."""
        host = opened.host(wish.host_id or "")
        if host is None or host.reaches(device):
            return None
        message = (
            f"host {host.id} is in none of its reachability groups ({', '.join(sorted(device.reach_groups))}); let the pod go "
            f"to another node: kubectl get fabric {opened.name} -o jsonpath='{{.status.reachGroups}}' shows the groups"
        )
        return attachments.Failure(reason=reasons.DEVICE_INCOMPATIBLE, message=message)

    def _refused_before(self, opened: session.Session, wish: claim_index.Wish) -> attachments.Failure | None:
        """Return the fabric manager's refusal of the device at the wish's host, while that is remembered."""
        device = wish.share.device if wish.share is not None else self._key.device
        probation = datetime.timedelta(seconds=opened.spec.policy.probation_seconds)
        refusal = opened.pairs.refusal(device, wish.host_id or "", probation, self._cluster.clock())
        if refusal is None:
            return None
        message = (
            f"the fabric manager refused it at host {wish.host_id} at {refusal.reported_at} and is not asked again yet: "
            f"{refusal.message}; let the pod go to another node, or select another device"
        )
        return attachments.Failure(reason=reasons.DEVICE_INCOMPATIBLE, message=message)

    def _models(self, node: str) -> Counter[str]:
        """Count what the node has of this fabric, with what other workers are writing now."""
        fabric = self._key.fabric
        models = Counter(
            attachment.spec.model
            for attachment in self._cluster.placed.on(node)
            if attachment.spec.fabric == fabric
        )
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

        A claim whose status has a failure waits no longer; it counts only while there is no other.
        """
        given = self._cluster.allocated.with_device(self.given_as)
        spec = self.attachment.spec if self.attachment else None
        mine = [claim for claim in given if spec and spec.claim and claim.metadata.uid == spec.claim.uid]
        wishes = (wish for claim in (*mine, *given) if (wish := self._wish_of(claim)) is not None)
        first = next(wishes, None)
        if first is not None:
            if mine or not first.failed_said:
                return first
            return next((wish for wish in wishes if not wish.failed_said), first)
        if self._context.classic_wish is None:
            return None
        host_of = self.session.nodes.host_of if self.session is not None else {}
        seen_at = self._cluster.placed.held_since(self._key.attachment) or self._cluster.clock()
        return self._context.classic_wish(self._key, self.attachment, host_of, seen_at)

    def _rivals(self, wish: claim_index.Wish | None) -> tuple[claim_index.Wish, ...]:
        """Return those that wait for what the wish's claim has; a device that is shared on purpose has share ids."""
        given = self._cluster.allocated.with_device(self.given_as)
        if wish is None or len(given) < 2:
            return ()
        driver = self._cluster.driver
        rivals = (
            self._wish_of(claim)
            for claim in given
            if claim.metadata.uid != wish.claim.uid
            and claim_index.devices(claim, driver)[self.given_as].share_id is None
        )
        return tuple(rival for rival in rivals if rival is not None and not rival.failed_said)

    def _wish_of(self, claim: claims.ResourceClaim) -> claim_index.Wish | None:
        node = claim.status.allocation.node if claim.status.allocation else None
        host_id = self.session.nodes.host_of.get(node) if self.session and node else None
        seen = self._cluster.allocated.seen(claim)
        wish = claim_index.wish(
            claim, self._cluster.driver, self.given_as, host_id, seen, origin=self._listed
        )
        return wish if wish is None or not wish.claim.memory_interleave else self._judged(wish)

    def _listed(self, name: str) -> contract.Device | None:
        return self.session.device(name) if self.session is not None else None

    def _judged(self, wish: claim_index.Wish) -> claim_index.Wish:
        """Return a wish for interleaved memory, with why it cannot be if that is so."""
        given = wish.share.device if wish.share is not None else self.given_as.device
        members = self.composite.devices if self.composite is not None else (given,)
        devices = {name: self._listed(name) for name in members}
        problem = group.interleaving_problem(given, devices)
        if wish.unfit is not None or problem is None:
            return wish
        unfit = attachments.Failure(
            reason=reasons.INVALID_PARAMETERS, message=f"opaque parameters: {problem}"
        )
        return replace(wish, unfit=unfit)


async def work(context: Context, queue: workers.WorkQueue[names.DeviceKey]) -> None:
    """Reconcile the devices of a queue until cancelled, as one of its workers."""

    async def reconciled(key: names.DeviceKey) -> float | None:
        with (
            context.watchdog.watching(f"device {key.attachment}"),
            context.cluster.refusals.attempt((key.fabric,), f"device {key.device}"),
            client.writing_for(key.fabric),
        ):
            return await reconcile(context, key)

    await queue.run(
        reconciled,
        lambda key: {"attachment": key.attachment},
        retried=(kube_errors.KubeError, fabric_errors.FabricError),
        level=lambda error: logging.WARNING if isinstance(error, _LASTING) else logging.INFO,
        worker="devices",
        contained=context.cluster.contained,
        report=functools.partial(_report_unexpected, context.cluster),
    )


def _report_unexpected(observed: cluster.Cluster, key: names.DeviceKey, failure: str) -> None:
    """Emit an Event on the attachment of a device, and on the claims that were given it."""
    attachment = observed.attachments.get(key.attachment)
    if attachment is not None:
        observed.recorder.unexpected(kinds.ATTACHMENT, attachment.metadata, failure)
    for claim in observed.allocated.with_device(key):
        observed.recorder.unexpected(kinds.CLAIM, claim.metadata, failure)


async def reconcile(context: Context, key: names.DeviceKey) -> float | None:
    """Reconcile one device once; return the seconds after which to look again, if time alone can change it.

    A round that changed something is followed by another at once (0.0): what it did is observed, not assumed.

    Raises:
        kube.errors.KubeError, fabric.errors.FabricError: something failed; observe again and decide again.
    """
    if context.cluster.members(key) or context.cluster.attachments.is_unreadable(key.attachment):
        # The members of a composite are reconciled, each by itself.
        return None
    now = context.cluster.clock()
    work = _Round(context, key)
    work.report_oddities()
    if work.awaits_record:
        return plan.ORPHAN_SECONDS
    again: float | None = None
    try:
        for action in plan.plan(work.observed, now):
            if isinstance(action, actions.LookAgain):
                again = action.seconds
            elif isinstance(action, actions.Talk):
                again = await work.talk(action)
            else:
                await work.write(action, context.cluster.time_of_day())
                again = 0.0 if isinstance(action, actions.Taint) else again
    except fabric_errors.FabricError as error:
        await work.report_refusal(error)
        raise
    except kube_errors.KubeError:
        # What the API server refuses may stay refused for long, and other devices wait for the fabric.
        work.give_place()
        raise
    work.give_place()
    return again


class _Round:
    """One device as observed once, and the actions on it."""

    def __init__(self, context: Context, key: names.DeviceKey) -> None:
        self._context = context
        self._cluster = context.cluster
        self._key = key
        seen = _Observation(context, key)
        self.observed = seen.whole()
        self._session, self._attachment, self._device = seen.session, seen.attachment, seen.device
        self._composite, self._given_as = seen.composite, seen.given_as
        self._waits = False
        # The call that the fabric is asked for now.
        self._side: outcomes.Side | None = None
        self.awaits_record = seen.awaits_record

    async def talk(self, action: actions.Talk) -> float:
        """Carry out an action at the fabric; return the seconds after which to observe what it did."""
        self._side = action.side if isinstance(action, actions.Ask | actions.CallFabric) else None
        match action:
            case actions.Ask(side=side):
                await self._ask(side)
            case actions.CallFabric(side=side):
                if side is outcomes.Side.ATTACH and ahead_of(self._context, self._existing):
                    return plan.QUEUE_LOOK_SECONDS
                pause = self._pause_seconds(side)
                self._waits = pause > 0 or not self._open.turns.take(
                    self._key, self._existing.spec.host_id, self._namespace
                )
                if self._waits:
                    return pause or WAIT_SECONDS
                await self._call(side)
            case actions.Cancel(side=side):
                await self._cancel(side)
            case actions.Retry(side=side):
                self._context.calls.next_attempt(self._existing.metadata.uid, side)
            case actions.DeleteSlice():
                await self._delete_slice()
                return plan.ORPHAN_SECONDS
            case actions.EndBlocker():
                await self._end_blocker()
            case actions.ReadFabric():
                await self._open.read()
            case _:
                assert_never(action)
        return 0.0

    async def report_refusal(self, error: fabric_errors.FabricError) -> None:
        """Record that a call failed which the queue makes again; where the API server refuses that, the log has it."""
        side, attachment = self._side, self._attachment
        if side is None or attachment is None or self._session is None:
            return
        known, uid = self._context.calls, attachment.metadata.uid
        known.refused(uid, side, error, is_reached=self._session.connection.connected)
        call = known.view(uid, side, asyncio.get_running_loop().time())
        for action in plan.refusal_steps(attachment, side, call):
            if isinstance(action, actions.RecordRefusal):
                try:
                    await self._record_refusal(action, self._cluster.time_of_day())
                except kube_errors.KubeError as failed:
                    log.info("the refusal is not recorded: %s", failed, extra=self._extras())

    async def _record_wait(
        self,
        action: actions.RecordQueued | actions.RecordRefusal | actions.RecordContradiction,
        now: datetime.datetime,
    ) -> None:
        match action:
            case actions.RecordQueued(ahead=ahead):
                message = plan.queued_message(self._existing, ahead)
                await self._record(statements.queued(self._existing, message, now))
            case actions.RecordRefusal():
                await self._record_refusal(action, now)
            case actions.RecordContradiction():
                await self._record_contradiction(action, now)
            case _:
                assert_never(action)

    async def _record_refusal(self, action: actions.RecordRefusal, now: datetime.datetime) -> None:
        await self._record(statements.refused(self._existing, action, now))
        moment = asyncio.get_running_loop().time()
        self._context.calls.refusal_reported(self._existing.metadata.uid, action.side, moment)

    async def _record_contradiction(
        self, action: actions.RecordContradiction, now: datetime.datetime
    ) -> None:
        existing = self._existing
        said = outcomes.contradiction(existing)
        await self._record(statements.contradicted(existing, action, now))
        if action.renews:
            self._context.calls.renewed(existing.metadata.uid)
        if action.renews or said is None or said.reason != action.reason:
            log.warning("%s", action.message, extra=self._extras())
            self._cluster.recorder.attachment_warning(existing, reason=action.reason, message=action.message)

    @property
    def _namespace(self) -> str:
        """The namespace of the claim that the device is or was attached for; empty without one."""
        claim = self._existing.spec.claim
        return claim.namespace if claim is not None else ""

    def _pause_seconds(self, side: outcomes.Side) -> float:
        """Return the seconds until an attach may begin for this namespace; 0.0 if it may."""
        if side is not outcomes.Side.ATTACH or not self._namespace:
            return 0.0
        limit, now = self._open.spec.policy.attaches_per_namespace_per_minute, self._cluster.clock()
        free_at = self._open.attaches.free_at(self._namespace, limit, now)
        return max(0.0, (free_at - now).total_seconds()) if free_at is not None else 0.0

    def report_oddities(self) -> None:
        """Report an attachment that is left alone since it has no Fabric; take back what was reported of one that is gone."""
        if self._session is not None and self._attachment is None:
            self._session.report(self._kept)
        if self._session is not None or self._attachment is None:
            self._context.ignored.pop(self._key, None)
            return
        metadata = self._attachment.metadata
        if self._context.ignored.get(self._key) == metadata.uid:
            return
        self._context.ignored[self._key] = metadata.uid
        message = (
            f"there is no Fabric {self._key.fabric} of driver {self._cluster.driver}, so the device is neither attached nor "
            f"detached: make that Fabric, or run kubectl delete deviceattachment {metadata.name}; one that stays after that "
            f"goes with kubectl patch deviceattachment {metadata.name} --type=merge -p "
            '\'{"metadata":{"finalizers":null}}\', once nothing is connected at the fabric manager'
        )
        log.warning("%s", message, extra=self._extras())
        self._cluster.recorder.attachment_warning(
            self._attachment, reason=reasons.FABRIC_MISSING, message=message
        )

    @property
    def _kept(self) -> str:
        """The subject of the trouble that finalizers of others keep the attachment."""
        return f"finalizers of {self._key.attachment}"

    def _report_kept(self) -> None:
        foreign = ", ".join(self._existing.metadata.finalizers)
        name = self._existing.metadata.name
        message = (
            f"the device of DeviceAttachment {name} is detached, and finalizers that are not Drawbar's keep the object "
            f"({foreign}), so no claim gets the device: have their owner finish, or run kubectl patch deviceattachment {name} "
            '--type=merge -p \'{"metadata":{"finalizers":null}}\''
        )
        if self._session is not None and self._session.report(self._kept, message):
            log.warning("%s", message, extra=self._extras())
            self._cluster.recorder.attachment_warning(
                self._existing, reason=reasons.FOREIGN_FINALIZER, message=message
            )

    def give_place(self) -> None:
        """Free the place at the fabric, unless an operation of this device runs or waits for it."""
        uid = self._attachment.metadata.uid if self._attachment else ""
        if self._session is not None and not self._waits and not self._context.calls.is_running(uid):
            self._session.give_place(self._key)

    async def write(  # noqa: C901 - one arm for each action
        self, action: actions.Write, now: datetime.datetime
    ) -> None:
        """Carry out an action at the API server; `now` is the time of day."""
        match action:
            case actions.Create(wish=wish):
                await self._create(wish)
            case actions.Adopt():
                await self._adopt()
            case actions.Restore():
                await self._restore(action, now)
            case actions.TakeOver(wish=wish):
                await self._take_over(wish)
            case actions.KeepIdle():
                idle_since = {"idleSince": meta.timestamp(now)}
                await self._patch(spec={"claim": None, "allocationTimestamp": None} | idle_since)
                log.info("device kept attached", extra=self._extras())
            case actions.SayAttached(wish=wish):
                await self._say_attached(wish, now)
            case actions.RecordAttached() | actions.RecordFailure():
                await self._record_outcome(action, now)
            case actions.RecordQueued() | actions.RecordRefusal() | actions.RecordContradiction():
                await self._record_wait(action, now)
            case actions.Taint():
                # The pool's plan sees the recorded failure; this only waits for its write.
                await self._taint()
            case actions.SayFailed(wish=wish, failure=failure):
                await self._say_failed(wish, failure, now)
            case actions.Delete(abandoned=abandoned):
                await self._cluster.attachments.delete(self._existing)
                self._report_release(abandoned)
            case actions.ReportKept():
                self._report_kept()
            case actions.RemoveFinalizer():
                await self._give_back_share()
                await self._remove_finalizer()
                self._context.calls.forget(self._existing.metadata.uid)
                log.info("device detached", extra=self._extras())
            case _:
                assert_never(action)

    @property
    def _existing(self) -> attachments.DeviceAttachment:
        assert self._attachment is not None
        return self._attachment

    @property
    def _open(self) -> session.Session:
        if self._session is None:
            raise fabric_errors.Unavailable(f"there is no Fabric {self._key.fabric}")
        return self._session

    async def _taint(self) -> None:
        """Have the device's pool written.

        Raises:
            kube_errors.KubeError: the API server refuses the slice of the device.
        """
        fabric, device = self._key.fabric, self._existing.spec.allocated
        await self._cluster.pools.publish(fabric)
        error = self._cluster.pools.error_of(fabric, device)
        if error is not None and not self._cluster.pools.is_tainted(fabric, device):
            raise error

    async def _create(self, wish: claim_index.Wish) -> None:
        assert self._device is not None
        origin = self._device.id if wish.share is None else wish.share.device_id
        unclean = origin in self._unclean
        body = statements.intent(
            self._open.spec,
            self._key,
            self._device,
            wish,
            identity=self._identify(self._device, wish.host_id or ""),
            unclean=unclean,
            composite=self._composite,
        )
        # Before the first await: another worker may decide about the same node meanwhile.
        self._context.intended[self._key] = (wish.node, self._device.model)
        try:
            stored = await self._store(body)
        finally:
            del self._context.intended[self._key]
        if self.observed.owner is marks.Owner.OURS:
            kept = f"claim {wish.claim.namespace}/{wish.claim.name} keeps it"
            statements.emit_taken_back(self._cluster.recorder, stored, kept)
        extra = {"attachment": self._key.attachment, "node": wish.node, "claim": wish.claim.name}
        log.info("attachment created", extra=extra)
        self._warn_of_hook(wish)

    def _identify(self, device: contract.Device, host_id: str) -> attachments.Identity:
        shared = self._open.numbers.shared(device)
        return identities.identify(device, shared=shared, host=self._open.host(host_id))

    def _warn_of_hook(self, wish: claim_index.Wish) -> None:
        """Emit an Event where the device's hook or bitstream may take longer than the scheduler waits."""
        hook, limit = wish.claim.initialise, self._context.binding_timeout.total_seconds()
        claim = self._claim(wish)
        if hook is not None and claim is not None and hook.timeout_seconds >= limit:
            what = f"the hook {hook.hook}" if hook.hook else f"the bitstream {hook.bitstream}"
            message = (
                f"{what} may take {hook.timeout_seconds} s, and the scheduler waits {limit:.0f} s: shorten "
                "initialise.timeoutSeconds of the DeviceClass, or lengthen bindingTimeout of the scheduler and "
                "bindingTimeoutSeconds of the controller"
            )
            self._emit(claim, warning=True, reason=reasons.HOOK_TOO_LONG, message=message)

    async def _restore(self, where: actions.Restore, now: datetime.datetime) -> None:
        seen = self._device
        if seen is None or not await self._is_confirmed():
            return
        identity = self._identify(seen, where.host_id)
        stored = await self._store(
            statements.restored(self._open.spec, self._key, seen, where, now, identity=identity)
        )
        statements.emit_taken_back(
            self._cluster.recorder, stored, "it is detached once its node lets go of it"
        )
        extra = {"attachment": self._key.attachment, "node": where.node, "host": where.host_id}
        log.warning("found a device attached by this cluster without a record; it is taken back", extra=extra)

    async def _is_confirmed(self) -> bool:
        """Read the fabric anew; return whether it still shows the device as the plan rests on it.

        A watch may report the connection of an earlier attachment after that was detached and its record is gone.
        """
        seen = self._device
        await self._open.read()
        return self._open.device(self._key.device) == seen

    async def _is_outdated(self, failure: attachments.Failure) -> bool:
        """Return whether a failure rests on a connection that the fabric, read anew, no longer shows.

        A fabric that cannot be read leaves it at what was reported last.
        """
        if failure.reason != reasons.DEVICE_IN_USE or self.observed.host_id is None:
            return False
        try:
            return not await self._is_confirmed()
        except fabric_errors.FabricError:
            return False

    async def _store(self, body: object) -> attachments.DeviceAttachment:
        stored = await self._cluster.attachments.create(body)
        # Made just now, so the fabric was not called for it.
        for side in outcomes.Side:
            self._context.calls.never_asked(stored.metadata.uid, side)
        return stored

    async def _ask(self, side: outcomes.Side) -> None:
        uid, seen = self._existing.metadata.uid, self._device
        adapter, under_way = self._open.adapter(), self._context.calls.is_running(uid, side)
        try:
            operation = await adapter.operation(request_id=self._request_id(side))
        except fabric_errors.NotFound:
            # Never asked, or done and forgotten: the device itself shows which.
            await self._open.read()
            self._context.calls.never_asked(uid, side)
            return
        # Of an operation that may have ended long ago, the device may have changed since: the fabric is read for it.
        self._settle(side, operation, seen if under_way else None)

    async def _cancel(self, side: outcomes.Side) -> None:
        """Cancel the operation where the fabric can; elsewhere it ends by itself or never, and this is tried again."""
        if not self._open.turns.can.cancel:
            return
        adapter, seen = self._open.adapter(), self._device
        operation = await adapter.operation(request_id=self._request_id(side))
        if not operation.done:
            operation = await adapter.cancel(operation.id)
            log.info("operation cancelled", extra=self._extras() | {"operation": operation.id})
        self._settle(side, operation, seen)

    async def _give_back_share(self) -> None:
        """Delete the slice of a share that is detached; where that fails, it is an orphan as soon as its record is gone."""
        made = self._session.occupant(self._key.device) if self._session is not None else None
        if self._existing.spec.share is None or made is None or made.connection is not None:
            return
        try:
            await self._delete(made)
        except fabric_errors.FabricError as error:
            log.info("the slice is not given back yet: %s", error, extra=self._extras() | {"device": made.id})

    async def _delete_slice(self) -> None:
        seen = self._device
        share = memory_chunk.name_of(seen) if seen is not None else None
        if seen is None or share is None or not await self._is_confirmed():
            return
        try:
            await self._delete(seen)
        except fabric_errors.Aborted as error:
            if error.reason != fabric_errors.Reason.OPERATION_PENDING:
                raise
            # An earlier deletion, of which every device has one at most: one that never ends would keep the memory.
            pending = await self._overdue_operation({seen.id: self._key.attachment})
            if pending is not None and memory_chunk.deleted_share(pending.request_id) == share:
                await self._end(pending)

    async def _delete(self, seen: contract.Device) -> None:
        if seen.slice_of is None:
            return
        # A failed id stays failed for ever.
        minute = int(self._cluster.time_of_day().timestamp() // _ORPHAN_ATTEMPT_SECONDS)
        request = contract.DeleteSliceRequest(
            request_id=memory_chunk.deletion_request(seen.slice_of, minute), device_id=seen.id
        )
        await self._open.adapter().delete_slice(request)
        extra = {"fabric": self._key.fabric, "device": seen.id, "origin": seen.slice_of.origin_id}
        log.info("slice given back", extra=extra)

    async def _end_blocker(self) -> None:
        """Wait for it with a deadline; then cancel it where it is ours and the fabric can, else report it."""
        spec, opened = self._existing.spec, self._open
        waiting = {spec.device_id: self._existing.metadata.uid}
        if spec.share is not None:
            # It waits for what is carved of its device, as all shares of that do; what one with a record has carved is shown
            # as an operation of that share.
            waiting[spec.share.device_id] = f"shares of {spec.fabric}/{spec.share.device}"
        blocker = await self._overdue_operation(waiting)
        if blocker is None:
            return
        ours = (
            self._context.calls.is_unrecorded(blocker.request_id)
            or marks.began(blocker, opened.mark)
            # Of the record before.
            or memory_chunk.deleted_share(blocker.request_id) == spec.device
        )
        if ours:
            blocker = await self._end(blocker)
        if not blocker.done:
            self._report_blocker(blocker, ours=ours)

    async def _overdue_operation(self, waiting: Mapping[str, str]) -> contract.Operation | None:
        """Return the operation in flight that has been waited for long enough; None where there is none.

        Args:
            waiting: by the id of a device what waits for an operation on it; the first that has one counts.
        """
        now = asyncio.get_running_loop().time()
        in_flight = {
            operation.device.id: operation
            for operation in await self._open.adapter().operations()
            if not operation.done and operation.device is not None
        }
        for device_id, waits in waiting.items():
            blocker = in_flight.get(device_id)
            if blocker is not None:
                seconds = self._context.calls.blocked_seconds(waits, blocker.id, now)
                return blocker if seconds >= BLOCKER_SECONDS else None
        return None

    async def _end(self, blocker: contract.Operation) -> contract.Operation:
        """Cancel an operation where the fabric can; return how it is then."""
        if not self._open.turns.can.cancel:
            return blocker
        blocker = await self._open.adapter().cancel(blocker.id)
        log.warning("operation without a record cancelled", extra=self._extras() | {"operation": blocker.id})
        return blocker

    def _report_blocker(self, blocker: contract.Operation, *, ours: bool) -> None:
        whose = "of this cluster, without a DeviceAttachment" if ours else "that this cluster did not begin"
        message = (
            f"device {self._existing.spec.device_id} is kept busy by {blocker.kind.value} operation {blocker.id} "
            f"(request {blocker.request_id}) {whose}; end it at the fabric manager"
        )
        if self._open.report(self._key.device, message):
            self._cluster.recorder.attachment_warning(
                self._existing, reason=reasons.OPERATION_PENDING, message=message
            )

    async def _call(self, side: outcomes.Side) -> None:
        spec, adapter, seen = self._existing.spec, self._open.adapter(), self._device
        request_id = self._request_id(side)
        self._context.latency.asked(self._key, side)
        self._context.calls.asked(self._existing.metadata.uid, side, self._cluster.time_of_day())
        try:
            if side is outcomes.Side.ATTACH:
                self._open.attaches.add(self._namespace, self._cluster.clock())
                operation = await adapter.attach(
                    contract.AttachRequest(
                        request_id=request_id,
                        device_id=spec.device_id,
                        host_id=spec.host_id,
                        mark=self._open.mark,
                    )
                )
            else:
                operation = await adapter.detach(
                    contract.DetachRequest(
                        request_id=request_id,
                        device_id=spec.device_id,
                        host_id=spec.host_id,
                        host_prepared=not self._by_force,
                        force=self._by_force,
                    )
                )
        except (fabric_errors.Refused, fabric_errors.Aborted, fabric_errors.Misconfigured) as error:
            log.warning("the fabric refused: %s", error, extra=self._extras())
            self._context.calls.failed(
                self._existing.metadata.uid, side, error, asyncio.get_running_loop().time()
            )
        except fabric_errors.FabricError as error:
            # A call that never arrived need not be asked for: after an outage that would be one reading of the
            # whole fabric per device that waits.
            if error.side_effects_unknown:
                self._context.calls.ask_again(self._existing.metadata.uid, side)
            raise
        else:
            self._open.report(self._key.device)
            self._settle(side, operation, seen)
            if side is outcomes.Side.ATTACH and not operation.done:
                self._report_wait()

    def _report_wait(self) -> None:
        """Emit an Event about an attach that takes more than a moment."""
        claim = self._claim(self.observed.wish) if self.observed.wish is not None else None
        if claim is not None:
            message = f"being connected to host {self._existing.spec.host_id}"
            self._emit(claim, warning=False, reason=reasons.DEVICE_ATTACHING, message=message)

    @property
    def _by_force(self) -> bool:
        """Return whether the device is taken from a node that has not let go of it, where the fabric can do that."""
        released = self._existing.holds(attachments.RELEASED)
        return not released and self._open.turns.can.force_detach

    def _settle(
        self, side: outcomes.Side, operation: contract.Operation, seen: contract.Device | None
    ) -> None:
        """Take over an answer; the device in it only if nothing newer was reported since it was `seen`."""
        now, watched = asyncio.get_running_loop().time(), self._open.turns.can.watch
        self._context.calls.settle(self._existing.metadata.uid, side, operation, now, watched=watched)
        if not operation.done:
            self._open.turns.occupy(self._key, self._existing.spec.host_id)
        if (
            operation.succeeded
            and operation.device is not None
            and seen is not None
            and self._open.device(self._key.device) == seen
        ):
            self._open.learn(operation.device)

    async def _say_attached(self, wish: claim_index.Wish, now: datetime.datetime) -> None:
        claim = self._claim(wish)
        if claim is None:
            return
        body = statements.claim_attached(
            claim, self._cluster.driver, self._given_as, self._where(), now, occupants=self._occupants(claim)
        )
        if body is not None:
            await self._cluster.apply_to_claim(claim, body)
            self._context.latency.claim_reported(self._key)
            self._emit(claim, warning=False, reason=reasons.DEVICE_ATTACHED, message=self._where())

    async def _say_failed(
        self, wish: claim_index.Wish, failure: attachments.Failure, now: datetime.datetime
    ) -> None:
        """Write the failure on all claims that it fails; the wish's own last: its condition confirms that the other claims are written."""
        own = self._claim(wish)
        if own is None or (self._attachment is None and await self._is_outdated(failure)):
            return
        refused: list[kube_errors.KubeError] = []
        for claim in self._cluster.allocated.failed_with(own):
            occupants = self._occupants(claim)
            body = statements.claim_failed(claim, self._cluster.driver, failure, now, occupants=occupants)
            if body is None:
                continue
            try:
                await self._cluster.apply_to_claim(claim, body)
            except (kube_errors.Denied, kube_errors.Invalid) as error:
                # The pod of a claim that cannot be written waits until the scheduler gives up; the others need not.
                refused.append(error)
        log.warning("attach failed: %s", failure.message, extra=self._extras() | {"reason": failure.reason})
        self._context.latency.failed(self._key, failure.reason)
        self._emit(own, warning=True, reason=failure.reason, message=failure.message)
        if refused:
            raise refused[0]

    def _report_release(self, abandoned: claim_index.Wish | None) -> None:
        """Emit an Event: the scheduler goes on counting the device of an abandoned allocation as given until that is gone."""
        log.info("release asked for", extra=self._extras())
        claim = self._claim(abandoned) if abandoned is not None else None
        if claim is not None:
            message = (
                "the attach failed and the allocation was not taken back, so it is rolled back; the device is offered again "
                "when the allocation is gone: delete the claim, or the pod that it was made for"
            )
            self._emit(claim, warning=True, reason=reasons.ATTACH_ROLLED_BACK, message=message)

    def _emit(self, claim: claims.ResourceClaim, *, warning: bool, reason: str, message: str) -> None:
        statements.emit(
            self._cluster.recorder, claim, self._key, warning=warning, reason=reason, message=message
        )

    def _claim(self, wish: claim_index.Wish) -> claims.ResourceClaim | None:
        claim = self._cluster.claims.get(wish.claim.name, wish.claim.namespace)
        return claim if claim is not None and claim.metadata.uid == wish.claim.uid else None

    async def _record_outcome(
        self, outcome: actions.RecordAttached | actions.RecordFailure, now: datetime.datetime
    ) -> None:
        operation = self._context.calls.record(self._existing.metadata.uid, outcomes.Side.ATTACH)
        if isinstance(outcome, actions.RecordFailure):
            if await self._is_outdated(outcome.failure):
                return
            await self._record(statements.failed(self._existing, operation, outcome.failure, now))
            return
        connection = self._device.connection if self._device else None
        occupant = self._open.occupant(self._key.device)
        body = statements.attached(
            self._existing, operation, connection, self._where(), now, occupant=occupant
        )
        await self._record(body)
        log.info("device attached", extra=self._extras())

    async def _record(self, body: object) -> None:
        await self._cluster.attachments.apply(
            self._existing, body, manager=self._cluster.manager, subresource="status"
        )

    async def _adopt(self) -> None:
        existing = self._existing
        metadata: dict[str, Any] = {
            "labels": {attachments.NODE_LABEL: attachments.node_label(existing.spec.node_name)}
        }
        if not existing.deleting and attachments.FINALIZER not in existing.metadata.finalizers:
            metadata["finalizers"] = [*existing.metadata.finalizers, attachments.FINALIZER]
        if not existing.held_by_hand:
            metadata["ownerReferences"] = None
        await self._patch(metadata)
        log.info("attachment made or changed by hand adopted", extra=self._extras())

    @property
    def _unclean(self) -> tuple[str, ...]:
        """Return the ids of the fabric's devices that left a node without being erased."""
        fabric = self._cluster.fabrics.get(self._key.fabric)
        return fabric.status.unclean if fabric is not None else ()

    async def _note_cleanliness(self) -> None:
        """Record whether the device has left its node clean, before its own record goes."""
        fabric, attachment = self._cluster.fabrics.get(self._key.fabric), self._existing
        if fabric is None:
            return
        share, device_id = attachment.spec.share, attachment.device_id
        released = attachment.holds(attachments.RELEASED)
        unclean = not released and attachment.is_used and attachment.spec.erases
        if share is not None:
            # Any later share of the device may have that memory, and none has all of it.
            device_id = share.device_id
            if not unclean:
                return
        rest = [device for device in fabric.status.unclean if device != device_id]
        wanted = [*rest, device_id] if unclean else rest
        if (device_id in fabric.status.unclean) == unclean or (not unclean and not released):
            return
        body = {
            "metadata": {"uid": fabric.metadata.uid, "resourceVersion": fabric.metadata.resource_version},
            "status": {"unclean": wanted},
        }
        await self._cluster.fabrics.merge(fabric, body, manager=self._cluster.manager, subresource="status")
        if unclean:
            node = attachment.spec.node_name
            message = (
                f"it left node {node} without being erased; the next node that it goes to erases it first"
            )
            self._cluster.recorder.attachment_warning(
                attachment, reason=reasons.LEFT_UNCLEAN, message=message
            )

    async def _remove_finalizer(self) -> None:
        await self._note_cleanliness()
        remaining = [
            finalizer
            for finalizer in self._existing.metadata.finalizers
            if finalizer != attachments.FINALIZER
        ]
        await self._patch({"finalizers": remaining})
        if self.observed.given_up:
            spec = self._existing.spec
            message = (
                f"its Fabric is given up: {self._existing.device_id} was not detached, and stays connected to host {spec.host_id} if it "
                "was; disconnect it at the fabric manager before anybody else uses it"
            )
            self._cluster.recorder.attachment_warning(
                self._existing, reason=reasons.GIVEN_UP, message=message
            )
        if self._session is not None:
            self._session.report(self._key.device)

    async def _take_over(self, wish: claim_index.Wish) -> None:
        # What the claim before had and this one has not goes, too.
        absent = dict.fromkeys(attachments.ClaimReference.__struct_encode_fields__)
        claim = absent | msgspec.to_builtins(wish.claim)
        moment = wish.allocation_timestamp
        await self._patch(spec={"claim": claim, "allocationTimestamp": moment, "idleSince": None})
        log.info("device handed on", extra=self._extras() | {"claim": wish.claim.name})

    async def _patch(
        self, metadata: dict[str, Any] | None = None, *, spec: dict[str, Any] | None = None
    ) -> None:
        """Change the attachment, if it is still as it was observed."""
        current = self._existing.metadata
        precondition = {"uid": current.uid, "resourceVersion": current.resource_version}
        body = {"metadata": precondition | (metadata or {}), "spec": spec or {}}
        # One that is gone needs no change.
        with contextlib.suppress(kube_errors.NotFound):
            await self._cluster.attachments.merge(self._existing, body, manager=self._cluster.manager)

    def _request_id(self, side: outcomes.Side) -> str:
        return self._context.calls.request_id(self._existing.metadata.uid, side)

    def _occupants(self, claim: claims.ResourceClaim) -> statements.Occupants:
        """Return the devices that are in the claim's places, of fabrics that choose the device."""
        devices = {}
        for key in claim_index.devices(claim, self._cluster.driver):
            opened, attachment = (
                self._cluster.sessions.get(key.fabric),
                self._cluster.attachments.get(key.attachment),
            )
            recorded = attachment.status.device if attachment is not None else None
            seen = opened.occupant(key.device) if opened is not None and attachment is not None else None
            device = recorded or statements.device_record(seen)
            if device is not None:
                devices[key] = device
        return devices

    def _where(self) -> str:
        connection = self._device.connection if self._device else None
        port = f", port {connection.port_id}" if connection and connection.port_id else ""
        occupant = self._session.occupant(self._key.device) if self._session is not None else None
        device = f" as device {occupant.id}" if occupant is not None else ""
        return f"connected to host {self._existing.spec.host_id} of fabric {self._key.fabric}{port}{device}"

    def _extras(self) -> dict[str, str]:
        extras = {"attachment": self._key.attachment}
        return extras | ({"node": self._attachment.spec.node_name} if self._attachment else {})
