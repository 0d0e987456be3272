"""The memory of arrived and vanished cards, for devices that can only be recognised by their arrival.

The memory lasts for this run of the daemon. A restarted daemon did not see earlier arrivals, so it decides nothing about an
attach from before its start.

A card with the fingerprint of the last look and another arrival vanished and came back in between. It counts as both.
"""

import datetime
import itertools
from collections import OrderedDict
from collections.abc import Callable, Collection

import msgspec

from drawbar.driver import clocks
from drawbar.driver.node.attachments import matching, witnesses
from drawbar.driver.node.discovery import devices, live
from drawbar.fabric.classes import DeviceClass

SETTLE_SECONDS = 2.0
"""The wait for the decision, from the fabric's report of the attach and from the last arrival. If a second card arrives shortly
after the first one, the case is ambiguous."""
FRESH_SECONDS = 10.0
"""The wait for the identifiers of an arrived card, before it is recognised without them. Most drivers initialise a card within a
few seconds. A card that shows its identifiers at once does not wait."""
VANISHED_SECONDS = 60.0
"""The time in which a similar card counts as the vanished card, back after a failure of its link or slot."""
VANISHED_MAX = 256

NOT_LISTED = "this run of the node daemon had not listed the node's cards before the attach"
EVENTS_LOST = (
    "since the attach began, the kernel's events about devices were lost, or the reading of a card hung"
)


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """The node's cards before an attach.

    Attributes:
        cards: the fingerprints of the cards.
        vanished: the fingerprints of the cards that had vanished shortly before.
        losses: the number of event losses by that time.
        at: the time of the list.
    """

    cards: frozenset[str]
    vanished: frozenset[str]
    losses: int
    at: datetime.datetime


class Ledger:
    """The cards that arrived and vanished in this run of the daemon.

    Args:
        discovered: the node's devices.
        clock: the daemon's clock.
        released: returns the fingerprints of the cards in release.
    """

    def __init__(
        self, discovered: devices.Devices, clock: clocks.Clock, released: Callable[[], Collection[str]]
    ) -> None:
        self._devices = discovered
        self._clock = clock
        self._released = released
        self._seen = self._list_arrivals()
        # The time of first sight by fingerprint, the latest last.
        self._cards = dict.fromkeys(self._seen, clock())
        self._vanished: OrderedDict[str, datetime.datetime] = OrderedDict()
        self._arrived_at: datetime.datetime | None = None
        discovered.subscribe(self._note_changes)

    def baseline(self) -> Baseline:
        """Return the node's cards as they are now."""
        now = self._clock()
        return Baseline(
            cards=frozenset(self._list_arrivals()),
            vanished=self._list_vanished(now - datetime.timedelta(seconds=VANISHED_SECONDS)),
            losses=self._devices.losses,
            at=now,
        )

    def arrivals(self, baseline: Baseline | None, attached_at: datetime.datetime | None) -> matching.Arrivals:
        """Return the arrivals since an attach began.

        Args:
            baseline: the cards before the attach; None if this run of the daemon has not listed them.
            attached_at: the first sight of the fabric's report of the attach; None before it.
        """
        if baseline is None:
            return matching.Arrivals(doubt=NOT_LISTED)
        doubt = EVENTS_LOST if baseline.losses != self._devices.losses else ""
        moments = [moment for moment in (attached_at, self._arrived_at) if moment is not None]
        settles_at = max(moments, default=self._clock()) + datetime.timedelta(seconds=SETTLE_SECONDS)
        return matching.Arrivals(
            before=baseline.cards,
            vanished=baseline.vanished | self._list_vanished(baseline.at),
            doubt=doubt,
            settled=attached_at is not None and self._clock() >= settles_at,
        )

    def fresh(self, patience: datetime.timedelta) -> frozenset[str]:
        """Return the fingerprints of the cards that arrived less than `patience` ago."""
        since = self._clock() - patience
        latest = itertools.takewhile(lambda card: card[1] > since, reversed(self._cards.items()))
        return frozenset(card for card, _ in latest)

    def _list_vanished(self, moment: datetime.datetime) -> frozenset[str]:
        return frozenset(card for card, at in self._vanished.items() if at >= moment)

    def _list_arrivals(self) -> dict[str, int]:
        """Return the arrival of each present card by its fingerprint."""
        cards = self._devices.cards
        return {
            witnesses.fingerprint(card): card.arrival
            for card in cards
            if card.device_class is not DeviceClass.BRIDGE
        }

    def _note_changes(self, changes: live.Changes) -> None:
        if not changes.functions:
            return
        now, before, present = self._clock(), self._seen, self._list_arrivals()
        self._seen = present
        gone, came = dict(before.items() - present.items()), dict(present.items() - before.items())
        if came:
            self._arrived_at = now
        for card in gone:
            del self._cards[card]
        self._cards.update(dict.fromkeys(came, now))
        for card in gone.keys() - self._released() if gone else ():
            self._vanished[card] = now
            self._vanished.move_to_end(card)
        while len(self._vanished) > VANISHED_MAX:
            self._vanished.popitem(last=False)
