"""The memory between two rounds: windows of pods, failures, answers and complaints; pure.

It only makes the next steps better or rarer. Without it, as after a restart, each step is still safe: a pod may be
served out of its turn, a node may be tried once more, an answer may be written once more. It is bounded: an entry is
dropped with its pod or claim.
"""

import datetime
from collections.abc import Collection
from dataclasses import dataclass, field

import msgspec

# The time for the scheduler to give a node to a pod whose devices are free; then others come first.
WINDOW = datetime.timedelta(seconds=30)
PAUSE_FIRST = datetime.timedelta(seconds=10)
PAUSE_MAX = datetime.timedelta(seconds=300)
# After so many failures with a blamed and tainted device, another device is not tried at once.
OTHER_DEVICES = 3
DOUBLINGS_MAX = 8
# Older failures are unrelated to the next one.
FORGET_AFTER = datetime.timedelta(minutes=10)
_NEVER = datetime.datetime.min.replace(tzinfo=datetime.UTC)


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The window of a pod that could be served: its time to take the devices.

    Attributes:
        since: the time of its offer of devices; None while there are none for it.
        lapses: the number of unused windows.
    """

    since: datetime.datetime | None = None
    lapses: int = 0


class Setback(msgspec.Struct, frozen=True, kw_only=True):
    """Failed attempts for a claim.

    Attributes:
        node: the node of the last attempt.
        failures: the number of failures in a row.
        until: the time when the node may be tried again.
        attempt: identifies the last attempt, so that it is counted once.
    """

    node: str
    failures: int
    until: datetime.datetime
    attempt: str


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The number of answers to a pod that no node is suitable, and the time of the next such answer."""

    answers: int
    until: datetime.datetime


@dataclass(slots=True, kw_only=True)
class History:
    """The history before or during a round; a round works on a copy from `copy_at`.

    Attributes:
        windows: the windows by the UID of a pod or of an immediate claim.
        refusals: the refusals by the same UIDs.
        setbacks: the setbacks by the UID of a claim.
        complaints: the last Event by the UID of a claim.
        now: the time of the round.
        wake_at: the time of the next possible change without an observation.
    """

    windows: dict[str, Window] = field(default_factory=dict)
    refusals: dict[str, Refusal] = field(default_factory=dict)
    setbacks: dict[str, Setback] = field(default_factory=dict)
    complaints: dict[str, str] = field(default_factory=dict)
    now: datetime.datetime = _NEVER
    wake_at: datetime.datetime | None = None

    def copy_at(self, now: datetime.datetime) -> "History":
        """Return a copy for a round at that time."""
        return History(
            windows=dict(self.windows),
            refusals=dict(self.refusals),
            setbacks=dict(self.setbacks),
            complaints=dict(self.complaints),
            now=now,
        )

    def prune(self, requesters: Collection[str], claims: Collection[str]) -> "History":
        """Return the history for the next round, of the existing requesters and claims."""
        return History(
            windows={uid: window for uid, window in self.windows.items() if uid in requesters},
            refusals={uid: refusal for uid, refusal in self.refusals.items() if uid in requesters},
            setbacks={
                uid: setback
                for uid, setback in self.setbacks.items()
                if uid in claims and self.now < setback.until + FORGET_AFTER
            },
            complaints={uid: message for uid, message in self.complaints.items() if uid in claims},
        )

    def wake(self, moment: datetime.datetime) -> None:
        """Have the next round begin no later than that time."""
        if moment > self.now:
            self.wake_at = min(moment, self.wake_at or moment)

    def lapses(self, uid: str) -> int:
        """Return the requester's number of unused windows; a window that is over counts as unused."""
        window = self.windows.get(uid, Window())
        if window.since is not None and self.now >= window.since + WINDOW:
            window = self.windows[uid] = Window(lapses=window.lapses + 1)
        return window.lapses

    def begin_window(self, uid: str) -> None:
        """Begin the requester's window, which ends when it is served or after `WINDOW`."""
        window = self.windows.get(uid, Window())
        since = window.since or self.now
        self.windows[uid] = msgspec.structs.replace(window, since=since)
        self.wake(since + WINDOW)

    def end_window(self, uid: str) -> None:
        """End the window, since there is nothing for the requester now."""
        if uid in self.windows:
            self.windows[uid] = msgspec.structs.replace(self.windows[uid], since=None)

    def forget(self, uid: str) -> None:
        """Forget the requester's window and refusals."""
        self.windows.pop(uid, None)
        self.refusals.pop(uid, None)

    def count_failure(self, claim: str, node: str, attempt: str, *, by_device: bool) -> None:
        """Count a failed attempt, once.

        Args:
            claim: the claim's UID.
            node: the node of the attempt.
            attempt: identifies the attempt.
            by_device: whether the device is to blame, so that another one may be tried at once.
        """
        setback = self.setbacks.get(claim)
        if setback is not None and setback.attempt == attempt:
            return
        failures = setback.failures + 1 if setback is not None else 1
        late = failures - OTHER_DEVICES if by_device else failures
        pause = _pause(late - 1) if late > 0 else datetime.timedelta()
        self.setbacks[claim] = Setback(node=node, failures=failures, until=self.now + pause, attempt=attempt)

    def find_avoided_node(self, claim: str) -> str | None:
        """Return the node on which the claim failed too recently, or None."""
        setback = self.setbacks.get(claim)
        if setback is None or self.now >= setback.until:
            return None
        self.wake(setback.until)
        return setback.node

    def may_refuse(self, uid: str) -> bool:
        """Return whether a pod without a suitable node may be answered so now."""
        refusal = self.refusals.get(uid)
        if refusal is None or self.now >= refusal.until:
            return True
        self.wake(refusal.until)
        return False

    def count_refusal(self, uid: str) -> None:
        """Count the answer that no node is suitable."""
        refusal = self.refusals.get(uid)
        answers = refusal.answers + 1 if refusal is not None else 1
        self.refusals[uid] = Refusal(answers=answers, until=self.now + _pause(answers))

    def complains(self, claim: str, message: str) -> bool:
        """Record an Event for the users of the claim; return whether it is new."""
        is_news = self.complaints.get(claim) != message
        self.complaints[claim] = message
        return is_news


def _pause(doublings: int) -> datetime.timedelta:
    return min(PAUSE_MAX, PAUSE_FIRST * (1 << min(max(doublings, 0), DOUBLINGS_MAX)))
