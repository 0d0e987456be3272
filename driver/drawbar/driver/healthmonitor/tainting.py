"""Decisions about the taints of devices, from the causes and the rules that exist.

Invariants: only devices that are published by the policy's driver, and in its Fabric, are tainted; no decision takes the devices
of a pool, or of a class, that are free of taints below a policy's minimum healthy share; within the seconds of a policy's rate no
more devices than that are tainted or given another effect; a device is tainted only after its cause has held, and a rule is
deleted only after the cause was clear for as long, or has expired, or its policy is gone; each rule of the monitor is deleted then.
A rule of the monitor counts against the share with any effect, so that a later change of the effect cannot undercut it.
"""

import datetime
import enum
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from drawbar.driver.api import healthpolicies, taintrules
from drawbar.driver.healthmonitor import causes
from drawbar.driver.healthmonitor.causes import Cause, Key, Policies, State
from drawbar.driver.healthmonitor.inventory import Device, Inventory
from drawbar.driver.slices import encoding


class Shares:
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
            selected = self._select_devices(rule)
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

    def _select_devices(self, rule: taintrules.DeviceTaintRule) -> set[Device]:
        """Return the devices of a rule; of one with expressions all that it may select."""
        selector = rule.spec.device_selector
        if selector is None:
            return set()
        if selector.driver is not None and selector.pool is not None and selector.device is not None:
            device = Device(selector.driver, selector.pool, selector.device)
            return {device} & self._devices.devices.keys()
        return {device for device in self._devices.devices if selector.selects(*device)}


POLICIES_MAX = 100
RULES_MAX = 1000
"""Of the monitor's own."""
DECISIONS_MAX = 200
"""That change the cluster, at a time; the next ones follow at the next look."""
RENEW_FRACTION = 4
"""A rule's expiry is moved once a fourth of it is over."""
_RANK = {encoding.NO_EFFECT: 0, encoding.NO_SCHEDULE: 1, encoding.NO_EXECUTE: 2}


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


class Taint(msgspec.Struct, frozen=True, kw_only=True):
    """Create the rule of a device."""

    key: Key
    effect: str
    until: datetime.datetime
    reason: Reason = Reason.HELD


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Give a rule the effect of its policy."""

    key: Key
    rule: taintrules.DeviceTaintRule
    effect: str
    reason: Reason = Reason.POLICY_CHANGED

    @property
    def is_harder(self) -> bool:
        """Return whether the new effect is stricter for claims than the old one."""
        return _RANK[self.effect] > _RANK[self.rule.spec.taint.effect]


class Renew(msgspec.Struct, frozen=True, kw_only=True):
    """Let a rule expire later."""

    key: Key
    rule: taintrules.DeviceTaintRule
    until: datetime.datetime
    reason: Reason = Reason.REPEATED


class Lift(msgspec.Struct, frozen=True, kw_only=True):
    """Delete a rule."""

    key: Key
    rule: taintrules.DeviceTaintRule
    reason: Reason


class Withhold(msgspec.Struct, frozen=True, kw_only=True):
    """Do nothing, where a policy asks for something.

    Attributes:
        intended: the act of a monitor that does not only report.
    """

    key: Key
    intended: "Taint | Change | Lift"
    reason: Reason


Decision = Taint | Change | Renew | Lift | Withhold


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `decide`.

    Attributes:
        decisions: in the order in which to carry them out; the first that fails ends them, since the next ones assume it.
    """

    state: State
    decisions: tuple[Decision, ...]


def rule_name(key: Key) -> str:
    """Return the name of the rule of a policy and a device, which `drawbar taint` takes."""
    digest = hashlib.sha256("\n".join((key.policy, *key.device)).encode()).hexdigest()[:12]
    policy = key.policy.replace(".", "-")[:30].rstrip("-")
    return f"health-{policy}-{digest}"


def rule_key(rule: taintrules.DeviceTaintRule) -> Key | None:
    """Return the purpose of a monitor's rule, or None for another rule."""
    selector, policy = (
        rule.spec.device_selector,
        rule.metadata.annotations.get(healthpolicies.POLICY_ANNOTATION),
    )
    if policy is None or selector is None or not selector.is_computable:
        return None
    if selector.driver is None or selector.pool is None or selector.device is None:
        return None
    key = Key(policy, Device(selector.driver, selector.pool, selector.device))
    # Only the name ties the label to the monitor: a rule of another name was copied.
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


def note_action(state: State, decision: Decision, now: datetime.datetime) -> State:
    """Return the state after a decision was carried out, or was attempted, which counts as well."""
    if not isinstance(decision, Taint) and not (isinstance(decision, Change) and decision.is_harder):
        return state
    policy = decision.key.policy
    return msgspec.structs.replace(state, acted={**state.acted, policy: (*state.acted.get(policy, ()), now)})


def decide(
    state: State,
    policies: Policies,
    devices: Inventory,
    rules: Sequence[taintrules.DeviceTaintRule],
    now: datetime.datetime,
    *,
    dry_run: bool = False,
) -> "Decided":
    """Return the acts for now.

    Args:
        state: the observed causes.
        policies: those that are served.
        devices: the driver's published devices.
        rules: all rules of the cluster, since those of others count against the share.
        now: the time of day.
        dry_run: report only, against all policies.
    """
    state, mine = causes.drop_old(state, policies, now), own(rules, devices.driver)
    dry = {name for name, policy in policies.items() if dry_run or policy.spec.dry_run}
    lifts: list[Lift] = []
    renewals: list[Renew] = []
    intended: list[Taint | Change] = []
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
            intended.append(Change(key=key, rule=rule, effect=policy.spec.taint.effect))
    intended += _fresh(state, policies, devices, mine, now)
    real = {lift.rule.metadata.name for lift in lifts if lift.key.policy not in dry}
    staying = [rule for rule in rules if rule.metadata.name not in real]
    # Mere reports come last, so that they take no share from the acts.
    intended.sort(key=lambda decision: decision.key.policy in dry)
    admitted = _admit(state, policies, devices, staying, intended) if intended else []
    decisions = [
        _report_only(decision) if decision.key.policy in dry else decision
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


def _report_only(decision: Decision) -> Withhold | None:
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
    # `drop_old` keeps a cause until it was clear for long enough.
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


def _admit(
    state: State,
    policies: Policies,
    devices: Inventory,
    staying: Sequence[taintrules.DeviceTaintRule],
    intended: Iterable[Taint | Change],
) -> list[Decision]:
    """Return each decision, or that it is withheld because of the share, the rate or the number of rules."""
    tainted = Shares(devices, staying)
    left = {
        name: policy.spec.rate.devices - len(state.acted.get(name, ())) for name, policy in policies.items()
    }
    count, admitted = len(own(staying, devices.driver)), list[Decision]()
    for decision in intended:
        policy = policies[decision.key.policy]
        if isinstance(decision, Change) and not decision.is_harder:
            admitted.append(decision)
            continue
        if not tainted.leaves(decision.key.device, policy.spec.minimum_healthy_percent):
            admitted.append(Withhold(key=decision.key, intended=decision, reason=Reason.SHARE))
        elif left[decision.key.policy] <= 0:
            admitted.append(Withhold(key=decision.key, intended=decision, reason=Reason.RATE))
        elif isinstance(decision, Taint) and count >= RULES_MAX:
            admitted.append(Withhold(key=decision.key, intended=decision, reason=Reason.LIMIT))
        else:
            left[decision.key.policy] -= 1
            count += isinstance(decision, Taint)
            tainted.add(decision.key.device)
            admitted.append(decision)
    return admitted
