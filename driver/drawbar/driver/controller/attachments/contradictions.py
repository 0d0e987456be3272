"""Attached devices that the fabric manager lists as free, or at another host.

A manager that lost its state, or another client of it, contradicts the record. One listing proves nothing: a manager
may show a change late, and a watch may report an older state. So a contradiction is confirmed by a second, complete
listing that began `APART_SECONDS` after the first sight. It ends when the manager shows the connection again. Each
time that it comes back, the connection must be shown for longer (`damping`).

The contradictions are kept in memory: after a restart the first listing counts as the first sight. They are bounded by
the attachments.
"""

import msgspec

from drawbar.driver.controller import damping, names
from drawbar.driver.controller.fabrics import losses

APART_SECONDS = losses.APART_SECONDS


class Contradiction(msgspec.Struct, frozen=True, kw_only=True):
    """A connection that the fabric manager does not show.

    Attributes:
        host_id: the host of the device in the manager's listing; None if it is free there.
        is_confirmed: whether a second listing shows the same.
        look_seconds: the seconds until the next listing that could confirm it, or until it is over; 0.0 for now.
        is_over: whether the manager shows the connection again, but not for long enough.
        age_seconds: the seconds since the first sight.
        since: the date of the first sight.
    """

    host_id: str | None = None
    is_confirmed: bool = False
    look_seconds: float = 0.0
    is_over: bool = False
    age_seconds: float = 0.0
    since: str = ""


class _Sighting(msgspec.Struct, frozen=True, kw_only=True):
    state: tuple[object, ...]
    since: float
    date: str


class Contradictions:
    """The contradictions of one controller, by device."""

    def __init__(self) -> None:
        self._seen: dict[names.DeviceKey, _Sighting] = {}
        self._damper: damping.Damper[names.DeviceKey] = damping.Damper()

    def see(
        self,
        key: names.DeviceKey,
        shown: tuple[str | None] | None,
        *,
        call: str,
        now: float,
        date: str,
        listings: losses.Listings,
    ) -> Contradiction | None:
        """Take in the manager's view of an attached device; return the contradiction with the record, or None.

        Args:
            key: the device.
            shown: the host in the manager's view, or None for a free device, in a tuple; None if it agrees with the
                record.
            call: the request id of the attach; another id begins again.
            now: the time on the event loop's clock.
            date: the time of day.
            listings: the fabric's listings.
        """
        if shown is None:
            self._seen.pop(key, None)
            if self._damper.look(key, good=True, now=now):
                return None
            return Contradiction(is_over=True, look_seconds=self._damper.find_held_back(now).get(key, 0.0))
        state = (call, shown)
        sighting = self._seen.get(key)
        if sighting is None or sighting.state != state:
            sighting = self._seen[key] = _Sighting(state=state, since=now, date=date)
        due, age = sighting.since + APART_SECONDS, now - sighting.since
        if listings.complete is not None and listings.complete >= due:
            self._damper.look(key, good=False, now=now)
            return Contradiction(host_id=shown[0], is_confirmed=True, age_seconds=age, since=sighting.date)
        if listings.last is not None and listings.last > sighting.since:
            due = max(due, listings.last + APART_SECONDS)
        return Contradiction(
            host_id=shown[0], look_seconds=max(0.0, due - now), age_seconds=age, since=sighting.date
        )

    def forget(self, key: names.DeviceKey) -> None:
        """Drop a device that is no longer attached."""
        self._seen.pop(key, None)
        self._damper.forget(key)
