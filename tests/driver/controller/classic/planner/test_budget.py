"""Processor time for the selectors of classic claims: each namespace has its own."""

import asyncio
import datetime
import types

import msgspec
import pytest

from drawbar.driver import evaluation
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller.allocation import matching, selectors
from drawbar.driver.controller.classic import actions, service
from drawbar.mocks.testing import virtualtime

HOSTILE, GOOD = "hostile", "good"
COST_SECONDS = 0.6


class Slow:
    """An evaluator by which every device meets every selector, and those of the hostile namespace take long."""

    def __init__(self):
        self.asked = []

    async def evaluate(self, expression, driver, devices):
        self.asked.append(expression)
        seconds = COST_SECONDS if expression.startswith(HOSTILE) else 0.0
        answers = tuple(evaluation.Answer(met=True) for _ in devices)
        return evaluation.Outcome(answers=answers, seconds=seconds)


class Rounds(service.Rounds):
    """The service with the planner's cluster for what it observes."""

    def __init__(self, cluster):
        self.cluster, self.evaluator = cluster, Slow()
        watch = types.SimpleNamespace(forget_requests=lambda: None)
        judge = selectors.Judge("drawbar.dev", self.evaluator)
        super().__init__(types.SimpleNamespace(), watch, judge, asyncio.Event())

    def observe(self):
        return msgspec.structs.replace(self.cluster.observe(), judge=self._judge.meets)

    async def decide(self):
        """Decide until nothing is left to be evaluated now; return the last decision and all complaints."""
        complaints = []
        while True:
            asked = len(self.evaluator.asked)
            self.changed.clear()
            decision = await self._decide(self.cluster.now)
            complaints += [action for action in decision.actions if isinstance(action, actions.Complain)]
            if len(self.evaluator.asked) == asked:
                return decision, [(complaint.claim.name.name, complaint.reason) for complaint in complaints]

    def count(self, namespace):
        return sum(expression.startswith(namespace) for expression in self.evaluator.asked)


@pytest.fixture
def rounds(world, monkeypatch):
    """Return `Rounds` with eight claims of the hostile namespace and one other, all allocated at once."""
    monkeypatch.setattr(selectors, "BUDGET_SECONDS", 2.0)
    cluster = world(devices=1)
    for number in range(8):
        selector = f"{HOSTILE} {number}"
        asked = matching.Request(name="r", count=2, selectors=(selector,))
        cluster.claim(f"h{number}", asked, immediate=True, namespace=HOSTILE)
    cluster.claim("g", matching.Request(name="r", selectors=(GOOD,)), immediate=True, namespace=GOOD)
    return Rounds(cluster)


@virtualtime.in_virtual_time
async def test_a_namespace_gets_no_more_processor_time_than_its_budget_and_no_other_waits(rounds):
    decision, complaints = await rounds.decide()
    # The fourth goes beyond the 2 s.
    assert rounds.count(HOSTILE) == 4
    assert rounds.count(GOOD) == 1
    attaches = [action for action in decision.actions if isinstance(action, actions.Attach)]
    assert [action.claim.name.name for action in attaches] == ["g"]
    expensive = [name for name, reason in complaints if reason == reasons.SELECTORS_TOO_EXPENSIVE]
    assert len(expensive) == len(set(expensive)) == 4
    assert "g" not in expensive


@virtualtime.in_virtual_time
async def test_it_looks_again_when_time_has_come_back_and_reports_to_no_claim_twice(rounds):
    decision, first = await rounds.decide()
    pause = (decision.look_again - rounds.cluster.now).total_seconds()
    assert 0 < pause < 60
    _, second = await rounds.decide()
    assert [name for name, reason in second if reason == reasons.SELECTORS_TOO_EXPENSIVE] == []
    await asyncio.sleep(pause)
    rounds.cluster.now += datetime.timedelta(seconds=pause)
    _, third = await rounds.decide()
    assert rounds.count(HOSTILE) > 4
    assert {name for name, reason in third if reason == reasons.SELECTORS_TOO_EXPENSIVE} <= {
        name for name, _ in first
    }


@virtualtime.in_virtual_time
async def test_a_selector_that_another_namespace_has_too_is_evaluated_for_them(rounds):
    await rounds.decide()
    left_out = next(
        selector
        for selector in (f"{HOSTILE} {number}" for number in range(8))
        if selector not in rounds.evaluator.asked
    )
    asked = matching.Request(name="r", selectors=(left_out,))
    rounds.cluster.claim("same", asked, immediate=True, namespace=GOOD)
    await rounds.decide()
    assert left_out in rounds.evaluator.asked
    assert rounds.count(HOSTILE) == 5
