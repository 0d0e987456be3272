"""The next step of a device's release; pure.

Invariant: no driver is unbound, no function removed and no slot switched off while a user of the device is known, nor
while anything still stands on it (`unrest`), nor while it has data of its user that are to be erased (`data`); virtual functions go before the functions they belong to, and a slot is
switched off only when the kernel shows no function in it. A slot that has another card by now is left alone. No function
that the kernel has a way to reset is removed before it was reset without a driver.

Order, with the reason: users first, for nothing may be undone for a device that stays; virtual functions, because they
are devices of their own with drivers of their own; quiesce, while the driver can still talk to the device; erase, for the same reason,
and once nothing writes to it any more; unbind one
function after the other, which says early what removal would hide; reset and remove, the farthest from the host first, in one step,
because the kernel does not show a reset: what is still there is reset again; power, when nothing is left to be surprised.
From whatever state a crash leaves, the plan goes on: it looks at the kernel alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass

USERS_SHOWN = 4
"""More than these are counted: a condition's message has 1,024 characters at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The kernel no longer shows anything of the device: the fabric can take it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """The device cannot be taken away now.

    Attributes:
        reason: one word, as a condition has it: `InUse`, `KernelRefused`, `KernelSilent`, `NoProgress`, `NotCleaned`,
            or `Cleaning` while it is being erased.
        message: what blocks, with the remedy.
        seconds: after how long to look again.
    """

    reason: str
    message: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Working:
    """A step was made; the next one is due after so many seconds."""

    seconds: float


Outcome = Released | Blocked | Working


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function that has to go.

    Attributes:
        path: its directory in sysfs: what is below another one is farther from the host.
        bound: a driver has it. Ports of a switch on the card do not count: their driver goes with them.
        vfs: how many virtual functions it has.
        virtual: it is one; it goes with its physical function.
        resets: it is reset before it goes: its class asks for that, and the kernel has a way to.
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
        powered: None where it has no switch.
        present: whether a card is in; None where it does not say.
        taken: functions are in it that are not the device's: it has another card by now.
    """

    name: str
    powered: bool | None
    present: bool | None = True
    taken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The input of the plan.

    Attributes:
        functions: of the device and of everything else that goes with its slot, as the kernel has them now.
        slot: None where it sits in no hot-plug slot.
        used_by: who uses it, each in a clause such as `held by pid 4711 (python), /dev/nvidia0`.
        unrest: what has to be brought to rest before the driver goes, in one clause.
        data: address of the function whose driver is to erase the user's data that the device still has; None without any.
        driverless: its class needs no driver, and neither does that.
    """

    functions: tuple[Function, ...] = ()
    slot: Slot | None = None
    used_by: tuple[str, ...] = ()
    unrest: str | None = None
    data: str | None = None
    driverless: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Report who uses the device, and do nothing to it."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DropVirtualFunctions:
    """Set the number of a function's virtual functions to 0."""

    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiesce:
    """Quiesce the device, one step."""

    unrest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """Have the kernel look for a driver for a function that has to be erased."""

    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Erase:
    """Erase the user's data, or go on with that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unbind:
    """Flush what the device has, and take the driver of one function away."""

    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """Reset a function, if it is to be, and make the kernel forget it."""

    address: str
    reset: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerOff:
    """Switch the slot off."""

    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Nothing of the device is left."""


Step = DropVirtualFunctions | Quiesce | Bind | Unbind | Remove | PowerOff
"""Asks the kernel for something, once."""
Action = Wait | Erase | Step | Done


def plan(observed: Observed) -> Action:
    """The next safe step."""
    if observed.used_by:
        return Wait(message=message(observed.used_by))
    if not observed.functions:
        return _power(observed.slot)
    for function in observed.functions:
        if function.vfs:
            return DropVirtualFunctions(address=function.address)
    if observed.unrest is not None:
        return Quiesce(unrest=observed.unrest)
    left = sorted(observed.functions, key=_order)
    if observed.data is not None:
        can = observed.driverless or any(function.bound for function in left)
        return Erase() if can else Bind(address=observed.data)
    for function in left:
        if function.bound and not function.virtual:
            return Unbind(address=function.address)
    # A virtual function without a physical one is none: the kernel takes both away together.
    last = next((function for function in left if not function.virtual), left[0])
    return Remove(address=last.address, reset=last.resets)


def message(users: Iterable[str]) -> str:
    """Return all users in one clause; the first few by name."""
    texts = sorted(set(users))
    rest = len(texts) - USERS_SHOWN
    return "; ".join(texts[:USERS_SHOWN]) + (f"; and {rest} more" if rest > 0 else "")


def words(action: Action) -> str:
    """What the kernel was asked to do, for a message that it has not come about."""
    match action:
        case DropVirtualFunctions(address=address):
            return f"take the virtual functions of {address} away"
        case Quiesce(unrest=unrest):
            return f"bring the device to rest ({unrest})"
        case Bind(address=address):
            return f"bind a driver to {address}, by which it can be erased"
        case Unbind(address=address):
            return f"unbind the driver of {address}"
        case Remove(address=address):
            return f"remove {address}"
        case PowerOff(slot=slot):
            return f"switch slot {slot} off"
        case Wait() | Erase() | Done():
            return "do nothing"


def _power(slot: Slot | None) -> Action:
    if slot is None or slot.taken or not slot.powered or slot.present is False:
        return Done()
    return PowerOff(slot=slot.name)


def _order(function: Function) -> tuple[int, int, str]:
    """The farthest from the host first; of equals the last, so that function 0, which the others hang on, stays longest."""
    bus, _, number = function.address.rpartition(":")
    device, _, within = number.partition(".")
    # With ARI both parts are one number of 8 bits.
    return -function.path.count("/"), -(int(device, 16) << 3 | int(within, 16)), bus
