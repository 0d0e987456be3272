"""What a card in its slot goes through: it comes up, loses its driver, is removed, found again, switched off.

The order of events is the kernel's: a driver's own devices go before it lets go, virtual functions before the function
that has them (drivers/base/dd.c, `__device_release_driver`; drivers/pci/remove.c; drivers/pci/hotplug/pciehp_pci.c).
"""

import dataclasses
import time

from drawbar.fabric import contract
from drawbar.mocks.sysfs import cards, errors, hosts, places, sriov, states, unbinding
from drawbar.mocks.sysfs.hotplug import Hotplug
from drawbar.mocks.sysfs.places import Presence
from drawbar.mocks.sysfs.states import Arrival

EJECT_SECONDS = 0.05
"""For so long a slot without power still shows the card that is being taken out."""
_PRESENCE = {
    Arrival.COMPLETE: Presence.OCCUPIED,
    Arrival.UNPOWERED: Presence.UNPOWERED,
    Arrival.NO_LINK: Presence.OCCUPIED,
    Arrival.NOT_SEEN: Presence.NOT_SEEN,
}


def host(change: Hotplug) -> hosts.Host:
    """The host as it is in the middle of a change."""
    return hosts.Host(str(change.root), change.state)


def keep(change: Hotplug, slot: int, occupant: states.Occupant | None) -> None:
    """Remembers it at once: what is half built can then be taken out."""
    change.state = change.state.with_occupant(slot, occupant)
    states.save(change.root, change.state)


def bring_up(change: Hotplug, slot: int) -> None:
    """Shows the card as it arrives: the slot first, then the function and what its driver makes."""
    occupant, seat = host(change).occupant(slot), host(change).seat(slot)
    link = cards.running_link(seat.place, occupant.device) if occupant.shown else None
    presence = _PRESENCE[occupant.arrival] if occupant.powered else Presence.UNPOWERED
    places.write(change.root, seat.place, presence, bus=seat.bus, link=link)
    if occupant.shown:
        change.take(cards.steps(seat, occupant.card))


def switch_on(change: Hotplug, slot: int) -> None:
    """Powers a slot: a card that waited for it, or was switched off, comes up; of any other nothing changes."""
    occupant = host(change).occupant(slot)
    if occupant.powered:
        return
    arrival = Arrival.COMPLETE if occupant.arrival is Arrival.UNPOWERED else occupant.arrival
    keep(change, slot, dataclasses.replace(occupant, arrival=arrival, off=False))
    bring_up(change, slot)


def switch_off(change: Hotplug, slot: int) -> None:
    """Switch a slot's power off: the card's functions go, whether or not the card is in use.

    The card stays in, or goes a moment later where the place has it so.
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
    """Takes the card out, virtual functions first; nothing happens if there is none."""
    place = host(change).place(slot)
    if slot not in change.state.occupants:
        return
    _let_go(change, slot)
    change.undo(host(change).steps(slot))
    places.write(change.root, place, Presence.EMPTY, bus=place.bus)
    change.state = change.state.with_occupant(slot, None)


def unbind(change: Hotplug, slot: int) -> None:
    """The card's driver lets go: what it made goes, and its virtual functions, then the function is without."""
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
    """Take from each CXL region what it has of the card, before its driver goes."""
    if host(change).occupant(slot).device.device_class is contract.DeviceClass.CXL_MEMORY:
        unbinding.lose(change, host(change).seat(slot))


def bind(change: Hotplug, slot: int, driver: str) -> bool:
    """A driver takes a card that has none; answers whether it did.

    Its own driver does, and `vfio-pci` where `driver_override` names it; any other, or any at all of a card whose
    driver is "", does not.
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
    """The drivers that would take the card, if it had none (drivers/pci/pci-driver.c, `pci_match_device`)."""
    occupant, seat = host(change).running(slot), host(change).seat(slot)
    wanted = (change.root / seat.path / "driver_override").read_text().strip()
    own = occupant.device.bound_driver
    if wanted not in {"", "(null)"}:
        return tuple(name for name in (own, cards.GUEST_DRIVER) if name == wanted)
    return (own,) if own is not None else ()


def remove(change: Hotplug, slot: int) -> None:
    """The card's functions go while it keeps its power; a rescan finds them again."""
    occupant = host(change).running(slot)
    _let_go(change, slot)
    change.undo(host(change).steps(slot))
    keep(change, slot, dataclasses.replace(occupant, removed=True, driver=None, vfs=0, vf_drivers={}))


def rescan(change: Hotplug) -> None:
    """Finds what was removed and has power."""
    for slot, occupant in change.state.occupants.items():
        if occupant.removed and occupant.powered:
            keep(change, slot, dataclasses.replace(occupant, removed=False))
            bring_up(change, slot)


def reset(change: Hotplug, slot: int) -> None:
    """Counts a reset, which nothing else shows."""
    occupant = host(change).running(slot)
    keep(change, slot, dataclasses.replace(occupant, resets=occupant.resets + 1))


def set_vfs(change: Hotplug, slot: int, amount: int) -> None:
    """Gives the card so many virtual functions.

    Raises:
        ImpossibleWorld: it did not come up, can have fewer (the kernel's ERANGE), or has another number above 0 (EBUSY).
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
    """The driver of a virtual function lets go."""
    occupant, seat = host(change).running(slot), host(change).seat(slot)
    change.undo(sriov.driver_steps(seat, occupant.card, number, occupant.vf_drivers))
    change.part(sriov.function(seat, occupant.card, number, occupant.vf_drivers))
    keep(change, slot, dataclasses.replace(occupant, vf_drivers=occupant.vf_drivers | {number: ""}))


def bind_virtual(change: Hotplug, slot: int, number: int, driver: str | None = None) -> None:
    """A driver takes a virtual function that has none: the given one, or whichever would; see `bind`."""
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
