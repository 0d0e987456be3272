"""The executor of the health monitor's decisions, which it reports by an Event on the HealthPolicy and a counter.

If a policy has a rate of evictions, all of its rules have it, with any effect. An API server without the field drops it, and
the Event that reports this comes with the first rule, which mostly has effect None and evicts no pod.

It looks after each batch of signals and every `LOOK_SECONDS`. The first failure ends a look, since the next decisions assume the ones
before; the next look decides again.
"""

import asyncio
import datetime
import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, assert_never

from drawbar.driver import clocks
from drawbar.driver.api import healthpolicies, meta, slices, taintrules
from drawbar.driver.catalogue import reasons
from drawbar.driver.healthmonitor import causes, inventory, metrics, receiver, signals, tainting
from drawbar.driver.kube import errors, events, kinds, mirror

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
REPEAT_SECONDS = 600.0
"""A decision that is withheld again for the same reason is reported again after this time, however often its signal changes."""
PAUSE_SECONDS = 0.5
"""Between two looks at least, however many signals arrive."""
MANAGER = "drawbar-health-monitor"
WARNINGS = frozenset({tainting.Reason.SHARE, tainting.Reason.RATE, tainting.Reason.LIMIT})


@dataclass(slots=True, kw_only=True)
class Monitor:
    """One health monitor."""

    driver: str
    kind: kinds.Kind
    policies: mirror.Mirror[healthpolicies.HealthPolicy]
    rules: mirror.Mirror[taintrules.DeviceTaintRule]
    slices: mirror.Mirror[slices.ResourceSlice]
    recorder: events.Recorder
    metrics: metrics.Metrics
    clock: clocks.Clock
    time_of_day: clocks.Clock
    dry_run: bool
    state: causes.State = field(default_factory=causes.State)
    _step: clocks.Step = field(default_factory=clocks.Step)
    _started: bool = False
    _signalled: asyncio.Event = field(default_factory=asyncio.Event)
    _withheld: dict[causes.Key, tainting.Reason] = field(default_factory=dict)
    _reported: dict[tuple[causes.Key, tainting.Reason], float] = field(default_factory=dict)
    """The steady time of the last report of each decision that was withheld."""
    _unrated: set[str] = field(default_factory=set)
    """The UIDs of policies whose rate the API server dropped."""
    _inventory: inventory.Inventory | None = None
    _logged: str = ""

    def __post_init__(self) -> None:
        for followed in self.mirrors:
            followed.report_unreadable(self.recorder.unreadable)
        self.policies.follow(self._note_change)
        self.slices.follow(self._note_change)

    def find_missing(self) -> str | None:
        """Return the missing requirement, as a clause; None once the monitor takes signals."""
        if self._started:
            return None
        return "HealthPolicies, DeviceTaintRules and ResourceSlices are not read yet; no answer from the API server, or a permission is missing"

    def own_rules(self) -> dict[str, float]:
        """Return how many rules of this monitor there are, by the label value of a metric without labels."""
        return {"": float(len(tainting.own(self.rules, self.driver)))}

    def withheld(self) -> dict[str, float]:
        """Return by reason how many devices are not tainted, or not freed, though a policy asks for it."""
        counted = Counter(reason.value for reason in self._withheld.values())
        listed = sorted({*WARNINGS, tainting.Reason.DRY_RUN})
        return {reason.value: float(counted[reason.value]) for reason in listed}

    @property
    def mirrors(self) -> tuple[mirror.Mirror[Any], ...]:
        """Return the mirrors of the followed objects of the API server."""
        return (self.policies, self.rules, self.slices)

    def _note_change(self, _old: object, _new: object) -> None:
        """Note that something of the cluster changed."""
        self._inventory = None
        self._signalled.set()

    def receive(self, batch: signals.Batch) -> None:
        """Take signals.

        Raises:
            receiver.NotReady: the cluster is not read yet.
        """
        if (missing := self.find_missing()) is not None:
            raise receiver.NotReady(missing)
        now = self._now()
        seen = causes.observe(self.state, batch, tainting.select_served(self.policies), self._devices(), now)
        self.state = seen.state
        for outcome, number in seen.outcomes.items():
            self.metrics.signals.labels(batch.source.value, outcome).inc(number)
        self._signalled.set()

    async def run(self) -> None:
        """Look until cancelled."""
        for copy in self.mirrors:
            await copy.synced.wait()
        self.state = causes.restore(
            tainting.own(self.rules, self.driver), tainting.select_served(self.policies), self._now()
        )
        self._started = True
        while True:
            self._signalled.clear()
            try:
                with self.metrics.contained.attempt("monitor-looks", expected=errors.KubeError):
                    await self.look()
                    self._logged = ""
            except errors.KubeError as error:
                if str(error) != self._logged:
                    self._logged = str(error)
                    log.log(errors.level(error), "cannot carry out a decision, trying again: %s", error)
            await asyncio.sleep(PAUSE_SECONDS)
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._signalled.wait()
            except TimeoutError:
                pass

    async def look(self) -> None:
        """Decide, and carry it out.

        Raises:
            errors.KubeError: the API server does not answer, or refuses.
        """
        policies, now = tainting.select_served(self.policies), self._now()
        decided = tainting.decide(
            self.state, policies, self._devices(), tuple(self.rules), now, dry_run=self.dry_run
        )
        self.state = decided.state
        oldest = self.clock().timestamp() - REPEAT_SECONDS
        self._reported = {each: at for each, at in self._reported.items() if at > oldest}
        withheld: dict[causes.Key, tainting.Reason] = {}
        for decision in decided.decisions:
            if isinstance(decision, tainting.Withhold):
                withheld[decision.key] = decision.reason
                if self._is_news(decision):
                    self._report(decision, policies)
                continue
            self.state = tainting.note_action(self.state, decision, now)
            try:
                await self._carry_out(decision, policies, now)
            except errors.KubeError:
                self.metrics.failures.labels(_name(decision)).inc()
                raise
            self._report(decision, policies)
        self._withheld = withheld

    def _is_news(self, decision: tainting.Withhold) -> bool:
        """Return whether to report a withheld decision: a new one, or one that was over and was not reported for a while."""
        subject = decision.key, decision.reason
        if self._withheld.get(decision.key) == decision.reason or subject in self._reported:
            return False
        self._reported[subject] = self.clock().timestamp()
        return True

    def _now(self) -> datetime.datetime:
        """Return the time of day; if it was set, move the moments of the state with it, so that spans stay as they are."""
        date = self.time_of_day()
        self.state = causes.shift(self.state, self._step.measure(date, self.clock()))
        return date

    def _devices(self) -> inventory.Inventory:
        if self._inventory is None:
            self._inventory = inventory.list_published(self.driver, self.slices)
        return self._inventory

    async def _carry_out(
        self,
        decision: tainting.Taint | tainting.Change | tainting.Renew | tainting.Lift,
        policies: causes.Policies,
        now: datetime.datetime,
    ) -> None:
        match decision:
            case tainting.Taint():
                policy = policies[decision.key.policy]
                self._check_rate(await self.rules.create(self._document(decision, policy, now)), policy)
            case tainting.Change(rule=rule, effect=effect):
                annotations = {
                    healthpolicies.EFFECT_ANNOTATION: effect,
                    healthpolicies.ACTED_ANNOTATION: meta.timestamp(now),
                }
                policy = policies[decision.key.policy]
                taint = {"effect": effect, "evictionsPerSecond": policy.spec.taint.evictions_per_second}
                self._check_rate(await self._merge(rule, annotations, {"spec": {"taint": taint}}), policy)
            case tainting.Renew(rule=rule, until=until):
                await self._merge(rule, {taintrules.EXPIRES_ANNOTATION: meta.timestamp(until)}, {})
            case tainting.Lift(rule=rule):
                await self.rules.delete(rule)
            case _:
                assert_never(decision)

    async def _merge(
        self, rule: taintrules.DeviceTaintRule, annotations: dict[str, str], content: dict[str, Any]
    ) -> taintrules.DeviceTaintRule:
        metadata = {
            "uid": rule.metadata.uid,
            "resourceVersion": rule.metadata.resource_version,
            "annotations": annotations,
        }
        return await self.rules.merge(rule, content | {"metadata": metadata}, manager=MANAGER)

    def _check_rate(self, stored: taintrules.DeviceTaintRule, policy: healthpolicies.HealthPolicy) -> None:
        """Report once for each policy that the API server did not keep its rate of evictions."""
        rate, uid = policy.spec.taint.evictions_per_second, policy.metadata.uid
        if rate is None or stored.spec.taint.evictions_per_second is not None or uid in self._unrated:
            return
        self._unrated.add(uid)
        message = (
            f"the API server keeps no evictionsPerSecond in DeviceTaintRules, so {rate} has no effect: NoExecute evicts all pods of a device "
            "at once; slow the devices down by spec.rate"
        )
        log.warning("a rate has no effect", extra={"problem": message, "policy": policy.metadata.name})
        self.recorder.policy_event(
            policy.metadata.name, uid, warning=True, reason=reasons.EVICTION_RATE_DROPPED, message=message
        )

    def _document(
        self, decision: tainting.Taint, policy: healthpolicies.HealthPolicy, now: datetime.datetime
    ) -> dict[str, Any]:
        device, name = decision.key.device, decision.key.policy
        return taintrules.document(
            self.kind.api_version,
            tainting.rule_name(decision.key),
            taintrules.DeviceSelector(driver=device.driver, pool=device.pool, device=device.name),
            slices.Taint(
                key=policy.spec.taint.key,
                value=name,
                effect=decision.effect,
                evictions_per_second=policy.spec.taint.evictions_per_second,
            ),
            labels={healthpolicies.MONITOR_LABEL: self.driver},
            annotations={
                healthpolicies.POLICY_ANNOTATION: name,
                healthpolicies.EFFECT_ANNOTATION: decision.effect,
                healthpolicies.ACTED_ANNOTATION: meta.timestamp(now),
                taintrules.CREATED_BY_ANNOTATION: MANAGER,
                taintrules.REASON_ANNOTATION: f"HealthPolicy {name}, source {policy.spec.source}",
                taintrules.EXPIRES_ANNOTATION: meta.timestamp(decision.until),
            },
        )

    def _report(self, decision: tainting.Decision, policies: causes.Policies) -> None:
        self.metrics.decisions.labels(_name(decision), decision.reason.value).inc()
        message = sentence(decision)
        log.info("decided", extra={"decision": message, "policy": decision.key.policy})
        if isinstance(decision, tainting.Renew):
            return
        reason = _REASONS[type(decision)]
        policy = policies.get(decision.key.policy)
        if policy is not None:
            self.recorder.policy_event(
                policy.metadata.name,
                policy.metadata.uid,
                warning=decision.reason in WARNINGS,
                reason=reason,
                message=message,
            )
        elif isinstance(decision, tainting.Lift):
            metadata = decision.rule.metadata
            self.recorder.rule_normal(self.kind, metadata.name, metadata.uid, reason=reason, message=message)


_REASONS = {
    tainting.Taint: reasons.DEVICE_TAINTED,
    tainting.Change: reasons.DEVICE_CHANGED,
    tainting.Lift: reasons.DEVICE_LIFTED,
    tainting.Withhold: reasons.DEVICE_WITHHELD,
}


def _name(decision: tainting.Decision) -> str:
    return {
        tainting.Taint: "Tainted",
        tainting.Change: "Changed",
        tainting.Renew: "Renewed",
        tainting.Lift: "Lifted",
        tainting.Withhold: "Withheld",
    }[type(decision)]


_BECAUSE = {
    tainting.Reason.HELD: "its signal has held for long enough",
    tainting.Reason.POLICY_CHANGED: "the policy has changed",
    tainting.Reason.REPEATED: "its signal was repeated",
    tainting.Reason.CLEAR: "it was clear for long enough",
    tainting.Reason.POLICY_GONE: "the policy is gone",
    tainting.Reason.SHARE: "fewer devices than minimumHealthyPercent of its pool or class would be left",
    tainting.Reason.RATE: "as many devices as spec.rate allows were tainted",
    tainting.Reason.LIMIT: f"there are {tainting.RULES_MAX} rules",
    tainting.Reason.DRY_RUN: "this is a dry run",
}


def sentence(decision: tainting.Decision) -> str:
    """Return the decision, with its reason."""
    device, because = decision.key.device, _BECAUSE[decision.reason]
    match decision:
        case tainting.Taint(effect=effect):
            return f"tainted {device} with effect {effect}, since {because}"
        case tainting.Change(effect=effect):
            return f"gave the rule of {device} effect {effect}, since {because}"
        case tainting.Renew(until=until):
            return f"the rule of {device} lasts until {meta.timestamp(until)}, since {because}"
        case tainting.Lift():
            return f"deleted the rule of {device}, since {because}"
        case tainting.Withhold(intended=tainting.Taint(effect=effect)):
            return f"did not taint {device} with effect {effect}, since {because}"
        case tainting.Withhold(intended=tainting.Change(effect=effect)):
            return f"did not give the rule of {device} effect {effect}, since {because}"
        case tainting.Withhold():
            return f"did not delete the rule of {device}, since {because}"
        case _:
            assert_never(decision)
