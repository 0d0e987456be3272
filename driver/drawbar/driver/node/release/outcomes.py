"""How far the release of a device is."""

from dataclasses import dataclass

IN_USE = "InUse"
REFUSED = "KernelRefused"
SILENT = "KernelSilent"
STUCK = "NoProgress"


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The kernel has nothing of the device any more: the fabric can take it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """The device cannot be taken away now.

    Attributes:
        reason: one word, as a condition has it: `InUse`, `KernelRefused`, `KernelSilent` or `NoProgress`.
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
