"""The next step of a device's treatment between two users, and before it leaves its node; pure.

At the end, a device that stays is ready for the next claim. A device that leaves is unbound, removed and without power. Both
treatments have the same steps. First the users end, because no step is safe during a use. Then the virtual functions are removed,
because they have drivers of their own. Quiesce and erase follow, while the driver can still talk to the device. Last comes the
reset or the removal.

Invariants:

- Nothing is done to a device with a known user.
- Nothing is erased, reset, unbound or removed while a quiesce step is pending.
- Nothing is reset, unbound or removed while the user's data have to be erased.
- A device that stays keeps its drivers.
- Each function is reset at most once, and removed at most once. A leaving device is reset without a driver, in the step of
  its function's removal.
- A slot is switched off only if the kernel shows no function in it, and never for another card.
- `Finish` is planned only if nothing else has to be done.

A device that leaves is removed function by function, the farthest from the host first. It is unbound before its removal, so that
a refusal shows early. The kernel does not show a reset. So a reset counts only while this daemon remembers it and no other step
followed; a new daemon resets again. The plan goes on from any state that a crash leaves.
"""

from collections.abc import Iterable

import msgspec

from drawbar.driver import wording
from drawbar.driver.api import meta
from drawbar.driver.catalogue import reasons

USERS_SHOWN = 4
"""The number of users named in a message, which has at most 1,024 characters. Further users are counted."""
_COUNTING = frozenset({reasons.KERNEL_SILENT, reasons.NO_PROGRESS})


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """A complete treatment: the next claim or the fabric may have the device."""


class InProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A treatment in progress.

    Attributes:
        seconds: the pause before the next step, in seconds.
        message: the progress of a long erase, in a clause; empty for other steps.
    """

    seconds: float
    message: str = ""


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """A blocked treatment.

    Attributes:
        reason: `InUse`, `KernelRefused`, `KernelSilent`, `NoProgress` or `NotCleaned`.
        message: the obstacle, with the remedy.
        seconds: the pause before the next look, in seconds.
    """

    reason: str
    message: str
    seconds: float


Outcome = Done | InProgress | Blocked


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A function of the device.

    Attributes:
        address: the function's PCI address.
        path: its directory in sysfs; a deeper path is farther from the host.
        bound: whether a driver is bound; False for the ports of a switch on the card, which lose their driver on removal.
        vfs: the number of its virtual functions to remove.
        virtual: whether it is a virtual function, which goes with its physical function.
        resets: whether it has to be reset.
    """

    address: str
    path: str
    bound: bool = False
    vfs: int = 0
    virtual: bool = False
    resets: bool = False


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """The hot-plug slot of the card.

    Attributes:
        powered: whether the slot has power; None for a slot without a switch.
        present: whether a card is in the slot; None if the slot does not show it.
        taken: whether another card is in the slot now.
    """

    name: str
    powered: bool | None
    present: bool | None = True
    taken: bool = False


class Draining(msgspec.Struct, frozen=True, kw_only=True):
    """The drain hook of the device's last user.

    Attributes:
        is_due: whether the hook may be run now, if the device is in use.
        is_running: whether the hook runs.
        message: the state of the hook, in a clause.
    """

    is_due: bool = False
    is_running: bool = False
    message: str = ""


NO_DRAINING = Draining()


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the plan.

    Attributes:
        leaves: whether the device leaves the node; otherwise it stays for the next claim.
        functions: the functions of the device and, if it leaves, all functions in its slot.
        slot: the hot-plug slot of a leaving device; None without one, and for a device that stays.
        used_by: the users, each in a clause such as `held by pid 4711 (python), /dev/nvidia0`.
        draining: the drain hook.
        pending_quiesce_step: the next quiesce step, in a clause; None if none is pending.
        data: the address of the function whose driver has to erase the user's data; None without data.
        driverless: whether the class and its eraser need no driver.
        is_flushed: whether a device that stays was flushed after its last quiesce step.
    """

    leaves: bool
    functions: tuple[Function, ...] = ()
    slot: Slot | None = None
    used_by: tuple[str, ...] = ()
    draining: Draining = NO_DRAINING
    pending_quiesce_step: str | None = None
    data: str | None = None
    driverless: bool = False
    is_flushed: bool = False


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """Report the obstacle, and do nothing to the device."""

    reason: str
    message: str


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """Begin the drain hook."""

    message: str


class DropVirtualFunctions(msgspec.Struct, frozen=True, kw_only=True):
    """Set the number of a function's virtual functions to 0."""

    address: str


class Quiesce(msgspec.Struct, frozen=True, kw_only=True):
    """Take one quiesce step."""

    pending: str


class Bind(msgspec.Struct, frozen=True, kw_only=True):
    """Make the kernel bind the driver that can erase the data."""

    address: str


class Erase(msgspec.Struct, frozen=True, kw_only=True):
    """Begin to erase the user's data."""


class Reset(msgspec.Struct, frozen=True, kw_only=True):
    """Flush the device, and reset one function; an empty address means only a flush."""

    address: str


class Unbind(msgspec.Struct, frozen=True, kw_only=True):
    """Flush the device, and unbind the driver of one function."""

    address: str


class Remove(msgspec.Struct, frozen=True, kw_only=True):
    """Reset a function if necessary, and remove it from the kernel."""

    address: str
    reset: bool = False


class PowerOff(msgspec.Struct, frozen=True, kw_only=True):
    """Switch the slot off."""

    slot: str


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """Finish the treatment."""


Step = DropVirtualFunctions | Quiesce | Bind | Reset | Unbind | Remove | PowerOff
"""An action with one request to the kernel."""
Action = Block | Drain | Erase | Step | Finish


def plan(observed: Observed) -> Action:
    """Return the next safe action."""
    obstacle = _clear(observed)
    if obstacle is not None:
        return obstacle
    if not observed.functions:
        return _end_without_functions(observed)
    for function in observed.functions:
        if function.vfs:
            return DropVirtualFunctions(address=function.address)
    if observed.pending_quiesce_step is not None:
        return Quiesce(pending=observed.pending_quiesce_step)
    if observed.data is not None:
        can = observed.driverless or any(function.bound for function in observed.functions)
        return Erase() if can else Bind(address=observed.data)
    return _leave(observed.functions) if observed.leaves else _stay(observed)


def _clear(observed: Observed) -> Block | Drain | None:
    """Return the drain of the device's users, or the obstacle to wait for; None if the device has no users."""
    users = message(observed.used_by)
    if users and observed.draining.is_due:
        return Drain(message=users)
    if users or observed.draining.is_running:
        return Block(
            reason=reasons.IN_USE, message="; ".join(filter(None, (users, observed.draining.message)))
        )
    return None


def _stay(observed: Observed) -> Action:
    for function in observed.functions:
        if function.resets:
            return Reset(address=function.address)
    return Finish() if observed.is_flushed else Reset(address="")


def _leave(functions: tuple[Function, ...]) -> Action:
    left = sorted(functions, key=_order)
    for function in left:
        if function.bound and not function.virtual:
            return Unbind(address=function.address)
    # The kernel removes a virtual function together with its physical one.
    last = next((function for function in left if not function.virtual), left[0])
    return Remove(address=last.address, reset=last.resets)


def _end_without_functions(observed: Observed) -> Action:
    slot = observed.slot
    if not observed.leaves:
        gone = "the kernel does not show the device any more; look at its link and its power"
        return Block(reason=reasons.KERNEL_REFUSED, message=gone)
    if slot is None or slot.taken or not slot.powered or slot.present is False:
        return Finish()
    return PowerOff(slot=slot.name)


def says_the_same(report: tuple[str, str], other: tuple[str, str]) -> bool:
    """Return whether two reports, each a reason and a message, are equal, apart from counted seconds."""
    (reason, message), (other_reason, other_message) = report, other
    return reason == other_reason and (reason in _COUNTING or meta.cut(message) == meta.cut(other_message))


def message(users: Iterable[str]) -> str:
    """Return all users in one clause: the first few by name, the others as a number."""
    return wording.join_some(sorted(set(users)), USERS_SHOWN, "; ")


def describe(step: Step) -> str:
    """Return the request to the kernel in words, for logs and for reports of no progress."""
    match step:
        case DropVirtualFunctions(address=address):
            return f"remove the virtual functions of {address}"
        case Quiesce(pending=pending):
            return f"bring the device to rest ({pending})"
        case Bind(address=address):
            return f"bind a driver to {address}, by which it can be erased"
        case Reset(address=address):
            return f"reset {address}" if address else "flush the device"
        case Unbind(address=address):
            return f"unbind the driver of {address}"
        case Remove(address=address):
            return f"remove {address}"
        case PowerOff(slot=slot):
            return f"switch slot {slot} off"


def _order(function: Function) -> tuple[int, int, str]:
    """Return the sort key of removal: the farthest from the host first, and function 0 last, because others depend on it."""
    bus, _, number = function.address.rpartition(":")
    device, _, within = number.partition(".")
    # With ARI both parts are one number of 8 bits.
    return -function.path.count("/"), -(int(device, 16) << 3 | int(within, 16)), bus
