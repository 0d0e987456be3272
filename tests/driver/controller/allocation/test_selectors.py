"""Which devices meet the selectors of claims, and how much processor time a namespace may use for that."""

import asyncio

import pytest

from drawbar.driver import evaluation, expressions
from drawbar.driver.api import slices
from drawbar.driver.controller import names
from drawbar.driver.controller.allocation import matching, selectors


def device(name="d", **attributes):
    shown = slices.Device(
        name=name,
        attributes={key: slices.Attribute(string=value) for key, value in attributes.items()},
        capacity={"memory": slices.Capacity(value=attributes.get("memory", "1Gi"))},
    )
    return matching.Device(
        key=names.DeviceKey(fabric="fab", device=name), pool="fab/e", shown=shown, free=True
    )


SELECTOR = 'device.attributes["drawbar.dev"].colour == "red"'


async def verdict(judge, shown, expression):
    """Return whether the device meets the expression, once it is evaluated."""
    first = judge.meets(shown, expression)
    assert not (first and judge.pending)
    await judge.settle(1.0)
    assert not judge.pending
    return judge.meets(shown, expression)


@pytest.fixture
def judge():
    return selectors.Judge("drawbar.dev", evaluation.Inline())


async def test_an_expression_is_evaluated_again_after_the_device_changes(judge):
    assert await verdict(judge, device(colour="red"), SELECTOR)
    assert not await verdict(judge, device(colour="blue"), SELECTOR)
    assert await verdict(judge, device("other", colour="red"), SELECTOR)
    assert judge.faults == {}


async def test_a_failing_expression_reports_its_fault_every_time(judge):
    for _ in range(2):
        judge.begin()
        assert not await verdict(judge, device(), SELECTOR)
        assert list(judge.faults) == [SELECTOR]
    judge.begin()
    assert await verdict(judge, device(colour="red"), SELECTOR)
    assert judge.faults == {}


async def test_an_expression_that_does_not_compile_is_at_fault_for_every_device(judge):
    assert judge.fault("device.") is None
    changed, _ = await judge.settle(1.0)
    assert changed
    assert judge.fault("device.")
    assert not judge.pending
    assert not await verdict(judge, device(colour="red"), "device.")
    assert list(judge.faults) == ["device."]


class Refusing:
    """An evaluator that has no time for anything."""

    def __init__(self):
        self.asked, self.seconds = [], 0.0

    async def evaluate(self, expression, driver, devices):
        self.asked.append(expression)
        return evaluation.Outcome(fault="too much", again_seconds=0.01, seconds=self.seconds)


async def test_a_fault_that_passes_is_asked_about_again():
    judge = selectors.Judge("drawbar.dev", Refusing())
    assert not judge.meets(device(), "a")
    await judge.settle(1.0)
    assert judge.fault("a") == "too much"
    assert not judge.pending
    await asyncio.sleep(0.02)
    assert judge.fault("a") == "too much"
    assert judge.pending


async def test_evaluation_stops_at_the_time_limit():
    evaluator = Refusing()
    evaluator.seconds = 0.6
    judge = selectors.Judge("drawbar.dev", evaluator)
    for expression in "abcdefgh":
        judge.meets(device(), expression)
    _, used = await judge.settle(1.0)
    assert len(evaluator.asked) == 2
    assert sum(used.values()) == pytest.approx(1.2)


async def test_only_so_many_judgements_are_remembered(judge, monkeypatch):
    monkeypatch.setattr(selectors, "JUDGEMENTS_MAX", 2)
    monkeypatch.setattr(selectors, "EXPRESSIONS_MAX", 2)
    for number in range(5):
        assert await verdict(judge, device(colour="red"), f"{number} == {number}")
    assert (len(judge._answers), len(judge._fit)) == (2, 2)


async def test_an_invalid_capacity_only_fails_the_selector(judge):
    with pytest.raises(expressions.SelectorError, match="'1e3' is not a quantity"):
        expressions.matches("true", "drawbar.dev", device(memory="1e3").shown)
    assert not await verdict(judge, device(memory="1e3"), "true")
    assert "not a quantity" in judge.faults["true"]


async def test_the_budget_of_a_namespace_recovers(monkeypatch):
    budget = selectors.Budget()
    monkeypatch.setattr(selectors, "BUDGETS_MAX", 2)
    now = 1000.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    budget.use("a", selectors.BUDGET_SECONDS + 1.0)
    assert budget.wait("a") == 1.0 / selectors.BUDGET_REFILL + selectors.BUDGET_PAUSE_SECONDS
    assert budget.wait("b") == 0.0
    now += 1.0 / selectors.BUDGET_REFILL
    assert budget.wait("a") == 0.0
    for name in ("b", "c", "d"):
        budget.use(name, 0.0)
    assert len(budget._used) == 2
