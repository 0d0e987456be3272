"""The next step of a device's treatment: what happens to it between two users, and before it leaves its node; pure.

A device that stays is ready for the next claim at the end; one that leaves is unbound, removed and without power. Both go
through the same steps: the users first, for nothing may be undone while one is left; the virtual functions, which have drivers
of their own; quiesce and erase, while the driver can still talk to the device; then the end.

Invariants: nothing is done to a device while a user of it is known. Nothing is erased, reset, unbound or removed while a quiesce
step is pending. Nothing is reset, unbound or removed while the user's data are left to erase. A device that stays keeps its
drivers. Each function is reset at most once, and removed at most once; a device that leaves is reset without a driver, in the
step that removes the function. A slot is switched off only if the kernel shows no function in it, and never for another card.
`Finish` is planned only if nothing else is left to do.

A device that leaves goes function by function, the farthest from the host first: unbinding says early what a removal would hide.
The kernel does not show a reset. So what was reset counts only while this daemon remembers it and nothing else had to be done
since; a new daemon resets again. From any state that a crash leaves the plan goes on.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from drawbar.driver.api import meta
from drawbar.driver.catalogue import reasons

USERS_SHOWN = 4
"""More than these are counted: a condition's message has 1,024 characters at most."""
_COUNTING = frozenset({reasons.KERNEL_SILENT, reasons.NO_PROGRESS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The treatment is complete: the next claim, or the fabric, may have the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InProgress:
    """A step was taken.

    Attributes:
        seconds: the pause before the next step.
        message: the progress of an erase that takes long, in a clause; empty for other steps.
    """

    seconds: float
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """The treatment cannot go on now.

    Attributes:
        reason: `InUse`, `KernelRefused`, `KernelSilent`, `NoProgress` or `NotCleaned`.
        message: the obstacle, with the remedy.
        seconds: the pause before the next look.
    """

    reason: str
    message: str
    seconds: float


Outcome = Done | InProgress | Blocked


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function of the device.

    Attributes:
        path: its directory in sysfs: a longer path is farther from the host.
        bound: it has a driver. Ports of a switch on the card do not count: their driver goes with them.
        vfs: the number of its virtual functions that have to go.
        virtual: it is a virtual function, and goes with its physical function.
        resets: it has to be reset.
    """

    address: str
    path: str
    bound: bool = False
    vfs: int = 0
    virtual: bool = False
    resets: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The hot-plug slot of the card.

    Attributes:
        powered: None for a slot without a switch.
        present: whether a card is in; None for a slot that does not say.
        taken: another card is in it by now.
    """

    name: str
    powered: bool | None
    present: bool | None = True
    taken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Draining:
    """The drain hook of the device's last user.

    Attributes:
        is_due: the hook may be run now, if the device is in use.
        is_running: the hook runs.
        message: the state of the hook, in a clause.
    """

    is_due: bool = False
    is_running: bool = False
    message: str = ""


NO_DRAINING = Draining()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The input of the plan.

    Attributes:
        leaves: the device leaves the node; else it stays for the next claim.
        functions: of the device and, if it leaves, of everything that goes with its slot.
        slot: None for a device that stays, or is in no hot-plug slot.
        used_by: the users, each in a clause such as `held by pid 4711 (python), /dev/nvidia0`.
        draining: the drain hook.
        pending_quiesce_step: the next thing to bring to rest, in a clause.
        data: the address of the function whose driver is to erase the user's data; None if none are left.
        driverless: the class needs no driver, and its eraser needs none.
        is_flushed: the device that stays was quiesced to its end.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Report the obstacle, and do nothing to the device."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Begin the drain hook."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DropVirtualFunctions:
    """Set the number of a function's virtual functions to 0."""

    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiesce:
    """Take one quiesce step."""

    pending: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """Have the kernel bind a driver, by which the data can be erased."""

    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Erase:
    """Begin to erase the user's data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """Flush the device, and reset one function; of a device that is only flushed the address is empty."""

    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unbind:
    """Flush the device, and unbind the driver of one function."""

    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """Reset a function, if it has to be, and make the kernel forget it."""

    address: str
    reset: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerOff:
    """Switch the slot off."""

    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Nothing is left to do."""


Step = DropVirtualFunctions | Quiesce | Bind | Reset | Unbind | Remove | PowerOff
"""Asks the kernel for something, once."""
Action = Block | Drain | Erase | Step | Finish


def plan(observed: Observed) -> Action:
    """Return the next safe action."""
    obstacle = _clear(observed)
    if obstacle is not None:
        return obstacle
    if not observed.functions:
        return _end_of_nothing(observed)
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
    """Return how the users are made to let go, or what to wait for; None if nothing uses the device."""
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
    # A virtual function without a physical one is none: the kernel takes both away together.
    last = next((function for function in left if not function.virtual), left[0])
    return Remove(address=last.address, reset=last.resets)


def _end_of_nothing(observed: Observed) -> Action:
    slot = observed.slot
    if not observed.leaves:
        gone = "the kernel does not show the device any more; look at its link and its power"
        return Block(reason=reasons.KERNEL_REFUSED, message=gone)
    if slot is None or slot.taken or not slot.powered or slot.present is False:
        return Finish()
    return PowerOff(slot=slot.name)


def says_the_same(report: tuple[str, str], other: tuple[str, str]) -> bool:
    """Return whether two reports, each a reason and a message, say the same; a message that only counts seconds does."""
    (reason, message), (other_reason, other_message) = report, other
    return reason == other_reason and (reason in _COUNTING or meta.cut(message) == meta.cut(other_message))


def message(users: Iterable[str]) -> str:
    """Return all users in one clause; the first few by name."""
    texts = sorted(set(users))
    rest = len(texts) - USERS_SHOWN
    return "; ".join(texts[:USERS_SHOWN]) + (f"; and {rest} more" if rest > 0 else "")


def describe(step: Step) -> str:
    """Return what the kernel was asked to do, for a log and for a report of no progress."""
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
    """Return the order of removal: the farthest from the host first, and function 0 last, for the others hang on it."""
    bus, _, number = function.address.rpartition(":")
    device, _, within = number.partition(".")
    # With ARI both parts are one number of 8 bits.
    return -function.path.count("/"), -(int(device, 16) << 3 | int(within, 16)), bus
