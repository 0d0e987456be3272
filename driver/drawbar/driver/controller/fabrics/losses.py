"""The decision on devices that the fabric manager no longer lists; pure.

One listing may be empty or partial: the manager restarts, or an adapter reads a page too few. So an attached device is
lost only in two cases. Either its node agrees. Or the node does not show it, and two further listings, each at least
`APART_SECONDS` after the one before, omit it too. A listing that omits more than a quarter of all devices at once is
doubtful: then free devices stay too, until two further listings agree. Until a device is lost it keeps its earlier
state. A listing with a part that the manager cannot read does not count: omitted devices keep their earlier state. The
first listing after a start is compared with the attached and the published devices. Hosts are judged in the same way,
without reports of nodes.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from drawbar.driver.controller.offers.holdings import NodeReport

APART_SECONDS = 10.0
LISTINGS = 3
# A share of all devices. If more vanish at once, a fault of the listing is more likely than so many losses.
SUDDEN_SHARE = 0.25
NAMED_MAX = 5


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """A device that was listed, or has an attachment, and is not listed now.

    Attributes:
        listings: the number of valid listings without it; 0 if a part of each could not be read.
        counted_at: the time when the last of them was read, on the event loop's clock.
    """

    listings: int
    counted_at: float

    @property
    def undecided(self) -> bool:
        """Return whether further listings are needed."""
        return 0 < self.listings < LISTINGS


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The consequences of a listing.

    Attributes:
        lost: the names of the lost devices.
        missing: the devices that keep their earlier state, by name.
    """

    lost: tuple[str, ...] = ()
    missing: Mapping[str, Missing] = msgspec.field(default_factory=dict)


class Listings(msgspec.Struct, frozen=True, kw_only=True):
    """The times when listings of a fabric began, on the event loop's clock; None before the first one.

    Attributes:
        last: the begin of the last listing.
        complete: the begin of the last listing without any doubt.
    """

    last: float | None = None
    complete: float | None = None


def is_sudden(absent: Collection[str], missing: Collection[str], count: int) -> bool:
    """Return whether a listing newly omits more than a quarter of `count` devices at once."""
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
    """Return the decision on devices that are no longer listed.

    Args:
        absent: their names, or the ids of hosts.
        missing: the missing ones of the last judgement.
        reports: by the name of each device with an attachment, its node's report.
        now: the time when the listing was read, on the event loop's clock.
        sudden: whether so many vanished at once that the listing itself is in doubt.
        partial: whether the manager could not read a part of the listing.
    """
    if partial:
        return Judgement(
            missing={name: missing.get(name, Missing(listings=0, counted_at=now)) for name in absent}
        )
    lost: list[str] = []
    kept: dict[str, Missing] = {}
    for name in absent:
        seen = _count_listing(missing.get(name), now)
        reported = reports.get(name)
        unneeded = reported is None and not sudden and name not in missing
        confirmed = reported is not NodeReport.SHOWS and seen.listings >= LISTINGS
        if reported is NodeReport.LOST or unneeded or confirmed:
            lost.append(name)
        else:
            kept[name] = seen
    return Judgement(lost=tuple(lost), missing=kept)


def trouble(missing: Collection[str], count: int, *, what: str = "devices") -> str:
    """Return a sentence about the missing devices, or hosts; empty if none is missing."""
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
    """The unlisted devices, or hosts, of one fabric that keep their earlier state.

    Attributes:
        what: `devices` or `hosts`, for sentences.
        missing: the missing ones by name.
    """

    what: str = "devices"
    missing: dict[str, Missing] = field(default_factory=dict)

    @property
    def undecided(self) -> bool:
        """Return whether further listings are needed for one of them."""
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
        """Take in a listing, or a report about one device; return the names of the lost ones.

        Args:
            absent: the absent names.
            over: names to drop from the missing, unless the judgement adds them again.
            reports: the nodes' reports, by name.
            now: the time of the reading, on the event loop's clock.
            count: the number of all, to judge a listing, which may itself be in doubt; None for a report.
            partial: whether the manager could not read a part of the listing.
        """
        sudden = count is not None and is_sudden(absent, self.missing, count)
        judged = judge(absent, missing=self.missing, reports=reports, now=now, sudden=sudden, partial=partial)
        remaining = {name: entry for name, entry in self.missing.items() if name not in over}
        self.missing = remaining | dict(judged.missing)
        return judged.lost

    def trouble(self, count: int) -> str:
        """Return a sentence about the missing ones, of `count` in all; empty if none is missing."""
        return trouble(self.missing, count, what=self.what)


def _count_listing(before: Missing | None, now: float) -> Missing:
    if before is None or not before.listings:
        return Missing(listings=1, counted_at=now)
    if now < before.counted_at + APART_SECONDS:
        return before
    return Missing(listings=before.listings + 1, counted_at=now)
