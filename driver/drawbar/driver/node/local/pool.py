"""The node's own devices, for the publisher, Prepare, and the health monitor.

The pool stores no list of devices. It derives them each time from the inventory, the attachments, the claims on this
node and the configuration. It remembers only watched devices, earlier results of the selector, and logged refusals.

Devices in use by the host are not offered: a disk with mounts, swap or holders, a network interface with an address. An
unknown use counts as use. A node daemon that sees only its own pod's processes does not see the host's mounts, so it
offers no disk.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

import msgspec

from drawbar.driver import containment, evaluation
from drawbar.driver.api import attachments, bindings, leftout, nodepools, quantities, slices
from drawbar.driver.catalogue import taints
from drawbar.driver.node.classes import users
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.inventory import attributes, index, model
from drawbar.driver.node.local import nulls, plan, residents, selections
from drawbar.driver.node.local.neighbours import Neighbours
from drawbar.driver.node.treatment import plan as treatment_plan
from drawbar.fabric.classes import DeviceClass

# Returns the interfaces in use, with the reason, or None if that is unknown; `inventory.netdevs.find_used`.
Interfaces = Callable[[Collection[str]], dict[str, str] | None]


def is_needed(cards: Iterable[model.Card]) -> bool:
    """Return whether a card has a disk or a network interface to check; most nodes offer neither."""
    return any(
        function.net_interfaces or any(node.block for node in function.device_nodes)
        for card in cards
        for function in card.functions
    )


def find_host_uses(host: users.Host, cards: Iterable[model.Card], interfaces: Interfaces) -> dict[str, str]:
    """Return the host's use of each card, or why that is unknown, by the card's address; unused cards are absent."""
    uses: dict[str, str] = {}
    listed = tuple(cards)
    names = {name for card in listed for function in card.functions for name in function.net_interfaces}
    if names:
        _mark_interfaces(listed, interfaces(names), uses)
    if any(node.block for card in listed for node in card.device_nodes):
        _mark_disks(host, listed, uses)
    return uses


def _mark_interfaces(
    cards: tuple[model.Card, ...], held: dict[str, str] | None, uses: dict[str, str]
) -> None:
    for card in cards:
        names = [name for function in card.functions for name in function.net_interfaces]
        if names and held is None:
            uses[card.address] = "whether its network interfaces are in use is unknown"
        for name in names if held is not None else ():
            if held is not None and name in held:
                uses[card.address] = f"network interface {name} {held[name]}"


def _mark_disks(host: users.Host, cards: tuple[model.Card, ...], uses: dict[str, str]) -> None:
    blind = users.blindness(host.proc)
    for card in cards:
        nodes = [node for node in card.device_nodes if node.block]
        if not nodes:
            continue
        if blind is not None:
            uses[card.address] = f"whether the host uses its disk is unknown: {blind}"
            continue
        in_use = users.find_storage_users(host, nodes) or tuple(users.find_kernel_users(host, nodes))
        if in_use:
            uses[card.address] = f"the host uses its disk: {treatment_plan.message(in_use)}"


def build_device(
    resident: residents.Resident, attachment: attachments.DeviceAttachment | None = None
) -> slices.Device:
    """Return the device with all attributes and capacities for selection, without taints.

    Args:
        resident: the device.
        attachment: the attachment of a virtual function's card, if a fabric attached it.
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
    """Return the device with binding conditions: the scheduler waits for them before it binds a pod."""
    return msgspec.structs.replace(
        device,
        binds_to_node=True,
        binding_conditions=(bindings.condition_type(driver, bindings.VISIBLE),),
        binding_failure_conditions=(bindings.condition_type(driver, bindings.NODE_FAILED),),
    )


def memory_bytes(resident: residents.Resident) -> int:
    """Return the memory of its CXL memory devices; 0 if the kernel does not show it."""
    return sum((memdev.ram_bytes or 0) + (memdev.pmem_bytes or 0) for memdev in resident.card.memdevs)


log = logging.getLogger(__name__)

LEAVING = verdicts.Taint(
    key=taints.RELEASING.key, value=taints.RELEASING.value, effect=verdicts.Effect.NO_SCHEDULE
)
"""The taint of a virtual function in use while its card is being detached: no further claim gets it."""
REFUSED_MAX = 256
"""The number of refused devices whose reason is remembered and logged once; further ones are logged each time."""


class Health(Protocol):
    """The used part of the health monitor; `health.monitor.Monitor`."""

    def verdict(self, key: verdicts.Key) -> verdicts.Verdict:
        """Return the verdict on a device."""
        ...

    def watch(self, key: verdicts.Key, supplier: Callable[[], model.Card | None]) -> None:
        """Start to watch a device."""
        ...

    def unwatch(self, key: verdicts.Key) -> None:
        """Stop watching a device."""
        ...


def _extra(name: str) -> dict[str, object]:
    return {"device": name}


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """The sources of the pool, asked again for each survey.

    Attributes:
        inventory: returns the current inventory.
        attached: returns the DeviceAttachments of this node.
        held: returns pool and name of each device in use by a claim on this node; an unrecorded pool is empty.
        unclean: returns the taint of a device that is not clean yet, by name.
        failed: returns the taint of a device that did not become ready for a claim, by name.
        held_back: called for each offered device with binding conditions.
        host: the paths to look for the host's mounts.
        boot_id: the running kernel's boot id.
        neighbours: the other components that offer devices of this node, or None.
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
    """The residents by class, cached for one inventory: a snapshot never changes, and a change makes a new one."""

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
        """Sort the cards by class. A class with the same cards as before keeps its residents."""
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
        selection: selections.Selection,
        surroundings: Surroundings,
        health: Health | None = None,
        evaluator: evaluation.Evaluator | None = None,
        contained: containment.Containment | None = None,
    ) -> None:
        self._contained = contained or containment.Uncontained()
        self._driver = driver
        self._evaluator = evaluator or evaluation.Inline()
        # By name, the judged device, and why the selector rejects it, or None if it does not.
        self._judged: dict[str, tuple[slices.Device | None, str | None]] = {}
        self._node_name = node_name
        self._wanted = selection
        self._around = surroundings
        self._health = health
        self._watched: Mapping[str, verdicts.Key] = {}
        self._refused: Mapping[str, str] = {}
        self._residents = _Residents(surroundings.inventory)

    def owns(self, pool: str) -> bool:
        """Return whether that pool is one of this node."""
        return nodepools.is_pool(pool, self._node_name)

    def card(self, pool: str, device: str) -> model.Card | None:
        """Return the device's current card, offered or not, or None if it is not here or belongs to a fabric.

        A virtual function belongs to this node if its card is lent (`residents.lender`).
        """
        resident = self._residents.find(device) if self.owns(pool) else None
        if resident is None:
            return None
        if self._lender(resident) is not None:
            return resident.card
        problem = residents.find_fabric_reason(resident.whole, self._around.attached(), self._around.boot_id)
        return None if problem is not None else resident.card

    def lender(self, pool: str, device: str) -> attachments.DeviceAttachment | None:
        """Return the attachment that lends a virtual function's card, or None for any other device."""
        resident = self._residents.find(device) if self.owns(pool) else None
        return self._lender(resident) if resident is not None else None

    def virtual_functions(self, attachment: attachments.DeviceAttachment) -> frozenset[str]:
        """Return the names of the virtual functions of the attachment's card on this node, offered or not."""
        listed = (resident for each in DeviceClass for resident in self._residents.of_class(each).values())
        return residents.virtual_functions(listed, attachment, self._around.boot_id)

    def _is_leaving(self, resident: residents.Resident) -> bool:
        attachment = self._lender(resident)
        return attachment is not None and attachment.deleting

    def _lender(self, resident: residents.Resident) -> attachments.DeviceAttachment | None:
        return residents.lender(resident, self._around.attached(), self._driver, self._around.boot_id)

    def device_class(self, pool: str, device: str) -> str:
        """Return one of `drawbar.fabric.classes.DeviceClass`; `other` for a device that is not here."""
        card = self.card(pool, device)
        return card.first.device_class.value if card is not None else "other"

    async def survey(self, published_slices: tuple[slices.ResourceSlice, ...]) -> tuple[plan.Offer, ...]:
        """Return the devices to publish now.

        Args:
            published_slices: the present and former slices. A device in use by a claim stays in them after it has disappeared:
                with a taint the claim's pod can be evicted, without the device it never would be.
        """
        candidates = self._candidates()
        # Read once: a read for each device and pool would dominate the cost of a survey.
        held = frozenset(self._around.held())
        pools = {
            device: pool or nodepools.pool(self._node_name)
            for pool, device in held
            if not pool or self.owns(pool)
        }
        # A device in use by a claim, or in cleaning after one, needs no check for the host's use.
        cards = tuple(
            candidate.card
            for candidate in candidates
            if candidate.name not in pools and self._around.unclean(candidate.name) is None
        )
        busy = await self._find_busy(cards)
        # A device that cannot be described must not prevent the offer of the others.
        devices: dict[str, slices.Device] = {}
        for candidate in candidates:
            with self._contained.attempt(
                "local-devices", candidate.name, extra=functools.partial(_extra, candidate.name)
            ):
                devices[candidate.name] = build_device(candidate, self._lender(candidate))
        candidates = tuple(candidate for candidate in candidates if candidate.name in devices)
        await self._evaluate_selector(devices)
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
        self._log_refused({**chosen.refused, **elsewhere})
        lost = self._find_lost_offers(published_slices, held)
        return lost + tuple(
            plan.Offer(
                device=self._add_conditions(candidate, devices[candidate.name]),
                taints=self._all_taints(candidate),
                pool=pools.get(candidate.name, ""),
            )
            for candidate in chosen.offered
            if candidate.name not in elsewhere
        )

    @property
    def left_out(self) -> tuple[leftout.LeftOut, ...]:
        """Return the devices that the last survey left to other components of the node."""
        neighbours = self._around.neighbours
        return neighbours.left_out if neighbours is not None else ()

    @property
    def again_seconds(self) -> float | None:
        """Return the seconds until the next survey if nothing changes before; None: never."""
        neighbours = self._around.neighbours
        return neighbours.again_seconds if neighbours is not None else None

    def watch(self, keys: frozenset[verdicts.Key]) -> None:
        """Watch the health of exactly these devices of the pool."""
        watched = frozenset(self._watched.values())
        if self._health is None or keys == watched:
            return
        for key in keys - watched:
            self._health.watch(key, functools.partial(self.card, key.pool, key.device))
        for key in watched - keys:
            self._health.unwatch(key)
        self._watched = {key.device: key for key in keys}

    def _add_conditions(self, resident: residents.Resident, device: slices.Device) -> slices.Device:
        # A lent virtual function is ready together with its card's attachment.
        is_own = self._lender(resident) is None
        if not is_own or resident.card.first.device_class.value not in self._wanted.bind_when_ready:
            return device
        self._around.held_back()
        return held_back(device, self._driver)

    async def _find_busy(self, cards: tuple[model.Card, ...]) -> Mapping[str, str]:
        if not is_needed(cards):
            return {}
        return await asyncio.to_thread(find_host_uses, self._around.host, cards, self._around.interfaces)

    def _find_lost_offers(
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

    async def _evaluate_selector(self, devices: Mapping[str, slices.Device]) -> None:
        """Evaluate the selector for each device that changed since its last evaluation."""
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
            # A provisional answer is not remembered, so that the next survey asks again.
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

    def _log_refused(self, refused: Mapping[str, str]) -> None:
        for name, reason in refused.items():
            if self._refused.get(name) != reason:
                log.info("device is not offered: %s", reason, extra={"device": name})
        self._refused = dict(list(refused.items())[:REFUSED_MAX])


def _mismatch(answer: evaluation.Answer) -> str | None:
    if answer.fault:
        return f"the selector cannot be answered for it: {answer.fault}"
    return None if answer.met else "the selector does not match it"
