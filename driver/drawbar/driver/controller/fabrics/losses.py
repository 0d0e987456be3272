"""Which devices are lost when the fabric manager no longer lists them; pure.

One listing may be empty or partial: a manager that restarts, or an adapter that reads a page too few. So a device that is
attached is lost only when its node agrees, or when the node does not show it and two further listings, each at least
`APART_SECONDS` after the one before, lack it too. A listing that lacks more than a quarter of all devices at once is held
as doubtful: then free devices stay, too, until two further listings agree. Until a device is lost it counts as it was.
A listing of which the manager cannot read a part does not count: what it lacks counts as it was.
The first listing after a start is compared with what is attached and what is published. Hosts are judged in the same way,
without reports of nodes.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from drawbar.driver.controller.offers.holdings import NodeReport

APART_SECONDS = 10.0
LISTINGS = 3
# Of all devices; more than that at once is more likely a fault of the listing than of so many devices.
SUDDEN_SHARE = 0.25
NAMED_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A device that was listed, or has an attachment, and is not listed now.

    Attributes:
        listings: how many listings lacked it that count; 0 if a part of each could not be read.
        counted_at: when the last of them was read, on the event loop's clock.
    """

    listings: int
    counted_at: float

    @property
    def undecided(self) -> bool:
        """Whether further listings are needed."""
        return 0 < self.listings < LISTINGS


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What follows from a listing.

    Attributes:
        lost: names of the devices that are gone.
        missing: those that count as they were, by name.
    """

    lost: tuple[str, ...] = ()
    missing: Mapping[str, Missing] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listings:
    """When listings of a fabric began, on the event loop's clock; None where none was taken over.

    Attributes:
        last: the last one.
        complete: the last one of which nothing was in doubt.
    """

    last: float | None = None
    complete: float | None = None


def is_sudden(absent: Collection[str], missing: Collection[str], count: int) -> bool:
    """Return whether a listing newly lacks more than a quarter of `count` devices at once."""
    return sum(name not in missing for name in absent) > count * SUDDEN_SHARE


def judge(
    absent: Iterable[str],
    *,
    missing: Mapping[str, Missing],
    reports: Mapping[str, NodeReport],
    now: float,
    sudden: bool = False,
    partial: bool = False,
) -> Judgement:
    """Decide about devices that are not listed any more.

    Args:
        absent: their names; the same for hosts, by their ids.
        missing: of the last judgement.
        reports: by the name of each device that has an attachment, the report of its node.
        now: when the listing was read, on the event loop's clock.
        sudden: so many at once that the listing itself is in doubt.
        partial: the manager could not read a part of the listing.
    """
    if partial:
        return Judgement(
            missing={name: missing.get(name, Missing(listings=0, counted_at=now)) for name in absent}
        )
    lost: list[str] = []
    kept: dict[str, Missing] = {}
    for name in absent:
        seen = _counted(missing.get(name), now)
        reported = reports.get(name)
        unneeded = reported is None and not sudden and name not in missing
        confirmed = reported is not NodeReport.SHOWS and seen.listings >= LISTINGS
        if reported is NodeReport.LOST or unneeded or confirmed:
            lost.append(name)
        else:
            kept[name] = seen
    return Judgement(lost=tuple(lost), missing=kept)


def trouble(missing: Collection[str], count: int, *, what: str = "devices") -> str:
    """Return a sentence about the devices, or hosts, that are missing; empty when none is."""
    if not missing:
        return ""
    named = sorted(missing)[:NAMED_MAX]
    listed = ", ".join(named) + (", …" if len(missing) > NAMED_MAX else "")
    agree = "their nodes or two" if what == "devices" else "two"
    return (
        f"the fabric manager does not list {len(missing)} of {count} {what} any more ({listed}); they count as they were "
        f"until {agree} further listings agree"
    )


@dataclass(slots=True)
class Tracker:
    """The devices, or hosts, of one fabric that count as they were although they are not listed.

    Attributes:
        what: `devices` or `hosts`, for sentences.
        missing: by name.
    """

    what: str = "devices"
    missing: dict[str, Missing] = field(default_factory=dict)

    @property
    def undecided(self) -> bool:
        """Whether further listings are needed for one of them."""
        return any(entry.undecided for entry in self.missing.values())

    def judge(
        self,
        absent: Collection[str],
        over: Collection[str],
        *,
        reports: Mapping[str, NodeReport],
        now: float,
        count: int | None = None,
        partial: bool = False,
    ) -> tuple[str, ...]:
        """Take over a listing, or a report about one device; return the names of those that are lost.

        Args:
            absent: what is not there, by name.
            over: names that are dropped from the missing, unless the judgement adds them again.
            reports: of the nodes, by name.
            now: when that was read, on the event loop's clock.
            count: of all there are, in the judgement of a listing, which may itself be in doubt.
            partial: the manager could not read a part of the listing.
        """
        sudden = count is not None and is_sudden(absent, self.missing, count)
        judged = judge(absent, missing=self.missing, reports=reports, now=now, sudden=sudden, partial=partial)
        remaining = {name: entry for name, entry in self.missing.items() if name not in over}
        self.missing = remaining | dict(judged.missing)
        return judged.lost

    def trouble(self, count: int) -> str:
        """Return a sentence about them, of `count` in all; empty when none is missing."""
        return trouble(self.missing, count, what=self.what)


def _counted(before: Missing | None, now: float) -> Missing:
    if before is None or not before.listings:
        return Missing(listings=1, counted_at=now)
    if now < before.counted_at + APART_SECONDS:
        return before
    return Missing(listings=before.listings + 1, counted_at=now)
