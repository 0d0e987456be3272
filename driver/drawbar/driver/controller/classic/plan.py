"""The negotiation of classic dynamic resource allocation, decided purely: who gets what, and what the scheduler is told.

One round looks at all claims, contexts, pods and devices at once. Pods are served in the order in which they came; a pod
that could have been served and was not given a node by the scheduler for a while goes behind the others. What the first
ones could use is not promised to those behind them, so a device that becomes free is offered to as many pods as can have
it, and the others hear nothing: the writes for a pod do not grow with the number of pods that wait beside it.

Invariants, after every prefix of every plan:

- no device is attached for two claims, and none that is not free, or that another claim's allocation names;
- a claim has our finalizer before anything is attached for it, and as long as anything is;
- an allocation names devices that are attached and visible, all on the node that it names, and is written together with
  the pod that it was made for;
- nothing is allocated anew because another node was selected: an attempt ends where it began, and an allocation stands
  until somebody asks it back;
- a claim's allocation and finalizer go only after its devices;
- a context is written only if that changes it, and at most 128 nodes stand in a list.

Source: KEP-3063, "Coordinating resource allocation through the scheduler" and the duties of a driver.
"""

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from drawbar.driver.api import attachments, claims, classic, handles, meta, nodes
from drawbar.driver.controller import names
from drawbar.driver.controller.allocation import matching
from drawbar.driver.controller.classic import (
    actions,
    attempts,
    choices,
    claim_requests,
    memory,
    parties,
    reports,
)

CANNOT_SERVE = "CannotServeClaim"
# Whatever got lost, this finds it.
REFRESH = datetime.timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything the decision rests on.

    Attributes:
        driver: its name.
        claims: those of this driver, by name.
        wanted: what each of them asks for, by uid.
        contexts: by uid.
        pods: that are there, with those that wait among them.
        nodes: by name.
        gone_at: by the name of an attachment from when on its node counts as gone, of nodes that are not there.
        attachments: of this driver.
        inventory: of all fabrics.
        judge: whether a device meets an expression.
        patience: from the moment an attempt was first seen to giving it up.
        seen: by the name of an attachment when it was first seen to be for its claim.
    """

    driver: str
    claims: Mapping[classic.Name, classic.Claim]
    wanted: Mapping[str, claim_requests.Wanted]
    contexts: Mapping[str, classic.Context]
    pods: Mapping[classic.Name, classic.Pod]
    nodes: Mapping[str, nodes.Node]
    gone_at: Mapping[str, datetime.datetime]
    attachments: tuple[attachments.DeviceAttachment, ...]
    inventory: matching.Inventory
    judge: matching.Judge
    patience: datetime.timedelta
    seen: Mapping[str, datetime.datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The outcome of one round.

    Attributes:
        memory: for the next one.
        look_again: when, if nothing changes before.
    """

    actions: tuple[actions.Action, ...]
    memory: memory.Memory
    look_again: datetime.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where an attempt is, since when, and how many devices it has in all."""

    node: str
    began: str
    devices: int


def plan(observed: Observed, known: memory.Memory, now: datetime.datetime) -> Decision:
    """The next safe steps for everybody."""
    return _Round(observed, known, now).decide()


class _Round:
    """One round, while it is decided."""

    def __init__(self, observed: Observed, known: memory.Memory, now: datetime.datetime) -> None:
        self._observed = observed
        self._now = now
        self._notes = memory.Notebook(known, now)
        self._stock = matching.Stock(observed.inventory, observed.judge)
        self._stock.keep(_named(observed.claims.values()))
        self._alive = {name for name, node in observed.nodes.items() if not node.out_of_service}
        self._steps: list[actions.Action] = []
        self._attempts: dict[str, attempts.Attempt] = {}
        # Claims that something is begun for in this round: another pod of the same claim waits for the outcome.
        self._begun: set[str] = set()
        pods = parties.of_pods(observed.contexts, observed.pods, observed.claims, observed.wanted)
        self._parties = (*pods, *parties.immediate(observed.claims, observed.wanted, observed.nodes))
        self._users: dict[str, list[parties.Party]] = {}
        for party in self._parties:
            for one in party.waiting:
                self._users.setdefault(one.claim.uid, []).append(party)

    def decide(self) -> Decision:
        """Everybody once."""
        self._note_what_was_taken_back()
        self._look_at_claims()
        order = sorted(self._parties, key=lambda one: (self._notes.lapses(one.uid), *one.order))
        for party in order:
            self._serve(party)
        self._let_go()
        alive = {claim.uid for claim in self._observed.claims.values()}
        refresh = self._now + REFRESH
        return Decision(
            actions=tuple(self._steps),
            memory=self._notes.closed({party.uid for party in self._parties}, alive),
            look_again=min(self._notes.next_look or refresh, refresh),
        )

    def _note_what_was_taken_back(self) -> None:
        """A node that the scheduler took an allocation back from, and has still selected, is not tried again at once."""
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
                    seen = allocation.handle.allocated_at if allocation.handle is not None else ""
                    self._notes.failed(claim.uid, allocation.node, f"taken back {seen}", by_device=False)

    def _look_at_claims(self) -> None:
        held: dict[str, list[attachments.DeviceAttachment]] = {}
        for one in self._observed.attachments:
            if one.spec.claim is not None:
                held.setdefault(one.spec.claim.uid, []).append(one)
        rest = attempts.Observed(
            wanted_by=frozenset(one.claim.uid for party in self._parties for one in party.waiting),
            gone_at=self._observed.gone_at,
            patience=self._observed.patience,
            seen=self._observed.seen,
        )
        for claim in self._observed.claims.values():
            attempt, steps = attempts.begin(claim, held.get(claim.uid, ()), rest, self._notes, self._now)
            self._attempts[claim.uid] = attempt
            self._steps += steps

    def _serve(self, party: parties.Party) -> None:
        """Finishes what is under way for a party, begins what can be begun, and answers the scheduler."""
        for one in party.waiting:
            if self._state(one) is attempts.State.UNDERWAY and one.claim.uid not in self._begun:
                self._go_on(party, one)
        idle = tuple(one for one in party.waiting if self._state(one) is attempts.State.IDLE)
        if self._complain(idle):
            self._steps += reports.answer(party, {one.entry for one in idle}, party.nodes, self._notes)
            self._notes.not_offered(party.uid)
            return
        blocked = any(self._state(one) is attempts.State.LEAVING for one in party.waiting)
        waits = any(one.claim.uid in self._begun for one in idle)
        if not idle or blocked or waits:
            self._steps += reports.answer(party, (), (), self._notes)
            return
        self._offer(party, idle)

    def _state(self, one: parties.Waiting) -> attempts.State:
        return self._attempts[one.claim.uid].state

    def _complain(self, idle: tuple[parties.Waiting, ...]) -> bool:
        """Whether a claim cannot be served at all; its users hear why, once."""
        problems = [one for one in idle if one.wanted.problem]
        for one in problems:
            if self._notes.complains(one.claim.uid, one.wanted.problem):
                self._steps.append(
                    actions.Complain(claim=one.claim, reason=CANNOT_SERVE, message=one.wanted.problem)
                )
        return bool(problems)

    # What is under way.

    def _go_on(self, party: parties.Party, one: parties.Waiting) -> None:
        """Completes an attempt that a crash left in pieces, and ends it in an allocation once all is ready."""
        attempt = self._attempts[one.claim.uid]
        self._begun.add(one.claim.uid)
        lacking = attempt.lacking(one.wanted)
        if one.wanted.problem:
            self._notes.complains(one.claim.uid, one.wanted.problem)
            self._break_off(attempt, CANNOT_SERVE, one.wanted.problem)
        elif attempt.ready:
            self._finish(party, one, attempt)
        elif attempt.missing:
            given = matching.Search(self._stock, lacking).on(attempt.node)
            if given is not None and sum(map(len, given)) == attempt.missing:
                share = tuple((request.name, keys) for request, keys in zip(lacking, given, strict=True))
                self._attach(
                    one.claim,
                    share,
                    _Place(
                        node=attempt.node,
                        began=attempt.began,
                        devices=len(attempt.held) + attempt.missing,
                    ),
                )
            else:
                message = f"node {attempt.node} has no device left for all that the claim asks for"
                self._break_off(attempt, attempts.INCOMPLETE, message)

    def _finish(self, party: parties.Party, one: parties.Waiting, attempt: attempts.Attempt) -> None:
        """Ends an attempt whose devices are all ready."""
        without = tuple(
            request.name for request in one.wanted.requests if request.optional and not attempt.taken(request)
        )
        handle = attempts.handle(attempt, without)
        why = attempts.too_large(handle)
        if why:
            self._break_off(attempt, attempts.TOO_LARGE, why)
        else:
            self._allocate(party, one, handle)

    def _break_off(self, attempt: attempts.Attempt, reason: str, message: str) -> None:
        """Half of what a claim asks for is of no use to it, nor is what cannot be told, and others may want it."""
        self._notes.failed(attempt.claim.uid, attempt.node, attempt.began, by_device=False)
        self._steps += attempts.asked_back(attempt.claim, attempt.held, reason=reason, message=message)

    def _allocate(self, party: parties.Party, one: parties.Waiting, handle: handles.Handle) -> None:
        users = self._users.get(one.claim.uid, [party])
        # Of several pods that wait for one claim, it is for the one that goes where it is.
        party = next((user for user in users if user.selected == handle.node), party)
        pod = party.pod
        consumer = None
        if pod is not None and len(one.claim.reserved_for) < classic.CONSUMERS_MAX:
            consumer = claims.Consumer(resource="pods", name=pod.name.name, uid=pod.uid)
        self._notes.served(party.uid)
        self._steps.append(
            actions.Allocate(
                claim=one.claim,
                handle=handle,
                shareable=one.wanted.shareable,
                config=one.wanted.config,
                pod=consumer,
            )
        )

    # What can be begun.

    def _offer(self, party: parties.Party, idle: tuple[parties.Waiting, ...]) -> None:
        """Begins on the selected node, or keeps devices for the party until one is selected."""
        once = tuple({one.claim.uid: one for one in idle}.values())
        choice = self._with_room(once, choices.choose(self._stock, once, lambda: self._usable(party, once)))
        target = party.selected if party.context is not None else next(iter(choice.suitable), "")
        if party.context is None and not choice.asked:
            self._begin(party, once, "", choice)
        elif target in choice.suitable:
            self._notes.not_offered(party.uid)
            self._begin(party, once, target, choice)
        elif choice.suitable:
            self._stock.keep(choice.devices(next(iter(choice.suitable))))
            self._notes.offered(party.uid)
        else:
            self._notes.not_offered(party.uid)
        # Most of those that wait cannot have anything, nowhere.
        unsuitable = party.nodes
        if choice.suitable:
            unsuitable = tuple(node for node in party.nodes if node not in choice.suitable)
        self._steps += reports.answer(party, {one.entry for one in idle}, unsuitable, self._notes)

    def _with_room(self, once: tuple[parties.Waiting, ...], choice: choices.Choice) -> choices.Choice:
        """The nodes where the allocations have room; where none has, their users hear so, once."""
        found, refused = choices.with_room(choice, self._stock, once, meta.timestamp(self._now))
        for one in once:
            uid = one.claim.uid
            if found.suitable:
                self._notes.content(uid)
            # What it would take differs with the devices that are free.
            elif uid in refused and self._notes.complains(uid, attempts.TOO_LARGE):
                self._steps.append(
                    actions.Complain(claim=one.claim, reason=attempts.TOO_LARGE, message=refused[uid])
                )
        return found

    def _usable(self, party: parties.Party, once: tuple[parties.Waiting, ...]) -> tuple[str, ...]:
        """The nodes that are alive, not where an attempt of the pod is under way elsewhere, nor just failed."""
        pins = {
            self._attempts[one.claim.uid].node
            for one in party.waiting
            if self._state(one) is attempts.State.UNDERWAY
        }
        avoided = {self._notes.avoided(one.claim.uid) for one in once}
        return tuple(
            name for name in party.nodes if name in self._alive and name not in avoided and pins <= {name}
        )

    def _begin(
        self, party: parties.Party, once: tuple[parties.Waiting, ...], node: str, choice: choices.Choice
    ) -> None:
        began = meta.timestamp(self._now)
        for one in once:
            share = choice.of(one.claim.uid, node) if choice.asked else ()
            self._begun.add(one.claim.uid)
            if not one.claim.held:
                self._steps.append(actions.Protect(claim=one.claim))
            if share:
                place = _Place(node=node, began=began, devices=sum(len(keys) for _, keys in share))
                self._attach(one.claim, share, place)
            else:
                without = tuple(request.name for request in one.wanted.requests)
                handle = handles.Handle(node=node, allocated_at=began, without=without)
                self._allocate(party, one, handle)

    def _attach(self, claim: classic.Claim, share: choices.Share, place: "_Place") -> None:
        for request, keys in share:
            for key in keys:
                self._steps.append(
                    actions.Attach(
                        claim=claim,
                        key=key,
                        pool=self._stock.device(key).pool,
                        request=request,
                        node=place.node,
                        host_id=self._stock.host(key.fabric, place.node),
                        devices=place.devices,
                        allocated_at=place.began,
                    )
                )
            self._stock.give(keys, place.node)

    def _let_go(self) -> None:
        """A claim that nothing is held for and nothing was begun for needs no finalizer."""
        for uid, attempt in self._attempts.items():
            if attempt.state is attempts.State.IDLE and uid not in self._begun and attempt.claim.held:
                self._steps.append(actions.Unprotect(claim=attempt.claim))


def _named(known: Iterable[classic.Claim]) -> tuple[names.DeviceKey, ...]:
    """The devices that allocations name: even one that is free again is not given to another before that is cleared."""
    return tuple(
        names.DeviceKey(fabric=one.fabric, device=one.device)
        for claim in known
        if claim.allocation is not None and claim.allocation.handle is not None
        for one in claim.allocation.handle.devices
    )
