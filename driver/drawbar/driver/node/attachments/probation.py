"""The probation of a node's own devices after a failure to become ready: the time of the taint that keeps claims away."""

import datetime
from collections.abc import Callable

import msgspec

from drawbar.driver import clocks
from drawbar.driver.catalogue import reasons, taints
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.local import demands

SETUP_PROBATION_SECONDS = 60.0
"""The probation if a file is missing on the node, or a program fails there. Meanwhile pods go to other nodes."""
PROBATION_FIRST_SECONDS = 300.0
PROBATION_MAX_SECONDS = 86_400.0
_SET_UP = frozenset({reasons.HOOK_FAILED, reasons.BITSTREAM_NOT_LOADED, reasons.FUNCTIONS_NOT_SET_UP})
"""The reasons that blame the setup of this node or the class's parameters, not the device."""
_BLAMELESS = frozenset({reasons.INVALID_PARAMETERS, reasons.NOT_CLEANED})
"""The reasons that blame the claim's parameters, or have a taint of their own."""


class _Blame(msgspec.Struct, frozen=True, kw_only=True):
    """A failure of a device, and its probation.

    Attributes:
        taint: the taint that keeps claims away.
        seconds: the length of the probation.
        since: the time of the failure.
    """

    taint: verdicts.Taint
    seconds: float
    since: datetime.datetime

    def ends(self) -> datetime.datetime:
        """Return the end of the probation."""
        return self.since + datetime.timedelta(seconds=self.seconds)


class Probations:
    """The failures that still count, by device; `changed` is called once a probation has ended."""

    def __init__(self, clock: clocks.Clock, changed: Callable[[], None]) -> None:
        self._clock = clock
        self._changed = changed
        self._blames: dict[str, _Blame] = {}

    def taint(self, device: str) -> verdicts.Taint | None:
        """Return the taint of a device on probation, or None."""
        blame = self._blames.get(device)
        return blame.taint if blame is not None and self._clock() < blame.ends() else None

    def end(self, device: str) -> None:
        """End the probation of a device, because it is ready."""
        self._blames.pop(device, None)

    def begin(self, demand: demands.Demand, reason: str, message: str) -> None:
        """Begin a probation, unless the failure blames the claim. If the same failure recurs, double the probation."""
        if reason in _BLAMELESS or (reason in _SET_UP and demand.loads_own):
            return
        now, before = self._clock(), self._blames.get(demand.device)
        seconds = SETUP_PROBATION_SECONDS if reason in _SET_UP else PROBATION_FIRST_SECONDS
        if before is not None and before.taint.value == reason and reason not in _SET_UP:
            seconds = min(2 * before.seconds, PROBATION_MAX_SECONDS)
        effect = verdicts.Effect.NO_SCHEDULE
        taint = verdicts.Taint(key=taints.ATTACH_FAILED.key, value=reason, effect=effect, message=message)
        self._blames[demand.device] = _Blame(taint=taint, seconds=seconds, since=now)

    def remaining_seconds(self, device: str) -> float | None:
        """Return the seconds until the next change of a device's probation, or None. Call `changed` once it has ended.

        A failure is remembered for another such period, in which the same failure gets a longer probation.
        """
        blame = self._blames.get(device)
        if blame is None:
            return None
        now = self._clock()
        left = (blame.ends() - now).total_seconds()
        if left > 0:
            return left
        self._changed()
        if left > -blame.seconds:
            return blame.seconds + left
        del self._blames[device]
        return None
