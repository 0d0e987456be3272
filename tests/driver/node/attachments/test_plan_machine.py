"""What holds of the node's plans whatever happens: a machine that plays the fabric, the kernel, the kubelet and crashes.

The world is a model of one node with two slots: the device may be in either, with or without power, driver and serial;
the executor carries a prefix of each plan out and forgets what it remembered.
"""

import dataclasses
import datetime
import functools

import msgspec
from hypothesis import settings, stateful
from hypothesis import strategies as st
from tests.scenes import attachments as scenes
from tests.scenes import cards

from drawbar.driver.api import attachments, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.node.attachments import actions, matching, plan, reporting
from drawbar.driver.node.inventory import index
from drawbar.driver.node.treatment import plan as treatment_plan
from drawbar.fabric.contract import DeviceClass

START = datetime.datetime(2026, 1, 2, 3, 0, 0, tzinfo=datetime.UTC)
CLAIM = attachments.ClaimReference(namespace="ns", name="c", uid="claim-1")
LACK = "no kernel driver is bound"


def seconds(amount):
    return datetime.timedelta(seconds=amount)


slot = functools.cache(cards.slot)


@functools.cache
def function(slot, driver, arrival):
    """Return a disk, which shows its serial number while its driver is bound."""
    fields = {"vendor": 0x144D, "device": 0xA824, "driver": driver, "slot": slot, "arrival": arrival}
    return cards.function(f"0000:0{slot}:00.0", DeviceClass.NVME, nvme="SN1" if driver else "", **fields)


@dataclasses.dataclass
class Kernel:
    """The device's slot, and what the kernel has of the device."""

    slot: str | None = None
    powered: bool = False
    shown: bool = False
    bound: bool = False
    willing: bool = True
    initialised: bool = False
    going: bool = False
    arrival: int = 1

    def inventory(self):
        slots = tuple(
            slot(name, present=name == self.slot, powered=name == self.slot and self.powered) for name in "12"
        )
        functions = (function(self.slot, "nvme" if self.bound else None, self.arrival),) if self.shown else ()
        return index.Inventory(functions=functions, slots=slots)

    def release(self):
        """Make one step of the release."""
        self.going = True
        if self.bound:
            self.bound = self.initialised = False
        elif self.shown:
            self.shown = False
        elif self.powered:
            self.powered = False
        else:
            return treatment_plan.Done()
        return treatment_plan.InProgress(seconds=0.01)


class Node(stateful.RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.now = START
        self.kernel = Kernel()
        self.boot = 1
        self.attachment = scenes.attachment(
            uid="u",
            identity=attachments.Identity(device_class="nvme", serial="SN1", pci_id="144d:a824"),
            claim=CLAIM,
        )
        self.held = None
        self.busy = False
        self.restart()
        self.writes = 0

    # --- the world ---

    @stateful.initialize(
        slot=st.sampled_from("12"),
        powered=st.booleans(),
        hint=st.booleans(),
        so_far=st.sampled_from(
            ["nothing", "attached", "attached, deleted", "visible", "deleted", "held", "held, deleted"]
        ),
    )
    def begin(self, slot, powered, hint, so_far):
        """Begin somewhere in the life of an attachment, as its late states would be rare otherwise."""
        if so_far == "nothing":
            return
        self.attach(slot, powered, hint)
        if "attached" not in so_far:
            self.as_many_rounds_as_it_takes()
        if "held" in so_far:
            self.prepare()
        if "deleted" in so_far:
            self.delete()

    @stateful.rule(slot=st.sampled_from("12"), powered=st.booleans(), hint=st.booleans())
    def attach(self, slot, powered, hint):
        if self.kernel.slot is not None or self.attachment.deleting:
            return
        self.kernel = self._make_next_kernel(slot=slot, powered=powered, shown=powered, bound=powered)
        self._condition(attachments.ATTACHED, status=True)
        if hint:
            self._status(connection=attachments.ConnectionRecord(slot=slot))

    @stateful.rule(back=st.booleans())
    def pull(self, back):
        """Pull the card, and perhaps put it in again, which waits for power."""
        self.kernel = self._make_next_kernel(slot=self.kernel.slot if back else None)

    @stateful.rule()
    def replug(self):
        """Pull the card and put it in again before the node looks."""
        if self.kernel.shown and not self.kernel.going:
            slot, willing = self.kernel.slot, self.kernel.willing
            self.kernel = self._make_next_kernel(slot=slot, powered=True, shown=True, bound=willing)

    def _make_next_kernel(self, **state):
        return Kernel(willing=self.kernel.willing, arrival=self.kernel.arrival + 1, **state)

    @stateful.rule(willing=st.booleans())
    def driver(self, willing):
        self.kernel.willing = willing
        self.kernel.bound = self.kernel.bound and willing
        self.kernel.initialised = self.kernel.initialised and willing

    @stateful.rule()
    def prepare(self):
        if self.attachment.holds(attachments.VISIBLE) and not self.attachment.deleting:
            self.held = CLAIM.uid

    @stateful.rule()
    def unprepare(self):
        self.held = None

    @stateful.rule()
    def give_up(self):
        visible = meta.find(self.attachment.status.conditions, attachments.VISIBLE)
        if visible is not None and visible.status == "False":
            self._status(error=attachments.Failure(reason="X", message="x"))

    @stateful.rule()
    def delete(self):
        metadata = msgspec.structs.replace(
            self.attachment.metadata, deletion_timestamp=meta.timestamp(self.now)
        )
        self.attachment = msgspec.structs.replace(self.attachment, metadata=metadata)

    @stateful.rule(busy=st.booleans())
    def use(self, busy):
        self.busy = busy

    @stateful.rule(amount=st.sampled_from([0.1, 1, 6, 59, 61]))
    def wait(self, amount):
        self.now += seconds(amount)

    @stateful.rule()
    def restart(self):
        self.attempt = self.leaving = None
        self.claim_notified = False
        self.since = self.now

    @stateful.rule()
    def reboot(self):
        self.boot += 1
        self.held = None
        here = self.kernel.slot is not None
        self.kernel.powered = self.kernel.shown = here
        self.kernel.bound = here and self.kernel.willing
        self.kernel.initialised = self.kernel.going = False
        self.restart()

    # --- the node ---

    @stateful.rule(steps=st.integers(min_value=0, max_value=3))
    def a_round_that_is_cut_short(self, steps):
        self._round(steps)
        self.restart()

    @stateful.rule()
    def as_many_rounds_as_it_takes(self):
        """Run rounds until the device is where it belongs, and check that nothing is written any more."""
        if self.attachment.deleting:
            self.busy = False
        for _ in range(400):
            before = self.now
            moment = self._round(None)
            if moment is None:
                break
            self.now = max(moment, before)
        else:
            raise AssertionError("no end of it")
        self.writes = 0
        assert self._round(None) is None
        assert self.writes == 0
        self._check_ends()

    def _check_ends(self):
        attachment, kernel = self.attachment, self.kernel
        if attachment.deleting and self.held is None and not self.busy:
            assert attachment.holds(attachments.RELEASED)
        elif (
            attachment.holds(attachments.ATTACHED) and not attachment.deleting and not attachment.status.error
        ):
            visible = meta.find(attachment.status.conditions, attachments.VISIBLE)
            assert visible is not None
            if kernel.shown and kernel.bound and self.held is None:
                assert visible.is_true
            if visible.is_true:
                assert kernel.initialised

    def _round(self, steps):
        released = None
        moment = None
        for _ in range(8):
            planned = plan.plan(self._make_observation(released), self.now)
            released, again = None, False
            for action in planned:
                if isinstance(action, actions.LookAgain):
                    assert action.at > self.now
                    moment = action.at
                    continue
                if steps is not None:
                    if steps == 0:
                        return None
                    steps -= 1
                again, released = self._carry_out(action)
                moment = None
            if not again:
                changed = any(
                    not isinstance(action, actions.LookAgain | actions.PowerSlot) for action in planned
                )
                return self.now if changed else moment
        return self.now

    def _carry_out(self, action):
        kernel = self.kernel
        match action:
            case actions.PowerSlot(slot=slot):
                assert slot == kernel.slot
                assert not self._was_here(), "it was here in this boot, and was pulled"
                kernel.powered = kernel.shown = True
                kernel.bound = kernel.willing
                self.attempt = self._make_attempt(None, "it stays off")
            case actions.Initialise(card=card):
                kernel.bound = kernel.bound or (kernel.shown and kernel.willing)
                kernel.initialised = kernel.bound
                self.attempt = self._make_attempt(card, "" if kernel.bound and card.first.driver else LACK)
                return True, None
            case actions.Release():
                assert self.held is None
                self.leaving = action.card
                if self.busy and kernel.bound:
                    return True, treatment_plan.Blocked(
                        reason=reasons.IN_USE, message="held by pid 1", seconds=2
                    )
                outcome = kernel.release()
                if isinstance(outcome, treatment_plan.Done):
                    self.leaving = None
                return True, outcome
            case _:
                self._say(action)
        return False, None

    def _make_attempt(self, card, missing):
        attempt = self.attempt
        same = attempt is not None and (attempt.card is None) == (card is None) and attempt.missing
        return actions.Attempt(
            card=card, missing=missing, at=self.now, since=attempt.since if same else self.now
        )

    def _say(self, action):
        self.writes += 1
        kernel = self.kernel
        match action:
            case actions.ReportVisible(card=card):
                assert kernel.initialised
                assert not self.attachment.deleting
                self._condition(attachments.VISIBLE, status=True)
                self._insert(card)
            case actions.RecordLocation(card=card):
                assert kernel.shown
                self._insert(card)
            case actions.ReportFailed(reason=reason, message=message):
                assert self.attachment.holds(attachments.ATTACHED)
                assert not self.attachment.deleting
                self._condition(attachments.VISIBLE, status=False, reason=reason, message=message)
            case actions.ReportToClaim():
                assert self.attachment.status.error is not None
                self.claim_notified = True
            case actions.ReportBlocked(reason=reason, message=message):
                assert self.attachment.deleting
                self._condition(attachments.RELEASED, status=False, reason=reason, message=message)
            case actions.ReportReleased():
                assert self.held is None
                assert not (kernel.powered and (kernel.going or self._was_here()))
                self._condition(attachments.RELEASED, status=True)
            case _:
                raise AssertionError(action)

    def _was_here(self):
        node = self.attachment.status.node
        return node is not None and node.boot_id == f"boot-{self.boot}" and node.slot == self.kernel.slot

    def _insert(self, card):
        self._status(
            node=attachments.NodeReport(
                pci_address=card.address,
                arrival=card.arrival,
                kernel_driver=card.first.driver or "",
                boot_id=f"boot-{self.boot}",
                slot=card.first.slot,
                recognised_by=reporting.recognise(self.attachment, card, self._match()).by,
                claim_uid=CLAIM.uid,
            )
        )

    def _match(self):
        node = self.attachment.status.node
        return matching.match(
            self.kernel.inventory(),
            self.attachment.spec.identity,
            slot=matching.find_expected_slot(self.attachment, f"boot-{self.boot}"),
            record=node if node is not None and node.boot_id == f"boot-{self.boot}" else None,
        )

    def _make_observation(self, released):
        match = self._match()
        self.attempt = actions.keep_attempt(self.attempt, match)
        card = match.card if isinstance(match, matching.Found) else None
        return actions.Observed(
            attachment=self.attachment,
            match=match,
            missing=LACK if card is not None and card.first.driver is None else None,
            attempt=self.attempt,
            held_by=self.held,
            boot_id=f"boot-{self.boot}",
            since=self.since,
            patience=seconds(60),
            claim_notified=self.claim_notified,
            attached_at=self._read_transition_time(attachments.ATTACHED),
            visible_at=self._read_transition_time(attachments.VISIBLE),
            leaving_at=meta.moment(self.attachment.metadata.deletion_timestamp)
            if self.attachment.deleting
            else None,
            leaving=self.leaving,
            treated=released,
            has_returned=card is not None and self._has_returned(card),
        )

    def _has_returned(self, card):
        node = self.attachment.status.node
        here = node is not None and node.boot_id == f"boot-{self.boot}"
        return here and not card.has_stayed(node.pci_address, node.arrival)

    def _read_transition_time(self, kind):
        condition = meta.find(self.attachment.status.conditions, kind)
        return (
            meta.moment(condition.last_transition_time)
            if condition is not None and condition.is_true
            else None
        )

    def _condition(self, kind, *, status, reason="R", message=""):
        conditions = self.attachment.status.conditions
        fresh = meta.transition(
            conditions, kind, status=status, reason=reason, message=message, now=meta.timestamp(self.now)
        )
        self._status(conditions=(*(condition for condition in conditions if condition.type != kind), fresh))

    def _status(self, **changes):
        status = msgspec.structs.replace(self.attachment.status, **changes)
        self.attachment = msgspec.structs.replace(self.attachment, status=status)


TestNode = Node.TestCase
TestNode.settings = settings(max_examples=300, stateful_step_count=20, deadline=None)


def test_a_card_that_is_put_in_again_is_made_ready_again():
    node = Node()
    node.begin(slot="1", powered=True, hint=False, so_far="visible")
    node.pull(back=False)
    node.as_many_rounds_as_it_takes()
    node.attach(slot="1", powered=True, hint=False)
    node.as_many_rounds_as_it_takes()
    assert node.kernel.initialised


def _make_replugged_node(*, held):
    node = Node()
    node.begin(slot="1", powered=True, hint=False, so_far="held" if held else "visible")
    node.replug()
    node.as_many_rounds_as_it_takes()
    return node


def test_a_card_that_is_put_in_again_between_two_looks_is_made_ready_again():
    node = _make_replugged_node(held=False)
    assert node.kernel.initialised
    assert node.attachment.holds(attachments.VISIBLE)


def test_a_claim_that_uses_a_card_loses_it_when_it_is_put_in_again():
    node = _make_replugged_node(held=True)
    visible = meta.find(node.attachment.status.conditions, attachments.VISIBLE)
    assert (visible.status, visible.reason) == ("False", reasons.DEVICE_LOST)
    assert not node.kernel.initialised
    node.unprepare()
    node.as_many_rounds_as_it_takes()
    assert node.kernel.initialised
    assert node.attachment.holds(attachments.VISIBLE)
