"""The changes of a card in its slot: coming up, unbinding, removal, rescan, power.

The order of events is the kernel's. A driver's own devices go before it unbinds, and virtual functions before their
function (drivers/base/dd.c, `__device_release_driver`; drivers/pci/remove.c; drivers/pci/hotplug/pciehp_pci.c).
"""

import dataclasses
import time

from drawbar.fabric import contract
from drawbar.mocks.sysfs import cards, errors, hosts, sriov, states, unbinding
from drawbar.mocks.sysfs.hotplug import Hotplug
from drawbar.mocks.sysfs.slots import Presence, write_slot
from drawbar.mocks.sysfs.states import Arrival

EJECT_SECONDS = 0.05
"""The time for which a slot without power still shows a card on its way out, in seconds."""
_PRESENCE = {
    Arrival.COMPLETE: Presence.OCCUPIED,
    Arrival.UNPOWERED: Presence.UNPOWERED,
    Arrival.NO_LINK: Presence.OCCUPIED,
    Arrival.NOT_SEEN: Presence.NOT_SEEN,
}


def host(change: Hotplug) -> hosts.Host:
    """Return the host in the present state of a change."""
    return hosts.Host(str(change.root), change.state)


def keep(change: Hotplug, slot: int, inserted: states.InsertedCard | None) -> None:
    """Save the card of a slot at once, so that an unfinished attach can be undone."""
    change.state = change.state.with_inserted_card(slot, inserted)
    states.save(change.root, change.state)


def bring_up(change: Hotplug, slot: int) -> None:
    """Show the card as it arrives: first the slot, then the function and the driver's devices."""
    inserted, seat = host(change).inserted_card(slot), host(change).seat(slot)
    link = cards.running_link(seat.slot, inserted.device) if inserted.shown else None
    presence = _PRESENCE[inserted.arrival] if inserted.powered else Presence.UNPOWERED
    write_slot(change.root, seat.slot, presence, bus=seat.bus, link=link)
    if inserted.shown:
        change.take(cards.steps(seat, inserted.card))


def switch_on(change: Hotplug, slot: int) -> None:
    """Power a slot that is without power: its card comes up, or appears as its arrival allows."""
    inserted = host(change).inserted_card(slot)
    if inserted.powered:
        return
    arrival = Arrival.COMPLETE if inserted.arrival is Arrival.UNPOWERED else inserted.arrival
    keep(change, slot, dataclasses.replace(inserted, arrival=arrival, off=False))
    bring_up(change, slot)


def switch_off(change: Hotplug, slot: int) -> None:
    """Switch a slot's power off: the card's functions go, even if in use.

    The card stays in the slot, or is taken out a moment later if the slot ejects.
    """
    inserted, seat = host(change).inserted_card(slot), host(change).seat(slot)
    if not inserted.powered:
        return
    _let_go(change, slot)
    change.undo(host(change).steps(slot))
    keep(
        change,
        slot,
        dataclasses.replace(inserted, off=True, removed=False, driver=None, vfs=0, vf_drivers={}),
    )
    write_slot(change.root, seat.slot, Presence.UNPOWERED, bus=seat.bus)
    if seat.slot.ejects:
        time.sleep(EJECT_SECONDS)
        take_out(change, slot)


def take_out(change: Hotplug, slot: int) -> None:
    """Take the card out, virtual functions first; do nothing if the slot is empty."""
    found = host(change).find_slot(slot)
    if slot not in change.state.inserted_cards:
        return
    _let_go(change, slot)
    change.undo(host(change).steps(slot))
    write_slot(change.root, found, Presence.EMPTY, bus=found.bus)
    change.state = change.state.with_inserted_card(slot, None)


def unbind(change: Hotplug, slot: int) -> None:
    """Unbind the card's driver: first the driver's devices and the virtual functions go."""
    inserted, seat = host(change).find_running_card(slot), host(change).seat(slot)
    card = cards.function(seat, inserted.card)
    if card.driver is None:
        return
    _let_go(change, slot)
    virtual = sriov.steps(seat, inserted.card, inserted.vfs, inserted.vf_drivers)
    change.undo((*cards.make_driver_steps(seat, inserted.card), *virtual))
    change.part(card)
    keep(change, slot, dataclasses.replace(inserted, driver="", vfs=0, vf_drivers={}))


def _let_go(change: Hotplug, slot: int) -> None:
    """Remove the card from each CXL region before its driver unbinds."""
    if host(change).inserted_card(slot).device.device_class is contract.DeviceClass.CXL_MEMORY:
        unbinding.lose(change, host(change).seat(slot))


def bind(change: Hotplug, slot: int, driver: str) -> bool:
    """Bind a driver to a card without one; return true if it bound.

    Only the card's own driver binds, and `vfio-pci` if `driver_override` names it. If the card's driver is "", only
    `vfio-pci` can bind.
    """
    inserted, seat = host(change).find_running_card(slot), host(change).seat(slot)
    if inserted.card.bound_driver is not None or driver not in list_matching_drivers(change, slot):
        return False
    own = driver == inserted.device.bound_driver
    fresh = dataclasses.replace(inserted, driver=None if own else driver)
    keep(change, slot, fresh)
    change.take(cards.make_driver_steps(seat, fresh.card))
    return True


def list_matching_drivers(change: Hotplug, slot: int) -> tuple[str, ...]:
    """Return the drivers that would bind to the card without a driver (drivers/pci/pci-driver.c, `pci_match_device`)."""
    inserted, seat = host(change).find_running_card(slot), host(change).seat(slot)
    wanted = (change.root / seat.path / "driver_override").read_text().strip()
    own = inserted.device.bound_driver
    if wanted not in {"", "(null)"}:
        return tuple(name for name in (own, cards.GUEST_DRIVER) if name == wanted)
    return (own,) if own is not None else ()


def remove(change: Hotplug, slot: int) -> None:
    """Remove the card's functions while the slot keeps its power; a rescan finds them again."""
    inserted = host(change).find_running_card(slot)
    _let_go(change, slot)
    change.undo(host(change).steps(slot))
    keep(change, slot, dataclasses.replace(inserted, removed=True, driver=None, vfs=0, vf_drivers={}))


def rescan(change: Hotplug) -> None:
    """Bring up every removed card with power."""
    for slot, inserted in change.state.inserted_cards.items():
        if inserted.removed and inserted.powered:
            keep(change, slot, dataclasses.replace(inserted, removed=False))
            bring_up(change, slot)


def reset(change: Hotplug, slot: int) -> None:
    """Count a reset; it has no other effect."""
    inserted = host(change).find_running_card(slot)
    keep(change, slot, dataclasses.replace(inserted, resets=inserted.resets + 1))


def set_vfs(change: Hotplug, slot: int, amount: int) -> None:
    """Set the card's number of virtual functions.

    Raises:
        ImpossibleWorld: it did not come up, has a lower maximum (the kernel's ERANGE), or has another number above 0
            (EBUSY).
    """
    inserted, seat = host(change).find_running_card(slot), host(change).seat(slot)
    total = inserted.device.total_vfs
    if not 0 <= amount <= total:
        raise errors.ImpossibleWorld(
            f"ERANGE: the card in slot {slot} has 0 to {total} virtual functions, not {amount}"
        )
    if inserted.vfs == amount:
        return
    if inserted.vfs and amount:
        raise errors.ImpossibleWorld(
            f"EBUSY: the card in slot {slot} has {inserted.vfs} virtual functions: set 0 first"
        )
    probes = (change.root / seat.path / "sriov_drivers_autoprobe").read_text().strip() != "0"
    drivers = {} if probes else dict.fromkeys(range(amount), "")
    keep(change, slot, dataclasses.replace(inserted, vfs=amount, vf_drivers=drivers))
    change.take(sriov.steps(seat, inserted.card, amount, drivers))
    change.undo(sriov.steps(seat, inserted.card, inserted.vfs, inserted.vf_drivers) if not amount else ())


def unbind_virtual(change: Hotplug, slot: int, number: int) -> None:
    """Unbind the driver of a virtual function."""
    inserted, seat = host(change).find_running_card(slot), host(change).seat(slot)
    change.undo(sriov.driver_steps(seat, inserted.card, number, inserted.vf_drivers))
    change.part(sriov.function(seat, inserted.card, number, inserted.vf_drivers))
    keep(change, slot, dataclasses.replace(inserted, vf_drivers=inserted.vf_drivers | {number: ""}))


def bind_virtual(change: Hotplug, slot: int, number: int, driver: str | None = None) -> None:
    """Bind a driver to a virtual function without one: `driver`, or by default the first willing one; see `bind`."""
    inserted, seat = host(change).find_running_card(slot), host(change).seat(slot)
    bare = sriov.function(seat, inserted.card, number, inserted.vf_drivers)
    override = (change.root / bare.path / "driver_override").read_text().strip()
    own = (inserted.device.vf_driver,) if inserted.device.vf_driver else ()
    willing = own if override in {"", "(null)"} else ({*own, cards.GUEST_DRIVER} & {override})
    takes = next((name for name in willing if driver in (None, name)), None)
    if bare.driver is not None or takes is None:
        return
    drivers = inserted.vf_drivers | {number: takes}
    keep(change, slot, dataclasses.replace(inserted, vf_drivers=drivers))
    change.take(sriov.driver_steps(seat, inserted.card, number, drivers))
