"""Readings of a device for the judgement of its health, as values. Pure."""

import enum
from collections.abc import Mapping

import msgspec


class Severity(enum.StrEnum):
    """The severity of a PCI Express error; the value is the suffix of the counters' file."""

    CORRECTABLE = "correctable"
    NONFATAL = "nonfatal"
    FATAL = "fatal"


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of one severity since the kernel began to count.

    Attributes:
        total: the number of reports, each of one or more errors.
        kinds: the number of errors by the kernel's name for the kind, which differs between kernels; never 0.
    """

    total: int = 0
    kinds: Mapping[str, int] = msgspec.field(default_factory=dict)


class ErrorLog(msgspec.Struct, frozen=True, kw_only=True):
    """The error counters of one function or port.

    Attributes:
        address: its PCI address.
        counters: by severity, without those that the kernel does not count here.
    """

    address: str
    counters: Mapping[Severity, Counters]


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """The link between a card and the port above it, while it is up.

    Attributes:
        speed_gts: the current speed, per lane.
        width: the current number of lanes.
        most_gts: the highest speed that both ends support; None if the kernel does not show it.
        most_width: the most lanes that both ends have; None if the kernel does not show it.
    """

    speed_gts: float
    width: int
    most_gts: float | None = None
    most_width: int | None = None


class Memdev(msgspec.Struct, frozen=True, kw_only=True):
    """A CXL memory device.

    Attributes:
        name: such as `mem0`.
        driver: the driver of the memory device itself, `cxl_mem` if its endpoint is usable.
        security: the state of its media; None if the kernel does not show it.
        committed: the number of its endpoint's committed decoders; None if the kernel does not show it.
    """

    name: str
    driver: str | None
    security: str | None
    committed: int | None


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The reading of a present device.

    Attributes:
        address: its first function's address.
        device_class: its class in the inventory.
        driver: its first function's driver; None if none is bound.
        asleep: it is in a low-power state, so its link says nothing and must not be woken.
        silent: addresses of functions whose configuration space returns all ones.
        logs: the error counters of its functions and of the port above it.
        messages: the error messages from everything below that port, by severity; only for a root port.
        link: its link; None if there is none, it is down, or the device is asleep.
        nvme: states of its NVMe controllers by name.
        memdevs: its CXL memory devices.
        files: the contents of the files named by rules, by name; empty while it is asleep.
    """

    address: str
    device_class: str
    driver: str | None = None
    asleep: bool = False
    silent: tuple[str, ...] = ()
    logs: tuple[ErrorLog, ...] = ()
    messages: ErrorLog | None = None
    link: Link | None = None
    nvme: Mapping[str, str] = msgspec.field(default_factory=dict)
    memdevs: tuple[Memdev, ...] = ()
    files: Mapping[str, str] = msgspec.field(default_factory=dict)


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """The device is absent from the kernel's view."""


class Stuck(msgspec.Struct, frozen=True, kw_only=True):
    """A read of the device did not end in time.

    Attributes:
        seconds: the time limit.
    """

    seconds: float


Sample = Reading | Gone | Stuck
