"""The changes of a card in its slot: coming up, unbinding, removal, rescan, power.

The order of events is the kernel's. A driver's own devices go before it unbinds, and virtual functions before their
function (drivers/base/dd.c, `__device_release_driver`; drivers/pci/remove.c; drivers/pci/hotplug/pciehp_pci.c).
"""

import dataclasses
import time

from drawbar.fabric import contract
from drawbar.mocks.sysfs import cards, errors, hosts, places, sriov, states, unbinding
from drawbar.mocks.sysfs.hotplug import Hotplug
from drawbar.mocks.sysfs.places import Presence
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


def keep(change: Hotplug, slot: int, occupant: states.Occupant | None) -> None:
    """Save the card of a slot at once, so that an unfinished attach can be undone."""
    change.state = change.state.with_occupant(slot, occupant)
    states.save(change.root, change.state)


def bring_up(change: Hotplug, slot: int) -> None:
    """Show the card as it arrives: first the slot, then the function and the driver's devices."""
    occupant, seat = host(change).occupant(slot), host(change).seat(slot)
    link = cards.running_link(seat.place, occupant.device) if occupant.shown else None
    presence = _PRESENCE[occupant.arrival] if occupant.powered else Presence.UNPOWERED
    places.write(change.root, seat.place, presence, bus=seat.bus, link=link)
    if occupant.shown:
        change.take(cards.steps(seat, occupant.card))


def switch_on(change: Hotplug, slot: int) -> None:
    """Power a slot that is without power: its card comes up, or appears as its arrival allows."""
    occupant = host(change).occupant(slot)
    if occupant.powered:
        return
    arrival = Arrival.COMPLETE if occupant.arrival is Arrival.UNPOWERED else occupant.arrival
    keep(change, slot, dataclasses.replace(occupant, arrival=arrival, off=False))
    bring_up(change, slot)


def switch_off(change: Hotplug, slot: int) -> None:
    """Switch a slot's power off: the card's functions go, even if in use.

    The card stays in the slot, or is taken out a moment later if the place ejects.
    """
    occupant, seat = host(change).occupant(slot), host(change).seat(slot)
    if not occupant.powered:
        return
    _let_go(change, slot)
    change.undo(host(change).steps(slot))
    keep(
        change,
        slot,
        dataclasses.replace(occupant, off=True, removed=False, driver=None, vfs=0, vf_drivers={}),
    )
    places.write(change.root, seat.place, Presence.UNPOWERED, bus=seat.bus)
    if seat.place.ejects:
        time.sleep(EJECT_SECONDS)
        take_out(change, slot)


def take_out(change: Hotplug, slot: int) -> None:
    """Take the card out, virtual functions first; do nothing if the slot is empty."""
    place = host(change).place(slot)
    if slot not in change.state.occupants:
        return
    _let_go(change, slot)
    change.undo(host(change).steps(slot))
    places.write(change.root, place, Presence.EMPTY, bus=place.bus)
    change.state = change.state.with_occupant(slot, None)


def unbind(change: Hotplug, slot: int) -> None:
    """Unbind the card's driver: first the driver's devices and the virtual functions go."""
    occupant, seat = host(change).running(slot), host(change).seat(slot)
    card = cards.function(seat, occupant.card)
    if card.driver is None:
        return
    _let_go(change, slot)
    virtual = sriov.steps(seat, occupant.card, occupant.vfs, occupant.vf_drivers)
    change.undo((*cards.made(seat, occupant.card), *virtual))
    change.part(card)
    keep(change, slot, dataclasses.replace(occupant, driver="", vfs=0, vf_drivers={}))


def _let_go(change: Hotplug, slot: int) -> None:
    """Remove the card from each CXL region before its driver unbinds."""
    if host(change).occupant(slot).device.device_class is contract.DeviceClass.CXL_MEMORY:
        unbinding.lose(change, host(change).seat(slot))


def bind(change: Hotplug, slot: int, driver: str) -> bool:
    """Bind a driver to a card without one; return true if it bound.

    Only the card's own driver binds, and `vfio-pci` if `driver_override` names it. If the card's driver is "", only
    `vfio-pci` can bind.
    """
    occupant, seat = host(change).running(slot), host(change).seat(slot)
    if occupant.card.bound_driver is not None or driver not in willing(change, slot):
        return False
    own = driver == occupant.device.bound_driver
    fresh = dataclasses.replace(occupant, driver=None if own else driver)
    keep(change, slot, fresh)
    change.take(cards.made(seat, fresh.card))
    return True


def willing(change: Hotplug, slot: int) -> tuple[str, ...]:
    """Return the drivers that would bind to the card without a driver (drivers/pci/pci-driver.c, `pci_match_device`)."""
    occupant, seat = host(change).running(slot), host(change).seat(slot)
    wanted = (change.root / seat.path / "driver_override").read_text().strip()
    own = occupant.device.bound_driver
    if wanted not in {"", "(null)"}:
        return tuple(name for name in (own, cards.GUEST_DRIVER) if name == wanted)
    return (own,) if own is not None else ()


def remove(change: Hotplug, slot: int) -> None:
    """Remove the card's functions while the slot keeps its power; a rescan finds them again."""
    occupant = host(change).running(slot)
    _let_go(change, slot)
    change.undo(host(change).steps(slot))
    keep(change, slot, dataclasses.replace(occupant, removed=True, driver=None, vfs=0, vf_drivers={}))


def rescan(change: Hotplug) -> None:
    """Bring up every removed card with power."""
    for slot, occupant in change.state.occupants.items():
        if occupant.removed and occupant.powered:
            keep(change, slot, dataclasses.replace(occupant, removed=False))
            bring_up(change, slot)


def reset(change: Hotplug, slot: int) -> None:
    """Count a reset; it has no other effect."""
    occupant = host(change).running(slot)
    keep(change, slot, dataclasses.replace(occupant, resets=occupant.resets + 1))


def set_vfs(change: Hotplug, slot: int, amount: int) -> None:
    """Set the card's number of virtual functions.

    Raises:
        ImpossibleWorld: it did not come up, has a lower maximum (the kernel's ERANGE), or has another number above 0
            (EBUSY).
    """
    occupant, seat = host(change).running(slot), host(change).seat(slot)
    total = occupant.device.total_vfs
    if not 0 <= amount <= total:
        raise errors.ImpossibleWorld(
            f"ERANGE: the card in slot {slot} has 0 to {total} virtual functions, not {amount}"
        )
    if occupant.vfs == amount:
        return
    if occupant.vfs and amount:
        raise errors.ImpossibleWorld(
            f"EBUSY: the card in slot {slot} has {occupant.vfs} virtual functions: set 0 first"
        )
    probes = (change.root / seat.path / "sriov_drivers_autoprobe").read_text().strip() != "0"
    drivers = {} if probes else dict.fromkeys(range(amount), "")
    keep(change, slot, dataclasses.replace(occupant, vfs=amount, vf_drivers=drivers))
    change.take(sriov.steps(seat, occupant.card, amount, drivers))
    change.undo(sriov.steps(seat, occupant.card, occupant.vfs, occupant.vf_drivers) if not amount else ())


def unbind_virtual(change: Hotplug, slot: int, number: int) -> None:
    """Unbind the driver of a virtual function."""
    occupant, seat = host(change).running(slot), host(change).seat(slot)
    change.undo(sriov.driver_steps(seat, occupant.card, number, occupant.vf_drivers))
    change.part(sriov.function(seat, occupant.card, number, occupant.vf_drivers))
    keep(change, slot, dataclasses.replace(occupant, vf_drivers=occupant.vf_drivers | {number: ""}))


def bind_virtual(change: Hotplug, slot: int, number: int, driver: str | None = None) -> None:
    """Bind a driver to a virtual function without one: `driver`, or by default the first willing one; see `bind`."""
    occupant, seat = host(change).running(slot), host(change).seat(slot)
    bare = sriov.function(seat, occupant.card, number, occupant.vf_drivers)
    override = (change.root / bare.path / "driver_override").read_text().strip()
    own = (occupant.device.vf_driver,) if occupant.device.vf_driver else ()
    willing = own if override in {"", "(null)"} else ({*own, cards.GUEST_DRIVER} & {override})
    takes = next((name for name in willing if driver in (None, name)), None)
    if bare.driver is not None or takes is None:
        return
    drivers = occupant.vf_drivers | {number: takes}
    keep(change, slot, dataclasses.replace(occupant, vf_drivers=drivers))
    change.take(sriov.driver_steps(seat, occupant.card, number, drivers))
