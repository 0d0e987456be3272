"""The observation of one device for its treatment, read from the kernel.

The serial number of an NVMe disk comes from its driver, so the disk shows none once its driver is unbound. After a crash between
unbinding and removal, the inventory does not recognise it. Then the device is the function in its slot without a driver and
without a serial number. The fabric connects no other device there before the report of the release.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from drawbar.driver.api import attachments
from drawbar.driver.node import classes
from drawbar.driver.node.classes.generic import Eraser, Report
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import cxl, files, hotplug, index, model, pci
from drawbar.driver.node.treatment import erasing, hooks, plan
from drawbar.fabric.classes import DeviceClass

_FUNCTIONS = 8
_DEVICE_0 = ":00"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The order for the treatment of a device.

    Attributes:
        card: the device in the inventory; None if it is no longer there.
        slot: the slot of a leaving device, or the recorded slot without a card; empty without a slot.
        leaves: whether the device leaves the node; otherwise it stays for the next claim.
        device_class: the class of its offer; None for the class of its first function.
        companions: the cards of the other composite members on this node.
        is_used: whether the device was used since its last cleaning.
        clean: the way to clean it; None for the way of its class.
        drain: the drain hook of its last user; None without one.
        clean_up: returns the eraser that runs the clean-up hook after the data are erased; None without a hook.
        keeps_functions: whether its virtual functions belong to an administrator, and stay.
    """

    card: model.Card | None
    slot: str = ""
    leaves: bool = True
    device_class: str | None = None
    companions: tuple[model.Card, ...] = ()
    is_used: bool = False
    clean: attachments.Clean | None = None
    drain: hooks.Drain | None = None
    clean_up: Callable[[model.Card], Eraser] | None = None
    keeps_functions: bool = False

    @property
    def name(self) -> str:
        """Return the slot or the address, for messages; empty if neither is known."""
        return f"slot {self.slot}" if self.slot else self.card.address if self.card is not None else ""

    def operations(self, card: model.Card) -> classes.Class:
        """Return the class for the treatment of the card."""
        return classes.by_name(self.device_class or card.first.device_class).for_composite(self.companions)

    def erasure_state(self, progress: "Progress") -> erasing.State:
        """Return the state of the erasing. If the order no longer includes an erase, a failure counts as done."""
        state = progress.erasure.state() if self.is_used else erasing.Done()
        is_spared = self.clean is attachments.Clean.NONE or (
            self.clean is attachments.Clean.RESET and self.clean_up is None
        )
        return erasing.Done() if is_spared and isinstance(state, erasing.Failed) else state

    def eraser(self, host: classes.Host, card: model.Card, progress: "Progress") -> Eraser | None:
        """Return the eraser of the remaining data, including the clean-up hook, or None. It reads files."""
        is_over = isinstance(self.erasure_state(progress), erasing.Done)
        if self.clean is attachments.Clean.NONE or is_over:
            return None
        by_class = None if self.clean is attachments.Clean.RESET else self.operations(card).eraser(host, card)
        by_hook = self.clean_up(card) if self.clean_up is not None else None
        wanted = tuple(step for step in (by_class, by_hook) if step is not None)

        def erase(report: Report) -> None:
            for step in wanted:
                step(report)

        return erase if wanted else None


@dataclass(slots=True, kw_only=True)
class Progress:
    """This daemon's memory of one treatment of one device; a new daemon begins again.

    Attributes:
        draining: the runs of the drain hook.
        card: the card at the last look, because without its driver the inventory may not recognise it.
        reset: the addresses of the reset functions; empty after any other step.
        is_flushed: whether the device was flushed; False after any other step.
        step: the last step; None if the last action was not a step.
        since: the time of the first attempt at that step, in seconds.
        taken_at: the time of the last attempt at that step, in seconds.
    """

    erasure: erasing.Erasure = field(default_factory=erasing.Erasure)
    draining: hooks.Draining = field(default_factory=hooks.Draining)
    card: model.Card | None = None
    reset: frozenset[str] = frozenset()
    is_flushed: bool = False
    step: plan.Step | None = None
    since: float = 0.0
    taken_at: float = 0.0


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a device.

    Attributes:
        observed: the input of the plan.
        card: the remaining functions; None if all are gone.
    """

    observed: plan.Observed
    card: model.Card | None


def look(
    host: classes.Host, order: Order, progress: Progress, draining: plan.Draining = plan.NO_DRAINING
) -> Observation:
    """Return the state of the device in the kernel now, with the state of its drain hook. It reads files."""
    in_slot = tuple(_functions_in_slot(host, order.slot))
    own = _own_functions(host, order.card or progress.card, in_slot)
    slot = _slot(host, order.slot, taken=bool(in_slot) and not own)
    if not own:
        return Observation(observed=plan.Observed(leaves=order.leaves, slot=slot), card=None)
    card = model.make_card(own, {}, index.by_function(cxl.read(os.fspath(host.sysfs)).memdevs))
    operations = order.operations(card)
    has_data = order.eraser(host, card, progress) is not None
    resets = _functions_to_reset(host, order, card, progress)
    return Observation(
        observed=plan.Observed(
            leaves=order.leaves,
            functions=tuple(_function(function, order, resets) for function in own),
            slot=slot,
            used_by=operations.current_users(host, card),
            draining=draining,
            pending_quiesce_step=operations.pending_quiesce_step(host, card),
            data=card.address if has_data else None,
            driverless=not operations.needs_driver,
            is_flushed=progress.is_flushed,
        ),
        card=card,
    )


def _functions_to_reset(
    host: classes.Host, order: Order, card: model.Card, progress: Progress
) -> Collection[str]:
    """Return the addresses of the functions to reset."""
    if order.clean is attachments.Clean.NONE:
        return ()
    addresses = order.operations(card).resets(card)
    if not order.leaves:
        own = (card.address,) if card.first.physical_function is not None else addresses
        return tuple(address for address in own if address not in progress.reset)
    # The file exists if the kernel can reset the function (Documentation/ABI/testing/sysfs-bus-pci).
    folder = f"{host.sysfs}/bus/pci/devices"
    return tuple(address for address in addresses if os.path.lexists(f"{folder}/{address}/reset"))


def _own_functions(
    host: classes.Host, card: model.Card | None, in_slot: tuple[model.PciFunction, ...]
) -> tuple[model.PciFunction, ...]:
    """Return the remaining functions of the device, and all functions that lose power with it."""
    functions = card.functions if card is not None else ()
    seen = {function.address: function for function in in_slot}
    by_address = {
        fresh.address: fresh
        for function in functions
        if (fresh := _read_again(host, function, seen)) is not None
    }
    if by_address or all(_is_nameless(function) for function in in_slot):
        by_address |= {function.address: function for function in in_slot}
    for function in tuple(by_address.values()):
        for address in function.sriov.virtual_functions if function.sriov is not None else ():
            virtual = reader.read_function(host.sysfs, address)
            if virtual is not None:
                by_address.setdefault(address, virtual)
    return tuple(by_address.values())


def _read_again(
    host: classes.Host, former: model.PciFunction, seen: Mapping[str, model.PciFunction]
) -> model.PciFunction | None:
    """Return the function as it is now; None if it is gone, or if another device has its address now.

    A function `seen` in the slot is not read again. If it vanished between two reads, the slot would seem taken by another card.
    """
    fresh = seen.get(former.address) or reader.read_function(host.sysfs, former.address)
    return fresh if fresh is not None and _is_same(fresh, former) else None


def _is_same(fresh: model.PciFunction, former: model.PciFunction) -> bool:
    """Return whether two looks saw the same device. Without a driver it may show another serial number, or none."""
    if (fresh.vendor, fresh.device) != (former.vendor, former.device):
        return False
    if fresh.dsn and former.dsn:
        return fresh.dsn == former.dsn
    if fresh.driver is None or former.driver is None or not fresh.serial or not former.serial:
        return True
    return model.canonical_serial(fresh.serial) == model.canonical_serial(former.serial)


def _is_nameless(function: model.PciFunction) -> bool:
    """Return whether the function has no driver, and therefore no serial number for the inventory."""
    named = function.serial is not None and function.device_class is not DeviceClass.NVME
    return function.driver is None and not named


def _functions_in_slot(host: classes.Host, name: str) -> Iterator[model.PciFunction]:
    """Yield every function in or below a slot, and none if its place is unknown."""
    slot = hotplug.read_slot(os.fspath(host.sysfs), name) if name else None
    for address in _addresses_in(host, slot) if slot is not None and not slot.is_ambiguous else ():
        function = reader.read_function(host.sysfs, address)
        if function is not None:
            yield function


def _addresses_in(host: classes.Host, slot: model.Slot) -> Iterator[str]:
    if slot.port is not None:
        yield from _addresses_below(host, _path(host, slot.port) or "")
        return
    for number in range(_FUNCTIONS):
        address = f"{slot.address}.{number}"
        path = _path(host, address)
        if path is None:
            continue
        bus = path.rpartition("/")[0]
        if slot.address.endswith(_DEVICE_0) and hotplug.is_above_one_device(f"{host.sysfs}/{bus}"):
            # With ARI its functions have all device numbers of the bus.
            yield from _addresses_below(host, bus)
            return
        # The other devices of this bus are in other slots, or on the mainboard.
        yield address
        yield from _addresses_below(host, path)


def _path(host: classes.Host, address: str) -> str | None:
    link = files.link_target(f"{host.sysfs}/bus/pci/devices/{address}")
    return files.resolve_below_root(link) if link is not None else None


def _addresses_below(host: classes.Host, path: str) -> Iterator[str]:
    for name in files.names(f"{host.sysfs}/{path}"):
        if pci.ADDRESS.fullmatch(name):
            yield name
            yield from _addresses_below(host, f"{path}/{name}")


def _function(function: model.PciFunction, order: Order, resets: Collection[str]) -> plan.Function:
    has_vfs = function.sriov is not None and not order.keeps_functions
    return plan.Function(
        address=function.address,
        path=function.path,
        bound=function.driver is not None and function.device_class is not DeviceClass.BRIDGE,
        vfs=function.sriov.num_vfs if has_vfs and function.sriov is not None else 0,
        virtual=function.physical_function is not None,
        resets=function.address in resets,
    )


def _slot(host: classes.Host, name: str, *, taken: bool) -> plan.Slot | None:
    folder = f"{host.sysfs}/bus/pci/slots/{name}"
    if not name or not files.names(folder):
        return None
    return plan.Slot(
        name=name,
        powered=files.flag(files.number(folder + "/power")),
        present=files.flag(files.number(folder + "/adapter")),
        taken=taken,
    )
