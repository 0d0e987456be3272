"""Decisions about the taints of devices, from the reports on them; pure.

`observe` folds signals into causes, one per policy and device; `decide` compares the causes with the rules that exist. Causes are
in memory alone: after a start, `restore` makes them of the rules, which say who made them and until when they hold.

Invariants: only devices that are published by the policy's driver, and in its Fabric, are tainted; no decision takes the devices
of a pool, or of a class, that are free of taints below a policy's minimum healthy share; within the seconds of a policy's rate no
more devices than that are tainted or given another effect; a device is tainted only after its cause has held, and a rule is
deleted only after the cause was clear for as long, or has expired, or its policy is gone; each rule of the monitor is deleted then.
A rule of the monitor counts against the share whatever its effect, so that a later change of the effect cannot undercut it.

Everything is bounded: causes exist only for published devices, at most `CAUSES_MAX`, each with `FINGERPRINTS_MAX` fingerprints.
"""

import datetime
import enum
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from drawbar.driver.api import healthpolicies, meta, slices, taintrules
from drawbar.driver.healthmonitor import signals
from drawbar.driver.slices import encoding

CAUSES_MAX = 10_000
FINGERPRINTS_MAX = 32
POLICIES_MAX = 100
RULES_MAX = 1000
"""Of the monitor's own."""
DECISIONS_MAX = 200
"""That change the cluster, at a time; the next ones follow at the next look."""
RESTORED = "restored"
"""The fingerprint of a cause that was made of a rule."""
RENEW_FRACTION = 4
"""A rule's expiry is moved once a fourth of it is over."""


_RANK = {encoding.NO_EFFECT: 0, encoding.NO_SCHEDULE: 1, encoding.NO_EXECUTE: 2}


class Device(NamedTuple):
    """A device of the cluster."""

    driver: str
    pool: str
    name: str

    def __str__(self) -> str:
        return "/".join(self)


class Key(NamedTuple):
    """The subject of a cause and a rule."""

    policy: str
    device: Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A device as its driver publishes it.

    Attributes:
        attributes: those with a text, by name; the driver's own without its domain.
        tainted: whether the driver itself keeps claims away from it.
    """

    attributes: Mapping[str, str]
    tainted: bool


@dataclass(frozen=True, slots=True)
class Inventory:
    """The devices that one driver publishes, in the newest generation of each pool."""

    driver: str
    devices: Mapping[Device, Published]
    _indexes: dict[str | None, dict[str, list[Device]]] = field(default_factory=dict)

    def select(self, policy: healthpolicies.HealthPolicy, labels: Mapping[str, str]) -> Device | None:
        """Return the one device that the labels name, or None for none, or more than one."""
        by, value = policy.spec.device, labels.get(policy.spec.device.label)
        if not value:
            return None
        pool = labels.get(by.pool_label) if by.pool_label is not None else None
        if by.pool_label is not None and pool is None:
            return None
        candidates = [
            device
            for device in self._by(by.attribute).get(value, ())
            if (pool is None or device.pool == pool) and self.in_fabric(policy, device)
        ]
        return candidates[0] if len(candidates) == 1 else None

    def in_fabric(self, policy: healthpolicies.HealthPolicy, device: Device) -> bool:
        """Return whether the policy is about a published device."""
        published = self.devices.get(device)
        wanted = policy.spec.fabric
        return published is not None and (wanted is None or published.attributes.get("fabric") == wanted)

    def _by(self, attribute: str | None) -> Mapping[str, list[Device]]:
        index = self._indexes.get(attribute)
        if index is None:
            index = self._indexes[attribute] = {}
            for device, published in self.devices.items():
                name = device.name if attribute is None else published.attributes.get(attribute)
                if name is not None:
                    index.setdefault(name, []).append(device)
        return index


def inventory(driver: str, listed: Iterable[slices.ResourceSlice]) -> Inventory:
    """Return the devices that a driver publishes."""
    newest = slices.newest(item for item in listed if item.spec.driver == driver)
    tainted = {
        (item.spec.pool.name, entry.device)
        for item in newest
        for entry in item.spec.taints
        if encoding.keeps_away([entry.taint])
    }
    devices = {
        Device(driver, item.spec.pool.name, device.name): Published(
            attributes={
                name.removeprefix(f"{driver}/"): value.string
                for name, value in device.attributes.items()
                if value.string is not None
            },
            tainted=encoding.keeps_away(device.taints) or (item.spec.pool.name, device.name) in tainted,
        )
        for item in newest
        for device in item.spec.devices
    }
    return Inventory(driver, devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The reason why a device is, or may soon be, tainted.

    Attributes:
        since: the beginning of the uninterrupted fault.
        times: the number of reports since.
        last: the time of the last report.
        firing: the time of each fingerprint's last report; empty once it is clear.
        clear_since: None while there is a fault.
    """

    since: datetime.datetime
    times: int
    last: datetime.datetime
    firing: Mapping[str, datetime.datetime]
    clear_since: datetime.datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The memory between two looks.

    Attributes:
        acted: for each policy, the times at which devices were tainted or given another effect, within the seconds of
            its rate.
    """

    causes: Mapping[Key, Cause] = field(default_factory=dict)
    acted: Mapping[str, tuple[datetime.datetime, ...]] = field(default_factory=dict)


class Reason(enum.StrEnum):
    """The reason for a decision."""

    HELD = "Held"
    POLICY_CHANGED = "PolicyChanged"
    REPEATED = "Repeated"
    CLEAR = "Clear"
    POLICY_GONE = "PolicyGone"
    SHARE = "MinimumHealthyShare"
    RATE = "Rate"
    LIMIT = "Limit"
    DRY_RUN = "DryRun"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """Create the rule of a device."""

    key: Key
    effect: str
    until: datetime.datetime
    reason: Reason = Reason.HELD


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Give a rule the effect of its policy."""

    key: Key
    rule: taintrules.DeviceTaintRule
    effect: str
    reason: Reason = Reason.POLICY_CHANGED

    @property
    def is_harder(self) -> bool:
        """Return whether the new effect is stricter for claims than the old one."""
        return _RANK[self.effect] > _RANK[self.rule.spec.taint.effect]


@dataclass(frozen=True, slots=True, kw_only=True)
class Renew:
    """Let a rule expire later."""

    key: Key
    rule: taintrules.DeviceTaintRule
    until: datetime.datetime
    reason: Reason = Reason.REPEATED


@dataclass(frozen=True, slots=True, kw_only=True)
class Lift:
    """Delete a rule."""

    key: Key
    rule: taintrules.DeviceTaintRule
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Withhold:
    """Do nothing, where a policy asks for something.

    Attributes:
        intended: what would have been done.
    """

    key: Key
    intended: "Taint | Change | Lift"
    reason: Reason


Decision = Taint | Change | Renew | Lift | Withhold


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What `decide` returns.

    Attributes:
        decisions: in the order in which to carry them out; the first that fails ends them, since the next ones assume it.
    """

    state: State
    decisions: tuple[Decision, ...]


Policies = Mapping[str, healthpolicies.HealthPolicy]


def rule_name(key: Key) -> str:
    """Return the name of the rule of a policy and a device, which `drawbar taint` takes."""
    digest = hashlib.sha256("\n".join((key.policy, *key.device)).encode()).hexdigest()[:12]
    policy = key.policy.replace(".", "-")[:30].rstrip("-")
    return f"health-{policy}-{digest}"


def rule_key(rule: taintrules.DeviceTaintRule) -> Key | None:
    """Return what a rule of the monitor is for, or None for a rule that was not made by one."""
    selector, policy = (
        rule.spec.device_selector,
        rule.metadata.annotations.get(healthpolicies.POLICY_ANNOTATION),
    )
    if policy is None or selector is None or not selector.is_computable:
        return None
    if selector.driver is None or selector.pool is None or selector.device is None:
        return None
    key = Key(policy, Device(selector.driver, selector.pool, selector.device))
    # The name is what ties the label to the monitor: a rule of another name was copied.
    return key if rule.metadata.name == rule_name(key) else None


def own(rules: Iterable[taintrules.DeviceTaintRule], driver: str) -> dict[Key, taintrules.DeviceTaintRule]:
    """Return the rules of the monitor of a driver."""
    labelled = [rule for rule in rules if rule.metadata.labels.get(healthpolicies.MONITOR_LABEL) == driver]
    keyed = [(rule_key(rule), rule) for rule in labelled]
    return {key: rule for key, rule in keyed if key is not None and key.device.driver == driver}


def select_served(policies: Iterable[healthpolicies.HealthPolicy]) -> dict[str, healthpolicies.HealthPolicy]:
    """Return the policies that are served, by name: the first `POLICIES_MAX`."""
    ordered = sorted(policies, key=lambda policy: policy.metadata.name)
    return {policy.metadata.name: policy for policy in ordered[:POLICIES_MAX]}


def restore(
    rules: Mapping[Key, taintrules.DeviceTaintRule], policies: Policies, now: datetime.datetime
) -> State:
    """Return what the rules of the monitor say of their causes: each still holds until it is reported clear, or expires."""
    causes: dict[Key, Cause] = {}
    acted: dict[str, tuple[datetime.datetime, ...]] = {}
    for key, rule in rules.items():
        policy = policies.get(key.policy)
        if policy is None:
            continue
        end = rule.expires_at
        span = datetime.timedelta(seconds=policy.spec.expire_seconds)
        last = min(end - span, now) if end is not None else now
        causes[key] = Cause(since=last, times=policy.spec.hold.times, last=last, firing={RESTORED: last})
        if (moment := _acted_at(rule)) is not None:
            acted[key.policy] = (*acted.get(key.policy, ()), moment)
    return State(causes=causes, acted=acted)


def _acted_at(rule: taintrules.DeviceTaintRule) -> datetime.datetime | None:
    return meta.moment(rule.metadata.annotations.get(healthpolicies.ACTED_ANNOTATION))


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """The state after a batch of signals.

    Attributes:
        outcomes: how many signals there were by what became of them: `used`, `unmatched` (by no policy), `unknown-device`,
            `limit`.
    """

    state: State
    outcomes: Mapping[str, int]


def observe(
    state: State, batch: signals.Batch, policies: Policies, devices: Inventory, now: datetime.datetime
) -> BatchResult:
    """Fold a batch of signals into the causes."""
    causes, outcomes = dict(state.causes), Counter[str]()
    listening = [policy for policy in policies.values() if policy.spec.source is batch.source]
    reported: dict[Key, set[str]] = {}
    for signal in batch.signals:
        matching = [policy for policy in listening if _matches(policy, signal)]
        keys = [
            Key(policy.metadata.name, device)
            for policy in matching
            if (device := devices.select(policy, signal.labels)) is not None
        ]
        if not keys:
            outcomes["unknown-device" if matching else "unmatched"] += 1
            continue
        kept = True
        for key in keys:
            if signal.firing:
                kept &= _fire(causes, key, signal.fingerprint, now, counts=key not in reported)
                reported.setdefault(key, set()).add(signal.fingerprint)
            else:
                _clear(causes, key, signal.fingerprint.__ne__, now)
        outcomes["used" if kept else "limit"] += 1
    if batch.complete:
        for policy in listening:
            for key in [key for key in causes if key.policy == policy.metadata.name]:
                present = reported.get(key, set())
                _clear(causes, key, present.__contains__, now)
    outcomes["limit"] += batch.left_out
    return BatchResult(state=replace(state, causes=causes), outcomes=outcomes)


def _matches(policy: healthpolicies.HealthPolicy, signal: signals.Signal) -> bool:
    if signal.source is healthpolicies.Source.REDFISH and not signal.firing:
        # That the origin is well again comes as another message.
        return True
    return all(signal.labels.get(name) == value for name, value in policy.spec.match_labels.items())


def _fire(
    causes: dict[Key, Cause], key: Key, fingerprint: str, now: datetime.datetime, *, counts: bool
) -> bool:
    """Note that a cause holds; return False if there are too many."""
    cause = causes.get(key)
    if cause is None or cause.clear_since is not None:
        if cause is None and len(causes) >= CAUSES_MAX:
            return False
        causes[key] = Cause(since=now, times=1, last=now, firing={fingerprint: now})
        return True
    if fingerprint not in cause.firing and len(cause.firing) >= FINGERPRINTS_MAX:
        return False
    causes[key] = replace(
        cause, times=cause.times + counts, last=now, firing={**cause.firing, fingerprint: now}
    )
    return True


def _clear(
    causes: dict[Key, Cause], key: Key, present: Callable[[str], bool], now: datetime.datetime
) -> None:
    """Keep the fingerprints of a cause that are still present; what was restored from a rule goes with the first report."""
    cause = causes.get(key)
    if cause is None or cause.clear_since is not None:
        return
    left = {
        fingerprint: moment
        for fingerprint, moment in cause.firing.items()
        if fingerprint != RESTORED and present(fingerprint)
    }
    causes[key] = replace(cause, firing=left, clear_since=None if left else now)


def shift(state: State, by: datetime.timedelta) -> State:
    """Return the state with all its moments later by `by`."""
    if not by:
        return state
    causes = {
        key: replace(
            cause,
            since=cause.since + by,
            last=cause.last + by,
            clear_since=cause.clear_since + by if cause.clear_since is not None else None,
            firing={fingerprint: moment + by for fingerprint, moment in cause.firing.items()},
        )
        for key, cause in state.causes.items()
    }
    acted = {name: tuple(moment + by for moment in moments) for name, moments in state.acted.items()}
    return State(causes=causes, acted=acted)


def _settled(state: State, policies: Policies, now: datetime.datetime) -> State:
    """Return the state without what is over: causes of policies that are gone, signals that were not repeated, old acts."""
    causes: dict[Key, Cause] = {}
    for key, cause in state.causes.items():
        policy = policies.get(key.policy)
        if policy is None:
            continue
        span = datetime.timedelta(seconds=policy.spec.expire_seconds)
        firing = {name: moment for name, moment in cause.firing.items() if moment + span > now}
        clear = cause.clear_since
        if clear is None and not firing:
            clear = cause.last + span
        if clear is not None and clear + datetime.timedelta(seconds=policy.spec.clear_after_seconds) <= now:
            continue
        causes[key] = (
            cause if len(firing) == len(cause.firing) else replace(cause, firing=firing, clear_since=clear)
        )
    acted = {
        name: tuple(moment for moment in moments if moment + _window(policy) > now)
        for name, moments in state.acted.items()
        if (policy := policies.get(name)) is not None
    }
    return State(causes=causes, acted={name: moments for name, moments in acted.items() if moments})


def _window(policy: healthpolicies.HealthPolicy) -> datetime.timedelta:
    return datetime.timedelta(seconds=policy.spec.rate.seconds)


def note_action(state: State, decision: Decision, now: datetime.datetime) -> State:
    """Return the state after a decision was carried out, or was attempted, which counts as well."""
    if not isinstance(decision, Taint) and not (isinstance(decision, Change) and decision.is_harder):
        return state
    policy = decision.key.policy
    return replace(state, acted={**state.acted, policy: (*state.acted.get(policy, ()), now)})


def decide(
    state: State,
    policies: Policies,
    devices: Inventory,
    rules: Sequence[taintrules.DeviceTaintRule],
    now: datetime.datetime,
    *,
    dry_run: bool = False,
) -> "Decided":
    """Return what to do now.

    Args:
        state: what was observed.
        policies: those that are served.
        devices: what the driver publishes.
        rules: all rules of the cluster, since those of others count against the share.
        now: the time of day.
        dry_run: report only, whatever the policies say.
    """
    state, mine = _settled(state, policies, now), own(rules, devices.driver)
    dry = {name for name, policy in policies.items() if dry_run or policy.spec.dry_run}
    lifts: list[Lift] = []
    renewals: list[Renew] = []
    wishes: list[Taint | Change] = []
    for key, rule in sorted(mine.items()):
        lift = _lift(state, policies, key, rule, devices)
        if lift is not None:
            lifts.append(lift)
            continue
        cause = state.causes.get(key)
        policy = policies[key.policy]
        if cause is not None and (until := _later(policy, cause, rule, now)) is not None:
            renewals.append(Renew(key=key, rule=rule, until=until))
        written = rule.metadata.annotations.get(healthpolicies.EFFECT_ANNOTATION)
        # Another effect than was written is an administrator's; that stays.
        if written == rule.spec.taint.effect != policy.spec.taint.effect and devices.in_fabric(
            policy, key.device
        ):
            wishes.append(Change(key=key, rule=rule, effect=policy.spec.taint.effect))
    wishes += _fresh(state, policies, devices, mine, now)
    real = {lift.rule.metadata.name for lift in lifts if lift.key.policy not in dry}
    staying = [rule for rule in rules if rule.metadata.name not in real]
    # What is only reported comes last, so that it takes no share from what is done.
    wishes.sort(key=lambda wish: wish.key.policy in dry)
    admitted = _admitted(state, policies, devices, staying, wishes) if wishes else []
    decisions = [
        _reported(decision) if decision.key.policy in dry else decision
        for decision in (*lifts, *renewals, *admitted)
    ]
    withheld = [decision for decision in decisions if isinstance(decision, Withhold)]
    changing = [decision for decision in decisions if not isinstance(decision, Withhold | None)]
    return Decided(state=state, decisions=(*changing[:DECISIONS_MAX], *withheld))


def _fresh(
    state: State,
    policies: Policies,
    devices: Inventory,
    mine: Mapping[Key, taintrules.DeviceTaintRule],
    now: datetime.datetime,
) -> Iterator[Taint]:
    """Yield a taint for each cause that has held and that no rule has, the oldest first."""
    held = [
        (cause.since, key)
        for key, cause in state.causes.items()
        if key not in mine and _holds(policies[key.policy], cause, now)
    ]
    for _, key in sorted(held):
        policy = policies[key.policy]
        if devices.in_fabric(policy, key.device):
            until = state.causes[key].last + datetime.timedelta(seconds=policy.spec.expire_seconds)
            yield Taint(key=key, effect=policy.spec.taint.effect, until=until)


def _reported(decision: Decision) -> Withhold | None:
    """Return a decision of a policy that only reports; None where there is nothing to report."""
    match decision:
        case Renew():
            return None
        case Withhold():
            return decision
        case _:
            return Withhold(key=decision.key, intended=decision, reason=Reason.DRY_RUN)


def _lift(
    state: State,
    policies: Policies,
    key: Key,
    rule: taintrules.DeviceTaintRule,
    devices: Inventory,
) -> Lift | None:
    policy = policies.get(key.policy)
    if policy is None:
        return Lift(key=key, rule=rule, reason=Reason.POLICY_GONE)
    if (rule.spec.taint.key, rule.spec.taint.value) != (policy.spec.taint.key, key.policy):
        return Lift(key=key, rule=rule, reason=Reason.POLICY_CHANGED)
    if key.device in devices.devices and not devices.in_fabric(policy, key.device):
        return Lift(key=key, rule=rule, reason=Reason.POLICY_CHANGED)
    # `_settled` keeps a cause until it was clear for long enough.
    return Lift(key=key, rule=rule, reason=Reason.CLEAR) if key not in state.causes else None


def _later(
    policy: healthpolicies.HealthPolicy,
    cause: Cause,
    rule: taintrules.DeviceTaintRule,
    now: datetime.datetime,
) -> datetime.datetime | None:
    """Return when the rule expires from now on, or None if that stays."""
    span = datetime.timedelta(seconds=policy.spec.expire_seconds)
    until, end = cause.last + span, rule.expires_at
    if end is None:
        return until
    # Written seldom, and yet never so late that the rule ends before its cause.
    soon = until - end >= datetime.timedelta(seconds=1) and end - now < span / 2
    return until if soon or until - end > span / RENEW_FRACTION else None


def _holds(policy: healthpolicies.HealthPolicy, cause: Cause, now: datetime.datetime) -> bool:
    hold = policy.spec.hold
    return (
        cause.clear_since is None
        and cause.times >= hold.times
        and now - cause.since >= datetime.timedelta(seconds=hold.seconds)
    )


def _admitted(
    state: State,
    policies: Policies,
    devices: Inventory,
    staying: Sequence[taintrules.DeviceTaintRule],
    wishes: Iterable[Taint | Change],
) -> list[Decision]:
    """Return each wish, or that it is withheld because of the share, the rate or the number of rules."""
    tainted = _Tainted(devices, staying)
    left = {
        name: policy.spec.rate.devices - len(state.acted.get(name, ())) for name, policy in policies.items()
    }
    count, admitted = len(own(staying, devices.driver)), list[Decision]()
    for wish in wishes:
        policy = policies[wish.key.policy]
        if isinstance(wish, Change) and not wish.is_harder:
            admitted.append(wish)
            continue
        if not tainted.leaves(wish.key.device, policy.spec.minimum_healthy_percent):
            admitted.append(Withhold(key=wish.key, intended=wish, reason=Reason.SHARE))
        elif left[wish.key.policy] <= 0:
            admitted.append(Withhold(key=wish.key, intended=wish, reason=Reason.RATE))
        elif isinstance(wish, Taint) and count >= RULES_MAX:
            admitted.append(Withhold(key=wish.key, intended=wish, reason=Reason.LIMIT))
        else:
            left[wish.key.policy] -= 1
            count += isinstance(wish, Taint)
            tainted.add(wish.key.device)
            admitted.append(wish)
    return admitted


class _Tainted:
    """The devices of each pool and class, and which of them are tainted."""

    def __init__(self, devices: Inventory, rules: Iterable[taintrules.DeviceTaintRule]) -> None:
        self._devices = devices
        self._all = Counter(group for device in devices.devices for group in self._groups(device))
        self._tainted: set[Device] = set()
        self._count = Counter[tuple[str, str]]()
        self._effective: set[Device] = {
            device for device, published in devices.devices.items() if published.tainted
        }
        counted = set(self._effective)
        for rule in rules:
            keeps_away = encoding.keeps_away([rule.spec.taint])
            if not keeps_away and healthpolicies.MONITOR_LABEL not in rule.metadata.labels:
                continue
            selected = self._selected(rule)
            counted |= selected
            if keeps_away:
                self._effective |= selected
        for device in counted:
            self.add(device)

    def add(self, device: Device) -> None:
        """Count a device as tainted."""
        if device not in self._tainted and device in self._devices.devices:
            self._tainted.add(device)
            self._count.update(self._groups(device))

    def leaves(self, device: Device, percent: int) -> bool:
        """Return whether enough devices of the pool and of the class are free of taints when this one is tainted."""
        if device in self._effective:
            # It is kept away from claims in any case.
            return True
        new = device not in self._tainted
        return all(
            (self._all[group] - self._count[group] - new) * 100 >= self._all[group] * percent
            for group in self._groups(device)
        )

    def _groups(self, device: Device) -> list[tuple[str, str]]:
        name = self._devices.devices[device].attributes.get("class")
        return [("pool", device.pool)] + ([("class", name)] if name is not None else [])

    def _selected(self, rule: taintrules.DeviceTaintRule) -> set[Device]:
        """Return the devices of a rule; of one with expressions all that it may select."""
        selector = rule.spec.device_selector
        if selector is None:
            return set()
        if selector.driver is not None and selector.pool is not None and selector.device is not None:
            device = Device(selector.driver, selector.pool, selector.device)
            return {device} & self._devices.devices.keys()
        return {device for device in self._devices.devices if selector.selects(*device)}
