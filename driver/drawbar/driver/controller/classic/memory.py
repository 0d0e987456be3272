"""What is remembered between two rounds, and only in memory: whose turn it is, what failed, what was answered; pure.

Everything here only makes the next steps wiser or rarer. Without it, as after a restart, each step is still safe: a pod
may be served out of its turn, a node may be tried once more, an answer may be written once more. Bounded: an entry goes
with its pod or claim.
"""

import datetime
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

# A pod whose devices are free has so long to be given a node by the scheduler; then others come first.
TURN = datetime.timedelta(seconds=30)
PAUSE_FIRST = datetime.timedelta(seconds=10)
PAUSE_MAX = datetime.timedelta(seconds=300)
# Failures that their device is to blame for, and is tainted for: another device may do at once, so often.
OTHER_DEVICES = 3
DOUBLINGS_MAX = 8
# Failures so long ago have nothing to do with the next one.
FORGET_AFTER = datetime.timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A pod that could be served.

    Attributes:
        since: when it was told, or None while there is nothing for it.
        lapses: how often it let its turn pass.
    """

    since: datetime.datetime | None = None
    lapses: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setback:
    """Attempts for a claim that came to nothing.

    Attributes:
        node: of the last one.
        failures: in a row.
        until: when the node may be tried again.
        seen: what was counted last, so that it is counted once.
    """

    node: str
    failures: int
    until: datetime.datetime
    seen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A pod that was told that no node will do, and need not be told at once again."""

    answers: int
    until: datetime.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """All of it; turns and silences by pod uid (or the uid of an immediate claim), setbacks and complaints by claim uid.

    Attributes:
        complaints: what the users of a claim were told last.
    """

    turns: Mapping[str, Turn] = field(default_factory=dict)
    setbacks: Mapping[str, Setback] = field(default_factory=dict)
    silences: Mapping[str, Silence] = field(default_factory=dict)
    complaints: Mapping[str, str] = field(default_factory=dict)


class Notebook:
    """The memory while a round is decided."""

    def __init__(self, known: Memory, now: datetime.datetime) -> None:
        self._now = now
        self._turns = dict(known.turns)
        self._setbacks = dict(known.setbacks)
        self._silences = dict(known.silences)
        self._complaints = dict(known.complaints)
        self._moments: list[datetime.datetime] = []

    def closed(self, pods: Collection[str], claims: Collection[str]) -> Memory:
        """What is to be remembered, of those that are there."""
        return Memory(
            turns={uid: one for uid, one in self._turns.items() if uid in pods},
            setbacks={
                uid: one
                for uid, one in self._setbacks.items()
                if uid in claims and self._now < one.until + FORGET_AFTER
            },
            silences={uid: one for uid, one in self._silences.items() if uid in pods},
            complaints={uid: one for uid, one in self._complaints.items() if uid in claims},
        )

    def look_at(self, moment: datetime.datetime) -> None:
        """Something may change then without any news."""
        if moment > self._now:
            self._moments.append(moment)

    @property
    def next_look(self) -> datetime.datetime | None:
        """The first of these moments."""
        return min(self._moments, default=None)

    def lapses(self, uid: str) -> int:
        """How often the pod let its turn pass; one whose time is over does so now."""
        turn = self._turns.get(uid, Turn())
        if turn.since is not None and self._now >= turn.since + TURN:
            turn = Turn(lapses=turn.lapses + 1)
            self._turns[uid] = turn
        return turn.lapses

    def offered(self, uid: str) -> None:
        """It is the pod's turn, until it is served or lets it pass."""
        turn = self._turns.get(uid, Turn())
        since = turn.since or self._now
        self._turns[uid] = replace(turn, since=since)
        self.look_at(since + TURN)

    def not_offered(self, uid: str) -> None:
        """There is nothing for it now."""
        if uid in self._turns:
            self._turns[uid] = replace(self._turns[uid], since=None)

    def served(self, uid: str) -> None:
        """It let no turn pass after all."""
        self._turns.pop(uid, None)
        self._silences.pop(uid, None)

    def failed(self, claim: str, node: str, seen: str, *, by_device: bool) -> None:
        """An attempt came to nothing.

        Args:
            claim: its uid.
            node: of the attempt.
            seen: what tells this failure from others.
            by_device: the device is to blame, so that another one may do at once.
        """
        known = self._setbacks.get(claim)
        if known is not None and known.seen == seen:
            return
        failures = known.failures + 1 if known is not None else 1
        late = failures - OTHER_DEVICES if by_device else failures
        pause = _longer(late - 1) if late > 0 else datetime.timedelta()
        self._setbacks[claim] = Setback(node=node, failures=failures, until=self._now + pause, seen=seen)

    def avoided(self, claim: str) -> str | None:
        """The node on which the claim failed too short a while ago."""
        known = self._setbacks.get(claim)
        if known is None or self._now >= known.until:
            return None
        self.look_at(known.until)
        return known.node

    def may_answer(self, uid: str) -> bool:
        """Whether a pod that no node will do for is to be told so now."""
        known = self._silences.get(uid)
        if known is None or self._now >= known.until:
            return True
        self.look_at(known.until)
        return False

    def hopeless(self, uid: str) -> None:
        """The pod is told that no node will do."""
        known = self._silences.get(uid)
        answers = known.answers + 1 if known is not None else 1
        until = self._now + _longer(answers)
        self._silences[uid] = Silence(answers=answers, until=until)

    def hopeful(self, uid: str) -> None:
        """Some node will do."""
        self._silences.pop(uid, None)

    def complains(self, claim: str, message: str) -> bool:
        """Whether the users of the claim have not been told this."""
        if self._complaints.get(claim) == message:
            return False
        self._complaints[claim] = message
        return True

    def content(self, claim: str) -> None:
        """There is nothing to complain about."""
        self._complaints.pop(claim, None)


def _longer(doublings: int) -> datetime.timedelta:
    return min(PAUSE_MAX, PAUSE_FIRST * (1 << min(max(doublings, 0), DOUBLINGS_MAX)))
