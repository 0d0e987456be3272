"""What a run of the daemon remembers of the cards that came and went."""

import datetime

import pytest
from tests.scenes import cards as scenes

from drawbar.driver.node.attachments import sole_arrival, witnesses
from drawbar.driver.node.discovery import live
from drawbar.driver.node.inventory import index

START = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


class Hardware:
    """A node's cards, by bus, and its clock; implements what the ledger uses of `devices.Devices`."""

    def __init__(self, *buses):
        self.buses, self.losses, self.now, self.released = dict.fromkeys(buses, 1), 0, START, set()
        self.arrived = 1
        self.ledger = sole_arrival.Ledger(self, lambda: self.now, lambda: self.released)

    def subscribe(self, changed):
        self.changed = changed

    @property
    def cards(self):
        listed = tuple(function(bus, arrival) for bus, arrival in sorted(self.buses.items()))
        return index.Inventory(functions=listed).cards

    def change(self, *, come=(), go=()):
        self.arrived += 1
        self.buses |= dict.fromkeys(come, self.arrived)
        self.buses = {bus: arrival for bus, arrival in self.buses.items() if bus not in go}
        self.changed(live.Changes(functions=frozenset({"0000:01:00.0"})))

    def wait(self, seconds):
        self.now += datetime.timedelta(seconds=seconds)


def function(bus, arrival=0):
    return scenes.function(f"0000:{bus:02x}:00.0", arrival=arrival)


def fingerprint(bus):
    (card,) = index.Inventory(functions=(function(bus),)).cards
    return witnesses.fingerprint(card)


def test_cards_present_before_the_attach_are_known():
    node = Hardware(1)
    before = node.ledger.baseline()
    node.change(come=[2])
    assert node.ledger.arrivals(before, node.now).before == {fingerprint(1)}


def test_a_daemon_that_listed_nothing_decides_nothing():
    assert Hardware(1).ledger.arrivals(None, START).doubt == sole_arrival.NOT_LISTED


def test_after_lost_events_nothing_is_decided():
    node = Hardware()
    before = node.ledger.baseline()
    node.losses += 1
    assert node.ledger.arrivals(before, START).doubt == sole_arrival.EVENTS_LOST


@pytest.mark.parametrize("last", ["the report", "the card"])
def test_the_decision_waits_for_a_second_card(last):
    node = Hardware()
    before = node.ledger.baseline()
    assert not node.ledger.arrivals(before, None).settled
    reported = node.now
    if last == "the card":
        node.wait(60)
        node.change(come=[2])
    assert not node.ledger.arrivals(before, reported).settled
    node.wait(sole_arrival.SETTLE_SECONDS)
    assert node.ledger.arrivals(before, reported).settled


@pytest.mark.parametrize(
    ("seconds", "is_released", "is_remembered"), [(1, False, True), (61, False, False), (1, True, False)]
)
def test_a_card_that_vanished_shortly_before_is_remembered_unless_it_was_released(
    seconds, is_released, is_remembered
):
    node = Hardware(1)
    if is_released:
        node.released.add(fingerprint(1))
    node.change(go=[1])
    node.wait(seconds)
    vanished = node.ledger.arrivals(node.ledger.baseline(), node.now).vanished
    assert (fingerprint(1) in vanished) == is_remembered


def test_cards_vanished_during_the_attach_are_remembered():
    node = Hardware(1)
    before = node.ledger.baseline()
    node.change(go=[1])
    assert node.ledger.arrivals(before, node.now).vanished == {fingerprint(1)}


def test_a_card_is_fresh_until_it_has_had_its_time_and_again_when_it_comes_back():
    node, patience = Hardware(1), datetime.timedelta(seconds=10)
    assert node.ledger.fresh(patience) == {fingerprint(1)}
    node.wait(5)
    node.change(come=[2])
    assert node.ledger.fresh(patience) == {fingerprint(1), fingerprint(2)}
    node.wait(5)
    assert node.ledger.fresh(patience) == {fingerprint(2)}
    node.change(go=[1])
    node.change(come=[1])
    node.wait(5)
    assert node.ledger.fresh(patience) == {fingerprint(1)}


def test_a_card_that_came_back_between_two_looks_vanished_and_arrived():
    node, patience = Hardware(1), datetime.timedelta(seconds=10)
    before = node.ledger.baseline()
    node.wait(11)
    assert not node.ledger.fresh(patience)
    node.change(come=[1])
    assert node.ledger.arrivals(before, node.now).vanished == {fingerprint(1)}
    assert node.ledger.fresh(patience) == {fingerprint(1)}
