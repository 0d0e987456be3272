"""The effects of writes to the files of a mocked host.

| file | written | effect |
|---|---|---|
| `bus/pci/slots/N/power` | 0, 1 | the card's functions go; a present card comes up |
| `.../driver/unbind`, `bus/pci/drivers/X/bind`, `bus/pci/drivers_probe` | an address | the function loses or gets its driver |
| a function's `remove` | 1 | its card's functions go, the slot keeps its power |
| `bus/pci/rescan`, a function's `rescan` | 1 | the removed cards come back |
| a function's `reset` | 1 | the reset is counted: `SysfsTree.resets` |
| `sriov_numvfs` | a number | virtual functions come or go |
| `memoryN/state`, `memoryN/online` | `offline`, `online`, ... | the block goes offline or comes online |
| a root decoder's `create_ram_region`, `create_pmem_region` | `region0` | an empty region appears |
| a root decoder's `delete_region` | `region0` | the region is removed |
| `regionN/interleave_ways` | a number | the region gets this number of `target` files |
| `regionN/interleave_granularity`, `uuid`, `size`, `targetN` | a value | shown, or refused in the wrong order as in the kernel |
| `regionN/commit` | 0, 1 | the decoders are freed, or programmed |
| `bus/{cxl,dax}/drivers/X/{bind,unbind}` | a name | `cxl_region` makes the dax device, `kmem` the memory |
| `bus/dax/drivers/X/new_id` | a name | the dax device gets that driver, if it has none |

Other files keep the written text, without effect. A write to a plain file cannot fail. So if a kernel would refuse a
write (EBUSY, ERANGE, ENODEV, EINVAL), the file soon shows its previous content again. `driver_override` is read when a
driver is to bind. Of two writes to one file at the same time only the later one counts; a kernel does both. A driver
without any device yet has no `bind` and `unbind`.

Source: Documentation/ABI/testing/sysfs-bus-pci, sysfs-bus-cxl, sysfs-devices-memory, sysfs-bus-dax.
"""

import contextlib
import logging
import re
from collections.abc import Callable
from pathlib import Path

from drawbar.mocks.sysfs import errors, hotplug, kobjects, lifecycle, memory, sriov
from drawbar.mocks.sysfs.hotplug import Hotplug

_logger = logging.getLogger(__name__)

Reaction = Callable[[Hotplug, str, str], None]
"""A function of a change, the match in the path, and the written text."""

_ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_ON = frozenset({"1", "y", "Y", "on"})


def react(root: Path, path: str) -> None:
    """Carry out the effect of a write to the file at `path`, below the root. Blocking.

    Afterwards the file shows the same as in a kernel.
    """
    row_and_match = next(((row, match) for row in _TABLE if (match := row[0].fullmatch(path))), None)
    if row_and_match is None:
        return
    (_, reaction), match = row_and_match
    with hotplug.changing(root) as change:
        text = kobjects.take_write(root / path)
        if text is None:
            return
        try:
            reaction(change, match["what"], text)
        except (errors.ImpossibleWorld, ValueError) as refused:
            _logger.info(
                "a kernel would refuse this", extra={"path": path, "text": text, "why": str(refused)}
            )
        _settle(change, path, text)


def is_known(path: str) -> bool:
    """Return true if writes to that file have an effect."""
    return any(pattern.fullmatch(path) for pattern, _ in _TABLE)


def _settle(change: Hotplug, path: str, written: str) -> None:
    """Clear a trigger; restore the shown state of a state file. Skip both if another process has written meanwhile."""
    file = change.root / path
    shown = _format_state(change, file)
    with contextlib.suppress(FileNotFoundError):
        status = file.stat()
        if status.st_mtime_ns:
            return
        if not status.st_mode & 0o044:
            kobjects.write(file, kobjects.trigger(status.st_mode & 0o220))
        elif shown not in (None, written):
            kobjects.write(file, kobjects.writable(str(shown)))


def _format_state(change: Hotplug, file: Path) -> str | None:
    """Return the text of a state file; None if the file shows no state, or shows the written text."""
    owner = file.parent.name
    match file.name:
        case "power":
            inserted = change.state.inserted_cards.get(int(owner))
            return str(int(inserted is not None and inserted.powered))
        case "sriov_numvfs":
            slot = lifecycle.host(change).slot_at(owner)
            return str(change.state.inserted_cards[slot].vfs) if slot is not None else None
        case "commit":
            return str(int(memory.is_committed(change, owner)))
        case _:
            return None


def _power(change: Hotplug, what: str, text: str) -> None:
    """Switch the slot. Text counts as 0, and of a number the lowest byte (drivers/pci/hotplug/pci_hotplug_core.c)."""
    leading = re.match(r"\d*", text)
    number = int((leading and leading[0]) or 0) & 0xFF
    if text and number == 0:  # an empty file is in the middle of a write
        lifecycle.switch_off(change, int(what))
    elif number == 1:
        lifecycle.switch_on(change, int(what))


def _unbind(change: Hotplug, what: str, text: str) -> None:
    """Unbind the driver `what` from the function `text`."""
    slot = lifecycle.host(change).slot_at(text)
    if slot is None or (change.root / f"bus/pci/devices/{text}/driver").resolve().name != what:
        return
    if text == lifecycle.host(change).seat(slot).address:
        lifecycle.unbind(change, slot)
        return
    number = _virtual_number(change, slot, text)
    if number is not None:
        lifecycle.unbind_virtual(change, slot, number)


def _virtual_number(change: Hotplug, slot: int | None, address: str) -> int | None:
    """Return the number of the slot's virtual function at the address, or None."""
    if slot is None:
        return None
    virtual = sriov.addresses(lifecycle.host(change).seat(slot), change.state.inserted_cards[slot].vfs)
    return virtual.index(address) if address in virtual else None


def _bind(change: Hotplug, what: str, text: str) -> None:
    slot = lifecycle.host(change).slot_at(text)
    number = _virtual_number(change, slot, text)
    if slot is not None and number is not None:
        lifecycle.bind_virtual(change, slot, number, what)
    elif slot is not None:
        lifecycle.bind(change, slot, what)


def _probe(change: Hotplug, _what: str, text: str) -> None:
    slot = lifecycle.host(change).slot_at(text)
    number = _virtual_number(change, slot, text)
    if slot is not None and number is not None:
        lifecycle.bind_virtual(change, slot, number)
    elif slot is not None:
        for driver in lifecycle.list_matching_drivers(change, slot):
            lifecycle.bind(change, slot, driver)


def _remove(change: Hotplug, what: str, text: str) -> None:
    slot = _own_function(change, what)
    if slot is not None and text in _ON:
        lifecycle.remove(change, slot)


def _rescan(change: Hotplug, _what: str, text: str) -> None:
    if text in _ON:
        lifecycle.rescan(change)


def _reset(change: Hotplug, what: str, text: str) -> None:
    slot = lifecycle.host(change).slot_at(what)
    if slot is not None and text in _ON:
        lifecycle.reset(change, slot)


def _vfs(change: Hotplug, what: str, text: str) -> None:
    slot = _own_function(change, what)
    if slot is not None:
        lifecycle.set_vfs(change, slot, int(text, 0))


def _own_function(change: Hotplug, address: str) -> int | None:
    """Return the slot of the card whose first function has the address, or None."""
    slot = lifecycle.host(change).slot_at(address)
    return slot if slot is not None and lifecycle.host(change).seat(slot).address == address else None


def _ignore_write(_change: Hotplug, _what: str, _text: str) -> None:
    """Ignore the write."""


_TABLE: tuple[tuple[re.Pattern[str], Reaction], ...] = tuple(
    (re.compile(pattern), reaction)
    for pattern, reaction in (
        (r"bus/pci/slots/(?P<what>\d+)/power", _power),
        (r"bus/pci/drivers/(?P<what>[^/]+)/unbind", _unbind),
        (r"bus/pci/drivers/(?P<what>[^/]+)/bind", _bind),
        (r"bus/pci/(?P<what>drivers_probe)", _probe),
        (r"bus/pci/(?P<what>rescan)", _rescan),
        (rf"devices/.*/(?P<what>{_ADDRESS})/remove", _remove),
        (rf"devices/.*/(?P<what>{_ADDRESS})/rescan", _rescan),
        (rf"devices/.*/(?P<what>{_ADDRESS})/reset", _reset),
        (rf"devices/.*/(?P<what>{_ADDRESS})/sriov_numvfs", _vfs),
        (r"devices/system/memory/memory(?P<what>\d+)/(state|online)", memory.set_block),
        (r"devices/.*/decoder\d+\.\d+/(?P<what>create_(ram|pmem)_region)", memory.create),
        (r"devices/.*/decoder\d+\.\d+/(?P<what>delete_region)", memory.delete),
        (r"devices/.*/(?P<what>region\d+)/interleave_ways", memory.set_ways),
        (r"devices/.*/(?P<what>region\d+)/interleave_granularity", memory.set_granularity),
        (r"devices/.*/decoder\d+\.\d+/(?P<what>region\d+)/uuid", memory.set_uuid),
        (r"devices/.*/decoder\d+\.\d+/(?P<what>region\d+)/size", memory.set_size),
        (r"devices/.*/decoder\d+\.\d+/(?P<what>region\d+/target\d+)", memory.set_target),
        (r"devices/.*/(?P<what>region\d+)/commit", memory.set_commit),
        (r"bus/(cxl|dax)/drivers/(?P<what>[^/]+)/unbind", memory.unbind),
        (r"bus/(cxl|dax)/drivers/(?P<what>[^/]+)/bind", memory.bind),
        (r"bus/dax/drivers/(?P<what>[^/]+)/new_id", memory.add_id),
        (r"bus/dax/drivers/(?P<what>[^/]+)/remove_id", _ignore_write),
        (r"bus/(?P<what>cxl|dax)/drivers_probe", memory.probe),
        (r"devices/.*/(?P<what>reset_controller|rescan_controller)", _ignore_write),
    )
)
