"""How long a claim that failed waits before its next attach."""

import datetime

import msgspec
import pytest
from tests.scenes import claims as scenes

from drawbar.driver.api import bindings, claims, meta
from drawbar.driver.controller import names, retries

DRIVER = "drawbar.dev"
NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
PATIENCE = datetime.timedelta(seconds=570)


def seconds(number):
    return datetime.timedelta(seconds=number)


def device(name):
    return names.DeviceKey(fabric="f", device=name)


def device_status(*kinds, name="d"):
    conditions = tuple(
        meta.Condition(type=bindings.condition_type(DRIVER, kind), status="True", reason="R")
        for kind in kinds
    )
    return (claims.AllocatedDevice(driver=DRIVER, pool="f/e", device=name, conditions=conditions),)


class FailingClaim:
    """One claim, as the watch shows it, and the clock."""

    def __init__(self):
        self.now, self.claim, self.allocations = NOW, None, 0
        self.retries = retries.Retries(DRIVER, lambda: self.now)

    def see(self, new):
        self.retries.change(self.claim, new)
        self.claim = new

    def fail(self, name="d"):
        """Allocate the device again, and report that its attach failed."""
        self.allocations += 1
        at = f"t{self.allocations}"
        self.see(scenes.make_allocated_claim(name, at=at))
        failed = scenes.make_allocated_claim(
            name, at=at, reported=device_status(bindings.ATTACH_FAILED, name=name)
        )
        self.see(failed)
        # The watch may show it once more.
        self.see(msgspec.structs.replace(failed))
        self.see(claims.ResourceClaim(metadata=failed.metadata))

    def attaches_in(self, name="d", patience=PATIENCE):
        """Return the seconds from an allocation now until its attach may begin, or None if at once."""
        moment = self.retries.attaches_at("uid-c", device(name), self.now, patience)
        return None if moment is None else (moment - self.now).total_seconds()


def test_each_failure_makes_the_claims_next_attach_wait_longer():
    world, waits = FailingClaim(), []
    assert world.attaches_in() is None
    for _ in range(8):
        world.fail()
        waits.append(world.attaches_in())
    assert waits == [5, 10, 20, 40, 80, 160, 285, 285], "never longer than half of the scheduler's patience"
    assert world.retries.failures("uid-c") == 8


def test_after_a_first_failure_another_device_is_tried_at_once_and_later_ones_wait_too():
    world = FailingClaim()
    world.fail("d0")
    assert world.attaches_in("d1") is None
    world.fail("d1")
    assert world.attaches_in("d2") == 5
    assert world.attaches_in("d1") == 10


def test_the_pause_counts_from_the_failure_and_not_from_the_allocation():
    world = FailingClaim()
    world.fail()
    world.fail()
    world.now += seconds(4)
    assert world.attaches_in() == 6
    world.now += seconds(6)
    assert world.attaches_in() is None


@pytest.mark.parametrize("patience", [2, 10, 60, 570])
def test_half_of_the_time_that_the_scheduler_waits_is_left_for_the_attach(patience):
    world = FailingClaim()
    for _ in range(12):
        world.fail()
    assert world.attaches_in(patience=seconds(patience)) == patience / 2


def test_other_claims_do_not_wait():
    world = FailingClaim()
    world.fail()
    assert world.retries.attaches_at("uid-other", device("d"), NOW, PATIENCE) is None


def test_a_claim_is_forgotten_when_it_becomes_ready_and_when_it_is_deleted():
    world = FailingClaim()
    world.fail()
    world.see(scenes.make_allocated_claim("d", at="t9", reported=device_status(bindings.ATTACHED)))
    assert world.retries.failures("uid-c") == 1
    world.see(
        scenes.make_allocated_claim("d", at="t9", reported=device_status(bindings.ATTACHED, bindings.VISIBLE))
    )
    assert world.retries.failures("uid-c") == 0
    world.fail()
    world.see(None)
    assert world.retries.failures("uid-c") == 0


def test_another_claim_of_the_same_name_begins_without_failures():
    world = FailingClaim()
    world.fail()
    world.see(scenes.make_allocated_claim("d", uid="uid-new"))
    assert world.attaches_in() is None


def test_of_too_many_claims_the_one_whose_failure_is_oldest_goes():
    kept = retries.Retries(DRIVER, lambda: NOW)
    for number in range(retries.LIMIT + 1):
        failed = device_status(bindings.ATTACH_FAILED)
        kept.change(None, scenes.make_allocated_claim("d", name=f"c{number}", reported=failed))
    assert kept.failures("uid-c0") == 0
    assert kept.failures(f"uid-c{retries.LIMIT}") == 1
