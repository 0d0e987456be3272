"""The causes of taints: signals folded into one cause for each policy and device.

Causes are in memory alone: after a start, `restore` makes them of the rules, which name their maker and their
end. They exist only for published devices, at most `CAUSES_MAX`, each with `FINGERPRINTS_MAX` fingerprints.
"""

import datetime
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from drawbar.driver.api import healthpolicies, meta, taintrules
from drawbar.driver.healthmonitor import signals
from drawbar.driver.healthmonitor.inventory import Device, Inventory

CAUSES_MAX = 10_000
FINGERPRINTS_MAX = 32
RESTORED = "restored"
"""The fingerprint of a cause that was made of a rule."""


class Key(NamedTuple):
    """The subject of a cause and a rule."""

    policy: str
    device: Device


class Cause(msgspec.Struct, frozen=True, kw_only=True):
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


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The memory between two looks.

    Attributes:
        acted: for each policy, the times at which devices were tainted or given another effect, within the seconds of
            its rate.
    """

    causes: Mapping[Key, Cause] = msgspec.field(default_factory=dict)
    acted: Mapping[str, tuple[datetime.datetime, ...]] = msgspec.field(default_factory=dict)


Policies = Mapping[str, healthpolicies.HealthPolicy]


def restore(
    rules: Mapping[Key, taintrules.DeviceTaintRule], policies: Policies, now: datetime.datetime
) -> State:
    """Return the causes in the monitor's rules: each still holds until it is reported clear, or expires."""
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
        if (moment := _read_acted_time(rule)) is not None:
            acted[key.policy] = (*acted.get(key.policy, ()), moment)
    return State(causes=causes, acted=acted)


def _read_acted_time(rule: taintrules.DeviceTaintRule) -> datetime.datetime | None:
    return meta.moment(rule.metadata.annotations.get(healthpolicies.ACTED_ANNOTATION))


class BatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The state after a batch of signals.

    Attributes:
        outcomes: the number of signals by outcome: `used`, `unmatched` (by no policy), `unknown-device`,
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
    return BatchResult(state=msgspec.structs.replace(state, causes=causes), outcomes=outcomes)


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
    causes[key] = msgspec.structs.replace(
        cause, times=cause.times + counts, last=now, firing={**cause.firing, fingerprint: now}
    )
    return True


def _clear(
    causes: dict[Key, Cause], key: Key, present: Callable[[str], bool], now: datetime.datetime
) -> None:
    """Keep the fingerprints of a cause that are still present; those restored from a rule go with the first report."""
    cause = causes.get(key)
    if cause is None or cause.clear_since is not None:
        return
    left = {
        fingerprint: moment
        for fingerprint, moment in cause.firing.items()
        if fingerprint != RESTORED and present(fingerprint)
    }
    causes[key] = msgspec.structs.replace(cause, firing=left, clear_since=None if left else now)


def shift(state: State, by: datetime.timedelta) -> State:
    """Return the state with all its moments later by `by`."""
    if not by:
        return state
    causes = {
        key: msgspec.structs.replace(
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


def drop_old(state: State, policies: Policies, now: datetime.datetime) -> State:
    """Return the state without the causes of deleted policies, signals that were not repeated, and old acts."""
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
            cause
            if len(firing) == len(cause.firing)
            else msgspec.structs.replace(cause, firing=firing, clear_since=clear)
        )
    acted = {
        name: tuple(moment for moment in moments if moment + _window(policy) > now)
        for name, moments in state.acted.items()
        if (policy := policies.get(name)) is not None
    }
    return State(causes=causes, acted={name: moments for name, moments in acted.items() if moments})


def _window(policy: healthpolicies.HealthPolicy) -> datetime.timedelta:
    return datetime.timedelta(seconds=policy.spec.rate.seconds)
