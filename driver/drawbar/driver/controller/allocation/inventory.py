"""What the fabrics have to give to classic claims, gathered from where it is known; nothing here waits or writes.

What a fabric can do for its nodes, and which devices meet an expression, is so for claims that are allocated at once, too.
"""

import asyncio
import datetime
import math
import random
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Set
from dataclasses import dataclass

from drawbar.driver import evaluation
from drawbar.driver.api import attachments, fabrics, slices
from drawbar.driver.controller import names, policies
from drawbar.driver.controller.allocation import stock
from drawbar.driver.controller.attachments import index
from drawbar.driver.controller.fabrics import directory, session
from drawbar.driver.controller.pools import publisher
from drawbar.driver.kube import reflector
from drawbar.fabric import contract

JUDGEMENTS_MAX = 65_536
EXPRESSIONS_MAX = 4096
# Of processor time for the selectors of all claims of a namespace, and what comes back of it in each second.
BUDGET_SECONDS = 20.0
BUDGET_REFILL = 0.25
BUDGET_PAUSE_SECONDS = 10.0
BUDGETS_MAX = 1000
EXPENSIVE = "SelectorsTooExpensive"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Where it is looked up."""

    fabrics: reflector.Reflector[fabrics.Fabric]
    sessions: directory.Directory
    attachments: reflector.Reflector[attachments.DeviceAttachment]
    placed: index.Index
    pools: publisher.Publisher
    clock: Callable[[], datetime.datetime]


def inventory(view: View) -> stock.Inventory:
    """All fabrics that were listed once, with their devices as they are shown."""
    reached: dict[str, stock.Fabric] = {}
    found: dict[names.DeviceKey, stock.Device] = {}
    for opened in view.sessions:
        fabric = view.fabrics.get(opened.name)
        if fabric is None or fabric.deleting or not opened.listed:
            continue
        reached[opened.name] = fabric_of(fabric, opened, view.placed, view.clock())
        for pool, shown in _shown(view, opened.name):
            key = names.DeviceKey(fabric=opened.name, device=shown.name)
            told = opened.device(shown.name)
            free = told is not None and told.connection is None
            found[key] = stock.Device(
                key=key,
                pool=pool,
                shown=shown,
                free=free and view.attachments.get(key.attachment) is None,
            )
    return stock.Inventory(fabrics=reached, devices=found)


def _shown(view: View, fabric: str) -> Iterator[tuple[str, slices.Device]]:
    for one in view.pools.of(fabric):
        for device in one.spec.devices:
            yield one.spec.pool.name, device


def fabric_of(
    fabric: fabrics.Fabric, opened: session.Session, placed: index.Index, now: datetime.datetime
) -> stock.Fabric:
    """What a fabric can do for the nodes that it reaches, but for those whose host is at fault."""
    policy = fabric.spec.policy
    blamed = opened.faults.blamed(datetime.timedelta(seconds=policy.probation_seconds), now)
    reached = {node: host for node, host in opened.nodes.host_of.items() if host not in blamed}
    told = {host.id: host for host in opened.hosts}
    coming = Counter(
        one.spec.node_name
        for one in placed.of(opened.name)
        if not one.holds(attachments.ATTACHED) and not _has_port(told.get(one.spec.host_id), one)
    )
    return stock.Fabric(
        name=opened.name,
        hosts=reached,
        ports={node: _left(told.get(host), coming[node]) for node, host in reached.items()},
        rules=policy.models,
        models=policies.models_by_node(placed.of(opened.name)) if policy.models else {},
    )


def _has_port(host: contract.Host | None, attachment: attachments.DeviceAttachment) -> bool:
    """Whether the fabric counts a port as the device's already."""
    return host is not None and any(port.device_id == attachment.spec.device_id for port in host.ports)


def _left(host: contract.Host | None, coming: int) -> int | None:
    """None for a fabric that tells no ports: it has no limit that we know of."""
    if host is None or not host.ports:
        return None
    return sum(port.state is contract.PortState.FREE for port in host.ports) - coming


def too_expensive(namespace: str) -> str:
    """Return why the claims of a namespace whose budget is used up wait."""
    return (
        f"the selectors of the claims in namespace {namespace} take too much processor time; they are looked at again later, "
        "make them simpler"
    )


class Budget:
    """Processor time for the selectors of each namespace, so that the claims of one do not hold up all others for ever.

    What was used comes back at `BUDGET_REFILL` of the time that passes.
    """

    def __init__(self) -> None:
        # By namespace what is used, and when that was counted, on the loop's clock.
        self._used: dict[str, tuple[float, float]] = {}

    def wait(self, namespace: str) -> float:
        """Seconds until more may be used; 0 for now."""
        over = self._left_over(namespace) - BUDGET_SECONDS
        return over / BUDGET_REFILL + BUDGET_PAUSE_SECONDS if over > 0 else 0.0

    def use(self, namespace: str, seconds: float) -> None:
        """Counts what was used."""
        if len(self._used) >= BUDGETS_MAX:
            self._used = {name: one for name, one in self._used.items() if self._left_over(name) > 0}
        self._used[namespace] = self._left_over(namespace) + seconds, asyncio.get_running_loop().time()

    def _left_over(self, namespace: str) -> float:
        used, at = self._used.get(namespace, (0.0, 0.0))
        return max(0.0, used - (asyncio.get_running_loop().time() - at) * BUDGET_REFILL)


class Judge:
    """Which devices meet which CEL expressions, remembered while a device shows the same.

    After `begin` a plan asks with `meets` and gets an answer at once; what is not known yet is not met. Whoever made the
    plan then lets `settle` find that out, and plans again while there is more to find out.

    Attributes:
        faults: by expression why it could not be told of a device that was judged since `begin`.
    """

    def __init__(self, driver: str, evaluator: evaluation.Evaluator) -> None:
        self.faults: dict[str, str] = {}
        self._driver = driver
        self._evaluator = evaluator
        self._known: OrderedDict[tuple[names.DeviceKey, str], _Judgement] = OrderedDict()
        # By expression why it as such cannot be evaluated ("" for one that can), and until when, on the loop's clock.
        self._fit: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._asked: dict[str, dict[names.DeviceKey, slices.Device]] = {}

    def begin(self) -> None:
        """A plan is about to be made: what earlier ones asked for is of no interest any more."""
        self.faults, self._asked = {}, {}

    def meets(self, device: stock.Device, expression: str) -> bool:
        """Whether it does; an expression that cannot be told is not met."""
        fault = self.fault(expression)
        if fault:
            self.faults.setdefault(expression, fault)
            return False
        shown = device.shown
        known = self._known.get((device.key, expression))
        if known is None or (known.attributes, known.capacity) != (shown.attributes, shown.capacity):
            self._asked.setdefault(expression, {})[device.key] = shown
            return False
        if known.fault:
            self.faults.setdefault(expression, known.fault)
        return known.met

    def fault(self, expression: str) -> str | None:
        """Why no device can be told to meet it; None where it is in order, or not known yet."""
        fault, until = self._fit.get(expression, ("", 0.0))
        if until <= asyncio.get_running_loop().time():
            self._asked.setdefault(expression, {})
        return fault or None

    @property
    def pending(self) -> Set[str]:
        """The expressions of which something was asked that is not known."""
        return self._asked.keys()

    async def settle(self, seconds: float, *, without: Collection[str] = ()) -> tuple[bool, dict[str, float]]:
        """Finds out what was asked since the last time, in any order, for about so many seconds of processor time.

        Args:
            seconds: the processor time.
            without: expressions that are left for later.

        Returns:
            whether an expression was found unfit, or fit again; and by expression the processor time that it took.
        """
        asked = {name: devices for name, devices in self._asked.items() if name not in without}
        self._asked = {}
        used: dict[str, float] = {}
        changed = False
        # By chance, so that who has many expressions is not always first.
        for expression in random.sample(sorted(asked), len(asked)):
            if sum(used.values()) >= seconds:
                break
            devices = asked[expression]
            outcome = await self._evaluator.evaluate(expression, self._driver, tuple(devices.values()))
            used[expression] = outcome.seconds
            changed |= self._learn_fit(expression, outcome)
            for (key, shown), answer in zip(devices.items(), outcome.answers, strict=False):
                self._known.pop((key, expression), None)
                self._known[key, expression] = _Judgement(
                    attributes=shown.attributes, capacity=shown.capacity, met=answer.met, fault=answer.fault
                )
        while len(self._known) > JUDGEMENTS_MAX:
            self._known.popitem(last=False)
        return changed, used

    def _learn_fit(self, expression: str, outcome: evaluation.Outcome) -> bool:
        before, _ = self._fit.pop(expression, ("", 0.0))
        lasts = math.inf if outcome.again_seconds is None else outcome.again_seconds
        self._fit[expression] = outcome.fault, asyncio.get_running_loop().time() + lasts
        if len(self._fit) > EXPRESSIONS_MAX:
            self._fit.popitem(last=False)
        return before != outcome.fault


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judgement:
    """An expression's verdict on a device that showed these; with a fault where it could not be told."""

    attributes: object
    capacity: object
    met: bool
    fault: str
