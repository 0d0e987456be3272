"""The reading of one card's health from sysfs. It needs no privilege and writes nothing; each file may be missing.

It never wakes a sleeping device. While the kernel shows a low-power state, configuration space and link are not read,
because a read would power the device up.

Sources: Documentation/ABI/testing/sysfs-bus-pci (power_state, link), sysfs-bus-pci-devices-aer_stats, sysfs-bus-cxl
(security/state, decoders_committed); drivers/nvme/host/sysfs.c (state).
"""

import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from drawbar.driver.node.health import policy, samples
from drawbar.driver.node.health.samples import Counters, ErrorLog, Severity
from drawbar.driver.node.inventory import files, model, pci

_MESSAGES = {
    Severity.CORRECTABLE: "aer_rootport_total_err_cor",
    Severity.NONFATAL: "aer_rootport_total_err_nonfatal",
    Severity.FATAL: "aer_rootport_total_err_fatal",
}
T = TypeVar("T", int, float)


def read(sysfs: Path, card: model.Card) -> samples.Sample:
    """Return the current health reading of a card. Blocks on file reads, and indefinitely if a driver hangs.

    Args:
        sysfs: the path of sysfs.
        card: the inventory's card; only its paths, classes, addresses and memory devices are used.
    """
    root = os.fspath(sysfs)
    first = f"{root}/{card.first.path}"
    # One listing separates "gone" from "no such file", and shows which reads to skip.
    names = {entry.name for entry in files.entries(first)}
    if not names:
        return samples.Gone()
    top = _find_top(card)
    above = _port_above(top)
    asleep = files.text(first + "/power_state") in model.ASLEEP
    physical = [function for function in card.functions if function.physical_function is None]
    port = f"{root}/{above}" if above is not None else None
    logs = [_log(f"{root}/{function.path}") for function in physical]
    return samples.Reading(
        address=card.address,
        device_class=str(card.first.device_class),
        driver=files.link_name(first + "/driver") if "driver" in names else None,
        asleep=asleep,
        silent=()
        if asleep
        else tuple(function.address for function in physical if pci.is_silent(f"{root}/{function.path}")),
        logs=tuple(log for log in (*logs, _log(port) if port else None) if log is not None),
        messages=_messages(port) if port else None,
        link=None if asleep else _link(f"{root}/{top.path}", port),
        nvme=_nvme(first) if "nvme" in names else {},
        memdevs=tuple(_memdevs(root, card)),
        files={} if asleep else _files(first),
    )


def _files(path: str) -> dict[str, str]:
    """Return the contents of the files named by rules, without missing ones."""
    texts = ((name, files.text(f"{path}/{name}")) for name in policy.FILES)
    return {name: text for name, text in texts if text is not None}


@functools.lru_cache(maxsize=64)  # nearly all files of a host have the same content: no errors
def counters(text: str) -> Counters | None:
    """Return the contents of a file of error counters, or None if it has none.

    A line is a name, which may have spaces, and a number. The total counts reports, and one report can name several errors.
    Without a total it is the sum of the errors.
    """
    total, kinds, understood = None, {}, False
    for line in text.splitlines():
        name, _, amount = line.strip().rpartition(" ")
        if not name or not (amount.isascii() and amount.isdigit()):
            continue
        understood = True
        if name.startswith("TOTAL_ERR"):
            total = int(amount)
        elif int(amount):
            kinds[name.strip()] = int(amount)
    if not understood:
        return None
    return Counters(total=sum(kinds.values()) if total is None else total, kinds=kinds)


def _log(path: str) -> ErrorLog | None:
    by_severity = {}
    for severity in Severity:
        text = files.text(f"{path}/aer_dev_{severity}")
        if text is None:
            # All three files exist, or, without the capability, none.
            return None
        if (counted := counters(text)) is not None:
            by_severity[severity] = counted
    return _error_log(path, by_severity)


def _messages(port: str) -> ErrorLog | None:
    """Return the error messages received by a root port, or None for any other port."""
    by_severity = {}
    for severity, name in _MESSAGES.items():
        amount = files.number(f"{port}/{name}")
        if amount is None:
            return None
        by_severity[severity] = Counters(total=amount)
    return _error_log(port, by_severity)


def _error_log(path: str, by_severity: Mapping[Severity, Counters]) -> ErrorLog | None:
    return ErrorLog(address=path.rpartition("/")[2], counters=by_severity) if by_severity else None


def _find_top(card: model.Card) -> model.PciFunction:
    """Return the card's function at the end of its slot's link: a card may hold a switch."""
    by_path = {function.path: function for function in card.functions}
    top = card.first
    while (above := by_path.get(top.path.rpartition("/")[0])) is not None:
        top = above
    return top


def _port_above(function: model.PciFunction) -> str | None:
    """Return the directory of the port above a function, or None directly below a root complex."""
    path = function.path.rpartition("/")[0]
    return path if pci.ADDRESS.fullmatch(path.rpartition("/")[2]) else None


def _link(path: str, port: str | None) -> samples.Link | None:
    """Return the current link and the most that both ends support, or None if it is down or absent."""
    if port is None:
        return None
    speed, width = _speed(path, "current"), _width(path, "current")
    if speed is None or width is None:
        return None
    return samples.Link(
        speed_gts=speed,
        width=width,
        most_gts=_minimum(_speed(path, "max"), _speed(port, "max")),
        most_width=_minimum(_width(path, "max"), _width(port, "max")),
    )


def _speed(path: str, which: str) -> float | None:
    return pci.link_speed(files.text(f"{path}/{which}_link_speed"))


def _width(path: str, which: str) -> int | None:
    return pci.link_width(files.number(f"{path}/{which}_link_width"))


def _minimum(first: T | None, other: T | None) -> T | None:
    values = [value for value in (first, other) if value is not None]
    return min(values) if values else None


def _nvme(path: str) -> dict[str, str]:
    states = ((name, files.text(f"{path}/nvme/{name}/state")) for name in files.names(path + "/nvme"))
    return {name: state for name, state in states if state}


def _memdevs(root: str, card: model.Card) -> Iterator[samples.Memdev]:
    for memdev in card.memdevs:
        path = f"{root}/{memdev.path}"
        yield samples.Memdev(
            name=memdev.name,
            driver=files.link_name(path + "/driver"),
            security=files.text(path + "/security/state") or None,
            committed=_count_committed(root, memdev.name),
        )


def _count_committed(root: str, memdev: str) -> int | None:
    """Return the number of the memory device's endpoint decoders that map memory, or None if sysfs does not show it."""
    bus = f"{root}/bus/cxl/devices"
    for name in files.names(bus):
        if name.startswith("endpoint") and files.link_name(f"{bus}/{name}/uport") == memdev:
            committed = files.number(f"{bus}/{name}/decoders_committed")
            return _count_with_region(f"{bus}/{name}") if committed is None else committed
    return None


def _count_with_region(endpoint: str) -> int:
    """Return the number of decoders with a region, for kernels before 6.7."""
    decoders = (name for name in files.names(endpoint) if name.startswith("decoder"))
    return sum(bool(files.text(f"{endpoint}/{name}/region")) for name in decoders)
