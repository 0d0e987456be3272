"""What is read of a device to judge its health, as values; pure."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Severity(enum.StrEnum):
    """How bad a PCI Express error is; the value is the suffix of the counters' file."""

    CORRECTABLE = "correctable"
    NONFATAL = "nonfatal"
    FATAL = "fatal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Errors of one severity since the kernel began to count.

    Attributes:
        total: how many times one or more of them were reported.
        kinds: those that there were, by the kernel's name, which differs between kernels.
    """

    total: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorLog:
    """What one function or port counted.

    Attributes:
        place: its PCI address.
        counters: by severity; a severity that the kernel does not count here is not in it.
    """

    place: str
    counters: Mapping[Severity, Counters]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The link between a card and the port above it, while it is up.

    Attributes:
        speed_gts: as it runs now, per lane.
        width: lanes that it runs on now.
        most_gts: the fastest that both ends can; None where the kernel does not report it.
        most_width: the most lanes that both ends have.
    """

    speed_gts: float
    width: int
    most_gts: float | None = None
    most_width: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memdev:
    """A CXL memory device.

    Attributes:
        name: such as `mem0`.
        driver: the driver of the memory device itself, `cxl_mem` where its endpoint is usable.
        security: the state of its media, where the kernel reports it.
        committed: how many of its endpoint's decoders map memory; None where the kernel does not report it.
    """

    name: str
    driver: str | None
    security: str | None
    committed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was read of a device that is there.

    Attributes:
        address: of its first function.
        device_class: as the inventory classifies it.
        driver: bound to its first function; None where none is.
        asleep: the kernel has put it into a low-power state, so its link says nothing and must not be woken.
        silent: addresses of functions whose configuration space answers all ones.
        logs: what its functions and the port above it counted.
        messages: of errors of everything below it, counted by that port if it is a root port; by severity.
        link: None where there is none, and while it is down or the device asleep.
        nvme: states of its NVMe controllers by name.
        memdevs: its CXL memory devices.
        files: what the files that rules name say, by name; none of a device that sleeps.
    """

    address: str
    device_class: str
    driver: str | None = None
    asleep: bool = False
    silent: tuple[str, ...] = ()
    logs: tuple[ErrorLog, ...] = ()
    messages: ErrorLog | None = None
    link: Link | None = None
    nvme: Mapping[str, str] = field(default_factory=dict)
    memdevs: tuple[Memdev, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """The kernel does not show the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """A read of the device has not ended.

    Attributes:
        seconds: how long it was given.
    """

    seconds: float


Sample = Reading | Gone | Stuck
