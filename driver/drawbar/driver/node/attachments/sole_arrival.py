"""Remembers which cards came and went, for devices that are recognised by their arrival alone.

The memory is that of this run of the daemon. A daemon that was restarted did not see what came meanwhile, so it makes no
such decision about an attach that began before its start.
"""

import datetime
import itertools
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass

from drawbar.driver import clocks
from drawbar.driver.node.attachments import matching, witnesses
from drawbar.driver.node.discovery import devices, live
from drawbar.fabric.classes import DeviceClass

SETTLE_SECONDS = 2.0
"""From the fabric's report of the attach, and from the last card that came, to the decision: a second card that comes close
behind the first one makes the case ambiguous."""
FRESH_SECONDS = 10.0
"""From a card's arrival until it is recognised without the identifiers that it may still show. Most drivers take a few seconds to
initialise a card; a card that shows its identifiers at once does not wait."""
VANISHED_SECONDS = 60.0
"""A card that comes back within this time, after its link or slot failed, is the card of before."""
VANISHED_MAX = 256

NOT_LISTED = "this run of the node daemon had not listed the node's cards before the attach"
EVENTS_LOST = "events of the kernel about devices were lost since the attach began"


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The node's cards before an attach.

    Attributes:
        cards: their fingerprints.
        vanished: fingerprints of the cards that had gone shortly before.
        losses: how often events had been lost by then.
        at: when.
    """

    cards: frozenset[str]
    vanished: frozenset[str]
    losses: int
    at: datetime.datetime


class Ledger:
    """The cards that came and went in this run of the daemon.

    Args:
        discovered: the node's devices.
        clock: the daemon's.
        released: returns the fingerprints of the cards that leave because they are released.
    """

    def __init__(
        self, discovered: devices.Devices, clock: clocks.Clock, released: Callable[[], Collection[str]]
    ) -> None:
        self._devices = discovered
        self._clock = clock
        self._released = released
        # By fingerprint when each card was first seen, the latest last.
        self._cards = dict.fromkeys(self._present(), clock())
        self._vanished: OrderedDict[str, datetime.datetime] = OrderedDict()
        self._arrived_at: datetime.datetime | None = None
        discovered.subscribe(self._changed)

    def baseline(self) -> Baseline:
        """Return the node's cards as they are now."""
        now = self._clock()
        return Baseline(
            cards=self._present(),
            vanished=self._vanished_since(now - datetime.timedelta(seconds=VANISHED_SECONDS)),
            losses=self._devices.losses,
            at=now,
        )

    def arrivals(self, baseline: Baseline | None, attached_at: datetime.datetime | None) -> matching.Arrivals:
        """Return what came since an attach began.

        Args:
            baseline: of before the attach; None if this run of the daemon took none.
            attached_at: when the fabric was seen to report the attach; None while it does not.
        """
        if baseline is None:
            return matching.Arrivals(doubt=NOT_LISTED)
        doubt = EVENTS_LOST if baseline.losses != self._devices.losses else ""
        moments = [moment for moment in (attached_at, self._arrived_at) if moment is not None]
        settles_at = max(moments, default=self._clock()) + datetime.timedelta(seconds=SETTLE_SECONDS)
        return matching.Arrivals(
            before=baseline.cards,
            vanished=baseline.vanished | self._vanished_since(baseline.at),
            doubt=doubt,
            settled=attached_at is not None and self._clock() >= settles_at,
        )

    def fresh(self, patience: datetime.timedelta) -> frozenset[str]:
        """Return the fingerprints of the cards that came less than `patience` ago."""
        since = self._clock() - patience
        latest = itertools.takewhile(lambda card: card[1] > since, reversed(self._cards.items()))
        return frozenset(card for card, _ in latest)

    def _vanished_since(self, moment: datetime.datetime) -> frozenset[str]:
        return frozenset(card for card, at in self._vanished.items() if at >= moment)

    def _present(self) -> frozenset[str]:
        cards = self._devices.cards
        return frozenset(
            witnesses.fingerprint(card) for card in cards if card.device_class is not DeviceClass.BRIDGE
        )

    def _changed(self, changes: live.Changes) -> None:
        if not changes.functions:
            return
        now, before, present = self._clock(), self._cards.keys(), self._present()
        gone, came = before - present, present - before
        if came:
            self._arrived_at = now
        for card in gone:
            del self._cards[card]
        self._cards.update(dict.fromkeys(came, now))
        for card in gone.difference(self._released()) if gone else ():
            self._vanished[card] = now
            self._vanished.move_to_end(card)
        while len(self._vanished) > VANISHED_MAX:
            self._vanished.popitem(last=False)
