"""Judges a device's health from one sample after the other. Pure: the same samples give the same verdicts.

Invariants: there is a taint only for a finding that was seen, that lasted as long as its rule asks and that has not
stayed away for its recovery time since; every taint is lifted once the samples have shown nothing for
`recovery_max_seconds`; a sample that says nothing of a finding neither raises nor lifts it.

Time is what passes between samples, and at most two intervals of it count: a clock that jumps, or a host that slept,
neither makes a finding last nor proves that it is over.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from drawbar.driver.node.health import verdicts
from drawbar.driver.node.health.policy import NAMES, RULES, Policy
from drawbar.driver.node.health.rules import presence
from drawbar.driver.node.health.rules.rule import Evidence, HealthRule, Look, Rule
from drawbar.driver.node.health.samples import Gone, Reading, Sample, Stuck

MESSAGE_CHARS = 1024
# A finding that is waited for is looked at again when it may have lasted long enough, but not all the time.
LOOK_AGAIN_LEAST_SECONDS = 0.5
DOUBLINGS_MAX = 16
_ALL = frozenset(NAMES)
_EFFECTS = (verdicts.Effect.NO_EXECUTE, verdicts.Effect.NO_SCHEDULE, verdicts.Effect.NONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What a sample shows; a finding in neither is not there.

    Attributes:
        unknown: findings of which the sample says nothing.
    """

    present: Mapping[str, Evidence]
    unknown: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What the next sample is compared with.

    Attributes:
        seen: the device was there at some time.
        absent_seconds: for how long the kernel has not shown it.
        address: where it was last; empty while it was never seen.
        by_rule: what each rule remembers.
    """

    seen: bool = False
    absent_seconds: float = 0.0
    address: str = ""
    by_rule: Mapping[str, Any] = field(default_factory=dict)


def observe(
    memory: Memory, sample: Sample, elapsed_seconds: float, policy: Policy
) -> tuple[Memory, Observed]:
    """Return what to remember of the sample, and what it shows.

    Args:
        memory: of the samples before.
        sample: the new one.
        elapsed_seconds: since the last sample, 0 and more.
        policy: its thresholds.
    """
    match sample:
        case Gone():
            return _gone(memory, elapsed_seconds, policy)
        case Stuck(seconds=seconds):
            message = f"{memory.address or 'the device'}: reading its state did not end within {seconds:g} s"
            return memory, _only(presence.NOT_ANSWERING, message)
        case Reading():
            return _reading(memory, sample, elapsed_seconds, policy)
        case _:
            assert_never(sample)


def _gone(memory: Memory, elapsed: float, policy: Policy) -> tuple[Memory, Observed]:
    absent = memory.absent_seconds + elapsed
    # What comes back has a driver that has not bound yet.
    kept = {
        rule.name: rule.keep(memory.by_rule[rule.name])
        for rule in RULES
        if memory.by_rule.get(rule.name) is not None
    }
    after = Memory(seen=memory.seen, absent_seconds=absent, address=memory.address, by_rule=kept)
    if memory.seen:
        message = (
            f"{memory.address} disappeared from the bus while it was attached; look at its link and power"
        )
        return after, _only(presence.LOST, message)
    if absent >= policy.arrival_seconds:
        return after, _only(
            presence.LOST,
            f"the device has not appeared within {policy.arrival_seconds:g} s; look at its link",
        )
    return after, Observed(present={}, unknown=_ALL)


def _only(rule: HealthRule, message: str) -> Observed:
    return Observed(present={rule.name: Evidence(message=message)}, unknown=_ALL - {rule.name})


def _reading(memory: Memory, reading: Reading, elapsed: float, policy: Policy) -> tuple[Memory, Observed]:
    present: dict[str, Evidence] = {}
    unknown: set[str] = set()
    by_rule: dict[str, Any] = {}
    for rule in RULES:
        look = Look(
            reading=reading, elapsed_seconds=elapsed, thresholds=policy, before=memory.by_rule.get(rule.name)
        )
        by_rule[rule.name] = look.after = rule.remember(look)
        evidence = rule.find(look)
        if evidence is not None:
            present[rule.name] = evidence
        elif rule.unknown(reading) or (rule.files and reading.asleep):
            unknown.add(rule.name)
    after_all = Memory(seen=True, address=reading.address, by_rule=by_rule)
    return after_all, Observed(present=present, unknown=frozenset(unknown))


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """The course of one finding.

    Attributes:
        evidence: as it was when the finding came; kept, so that counting on changes no verdict.
        raised: it is part of the verdict.
        present_seconds: how long it has lasted, until it is raised.
        clean_seconds: how long it has stayed away.
        relapses: how often it was lifted before.
    """

    evidence: Evidence
    raised: bool = False
    present_seconds: float = 0.0
    clean_seconds: float = 0.0
    relapses: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What is known of a device from earlier samples; begins empty.

    Attributes:
        at: when the last sample was taken, on the caller's clock in seconds.
        memory: what the next sample is compared with.
        tracks: the findings that are there, are waited for, or are remembered.
    """

    at: float | None = None
    memory: Memory = field(default_factory=Memory)
    tracks: Mapping[str, Track] = field(default_factory=dict)


def judge(history: History, sample: Sample, now: float, policy: Policy) -> tuple[History, verdicts.Verdict]:
    """The verdict after one more sample.

    Args:
        history: what this function gave for the sample before; `History()` at first.
        sample: how the device is.
        now: seconds on any clock.
        policy: what counts, and what follows.
    """
    elapsed = max(0.0, now - history.at) if history.at is not None else 0.0
    memory, observed = observe(history.memory, sample, elapsed, policy)
    step = min(elapsed, 2 * policy.interval_seconds)
    tracks = {}
    for finding in NAMES:
        if finding in policy.ignored:
            continue
        track = _advance(finding, history.tracks.get(finding), observed, step, policy)
        if track is not None:
            tracks[finding] = track
    after = History(at=now, memory=memory, tracks=tracks)
    return after, _verdict(after, policy)


def look_again_seconds(history: History, policy: Policy) -> float:
    """When the next sample is due: after an interval, or when a finding will have lasted long enough."""
    waits = [
        policy.rules.for_finding(finding).hold_down_seconds - track.present_seconds
        for finding, track in history.tracks.items()
        if not track.raised and track.clean_seconds == 0.0
    ]
    return min([policy.interval_seconds, *(max(LOOK_AGAIN_LEAST_SECONDS, wait) for wait in waits)])


def _advance(
    finding: str, track: Track | None, observed: Observed, step: float, policy: Policy
) -> Track | None:
    """The finding's course after a sample; None when there is nothing to remember."""
    evidence = observed.present.get(finding)
    if evidence is not None:
        return _present(track, evidence, step, policy.rules.for_finding(finding))
    if track is None:
        return None
    return _undecided(track) if finding in observed.unknown else _absent(track, step, policy)


def _present(track: Track | None, evidence: Evidence, step: float, rule: Rule) -> Track:
    if track is None:
        return Track(evidence=evidence, raised=rule.hold_down_seconds <= 0)
    # A finding in another state is reported as it is now; one that merely persists, as it was.
    shown = track.evidence if track.evidence.value == evidence.value and _goes_on(track) else evidence
    lasted = track.present_seconds + step if _goes_on(track) else 0.0
    return replace(
        track,
        evidence=shown,
        raised=track.raised or lasted >= rule.hold_down_seconds,
        present_seconds=lasted,
        clean_seconds=0.0,
    )


def _goes_on(track: Track) -> bool:
    """Whether the finding has been there all the time: it is raised, or the last sample showed it."""
    return track.raised or track.clean_seconds == 0.0


def _undecided(track: Track) -> Track | None:
    """The sample says nothing of the finding: what is raised stays, what was waited for begins anew."""
    if track.raised:
        return track
    return replace(track, present_seconds=0.0) if track.relapses else None


def _absent(track: Track, step: float, policy: Policy) -> Track | None:
    clean = track.clean_seconds + step
    if track.raised:
        if clean < _recovery_seconds(track, policy):
            return replace(track, clean_seconds=clean)
        # From here on it is only remembered, as a finding that relapses.
        return replace(
            track, raised=False, present_seconds=0.0, clean_seconds=clean, relapses=track.relapses + 1
        )
    if track.relapses and clean < policy.recovery_max_seconds:
        return replace(track, present_seconds=0.0, clean_seconds=clean)
    return None


def _recovery_seconds(track: Track, policy: Policy) -> float:
    longer = policy.recovery_seconds * 2.0 ** min(track.relapses, DOUBLINGS_MAX)
    return min(longer, policy.recovery_max_seconds)


def _verdict(history: History, policy: Policy) -> verdicts.Verdict:
    raised = [
        (policy.rules.for_finding(finding).effect, finding, track)
        for finding, track in history.tracks.items()
        if track.raised
    ]
    raised.sort(
        key=lambda effect_and_name: (_EFFECTS.index(effect_and_name[0]), NAMES.index(effect_and_name[1]))
    )
    if not raised and not history.memory.seen:
        return verdicts.UNKNOWN
    unhealthy = any(policy.rules.for_finding(finding).unhealthy for _, finding, _ in raised)
    return verdicts.Verdict(
        status=verdicts.Status.UNHEALTHY if unhealthy else verdicts.Status.HEALTHY,
        message="; ".join(track.evidence.message for *_, track in raised)[:MESSAGE_CHARS],
        taints=tuple(
            verdicts.Taint(
                key=finding, value=track.evidence.value, effect=effect, message=track.evidence.message
            )
            for effect, finding, track in raised
        ),
    )
