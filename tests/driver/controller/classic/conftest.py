"""The API server and the fabric of a cluster with classic allocation, in memory, with the driver's view and writes.

It refuses impossible worlds: every write of the driver is checked against what must hold before it is applied. Who else
acts in the cluster is in `planner/conftest.py`.
"""

import collections
import datetime
import itertools

import msgspec
import pytest
from tests.scenes import attachments as scenes

from drawbar.driver.api import attachments, classic, core, meta, slices
from drawbar.driver.controller import names
from drawbar.driver.controller.allocation import matching
from drawbar.driver.controller.classic import actions, history, negotiation, observation

DRIVER = "drawbar.dev"
FINALIZER = classic.finalizer(DRIVER)
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
FABRIC = "f"
FAILED_TAINT = slices.Taint(key=f"{DRIVER}/attach-failed", effect="NoSchedule")
PATIENCE = datetime.timedelta(seconds=570)


class Refused(Exception):
    """The API server refuses the write, as it would."""


class State:
    """What is true, and what the driver last saw of it."""

    def __init__(
        self, *, devices=2, node_names=("n1", "n2"), ports=None, window=128, models=("m",), pool=f"{FABRIC}/e"
    ):
        self.now = START
        # How long a Node may be missing before it counts as gone, and since when each is.
        self.node_grace = datetime.timedelta()
        self.missing_since = {}
        self.pool = pool
        fabric = names.fabric_of(pool)
        self.numbers = itertools.count(1)
        self.window = window
        self.nodes = {
            name: core.Node(metadata=meta.ObjectMeta(name=name, labels={"kubernetes.io/hostname": name}))
            for name in node_names
        }
        self.devices = {
            names.DeviceKey(fabric=fabric, device=f"d{number}"): models[number % len(models)]
            for number in range(devices)
        }
        self.connected = {}
        self.tainted = {}
        self.ports = dict.fromkeys(node_names, ports)
        self.rules = ()
        self.pods, self.claims, self.contexts, self.attachments = {}, {}, {}, {}
        self.wanted = {}
        self.fits = {}
        self.shareable = {}
        self.bound = {}
        self.history = history.History()
        self.context_writes = collections.Counter()
        self.deallocations = 0
        self.complaints = []
        self.own = {}

    # What fabric and nodes do.

    def fabric_steps(self):
        """Yield names of attachments, each with what can happen to it next."""
        for name, attachment in self.attachments.items():
            if attachment.deleting:
                yield name, "gone"
            elif attachment.status.error is None and not attachment.holds(attachments.ATTACHED):
                yield name, "attached"
            elif attachment.status.error is None and not attachment.holds(attachments.VISIBLE):
                yield name, "visible"

    def work(self, name, what, *, fails=False):
        """Bring an attachment one step further; if that fails, taint its device and record the failure."""
        attachment = self.attachments[name]
        key = names.DeviceKey(fabric=attachment.spec.fabric, device=attachment.spec.device)
        if what == "gone":
            self.connected.pop(key, None)
            del self.attachments[name]
            return
        if fails:
            self.tainted[key] = self.now + datetime.timedelta(seconds=300)
            error = attachments.Failure(reason="FabricError", message="it will not do")
            self._put_attachment(attachment, error=error)
            return
        kind = attachments.ATTACHED if what == "attached" else attachments.VISIBLE
        if what == "attached":
            self.connected[key] = attachment.spec.node_name
        condition = meta.Condition(type=kind, status="True")
        self._put_attachment(attachment, conditions=(*attachment.status.conditions, condition))

    def attach_all(self):
        """Bring every attachment under way to its end, without failures."""
        for _ in range(2):
            for name, what in list(self.fabric_steps()):
                self.work(name, what)

    # What the driver sees and does.

    def observe(self):
        free = {
            key
            for key in self.devices
            if key not in self.connected and names.DeviceKey.attachment.fget(key) not in self.attachments
        }
        shown = {
            key: matching.Device(
                key=key,
                pool=self.pool,
                shown=slices.Device(
                    name=key.device,
                    attributes={
                        "class": slices.Attribute(string="gpu"),
                        "model": slices.Attribute(string=model),
                    },
                    taints=(FAILED_TAINT,) if self.tainted.get(key, self.now) > self.now else (),
                ),
                free=key in free,
            )
            for key, model in self.devices.items()
        }
        used = collections.Counter(attachment.spec.node_name for attachment in self.attachments.values())
        models = {}
        for attachment in self.attachments.values():
            models.setdefault(attachment.spec.node_name, collections.Counter())[attachment.spec.model] += 1
        fabric = matching.Fabric(
            name=names.fabric_of(self.pool),
            hosts={node: f"host-{node}" for node in self.nodes},
            ports={node: None if limit is None else limit - used[node] for node, limit in self.ports.items()},
            rules=self.rules,
            models=models,
        )
        return observation.Round(
            claims=dict(self.claims),
            requests=dict(self.wanted),
            contexts=dict(self.contexts),
            pods=dict(self.pods),
            nodes=dict(self.nodes),
            gone_at={
                name: self.missing_since.setdefault(attachment.spec.node_name, self.now) + self.node_grace
                for name, attachment in self.attachments.items()
                if attachment.spec.node_name not in self.nodes
            },
            attachments=tuple(self.attachments.values()),
            inventory=matching.Inventory(fabrics={fabric.name: fabric}, devices=shown),
            judge=lambda device, expression: expression in (device.model, device.key.device),
            patience=PATIENCE,
            seen={
                name: meta.moment(attachment.spec.allocation_timestamp)
                for name, attachment in self.attachments.items()
            },
            date=self.now,
        )

    def decide(self):
        """Return the actions of one decision without applying them; keep its history."""
        self.own = {}
        decision = negotiation.plan(self.observe(), self.history, self.now)
        self.history = decision.history
        return decision.actions

    def settle(self, rounds=20):
        """Let the driver decide and act until it has nothing to do; return the actions."""
        done = []
        for _ in range(rounds):
            steps = self.decide()
            if not steps:
                return done
            for step in steps:
                self.apply(step)
            done += steps
        raise AssertionError(f"the driver does not come to rest: {steps}")

    def apply(self, step):
        """Carry out one action, as the API server would.

        Raises:
            Refused: the view that it was decided on is stale.
        """
        match step:
            case actions.Answer(context=context, entries=entries):
                self._answer(context, entries)
            case actions.Attach():
                self._attach(step)
            case actions.Detach(attachment=attached, reason=reason, message=message):
                self.complaints += [message] if reason else []
                self._detach(attached)
            case actions.Complain(message=message):
                self.complaints.append(message)
            case actions.Protect(claim=claim):
                assert not claim.deleting, "what is being deleted takes no new finalizers"
                self._write(claim, finalizers=(*claim.finalizers, FINALIZER))
            case actions.Unprotect(claim=claim):
                assert self._find_attachments(claim) == [], "a device would be lost"
                current = self._current(claim)
                assert current.allocation is None, "the finalizer goes after the allocation"
                self._write(claim, finalizers=tuple(n for n in claim.finalizers if n != FINALIZER))
            case actions.Allocate():
                self._allocate(step)
            case actions.Free(claim=claim):
                assert self._find_attachments(claim) == [], "a device would be lost"
                self._write(claim, allocation=None, deallocation_requested=False)

    def _answer(self, context, entries):
        stored = self.contexts.get(context.uid)
        if stored is None or stored.resource_version != context.resource_version:
            raise Refused
        fresh = dict(stored.entries) | dict(entries)
        assert fresh != stored.entries, "an answer that changes nothing"
        assert all(len(listed) <= classic.NODES_MAX for listed in fresh.values())
        self._put_context(stored, entries=fresh)
        self.context_writes[stored.pod_uids[0]] += 1

    def _attach(self, step):
        claim = self._current(step.claim)
        if claim is None or step.key.attachment in self.attachments:
            raise Refused
        assert FINALIZER in claim.finalizers, "the finalizer comes before the attempt"
        reference = attachments.ClaimReference(
            namespace="ns",
            name=claim.name.name,
            uid=claim.uid,
            requests=(step.request,),
            devices=step.devices,
        )
        self.attachments[step.key.attachment] = scenes.attachment(
            uid=f"a{next(self.numbers)}",
            fabric=step.key.fabric,
            device=step.key.device,
            pool=step.pool,
            node_name=step.node,
            host_id=step.host_id,
            model=self.devices[step.key],
            claim=reference,
            allocation_timestamp=step.allocated_at,
        )

    def _detach(self, attachment):
        stored = self.attachments.get(attachment.metadata.name)
        if stored is None or stored.metadata.uid != attachment.metadata.uid:
            return
        metadata = msgspec.structs.replace(stored.metadata, deletion_timestamp=self._stamp())
        self.attachments[attachment.metadata.name] = msgspec.structs.replace(stored, metadata=metadata)

    def _allocate(self, step):
        for allocated in step.handle.devices:
            held = self.attachments[allocated.attachment]
            assert held.spec.claim.uid == step.claim.uid, "a device of another claim"
            assert held.spec.node_name == step.handle.node
            assert held.holds(attachments.ATTACHED), "not there yet"
            assert held.holds(attachments.VISIBLE), "not ready yet"
        for other in self.claims.values():
            theirs = other.allocation.handle.devices if other.allocation else ()
            assert not {entry.device for entry in theirs} & {entry.device for entry in step.handle.devices}
        reserved = (step.pod,) if step.pod is not None else ()
        allocation = classic.Allocation(driver=DRIVER, handle=step.handle, node=step.handle.node or None)
        self.shareable[step.claim.uid] = step.shareable
        self._write(step.claim, allocation=allocation, reserved_for=(*step.claim.reserved_for, *reserved))

    def _write(self, claim, **changes):
        current = self._current(claim)
        # Of its own writes of the same round the driver knows.
        if current is None or current.resource_version != self.own.get(claim.uid, claim.resource_version):
            raise Refused
        self._change(current, **changes)
        if claim.name in self.claims:
            self.own[claim.uid] = self.claims[claim.name].resource_version

    def _current(self, claim):
        stored = self.claims.get(claim.name)
        return stored if stored is not None and stored.uid == claim.uid else None

    def _change(self, claim, **changes):
        fresh = msgspec.structs.replace(claim, resource_version=str(next(self.numbers)), **changes)
        self.claims[claim.name] = fresh
        if fresh.deleting and not fresh.finalizers:
            assert self._find_attachments(fresh) == [], "a device would be lost"
            del self.claims[claim.name]

    def _put_context(self, context, **changes):
        fresh = msgspec.structs.replace(context, resource_version=str(next(self.numbers)), **changes)
        self.contexts[context.uid] = fresh

    def _put_attachment(self, attachment, **status):
        fresh = msgspec.structs.replace(attachment.status, **status)
        self.attachments[attachment.metadata.name] = msgspec.structs.replace(attachment, status=fresh)

    def _find_attachments(self, claim):
        return [
            attachment for attachment in self.attachments.values() if attachment.spec.claim.uid == claim.uid
        ]

    def _stamp(self):
        return meta.timestamp(self.now)


@pytest.fixture
def state():
    """Return the class `State`; other fixtures add the cluster's users to it."""
    return State
