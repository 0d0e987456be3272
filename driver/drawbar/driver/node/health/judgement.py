"""The judgement of a device's health from a series of samples. Pure: the same samples give the same verdicts.

Invariants:

- A taint needs a finding that has lasted its rule's hold-down time and has not been absent for its recovery time since.
- Every taint is lifted once the samples have shown nothing for `recovery_max_seconds`.
- A sample without information about a finding neither raises nor lifts it.

Between two samples at most two intervals count. A clock that jumps, or a host that slept, therefore neither prolongs a
finding nor ends it.
"""

from collections.abc import Mapping
from typing import Any, assert_never

import msgspec

from drawbar.driver.node.health import verdicts
from drawbar.driver.node.health.policy import NAMES, RULES, Policy
from drawbar.driver.node.health.rules import presence
from drawbar.driver.node.health.rules.rule import Evidence, HealthRule, Look, Rule
from drawbar.driver.node.health.samples import Gone, Reading, Sample, Stuck

MESSAGE_CHARS = 1024
# The shortest pause before the next sample of a finding in its hold-down time.
LOOK_AGAIN_LEAST_SECONDS = 0.5
DOUBLINGS_MAX = 16
_ALL = frozenset(NAMES)
_EFFECTS = (verdicts.Effect.NO_EXECUTE, verdicts.Effect.NO_SCHEDULE, verdicts.Effect.NONE)


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of one sample; a finding in neither field is absent.

    Attributes:
        present: the evidence by finding.
        unknown: findings without information in the sample.
    """

    present: Mapping[str, Evidence]
    unknown: frozenset[str] = frozenset()


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """The state for the next sample's comparison.

    Attributes:
        seen: the device was present at some time.
        absent_seconds: the time since the kernel last showed it.
        address: its last address; empty if it was never seen.
    """

    seen: bool = False
    absent_seconds: float = 0.0
    address: str = ""
    by_rule: Mapping[str, Any] = msgspec.field(default_factory=dict)


def observe(
    memory: Memory, sample: Sample, elapsed_seconds: float, policy: Policy
) -> tuple[Memory, Findings]:
    """Return the state to remember of the sample, and its findings.

    Args:
        memory: the state after the earlier samples.
        sample: the new sample.
        elapsed_seconds: the time since the last sample, 0 or more.
        policy: its thresholds.
    """
    match sample:
        case Gone():
            return _observe_absence(memory, elapsed_seconds, policy)
        case Stuck(seconds=seconds):
            message = f"{memory.address or 'the device'}: reading its state did not end within {seconds:g} s"
            return memory, _single_finding(presence.NOT_ANSWERING, message)
        case Reading():
            return _observe_reading(memory, sample, elapsed_seconds, policy)
        case _:
            assert_never(sample)


def _observe_absence(memory: Memory, elapsed: float, policy: Policy) -> tuple[Memory, Findings]:
    absent = memory.absent_seconds + elapsed
    # The driver of a returning device is not yet bound, so most state is dropped.
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
        return after, _single_finding(presence.LOST, message)
    if absent >= policy.arrival_seconds:
        return after, _single_finding(
            presence.LOST,
            f"the device has not appeared within {policy.arrival_seconds:g} s; look at its link",
        )
    return after, Findings(present={}, unknown=_ALL)


def _single_finding(rule: HealthRule, message: str) -> Findings:
    return Findings(present={rule.name: Evidence(message=message)}, unknown=_ALL - {rule.name})


def _observe_reading(
    memory: Memory, reading: Reading, elapsed: float, policy: Policy
) -> tuple[Memory, Findings]:
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
    return after_all, Findings(present=present, unknown=frozenset(unknown))


class Track(msgspec.Struct, frozen=True, kw_only=True):
    """The course of one finding.

    Attributes:
        evidence: the evidence at its start, kept so that further errors do not change the verdict.
        raised: it is part of the verdict.
        present_seconds: its duration, until it is raised.
        clean_seconds: the time since it was last present.
        relapses: the number of times it was lifted.
    """

    evidence: Evidence
    raised: bool = False
    present_seconds: float = 0.0
    clean_seconds: float = 0.0
    relapses: int = 0


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The knowledge about a device from earlier samples; empty at first.

    Attributes:
        at: the time of the last sample, on the caller's clock in seconds.
        memory: the state for the next sample's comparison.
        tracks: the findings that are raised, in their hold-down time, or remembered.
    """

    at: float | None = None
    memory: Memory = msgspec.field(default_factory=Memory)
    tracks: Mapping[str, Track] = msgspec.field(default_factory=dict)


def judge(history: History, sample: Sample, now: float, policy: Policy) -> tuple[History, verdicts.Verdict]:
    """Return the history and the verdict after one more sample.

    Args:
        history: this function's result for the sample before; `History()` at first.
        sample: the new sample.
        now: seconds on any clock.
        policy: the thresholds and consequences.
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
    """Return the seconds until the next sample: an interval, or less if a finding's hold-down time ends sooner."""
    waits = [
        policy.rules.find_rule(finding).hold_down_seconds - track.present_seconds
        for finding, track in history.tracks.items()
        if not track.raised and track.clean_seconds == 0.0
    ]
    return min([policy.interval_seconds, *(max(LOOK_AGAIN_LEAST_SECONDS, wait) for wait in waits)])


def _advance(
    finding: str, track: Track | None, observed: Findings, step: float, policy: Policy
) -> Track | None:
    """Return the finding's course after a sample, or None if there is nothing to remember."""
    evidence = observed.present.get(finding)
    if evidence is not None:
        return _track_present(track, evidence, step, policy.rules.find_rule(finding))
    if track is None:
        return None
    return _track_unknown(track) if finding in observed.unknown else _track_absent(track, step, policy)


def _track_present(track: Track | None, evidence: Evidence, step: float, rule: Rule) -> Track:
    if track is None:
        return Track(evidence=evidence, raised=rule.hold_down_seconds <= 0)
    # A finding in a new state gets the new evidence; one that persists keeps the old.
    shown = track.evidence if track.evidence.value == evidence.value and _is_unbroken(track) else evidence
    lasted = track.present_seconds + step if _is_unbroken(track) else 0.0
    return msgspec.structs.replace(
        track,
        evidence=shown,
        raised=track.raised or lasted >= rule.hold_down_seconds,
        present_seconds=lasted,
        clean_seconds=0.0,
    )


def _is_unbroken(track: Track) -> bool:
    """Return whether the finding was present without a break: it is raised, or the last sample showed it."""
    return track.raised or track.clean_seconds == 0.0


def _track_unknown(track: Track) -> Track | None:
    """Return the course after a sample without information: a raised finding stays, a hold-down time starts again."""
    if track.raised:
        return track
    return msgspec.structs.replace(track, present_seconds=0.0) if track.relapses else None


def _track_absent(track: Track, step: float, policy: Policy) -> Track | None:
    clean = track.clean_seconds + step
    if track.raised:
        if clean < _recovery_seconds(track, policy):
            return msgspec.structs.replace(track, clean_seconds=clean)
        # It is now only remembered, to detect a relapse.
        return msgspec.structs.replace(
            track, raised=False, present_seconds=0.0, clean_seconds=clean, relapses=track.relapses + 1
        )
    if track.relapses and clean < policy.recovery_max_seconds:
        return msgspec.structs.replace(track, present_seconds=0.0, clean_seconds=clean)
    return None


def _recovery_seconds(track: Track, policy: Policy) -> float:
    longer = policy.recovery_seconds * 2.0 ** min(track.relapses, DOUBLINGS_MAX)
    return min(longer, policy.recovery_max_seconds)


def _verdict(history: History, policy: Policy) -> verdicts.Verdict:
    raised = [
        (policy.rules.find_rule(finding).effect, finding, track)
        for finding, track in history.tracks.items()
        if track.raised
    ]
    raised.sort(
        key=lambda effect_and_name: (_EFFECTS.index(effect_and_name[0]), NAMES.index(effect_and_name[1]))
    )
    if not raised and not history.memory.seen:
        return verdicts.UNKNOWN
    unhealthy = any(policy.rules.find_rule(finding).unhealthy for _, finding, _ in raised)
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
