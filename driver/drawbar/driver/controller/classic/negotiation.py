"""The negotiation of classic dynamic resource allocation: the devices for each claim, and the answers to the scheduler; pure.

One round looks at all claims, contexts, pods and devices at once. Pods are served in the order of their creation. A pod
that could have been served, but did not get a node from the scheduler for a while, goes behind the others. Devices for
the first pods are not promised to those behind them. So a free device is offered to as many pods as can have it, and
nothing is written for the others. The writes for a pod do not grow with the number of waiting pods.

All claims of a pod are looked at together. Optional requests count while some node can have them. If none can, the pod
is served without them. So it misses a device only if none is left for it.

Every waiting claim has an entry in the answer, even an empty one: the scheduler may wait for all of them before it
selects a node. The earlier unsuitable nodes are judged again each time, since the scheduler does not list them again.
If no node is suitable, and an answer has no room for all nodes, the scheduler proposes the others each time, without
end. So such an answer is given at once only for the first time, then after growing pauses. A pod with a suitable node
is answered at once.

Invariants, after every prefix of every plan:

- no device is attached for two claims, and none that is not free, or that another claim's allocation names;
- a claim has our finalizer before anything is attached for it, and as long as anything is;
- an allocation names devices that are attached and visible, all on the node that it names, and is written together with
  the reservation for its pod;
- the selection of another node starts no new allocation: an attempt ends on its first node, and an allocation stands
  until its deallocation is requested;
- a claim's allocation and finalizer go only after its devices;
- a context is written only if that changes it, and at most 128 nodes stand in a list.

Source: KEP-3063, "Coordinating resource allocation through the scheduler", the duties of a driver, and
PodSchedulingContextStatus.
"""

import datetime
from collections.abc import Collection, Iterable

import msgspec

from drawbar.driver.api import attachments, claims, classic, handles, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import names
from drawbar.driver.controller.allocation import matching
from drawbar.driver.controller.classic import actions, claim_state, history, observation
from drawbar.driver.controller.classic.choice import Choice, Share, choose, expect_handle
from drawbar.driver.controller.classic.claim_state import State

# This round finds anything that an observation missed.
REFRESH = datetime.timedelta(seconds=60)
# An allocation always has room for this number of devices.
SURELY_FIT = 24


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one round.

    Attributes:
        history: the history for the next round.
        look_again: the time of the next round, if nothing changes before.
    """

    actions: tuple[actions.Action, ...]
    history: history.History
    look_again: datetime.datetime


def plan(observed: observation.Round, past: history.History, now: datetime.datetime) -> Decision:
    """Return the next safe steps for all claims and contexts."""
    return _Round(observed, past.copy_at(now)).decide()


class _Round:
    """One round of decisions."""

    def __init__(self, observed: observation.Round, past: history.History) -> None:
        self._observed = observed
        self._past = past
        self._began = meta.timestamp(observed.date)
        self._stock = matching.Stock(observed.inventory, observed.judge)
        # A free device is not given to another claim before the allocation that names it is cleared.
        self._stock.keep(
            tuple(
                names.DeviceKey(fabric=device.fabric, device=device.device)
                for claim in observed.claims.values()
                if claim.allocation is not None and claim.allocation.handle is not None
                for device in claim.allocation.handle.devices
            )
        )
        self._alive = {name for name, node in observed.nodes.items() if not node.out_of_service}
        self._steps: list[actions.Action] = []
        self._attempts: dict[str, claim_state.Attempt] = {}
        # Claims with a step in this round: another pod of the same claim waits for the outcome.
        self._begun: set[str] = set()
        self._requesters = tuple(observation.requesters(observed))
        self._users: dict[str, list[observation.Requester]] = {}
        for requester in self._requesters:
            for waiting in requester.waiting:
                self._users.setdefault(waiting.claim.uid, []).append(requester)

    def decide(self) -> Decision:
        self._count_deallocated()
        self._begin_claims()
        for requester in sorted(
            self._requesters, key=lambda user: (self._past.lapses(user.uid), user.created, user.uid)
        ):
            self._serve(requester)
        for uid, attempt in self._attempts.items():
            # A claim without attachments or new steps needs no finalizer.
            if attempt.state is State.IDLE and uid not in self._begun and attempt.claim.has_finalizer:
                self._steps.append(actions.Unprotect(claim=attempt.claim))
        refresh = self._past.now + REFRESH
        return Decision(
            actions=tuple(self._steps),
            history=self._past.prune(
                {requester.uid for requester in self._requesters},
                {claim.uid for claim in self._observed.claims.values()},
            ),
            look_again=min(self._past.wake_at or refresh, refresh),
        )

    def _count_deallocated(self) -> None:
        """Count a failure for the node of an allocation that the scheduler wants taken back, if it still selects the node."""
        for context in self._observed.contexts.values():
            pod = self._observed.pods.get(context.name)
            if pod is None or not context.potential_nodes:
                continue
            for name in pod.claims.values():
                claim = self._observed.claims.get(classic.Name(namespace=pod.name.namespace, name=name or ""))
                allocation = claim.allocation if claim is not None else None
                if claim is None or allocation is None or not claim.deallocation_requested:
                    continue
                if allocation.node and allocation.node == context.selected_node:
                    allocated_at = allocation.handle.allocated_at if allocation.handle is not None else ""
                    attempt = f"taken back {allocated_at}"
                    self._past.count_failure(claim.uid, allocation.node, attempt, by_device=False)

    def _begin_claims(self) -> None:
        held: dict[str, list[attachments.DeviceAttachment]] = {}
        for attachment in self._observed.attachments:
            if attachment.spec.claim is not None:
                held.setdefault(attachment.spec.claim.uid, []).append(attachment)
        for claim in self._observed.claims.values():
            self._attempts[claim.uid], steps = claim_state.begin(
                claim,
                held.get(claim.uid, ()),
                self._observed,
                self._past,
                is_awaited=claim.uid in self._users,
            )
            self._steps += steps

    def _serve(self, requester: observation.Requester) -> None:
        """Continue the requester's attempts, begin new ones if possible, and answer the scheduler."""
        for waiting in requester.waiting:
            if self._state(waiting) is State.UNDERWAY and waiting.claim.uid not in self._begun:
                self._continue(requester, waiting)
        idle = tuple(waiting for waiting in requester.waiting if self._state(waiting) is State.IDLE)
        problems = [waiting for waiting in idle if waiting.requests.problem]
        if problems:
            for waiting in problems:
                self._complain(
                    waiting.claim,
                    reasons.CANNOT_SERVE_CLAIM,
                    waiting.requests.problem,
                    waiting.requests.problem,
                )
            self._answer(requester, idle, requester.nodes)
            self._past.end_window(requester.uid)
            return
        is_blocked = any(self._state(waiting) is State.LEAVING for waiting in requester.waiting)
        if not idle or is_blocked or any(waiting.claim.uid in self._begun for waiting in idle):
            self._answer(requester, (), ())
            return
        self._offer(requester, idle)

    def _state(self, waiting: observation.Waiting) -> State:
        return self._attempts[waiting.claim.uid].state

    def _complain(self, claim: classic.Claim, reason: str, message: str, subject: str) -> None:
        """Report to a claim's users why it cannot be served, once for each subject."""
        if self._past.complains(claim.uid, subject):
            self._steps.append(actions.Complain(claim=claim, reason=reason, message=message))

    # Attempts in progress.

    def _continue(self, requester: observation.Requester, waiting: observation.Waiting) -> None:
        """Complete an attempt after a crash, and end it in an allocation once all is ready."""
        attempt = self._attempts[waiting.claim.uid]
        self._begun.add(waiting.claim.uid)
        if waiting.requests.problem:
            self._past.complains(waiting.claim.uid, waiting.requests.problem)
            self._break_off(attempt, reasons.CANNOT_SERVE_CLAIM, waiting.requests.problem)
        elif attempt.ready:
            handle = attempt.handle(waiting.requests)
            problem = claim_state.too_large(handle)
            if problem:
                self._break_off(attempt, reasons.ALLOCATION_TOO_LARGE, problem)
            else:
                self._allocate(requester, waiting, handle)
        elif attempt.missing:
            missing = attempt.find_missing_requests(waiting.requests)
            matched = matching.Search(self._stock, missing).match_on(attempt.node)
            if matched is None or sum(map(len, matched)) != attempt.missing:
                message = f"node {attempt.node} has no device left for all that the claim asks for"
                self._break_off(attempt, reasons.NO_DEVICE_LEFT, message)
                return
            share = tuple((request.name, keys) for request, keys in zip(missing, matched, strict=True))
            devices = len(attempt.held) + attempt.missing
            self._attach(waiting.claim, share, attempt.node, attempt.began, devices)

    def _break_off(self, attempt: claim_state.Attempt, reason: str, message: str) -> None:
        """End an incomplete attempt, which is of no use to its claim, and release its devices for others."""
        self._past.count_failure(attempt.claim.uid, attempt.node, attempt.began, by_device=False)
        self._steps += claim_state.release(attempt.claim, attempt.held, reason=reason, message=message)

    def _allocate(
        self, requester: observation.Requester, waiting: observation.Waiting, handle: handles.Handle
    ) -> None:
        requester = self._find_user(requester, waiting, handle.node)
        pod = requester.pod
        consumer = None
        if pod is not None and len(waiting.claim.reserved_for) < classic.CONSUMERS_MAX:
            consumer = claims.Consumer(resource="pods", name=pod.name.name, uid=pod.uid)
        self._past.forget(requester.uid)
        self._steps.append(
            actions.Allocate(
                claim=waiting.claim,
                handle=handle,
                shareable=waiting.requests.shareable,
                config=waiting.requests.config,
                pod=consumer,
            )
        )

    def _find_user(
        self, requester: observation.Requester, waiting: observation.Waiting, node: str
    ) -> observation.Requester:
        """Return the pod for which a claim is allocated: of those that go to its node, one whose other claims go there, too.

        Another one might never get its other claims while this one waits, and both would be taken back, again and again.
        """

        def goes_there(user: observation.Requester) -> bool:
            return all(self._attempts[each.claim.uid].node == node for each in user.waiting)

        users = [user for user in self._users[waiting.claim.uid] if user.selected_node == node]
        return max(users, key=goes_there, default=requester)

    # New attempts.

    def _offer(self, requester: observation.Requester, idle: tuple[observation.Waiting, ...]) -> None:
        """Begin on the selected node, or keep devices for the requester until one is selected."""
        once = tuple({waiting.claim.uid: waiting for waiting in idle}.values())
        choice = self._find_room(once, choose(self._stock, once, lambda: self._usable(requester, once)))
        target = requester.selected_node if requester.context is not None else next(iter(choice.suitable), "")
        if requester.context is None and not choice.requests:
            self._begin(requester, once, "", choice)
        elif target in choice.suitable:
            self._past.end_window(requester.uid)
            self._begin(requester, once, target, choice)
        elif choice.suitable:
            devices = next(iter(choice.suitable.values()))
            self._stock.keep(tuple(key for keys in devices for key in keys))
            self._past.begin_window(requester.uid)
        else:
            self._past.end_window(requester.uid)
        # Most waiting requesters cannot have anything on any node.
        unsuitable = requester.nodes
        if choice.suitable:
            unsuitable = tuple(node for node in requester.nodes if node not in choice.suitable)
        self._answer(requester, idle, unsuitable)

    def _usable(
        self, requester: observation.Requester, once: tuple[observation.Waiting, ...]
    ) -> tuple[str, ...]:
        """Return the live nodes that no other attempt of the pod excludes, without those that just failed."""
        pins = {
            self._attempts[waiting.claim.uid].node
            for waiting in requester.waiting
            if self._state(waiting) is State.UNDERWAY
        }
        avoided = {self._past.find_avoided_node(waiting.claim.uid) for waiting in once}
        return tuple(
            name for name in requester.nodes if name in self._alive and name not in avoided and pins <= {name}
        )

    def _find_room(self, once: tuple[observation.Waiting, ...], choice: Choice) -> Choice:
        """Return the choice without nodes whose allocation is too large for the API; if no node is left, inform the users once."""
        large = [waiting for waiting in once if waiting.requests.devices > SURELY_FIT]
        refused: dict[str, str] = {}
        suitable = {}
        for node, devices in choice.suitable.items():
            problems = {
                waiting.claim.uid: claim_state.too_large(
                    expect_handle(choice, waiting, node, self._stock, self._began)
                )
                for waiting in large
            }
            if any(problems.values()):
                refused |= {uid: problem for uid, problem in problems.items() if problem}
            else:
                suitable[node] = devices
        for waiting in once:
            if suitable:
                self._past.complaints.pop(waiting.claim.uid, None)
            elif waiting.claim.uid in refused:
                # The message depends on the free devices.
                reason = reasons.ALLOCATION_TOO_LARGE
                self._complain(waiting.claim, reason, refused[waiting.claim.uid], reason)
        return msgspec.structs.replace(choice, suitable=suitable)

    def _begin(
        self,
        requester: observation.Requester,
        once: tuple[observation.Waiting, ...],
        node: str,
        choice: Choice,
    ) -> None:
        for waiting in once:
            share = choice.share(waiting.claim.uid, node) if choice.requests else ()
            self._begun.add(waiting.claim.uid)
            if not waiting.claim.has_finalizer:
                self._steps.append(actions.Protect(claim=waiting.claim))
            if share:
                devices = sum(len(keys) for _, keys in share)
                self._attach(waiting.claim, share, node, self._began, devices)
            else:
                without = tuple(request.name for request in waiting.requests.requests)
                handle = handles.Handle(node=node, allocated_at=self._began, without=without)
                self._allocate(requester, waiting, handle)

    def _attach(self, claim: classic.Claim, share: Share, node: str, began: str, devices: int) -> None:
        for request, keys in share:
            for key in keys:
                self._steps.append(
                    actions.Attach(
                        claim=claim,
                        key=key,
                        pool=self._stock.device(key).pool,
                        request=request,
                        node=node,
                        host_id=self._stock.host(key.fabric, node),
                        devices=devices,
                        allocated_at=began,
                    )
                )
            self._stock.give(keys, node)

    # Answers to the scheduler.

    def _answer(
        self,
        requester: observation.Requester,
        judged: Iterable[observation.Waiting],
        unsuitable: Collection[str],
    ) -> None:
        """Answer the scheduler, unless it already has this answer.

        Args:
            requester: a requester whose node is not final; others need no answer.
            judged: claims whose nodes were judged; the entries of other waiting claims stay.
            unsuitable: the unsuitable nodes of the requester.
        """
        context = requester.context
        if context is None or requester.is_fixed:
            return
        asked = {waiting.entry for waiting in judged}
        listed = _select_unsuitable(context, unsuitable)
        entries = {
            waiting.entry: listed if waiting.entry in asked else context.entries.get(waiting.entry, ())
            for waiting in requester.waiting
        }
        changed = tuple(
            (name, nodes)
            for name, nodes in entries.items()
            if name not in context.entries or set(context.entries[name]) != set(nodes)
        )
        if not asked or len(unsuitable) < len(requester.nodes):
            self._past.refusals.pop(requester.uid, None)
        elif changed:
            is_missing = any(name not in context.entries for name, _ in changed)
            if not self._past.may_refuse(requester.uid) and not is_missing:
                return
            self._past.count_refusal(requester.uid)
        if changed:
            self._steps.append(actions.Answer(context=context, entries=changed))


def _select_unsuitable(context: classic.Context, unsuitable: Collection[str]) -> tuple[str, ...]:
    """Return as many nodes as an answer has room for, first those that the scheduler may select now."""
    first = dict.fromkeys((context.selected_node, *context.potential_nodes))
    named = frozenset(unsuitable)
    order = [node for node in first if node in named]
    order += sorted(named - first.keys())
    return tuple(order[: classic.NODES_MAX])
