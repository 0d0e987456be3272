"""The attachment plan against a fabric, an API server and a node that do whatever they may, in any order.

A crash can come after every prefix of every plan, and forgets what the process knew of its calls.
"""

import dataclasses
import datetime

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.scenes import attachmentplan
from tests.scenes import attachments as scenes

from drawbar.driver.api import attachments, meta
from drawbar.driver.controller import outcomes
from drawbar.driver.controller.attachments import actions, calls, plan
from drawbar.fabric import contract, errors

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
READY, BINDING_TIMEOUT = datetime.timedelta(seconds=90), datetime.timedelta(seconds=120)
HOSTS = ("h1", "h2")


@dataclasses.dataclass
class Fabric:
    """What a fabric promises: idempotent by request id, one operation at a time, never on two hosts."""

    host: str | None = None
    operations: dict = dataclasses.field(default_factory=dict)
    begun: list = dataclasses.field(default_factory=list)

    def call(self, side, request_id, host):
        operation = self.operations.get(request_id)
        if operation is not None:
            return self.view(request_id)
        if any(state == "running" for _, _, state in self.operations.values()):
            raise errors.Aborted("busy", reason=errors.Reason.OPERATION_PENDING)
        if side is outcomes.Side.ATTACH and self.host not in (None, host):
            raise errors.FailedPrecondition("taken", reason=errors.Reason.IN_USE, host_id=self.host)
        self.begun.append((side, request_id))
        done = self.host == host if side is outcomes.Side.ATTACH else self.host != host
        self.operations[request_id] = (side, host, "done" if done else "running")
        return self.view(request_id)

    def view(self, request_id):
        side, _, state = self.operations[request_id]
        error = None
        if state == "failed":
            failure = errors.FailedPrecondition("the link did not come up", reason="LINK_DOWN")
            error = contract.OperationError.from_error(failure)
        is_attach = side is outcomes.Side.ATTACH
        kind = contract.OperationKind.ATTACH if is_attach else contract.OperationKind.DETACH
        names = {"id": request_id, "request_id": request_id}
        return contract.Operation(kind=kind, done=state != "running", error=error, **names)

    def give_up(self, request_id):
        side, host, state = self.operations.get(request_id, (None, None, "done"))
        if state == "running":
            self.operations[request_id] = (side, host, "failed")

    def finish(self, well):
        for request_id, (side, host, state) in self.operations.items():
            if state == "running":
                self.operations[request_id] = (side, host, "done" if well else "failed")
                if well:
                    self.host = host if side is outcomes.Side.ATTACH else None


class Machine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.fabric = Fabric()
        self.known = calls.Calls()
        self.attachment = None
        self.demand = None
        self.tainted = False
        self.serial = 0
        self.keep = datetime.timedelta()
        self.now = NOW

    @rule(seconds=st.sampled_from([30, 90, 120]))
    def time_passes(self, seconds):
        self.now += datetime.timedelta(seconds=seconds)

    @rule()
    @precondition(lambda self: self.demand is not None and self.attachment is not None)
    def the_node_reports_it_on_the_claim(self):
        mine = self.attachment.spec.allocation_timestamp == self.demand.allocation_timestamp
        if mine and self.attachment.holds(attachments.ATTACHED) and self.attachment.status.error is None:
            self.demand = msgspec.structs.replace(self.demand, visible_reported=True)

    @rule(node=st.sampled_from(HOSTS))
    @precondition(lambda self: self.demand is None)
    def allocate(self, node):
        self.serial += 1
        position = {"node": node, "host_id": node}
        self.demand = attachmentplan.demand(
            allocation_timestamp=str(self.serial), seen_at=self.now, **position
        )

    @rule()
    def deallocate(self):
        self.demand = None

    @rule(seconds=st.sampled_from([0, 1, 60]))
    def the_fabric_object_changes(self, seconds):
        self.keep = datetime.timedelta(seconds=seconds)

    @rule(well=st.booleans())
    def the_operation_ends(self, well):
        self.fabric.finish(well)

    @rule()
    def the_fabric_forgets_what_is_over(self):
        running = {key: value for key, value in self.fabric.operations.items() if value[2] == "running"}
        self.fabric.operations = running

    @rule()
    @precondition(lambda self: self.attachment is not None and self.attachment.deleting)
    def the_node_lets_go(self):
        self._say(attachments.RELEASED)

    @rule()
    @precondition(lambda self: self.attachment is not None and self.attachment.holds(attachments.ATTACHED))
    def the_node_has_made_it_ready(self):
        claim = self.attachment.spec.claim
        node = attachments.NodeReport(claim_uid=claim.uid if claim else "")
        self._put(status=msgspec.structs.replace(self.attachment.status, node=node))

    @rule()
    def the_controller_dies(self):
        self.known = calls.Calls()

    @rule(steps=st.integers(min_value=0, max_value=3), answered=st.booleans())
    def a_round(self, steps, answered):
        for action in plan.plan(self._observe(), self.now)[:steps]:
            self._carry_out(action, answered)

    @rule()
    def rounds_without_trouble_come_to_rest(self):
        self.fabric.finish(True)
        for _ in range(40):
            planned = plan.plan(self._observe(), self.now)
            resting = all(isinstance(action, actions.RequeueAfter) for action in planned)
            if resting or self._waits_for_its_node():
                break
            for action in planned:
                self._carry_out(action, True)
            self.fabric.finish(True)
        else:
            raise AssertionError(planned)
        if self._is_idle():
            assert self.demand is None or self.demand.failure_reported
            assert self.keep
        elif self.attachment is not None and not self.attachment.deleting:
            assert self.demand.failure_reported or (
                self.demand.attach_reported and self.fabric.host == self.demand.host_id
            )
            waited = self.now - (self.demand.failed_at or self.now)
            assert waited < BINDING_TIMEOUT, "the failed allocation is never taken back"
            assert (
                self.demand.visible_reported
                or self.demand.failure_reported
                or self.now < self.demand.seen_at + READY
            )

    @invariant()
    def the_device_hangs_only_where_an_attachment_says(self):
        if self.fabric.host is not None:
            assert self.attachment is not None
            assert self.attachment.spec.host_id == self.fabric.host

    def _waits_for_its_node(self):
        going = self.attachment is not None and self.attachment.deleting
        return going and not self.attachment.holds(attachments.RELEASED)

    def _is_idle(self):
        return (
            self.attachment is not None
            and self.attachment.spec.claim is None
            and not self.attachment.deleting
            and all(
                isinstance(action, actions.RequeueAfter) for action in plan.plan(self._observe(), self.now)
            )
        )

    def _observe(self):
        uid = self.attachment.metadata.uid if self.attachment else ""
        # Far in the future on the monotonic clock: every pause is over.
        return attachmentplan.make_part_state(
            attachment=self.attachment,
            demand=self.demand,
            host_id=self.fabric.host,
            attach=self.known.view(uid, outcomes.Side.ATTACH, 1e9),
            detach=self.known.view(uid, outcomes.Side.DETACH, 1e9),
            tainted=self.tainted,
            idle_at=NOW,
            keep=self.keep,
        )

    def _carry_out(self, action, answered):
        if isinstance(action, actions.FabricAction):
            self._talk(action, answered)
        elif not isinstance(action, actions.RequeueAfter):
            self._write(action)

    def _talk(self, action, answered):
        uid = self.attachment.metadata.uid
        match action:
            case actions.QueryOperation(side=side):
                request_id = self.known.request_id(uid, side)
                if request_id in self.fabric.operations:
                    self.known.settle(uid, side, self.fabric.view(request_id), 0.0)
                else:
                    self.known.note_no_call(uid, side)
            case actions.CallFabric(side=side):
                assert side is outcomes.Side.ATTACH or self.attachment.holds(attachments.RELEASED)
                self._call(uid, side, answered)
            case actions.Cancel(side=side):
                self.fabric.give_up(self.known.request_id(uid, side))
            case actions.Retry(side=side):
                self.known.next_attempt(uid, side)

    def _write(self, action):
        match action:
            case actions.Create(demand=demand):
                self._create(demand)
            case actions.TakeOver() | actions.KeepIdle():
                self._change_hands(action)
            case actions.ReportAttached(demand=demand):
                assert self.fabric.host == demand.host_id == self.attachment.spec.host_id
                if self._is_current(demand):
                    self.demand = msgspec.structs.replace(self.demand, attach_reported=True)
            case actions.RecordAttached():
                self._say(attachments.ATTACHED)
                self._put(status=msgspec.structs.replace(self.attachment.status, error=None))
            case actions.RecordFailure(failure=failure):
                self._put(status=msgspec.structs.replace(self.attachment.status, error=failure))
            case actions.Taint():
                self.tainted = True
            case actions.ReportFailed(demand=demand):
                error = self.attachment.status.error if self.attachment else None
                assert error is None or self.tainted or error.reason in outcomes.NOT_THE_DEVICE
                if self._is_current(demand):
                    self.demand = msgspec.structs.replace(
                        self.demand, failure_reported=True, failed_at=self.demand.failed_at or self.now
                    )
            case actions.Delete():
                self._put(
                    metadata=msgspec.structs.replace(self.attachment.metadata, deletion_timestamp="now")
                )
            case actions.RemoveFinalizer():
                assert self.fabric.host != self.attachment.spec.host_id
                assert not any(state == "running" for _, _, state in self.fabric.operations.values())
                self.attachment = None

    def _change_hands(self, action):
        match action:
            case actions.TakeOver(demand=demand):
                assert self.fabric.host == demand.host_id == self.attachment.spec.host_id
                taken = {"claim": demand.claim, "allocation_timestamp": demand.allocation_timestamp}
                self._put(spec=msgspec.structs.replace(self.attachment.spec, **taken, idle_since=None))
            case actions.KeepIdle():
                assert self.keep
                idle = {"claim": None, "allocation_timestamp": None, "idle_since": meta.timestamp(NOW)}
                self._put(spec=msgspec.structs.replace(self.attachment.spec, **idle))

    def _call(self, uid, side, answered):
        request_id = self.known.request_id(uid, side)
        try:
            operation = self.fabric.call(side, request_id, self.attachment.spec.host_id)
        except (errors.Refused, errors.Aborted) as error:
            self.known.note_failure(uid, side, error, 0.0)
            return
        if answered:
            self.known.settle(uid, side, operation, 0.0)
        else:
            self.known.note_uncertain_call(uid, side)

    def _create(self, demand):
        if self.attachment is not None or not self._is_current(demand):
            return
        self.serial += 1
        self.attachment = scenes.attachment(
            uid=f"a{self.serial}",
            finalizers=(attachments.FINALIZER,),
            fabric="f",
            pool=demand.pool,
            node_name=demand.node,
            host_id=demand.host_id,
            claim=demand.claim,
            allocation_timestamp=demand.allocation_timestamp,
        )
        for side in outcomes.Side:
            self.known.note_no_call(self.attachment.metadata.uid, side)

    def _is_current(self, demand):
        return self.demand is not None and self.demand.allocation_timestamp == demand.allocation_timestamp

    def _say(self, kind):
        reported = meta.Condition(type=kind, status="True")
        self._put(
            status=msgspec.structs.replace(
                self.attachment.status, conditions=(*self.attachment.status.conditions, reported)
            )
        )

    def _put(self, **changes):
        self.attachment = msgspec.structs.replace(self.attachment, **changes)


TestAttachmentMachine = Machine.TestCase
TestAttachmentMachine.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
