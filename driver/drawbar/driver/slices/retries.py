"""The slices that the API server refuses, each with its own back-off: a refused slice delays no unrelated one.

Two kinds of slices wait with a refused slice, since only the order of a plan's writes makes them safe: the other
slices of its pool, which would make the pool incomplete; and slices that receive one of its devices, since no device
may be in two pools. A slice with another content than the refused one is written at once.

The planned slices bound the memory: `begin` forgets the others.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from drawbar.driver import backoff, wording
from drawbar.driver.api import slices
from drawbar.driver.kube import errors
from drawbar.driver.slices import pool_writes

FIRST_SECONDS = 0.5
MAX_SECONDS = 60.0
# An API server that refuses this many slices may refuse all.
REFUSED_MAX = 10
SHOWN_MAX = 3
MESSAGE_CHARS = 512
OF_ONE_SLICE = (errors.Denied, errors.Invalid, errors.Conflict, errors.NotFound)
"""The errors that are about one slice; any other one ends the round."""
# A view may be stale once or twice. After that, there is probably another writer.
STALE_MAX = 2


@dataclass(slots=True, kw_only=True)
class _Refused:
    write: pool_writes.Write
    error: errors.KubeError
    due: float
    failures: int
    pauses: backoff.Backoff


@dataclass(slots=True)
class _Round:
    """The blocked writes of a round: slices of these pools, and slices that receive these devices."""

    pools: set[str] = field(default_factory=set)
    devices: set[str] = field(default_factory=set)
    refused: int = 0
    stale: errors.KubeError | None = None


class Retries:
    """The refused slices of one publisher, or of one Fabric.

    Args:
        clock: steady seconds.
        uniform: returns a random number between two bounds.
    """

    def __init__(
        self, clock: Callable[[], float], *, uniform: Callable[[float, float], float] | None = None
    ) -> None:
        self._clock = clock
        self._uniform = uniform
        self._refused: dict[str, _Refused] = {}
        self._round = _Round()

    def begin(self, writes: Iterable[pool_writes.Write]) -> None:
        """Begin a round; forget the slices that need no write any more."""
        wanted = {write.slice.metadata.name for write in writes}
        self._refused = {name: refused for name, refused in self._refused.items() if name in wanted}
        self._round = _Round()

    @property
    def is_over(self) -> bool:
        """Return whether the round ends because `REFUSED_MAX` slices were refused.

        Then the next one would probably be refused as well.
        """
        return self._round.refused >= REFUSED_MAX

    def has_to_wait(self, write: pool_writes.Write, published: slices.ResourceSlice | None) -> bool:
        """Return whether a write is for a later round.

        Args:
            write: the next one of the round.
            published: the slice as it is; None for a new one.
        """
        spec = write.slice.spec
        refused = self._refused.get(write.slice.metadata.name)
        is_early = (
            refused is not None and self._clock() < refused.due and _content(refused.write) == _content(write)
        )
        had = {device.name for device in published.spec.devices} if published is not None else set()
        gained = {device.name for device in spec.devices} - had
        depends = spec.pool.name in self._round.pools or not gained.isdisjoint(self._round.devices)
        if is_early or (depends and not isinstance(write, pool_writes.Delete)):
            self._put_off(write, published)
            return True
        return False

    def refuse(
        self, write: pool_writes.Write, published: slices.ResourceSlice | None, error: errors.KubeError
    ) -> None:
        """Note that a write was refused; a view that may only be stale is no reason for a pause."""
        name = write.slice.metadata.name
        former = self._refused.get(name)
        pauses = former.pauses if former is not None else self._backoff()
        failures = former.failures + 1 if former is not None else 1
        is_stale = isinstance(error, errors.Conflict | errors.NotFound) and failures <= STALE_MAX
        due = self._clock() if is_stale else self._clock() + pauses.count_failure()
        self._refused[name] = _Refused(write=write, error=error, due=due, failures=failures, pauses=pauses)
        self._put_off(write, published)
        if is_stale:
            self._round.stale = error
        else:
            self._round.refused += 1

    def accept(self, write: pool_writes.Write) -> None:
        """Note that a write was accepted."""
        self._refused.pop(write.slice.metadata.name, None)

    @property
    def stale(self) -> errors.KubeError | None:
        """Return the round's last error from an outdated view, or None. After such an error, observe and plan again."""
        return self._round.stale

    def seconds_left(self) -> float | None:
        """Return the seconds until the next refused slice is tried again; None without any."""
        now = self._clock()
        return min((max(0.0, refused.due - now) for refused in self._select_shown()), default=None)

    def error_of(self, device: str) -> errors.KubeError | None:
        """Return why a device is not published as desired; None if it is."""
        return next(
            (
                refused.error
                for refused in self._refused.values()
                if any(listed.name == device for listed in refused.write.slice.spec.devices)
                or any(entry.device == device for entry in refused.write.slice.spec.taints)
            ),
            None,
        )

    def message(self) -> str:
        """Return which slices are refused and why, in one bounded text; empty without any."""
        refused = sorted(self._select_shown(), key=lambda each: each.write.slice.metadata.name)
        if not refused:
            return ""
        shown = wording.join_some([_sentence(each) for each in refused], SHOWN_MAX, "; ")
        return (
            f"{len(refused)} of the ResourceSlices cannot be written, so their devices and taints are shown as they were; "
            f"the others are current: {shown}"
        )

    def _select_shown(self) -> list[_Refused]:
        return [
            refused
            for refused in self._refused.values()
            if refused.failures > STALE_MAX
            or not isinstance(refused.error, errors.Conflict | errors.NotFound)
        ]

    def _put_off(self, write: pool_writes.Write, published: slices.ResourceSlice | None) -> None:
        self._round.pools.add(write.slice.spec.pool.name)
        before = published.spec.devices if published is not None else ()
        self._round.devices.update(device.name for device in before)

    def _backoff(self) -> backoff.Backoff:
        if self._uniform is None:
            return backoff.Backoff(FIRST_SECONDS, MAX_SECONDS)
        return backoff.Backoff(FIRST_SECONDS, MAX_SECONDS, uniform=self._uniform)


def _sentence(refused: _Refused) -> str:
    name, error = refused.write.slice.metadata.name, str(refused.error)[:MESSAGE_CHARS]
    where = f"ResourceSlice {name} (pool {refused.write.slice.spec.pool.name})"
    if isinstance(refused.error, errors.AlreadyExists):
        return f"{where}: there is one of that name that is not Drawbar's: look at it, and run kubectl delete resourceslice {name}"
    return f"{where}: {error}"


def _content(write: pool_writes.Write) -> tuple[object, ...]:
    """Return the changes of a write, without the times of taints, which are new in each plan."""
    spec = write.slice.spec
    devices = tuple(
        (device.name, device.attributes, device.capacity, tuple(taint.identity for taint in device.taints))
        for device in spec.devices
    )
    taints = tuple((entry.device, entry.taint.identity) for entry in spec.taints)
    return type(write), spec.pool, spec.node_selector, devices, taints
