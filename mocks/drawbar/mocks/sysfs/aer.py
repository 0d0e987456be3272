"""The kernel's counters of PCI Express errors (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats).

A function has three files, with one line `<name> <count>` for each kind of error and a total at the end. The names are
the short ones recorded on Linux 6.1. A root port has three more files; they count the messages received from
everything below it. Counters only grow; they begin at zero when the device appears.
"""

import enum
from collections.abc import Mapping

from drawbar.mocks.sysfs import errors
from drawbar.mocks.sysfs.kobjects import Attribute, readable

_CORRECTABLE = (
    *("RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "NonFatalErr", "CorrIntErr", "HeaderOF"),
)
_UNCORRECTABLE = (
    *(
        "Undefined",
        "DLP",
        "SDES",
        "TLP",
        "FCP",
        "CmpltTO",
        "CmpltAbrt",
        "UnxCmplt",
        "RxOF",
        "MalfTLP",
        "ECRC",
    ),
    *("UnsupReq", "ACSViol", "UncorrIntErr", "BlockedTLP", "AtomicOpBlocked", "TLPBlockedErr"),
    *("PoisonTLPBlocked", "DMWrReqBlocked", "IDECheck", "MisIDETLP", "PCRC_CHECK", "TLPXlatBlocked"),
)


class Severity(enum.StrEnum):
    """The severity of an error; the value is the file's suffix."""

    CORRECTABLE = "correctable"
    NONFATAL = "nonfatal"
    FATAL = "fatal"

    @property
    def file(self) -> str:
        """Return the name of a function's file for these errors."""
        return f"aer_dev_{self.value}"

    @property
    def root_port_file(self) -> str:
        """Return the name of a root port's file for the messages of these errors."""
        return f"aer_rootport_total_err_{_SHORT[self]}"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the names of the errors in the file."""
        return _CORRECTABLE if self is Severity.CORRECTABLE else _UNCORRECTABLE


_SHORT = {Severity.CORRECTABLE: "cor", Severity.NONFATAL: "nonfatal", Severity.FATAL: "fatal"}


def files(*, root_port: bool = False) -> dict[str, Attribute]:
    """Return the counters of a device without errors."""
    counters = {severity.file: readable(_text(severity, {})) for severity in Severity}
    if root_port:
        counters |= {severity.root_port_file: readable("0") for severity in Severity}
    return counters


def add_errors(severity: Severity, text: str, counts: Mapping[str, int]) -> Attribute:
    """Return the file's content after these errors.

    Args:
        severity: the severity of the errors, and so the file.
        text: the file's present content.
        counts: the number of new errors, by the name in the file.

    Raises:
        ImpossibleWorld: there is no such error, or a count is negative.
    """
    unknown = sorted(counts.keys() - set(severity.kinds))
    if unknown:
        raise errors.ImpossibleWorld(
            f"{', '.join(unknown)}: no {severity} PCI Express error; there are {', '.join(severity.kinds)}"
        )
    if any(count < 0 for count in counts.values()):
        raise errors.ImpossibleWorld("error counters only grow: give counts of 0 and more")
    before = dict(_counters(text))
    return readable(
        _text(severity, {kind: before.get(kind, 0) + counts.get(kind, 0) for kind in severity.kinds})
    )


def _counters(text: str) -> list[tuple[str, int]]:
    lines = (line.rpartition(" ") for line in text.splitlines())
    return [(name, int(count)) for name, _, count in lines]


def _text(severity: Severity, counts: Mapping[str, int]) -> str:
    lines = [f"{kind} {counts.get(kind, 0)}" for kind in severity.kinds]
    total = sum(counts.values())
    return "\n".join([*lines, f"TOTAL_ERR_{_SHORT[severity].upper()} {total}"])
