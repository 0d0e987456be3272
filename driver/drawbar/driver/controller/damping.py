"""The hold-down of a state that keeps changing between good and bad; pure.

Each change of a Node's label or of a device's taint is a write that the scheduler and all kubelets' peers read. A
fabric manager may report a port as used and free by turns, or a device as healthy and unhealthy; this would cause
writes without end. So bad news shows at once, and good news only after it has lasted for a while. This is the damping
of flapping routes:

- the first `FREE_DROPS` times the good state shows at once, for ordinary changes come in ones and twos;
- after that it has to last for `HOLD_DOWN_FIRST_SECONDS`, and for twice as long after each further drop, up to
  `HOLD_DOWN_MAX_SECONDS`;
- each `CALM_SECONDS` that it is shown as good make up for one drop;
- a drop that this cluster's own work explains, such as an attach that fills the last port, does not count.

Invariants: a bad state is never shown as good. A lasting good state is shown as good after `HOLD_DOWN_MAX_SECONDS` at
the latest. Over any time, at most `FREE_DROPS` + 1 good news are shown, and one for each `HOLD_DOWN_FIRST_SECONDS`,
except those that own work explains.

Source: RFC 2439, BGP Route Flap Damping, with counts in place of its figure of merit.
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import msgspec

FREE_DROPS = 3
HOLD_DOWN_FIRST_SECONDS = 10.0
DOUBLINGS_MAX = 5
HOLD_DOWN_MAX_SECONDS = HOLD_DOWN_FIRST_SECONDS * 2**DOUBLINGS_MAX
CALM_SECONDS = 60.0
LOOK_AGAIN_SECONDS = 0.1
"""The shortest time until the next look: a timer may fire a little early."""

K = TypeVar("K", bound=Hashable)


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """The history of one thing, by seconds of one monotonic clock.

    Attributes:
        shown: whether it is shown as good.
        shown_since: the time of the last change of `shown`.
        good_since: the time since when it has been good without a break; None while it is bad.
        drops: the number of unexplained drops, less those that it made up for.
        work: the cluster's own work on it when it was last shown as good.
    """

    shown: bool = True
    shown_since: float
    good_since: float | None
    drops: int = 0
    work: frozenset[str] = frozenset()

    @property
    def hold_down_seconds(self) -> float:
        """Return the seconds that it has to be good before it is shown so."""
        if self.drops <= FREE_DROPS:
            return 0.0
        return HOLD_DOWN_FIRST_SECONDS * 2.0 ** min(self.drops - FREE_DROPS - 1, DOUBLINGS_MAX)

    def due_seconds(self, now: float) -> float | None:
        """Return the seconds until it is shown as good, if it stays so, or None if it does not wait for that."""
        if self.shown or self.good_since is None:
            return None
        return max(0.0, self.good_since + self.hold_down_seconds - now)


def observe(
    signal: Signal | None, *, good: bool, now: float, work: frozenset[str] = frozenset()
) -> Signal | None:
    """Return the history with one more observation, or None for a good state with nothing to make up for.

    Args:
        signal: the history so far; None without one, which counts as good.
        good: the present state.
        now: the time on the history's clock.
        work: the cluster's own work, by identifiers. Work that is new since the last good state explains a drop.
    """
    if signal is None:
        signal = Signal(shown_since=now, good_since=now, work=work)
    calm = int((now - signal.shown_since) / CALM_SECONDS) if signal.shown else 0
    if good:
        return _observe_good(signal, calm, now, work)
    if signal.shown:
        is_explained = not work <= signal.work
        drops = max(0, signal.drops - calm) + (0 if is_explained else 1)
        limit = FREE_DROPS + DOUBLINGS_MAX + 1
        return msgspec.structs.replace(
            signal, shown=False, shown_since=now, good_since=None, drops=min(drops, limit)
        )
    return msgspec.structs.replace(signal, good_since=None)


def _observe_good(signal: Signal, calm: int, now: float, work: frozenset[str]) -> Signal | None:
    if signal.shown:
        return signal if calm < signal.drops else None
    signal = msgspec.structs.replace(
        signal, good_since=now if signal.good_since is None else signal.good_since
    )
    if signal.due_seconds(now):
        return signal
    return msgspec.structs.replace(signal, shown=True, shown_since=now, work=work) if signal.drops else None


class Damper(Generic[K]):
    """The histories of many things. Bounded by the things that are bad, or were recently."""

    def __init__(self) -> None:
        self._signals: dict[K, Signal] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._signals

    def look(self, key: K, *, good: bool, now: float, work: frozenset[str] = frozenset()) -> bool:
        """Take in the present state of a thing; return whether to show it as good."""
        signal = observe(self._signals.get(key), good=good, now=now, work=work)
        if signal is None:
            self._signals.pop(key, None)
            return True
        self._signals[key] = signal
        return signal.shown

    def find_held_back(self, now: float) -> dict[K, float]:
        """Return the good things that are not shown so, with the seconds until they are."""
        due = {key: signal.due_seconds(now) for key, signal in self._signals.items()}
        return {key: seconds for key, seconds in due.items() if seconds is not None}

    def forget(self, key: K) -> None:
        """Forget one thing."""
        self._signals.pop(key, None)

    def retain(self, is_there: Callable[[K], bool]) -> None:
        """Forget the things that no longer exist."""
        for key in [key for key in self._signals if not is_there(key)]:
            del self._signals[key]
