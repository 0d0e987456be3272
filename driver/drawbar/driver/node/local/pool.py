"""The node's own devices, for all that deal with them: the publisher, Prepare, and the health monitor.

Nothing is kept but what is being watched: which devices there are follows from the inventory, the attachments, the claims
held here and the configuration, and is worked out anew each time.

What the host itself uses (mounts, swap and holders of a disk, addresses of a network interface) is not offered. What cannot
be seen counts as used: a node daemon that sees only its own pod's processes does not see the host's mounts, so it offers
no disk.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from drawbar.driver import containment, evaluation
from drawbar.driver.api import attachments, bindings, leftout, nodepools, quantities, slices
from drawbar.driver.catalogue import taints
from drawbar.driver.node.classes import users
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.inventory import attributes, index, model
from drawbar.driver.node.local import nulls, plan, residents
from drawbar.driver.node.treatment import plan as treatment_plan
from drawbar.fabric.classes import DeviceClass

# Of these interfaces those that must not be taken away, with the reason; None: unknown. `inventory.netdevs.held`.
Interfaces = Callable[[Collection[str]], dict[str, str] | None]


def is_needed(cards: Iterable[model.Card]) -> bool:
    """Whether there is a disk or a network interface to look at; most nodes offer neither."""
    return any(
        function.net_interfaces or any(node.block for node in function.device_nodes)
        for card in cards
        for function in card.functions
    )


def used_by_host(host: users.Host, cards: Iterable[model.Card], interfaces: Interfaces) -> dict[str, str]:
    """By the address of a card what the host uses it for; a card that it does not use is absent."""
    uses: dict[str, str] = {}
    listed = tuple(cards)
    names = {name for card in listed for function in card.functions for name in function.net_interfaces}
    if names:
        _network(listed, interfaces(names), uses)
    if any(node.block for card in listed for node in card.device_nodes):
        _disks(host, listed, uses)
    return uses


def _network(cards: tuple[model.Card, ...], held: dict[str, str] | None, uses: dict[str, str]) -> None:
    for card in cards:
        names = [name for function in card.functions for name in function.net_interfaces]
        if names and held is None:
            uses[card.address] = "whether its network interfaces are in use is unknown"
        for name in names if held is not None else ():
            if held is not None and name in held:
                uses[card.address] = f"network interface {name} {held[name]}"


def _disks(host: users.Host, cards: tuple[model.Card, ...], uses: dict[str, str]) -> None:
    blind = users.blindness(host.proc)
    for card in cards:
        nodes = [node for node in card.device_nodes if node.block]
        if not nodes:
            continue
        if blind is not None:
            uses[card.address] = f"whether the host uses its disk is unknown: {blind}"
            continue
        in_use = users.find_storage_users(host, nodes)
        if in_use:
            uses[card.address] = f"the host uses its disk: {treatment_plan.message(in_use)}"


def published(
    resident: residents.Resident, attachment: attachments.DeviceAttachment | None = None
) -> slices.Device:
    """The device with everything a claim can select it by, and without taints.

    Args:
        resident: the device.
        attachment: of the card that it is a virtual function of, where a fabric attached that.
    """
    amount = memory_bytes(resident)
    values = attributes.from_card(resident.card)
    if attachment is not None:
        texts = {"fabric": attachment.spec.fabric, "deviceID": attachment.device_id}
        values |= {name: text for name, text in texts.items() if attributes.fits(text)}
    return slices.Device(
        name=resident.name,
        attributes={name: slices.Attribute.from_value(value) for name, value in sorted(values.items())},
        capacity={"memory": slices.Capacity(value=quantities.format_bytes(amount))} if amount else {},
    )


def held_back(device: slices.Device, driver: str) -> slices.Device:
    """Return the device with the conditions for which the scheduler waits before it binds a pod."""
    return msgspec.structs.replace(
        device,
        binds_to_node=True,
        binding_conditions=(bindings.condition_type(driver, bindings.VISIBLE),),
        binding_failure_conditions=(bindings.condition_type(driver, bindings.NODE_FAILED),),
    )


def memory_bytes(resident: residents.Resident) -> int:
    """The memory of its CXL memory devices; 0 where the kernel does not say."""
    return sum((memdev.ram_bytes or 0) + (memdev.pmem_bytes or 0) for memdev in resident.card.memdevs)


log = logging.getLogger(__name__)

LEAVING = verdicts.Taint(
    key=taints.RELEASING.key, value=taints.RELEASING.value, effect=verdicts.Effect.NO_SCHEDULE
)
"""Of a virtual function that a claim has while its card is being detached: no other claim gets it after that one."""
REFUSED_MAX = 256
"""Devices whose reason is remembered so that it is said once; more say it again."""


class Health(Protocol):
    """The part of the health monitor that this needs; `health.monitor.Monitor`."""

    def verdict(self, key: verdicts.Key) -> verdicts.Verdict:
        """The verdict on a device."""
        ...

    def watch(self, key: verdicts.Key, supplier: Callable[[], model.Card | None]) -> None:
        """Watches a device from now on."""
        ...

    def unwatch(self, key: verdicts.Key) -> None:
        """Forgets a device."""
        ...


def _extra(name: str) -> dict[str, object]:
    return {"device": name}


class Neighbours(Protocol):
    """The part of `neighbours.Neighbours` that this needs."""

    async def judge(
        self, candidates: Collection[residents.Resident], held: Collection[str], offered: Collection[str]
    ) -> Mapping[str, str]:
        """Return why a device is left to another component, by its name."""
        ...

    @property
    def left_out(self) -> tuple[leftout.LeftOut, ...]:
        """The devices that the last judgement left to them."""
        ...

    @property
    def again_seconds(self) -> float | None:
        """When the next judgement is due; None: never."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Where the pool learns what it works from; each is asked anew every time.

    Attributes:
        inventory: what the kernel shows now.
        attached: the DeviceAttachments of this node.
        held: pool and name of each device that a claim holds on this node; a pool that is not recorded is empty.
        interfaces: see `Interfaces`.
        unclean: the taint of a device that is not clean yet, by name.
        failed: the taint of a device that did not become ready for a claim, by name.
        held_back: called when a device is offered whose pods are bound only when it is ready.
        host: where the host's mounts are looked at.
        boot_id: of this kernel.
        neighbours: the other components that offer devices of this node; None: there is none.
    """

    inventory: Callable[[], index.Inventory]
    attached: Callable[[], Iterable[attachments.DeviceAttachment]]
    held: Callable[[], Collection[tuple[str, str]]]
    interfaces: Interfaces
    host: users.Host
    boot_id: str
    unclean: Callable[[str], verdicts.Taint | None] = lambda _: None
    failed: Callable[[str], verdicts.Taint | None] = lambda _: None
    held_back: Callable[[], None] = lambda: None
    neighbours: Neighbours | None = None


class _Residents:
    """The residents by class, as of one inventory: a snapshot never changes, and is the same until something does."""

    def __init__(self, inventory: Callable[[], index.Inventory]) -> None:
        self._inventory = inventory
        self._snapshot: index.Inventory | None = None
        self._cards: dict[DeviceClass, list[model.Card]] = {}
        self._residents: dict[DeviceClass, Mapping[str, residents.Resident]] = {}

    def of_class(self, device_class: DeviceClass) -> Mapping[str, residents.Resident]:
        """Return the residents of a class by name."""
        snapshot = self._inventory()
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            self._group(snapshot)
        if device_class not in self._residents:
            cards = self._cards.get(device_class, [])
            self._residents[device_class] = {
                resident.name: resident for resident in residents.residents(cards)
            }
        return self._residents[device_class]

    def _group(self, snapshot: index.Inventory) -> None:
        """Sort the cards by class. A class whose cards are all the same as before keeps its residents."""
        before, self._cards = self._cards, {}
        for card in snapshot.cards:
            self._cards.setdefault(card.functions[0].device_class, []).append(card)
        self._residents = {
            device_class: of_class
            for device_class, of_class in self._residents.items()
            if self._cards.get(device_class) == before.get(device_class)
        }

    def find(self, name: str) -> residents.Resident | None:
        """Return the resident of that name, or None."""
        device_class = residents.class_of(name)
        return self.of_class(device_class).get(name) if device_class is not None else None


class LocalPool:
    """The devices of one node."""

    def __init__(
        self,
        *,
        driver: str,
        node_name: str,
        wanted: residents.Selection,
        surroundings: Surroundings,
        health: Health | None = None,
        evaluator: evaluation.Evaluator | None = None,
        contained: containment.Containment | None = None,
    ) -> None:
        self._contained = contained or containment.Uncontained()
        self._driver = driver
        self._evaluator = evaluator or evaluation.Inline()
        # By name what a device showed, and why the selector does not take it; None where it does.
        self._judged: dict[str, tuple[slices.Device | None, str | None]] = {}
        self._node_name = node_name
        self._wanted = wanted
        self._around = surroundings
        self._health = health
        self._watched: Mapping[str, verdicts.Key] = {}
        self._refused: Mapping[str, str] = {}
        self._residents = _Residents(surroundings.inventory)

    def owns(self, pool: str) -> bool:
        """Whether devices of that pool live here."""
        return nodepools.is_pool(pool, self._node_name)

    def card(self, pool: str, device: str) -> model.Card | None:
        """The device as it is now, offered or not; None while it is not here, or for what a fabric brought.

        A virtual function of a card that is attached by hand, or lent by its claim, is this node's.
        """
        resident = self._residents.find(device) if self.owns(pool) else None
        if resident is None:
            return None
        if self._lender(resident) is not None:
            return resident.card
        problem = residents.of_fabric(resident.whole, self._around.attached(), self._around.boot_id)
        return None if problem is not None else resident.card

    def lender(self, pool: str, device: str) -> attachments.DeviceAttachment | None:
        """Return the attachment of the card that the device is a virtual function of; None of any other device."""
        resident = self._residents.find(device) if self.owns(pool) else None
        return self._lender(resident) if resident is not None else None

    def virtual_functions(self, attachment: attachments.DeviceAttachment) -> frozenset[str]:
        """Return the names of the virtual functions that the attachment's card has on this node, offered or not."""
        listed = (resident for each in DeviceClass for resident in self._residents.of_class(each).values())
        return residents.virtual_functions(listed, attachment, self._around.boot_id)

    def _is_leaving(self, resident: residents.Resident) -> bool:
        attachment = self._lender(resident)
        return attachment is not None and attachment.deleting

    def _lender(self, resident: residents.Resident) -> attachments.DeviceAttachment | None:
        return residents.lender(resident, self._around.attached(), self._driver, self._around.boot_id)

    def device_class(self, pool: str, device: str) -> str:
        """One of `drawbar.fabric.classes.DeviceClass`; `other` for a device that is not here."""
        card = self.card(pool, device)
        return card.first.device_class.value if card is not None else "other"

    async def survey(self, published_slices: tuple[slices.ResourceSlice, ...]) -> tuple[plan.Offer, ...]:
        """What should be published now.

        Args:
            published_slices: what is or was published. A device of it that a claim holds stays although it has vanished: with a
                taint the claim's pod can be evicted, without the device it never would be.
        """
        candidates = self._candidates()
        # Read once: for each device and pool anew, it would be most of what a survey costs.
        held = frozenset(self._around.held())
        pools = {
            device: pool or nodepools.pool(self._node_name)
            for pool, device in held
            if not pool or self.owns(pool)
        }
        # What a claim holds is in use by that claim: it need not be looked at.
        cards = tuple(candidate.card for candidate in candidates if candidate.name not in pools)
        busy = await self._busy(cards)
        # Of a device that cannot be described, the others are offered all the same.
        devices: dict[str, slices.Device] = {}
        for candidate in candidates:
            with self._contained.attempt(
                "local-devices", candidate.name, extra=functools.partial(_extra, candidate.name)
            ):
                devices[candidate.name] = published(candidate, self._lender(candidate))
        candidates = tuple(candidate for candidate in candidates if candidate.name in devices)
        await self._judge(devices)
        chosen = residents.choose(
            candidates,
            self._wanted,
            residents.Situation(
                attached=tuple(self._around.attached()),
                driver=self._driver,
                boot_id=self._around.boot_id,
                held=frozenset(pools),
                busy=busy,
            ),
            lambda candidate: self._judged[candidate.name][1] if self._wanted.selector else None,
        )
        elsewhere: Mapping[str, str] = {}
        if self._around.neighbours is not None:
            offered = {device.name for each in published_slices for device in each.spec.devices}
            elsewhere = await self._around.neighbours.judge(chosen.offered, pools.keys(), offered)
        self._say({**chosen.refused, **elsewhere})
        lost = self._lost(published_slices, held)
        return lost + tuple(
            plan.Offer(
                device=self._with_conditions(candidate, devices[candidate.name]),
                taints=self._all_taints(candidate),
                pool=pools.get(candidate.name, ""),
            )
            for candidate in chosen.offered
            if candidate.name not in elsewhere
        )

    @property
    def left_out(self) -> tuple[leftout.LeftOut, ...]:
        """The devices that the last survey left to other components of the node."""
        neighbours = self._around.neighbours
        return neighbours.left_out if neighbours is not None else ()

    @property
    def again_seconds(self) -> float | None:
        """When the next survey is due, if nothing changes before; None: never."""
        neighbours = self._around.neighbours
        return neighbours.again_seconds if neighbours is not None else None

    def watch(self, keys: frozenset[verdicts.Key]) -> None:
        """Has the health of just these devices of the pool watched."""
        watched = frozenset(self._watched.values())
        if self._health is None or keys == watched:
            return
        for key in keys - watched:
            self._health.watch(key, functools.partial(self.card, key.pool, key.device))
        for key in watched - keys:
            self._health.unwatch(key)
        self._watched = {key.device: key for key in keys}

    def _with_conditions(self, resident: residents.Resident, device: slices.Device) -> slices.Device:
        # What a fabric's attachment lends is as ready as that.
        is_own = self._lender(resident) is None
        if not is_own or resident.card.first.device_class.value not in self._wanted.bind_when_ready:
            return device
        self._around.held_back()
        return held_back(device, self._driver)

    async def _busy(self, cards: tuple[model.Card, ...]) -> Mapping[str, str]:
        if not is_needed(cards):
            return {}
        return await asyncio.to_thread(used_by_host, self._around.host, cards, self._around.interfaces)

    def _lost(
        self, published_slices: tuple[slices.ResourceSlice, ...], held: frozenset[tuple[str, str]]
    ) -> tuple[plan.Offer, ...]:
        return tuple(
            plan.Offer(
                device=msgspec.structs.replace(device, taints=()),
                taints=self._taints(device.name),
                pool=published_slice.spec.pool.name,
            )
            for published_slice in published_slices
            for device in published_slice.spec.devices
            if not nulls.is_null(device.name)
            and self._residents.find(device.name) is None
            and not held.isdisjoint({(published_slice.spec.pool.name, device.name), ("", device.name)})
        )

    def _candidates(self) -> tuple[residents.Resident, ...]:
        if not self._wanted.enabled:
            return ()
        classes = [offered for offered in DeviceClass if offered.value in self._wanted.classes]
        return tuple(resident for each in classes for resident in self._residents.of_class(each).values())

    async def _judge(self, devices: Mapping[str, slices.Device]) -> None:
        """Has the selector evaluated for each device that shows something else than when it was evaluated last."""
        if not self._wanted.selector:
            return
        self._judged = {
            name: judged
            for name, judged in self._judged.items()
            if (device := devices.get(name)) is not None and device == judged[0]
        }
        fresh = [device for name, device in devices.items() if name not in self._judged]
        if not fresh:
            return
        outcome = await self._evaluator.evaluate(self._wanted.selector, self._driver, fresh)
        answers = outcome.answers or [evaluation.Answer(fault=outcome.fault)] * len(fresh)
        for device, answer in zip(fresh, answers, strict=True):
            # What may come to something else is asked again the next time.
            shown = device if outcome.again_seconds is None else None
            self._judged[device.name] = shown, _mismatch(answer)

    def _all_taints(self, resident: residents.Resident) -> tuple[verdicts.Taint, ...] | None:
        leaving = LEAVING if self._is_leaving(resident) else None
        possible = (leaving, self._around.unclean(resident.name), self._around.failed(resident.name))
        own = tuple(taint for taint in possible if taint is not None)
        health = self._taints(resident.name)
        return (*own, *(health or ())) if own else health

    def _taints(self, name: str) -> tuple[verdicts.Taint, ...] | None:
        if self._health is None:
            return ()
        key = self._watched.get(name)
        verdict = self._health.verdict(key) if key is not None else verdicts.UNKNOWN
        return None if verdict.status is verdicts.Status.UNKNOWN and not verdict.taints else verdict.taints

    def _say(self, refused: Mapping[str, str]) -> None:
        for name, reason in refused.items():
            if self._refused.get(name) != reason:
                log.info("device is not offered: %s", reason, extra={"device": name})
        self._refused = dict(list(refused.items())[:REFUSED_MAX])


def _mismatch(answer: evaluation.Answer) -> str | None:
    if answer.fault:
        return f"the selector cannot be answered for it: {answer.fault}"
    return None if answer.met else "the selector does not want it"
