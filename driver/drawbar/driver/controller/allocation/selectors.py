"""The devices that meet the CEL selectors of claims and classes, and each namespace's budget of processor time for them."""

import asyncio
import math
import random
from collections import OrderedDict
from collections.abc import Collection, Set

from drawbar.driver import evaluation
from drawbar.driver.api import slices
from drawbar.driver.controller import names
from drawbar.driver.controller.allocation import matching

JUDGEMENTS_MAX = 65_536
EXPRESSIONS_MAX = 4096
# Seconds of processor time for the selectors of all claims of a namespace, and their refill per second.
BUDGET_SECONDS = 20.0
BUDGET_REFILL = 0.25
BUDGET_PAUSE_SECONDS = 10.0
BUDGETS_MAX = 1000


def too_expensive(namespace: str) -> str:
    """Return the message for the claims of a namespace with an exhausted budget."""
    return (
        f"the selectors of the claims in namespace {namespace} take too much processor time; they are looked at again later, "
        "make them simpler"
    )


class Budget:
    """A budget of processor time for the selectors of each namespace, so that no namespace delays all others forever.

    The used time is refilled at `BUDGET_REFILL` per second.
    """

    def __init__(self) -> None:
        # By namespace: the seconds used, and the time of the count on the loop's clock.
        self._used: dict[str, tuple[float, float]] = {}

    def wait(self, namespace: str) -> float:
        """Return the seconds until the namespace may use more; 0 for now."""
        over = self._remainder(namespace) - BUDGET_SECONDS
        return over / BUDGET_REFILL + BUDGET_PAUSE_SECONDS if over > 0 else 0.0

    def use(self, namespace: str, seconds: float) -> None:
        """Count the seconds of processor time."""
        if len(self._used) >= BUDGETS_MAX:
            self._used = {name: use for name, use in self._used.items() if self._remainder(name) > 0}
        self._used[namespace] = self._remainder(namespace) + seconds, asyncio.get_running_loop().time()

    def _remainder(self, namespace: str) -> float:
        used, at = self._used.get(namespace, (0.0, 0.0))
        return max(0.0, used - (asyncio.get_running_loop().time() - at) * BUDGET_REFILL)


class Judge:
    """A cache of which devices meet which CEL expressions, valid while a device shows the same.

    After `begin`, a plan calls `meets`, which answers at once; an unknown answer counts as not met. The caller of the
    plan then has `settle` evaluate the expressions, and plans again while something is `pending`.

    Attributes:
        faults: by expression, the reason why it could not be evaluated for a device since `begin`.
    """

    def __init__(self, driver: str, evaluator: evaluation.Evaluator) -> None:
        self.faults: dict[str, str] = {}
        self._driver = driver
        self._evaluator = evaluator
        # By device and expression: the answer, and the device's attributes and capacity at that time.
        self._answers: OrderedDict[tuple[names.DeviceKey, str], tuple[object, evaluation.Answer]] = (
            OrderedDict()
        )
        # By expression: its fault ("" if it can be evaluated), and until when that is valid on the loop's clock.
        self._fit: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._asked: dict[str, dict[names.DeviceKey, slices.Device]] = {}

    def begin(self) -> None:
        """Begin a plan: discard the open evaluations of earlier plans."""
        self.faults, self._asked = {}, {}

    def meets(self, device: matching.Device, expression: str) -> bool:
        """Return whether the device meets the expression; an expression that cannot be evaluated is not met."""
        fault = self.fault(expression)
        if fault:
            self.faults.setdefault(expression, fault)
            return False
        shown, answer = self._answers.get((device.key, expression), (None, None))
        if answer is None or shown != _visible_parts(device.shown):
            self._asked.setdefault(expression, {})[device.key] = device.shown
            return False
        if answer.fault:
            self.faults.setdefault(expression, answer.fault)
        return answer.met

    def fault(self, expression: str) -> str | None:
        """Return why the expression cannot be evaluated for any device, or None if it can, or if that is not known yet."""
        fault, until = self._fit.get(expression, ("", 0.0))
        if until <= asyncio.get_running_loop().time():
            self._asked.setdefault(expression, {})
        return fault or None

    @property
    def pending(self) -> Set[str]:
        """Return the expressions with open evaluations."""
        return self._asked.keys()

    async def settle(self, seconds: float, *, without: Collection[str] = ()) -> tuple[bool, dict[str, float]]:
        """Evaluate pending expressions in random order, for about so many seconds of processor time.

        Args:
            seconds: the processor time.
            without: expressions to leave for later.

        Returns:
            whether an expression became faulty or valid; and by expression, its processor time in seconds.
        """
        asked = {name: devices for name, devices in self._asked.items() if name not in without}
        self._asked = {}
        used: dict[str, float] = {}
        changed = False
        # The random order keeps the owner of many expressions from always being first.
        for expression in random.sample(sorted(asked), len(asked)):
            if sum(used.values()) >= seconds:
                break
            devices = asked[expression]
            outcome = await self._evaluator.evaluate(expression, self._driver, tuple(devices.values()))
            used[expression] = outcome.seconds
            changed |= self._record_fault(expression, outcome)
            for (key, shown), answer in zip(devices.items(), outcome.answers, strict=False):
                self._answers.pop((key, expression), None)
                self._answers[key, expression] = _visible_parts(shown), answer
        while len(self._answers) > JUDGEMENTS_MAX:
            self._answers.popitem(last=False)
        return changed, used

    def _record_fault(self, expression: str, outcome: evaluation.Outcome) -> bool:
        before, _ = self._fit.pop(expression, ("", 0.0))
        lasts = math.inf if outcome.again_seconds is None else outcome.again_seconds
        self._fit[expression] = outcome.fault, asyncio.get_running_loop().time() + lasts
        if len(self._fit) > EXPRESSIONS_MAX:
            self._fit.popitem(last=False)
        return before != outcome.fault


def _visible_parts(device: slices.Device) -> object:
    """Return the parts of a device that an expression can use."""
    return device.attributes, device.capacity
