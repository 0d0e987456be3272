"""The effects of writes to the files of CXL regions, dax devices and memory blocks on a mocked host.

A region is made empty, gets targets and a size, and is committed. Bound to `cxl_region`, it gets a dax device, which
`kmem` takes. Its memory blocks then come online according to `auto_online_blocks`. If any memory is still online when
`kmem` unbinds, all of it stays forever, and so does the device's name (drivers/dax/kmem.c). A region of persistent
memory needs a `uuid`, with a final newline, before anything else.

A region accepts writes in the kernel's order (drivers/cxl/core/region.c): first ways and granularity, which are fixed
once it has a size; then the size; then the targets, each decoder once. Sizes of the endpoint decoders (`dpa_size`,
`mode`) are not required.
"""

import dataclasses
import uuid
from typing import Any

from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import cards, errors, kobjects, layouts, lifecycle, regions, unbinding
from drawbar.mocks.sysfs.hotplug import Hotplug
from drawbar.mocks.sysfs.regions import Region
from drawbar.mocks.sysfs.steps import Bind, Write

_ONLINE = frozenset({"online", "online_movable", "online_kernel", "1"})
_MOVABLE = "online_movable"
_OFFLINE = frozenset({"offline", "0"})


def create(change: Hotplug, what: str, text: str) -> None:
    """Handle `create_ram_region` and `create_pmem_region` (`what`): make an empty region of the shown name.

    Refuse while there is an uncommitted region. A kernel makes the region before the write returns, so no caller
    requests a second by mistake.
    """
    fresh = Region(
        number=_free(change),
        committed=False,
        bound=False,
        dax_driver="",
        persistent=what == "create_pmem_region",
        says_mode=lifecycle.host(change).layout.says_mode,
    )
    if text != fresh.name:
        _show_next(change)
        raise errors.ImpossibleWorld(
            f"ESTALE: the next region is {fresh.name}, not {text}: read {what} again"
        )
    if any(not region.committed for region in change.state.regions):
        raise errors.ImpossibleWorld("a region that was made before is not committed yet")
    unbinding.remember(change, None, fresh)
    change.take(regions.empty(fresh))
    _show_next(change)


def delete(change: Hotplug, _what: str, text: str) -> None:
    """Handle `delete_region`: remove everything on top of the region, then the region."""
    region = _find_region(change, text)
    if region is None:
        raise errors.ImpossibleWorld(f"ENODEV: there is no {text}")
    region, layout = unbinding.release(change, region), lifecycle.host(change).layout
    change.undo(step for step in regions.steps(region, layout) if not isinstance(step, Write))
    change.take(regions.free_decoders(region, layout))
    unbinding.remember(change, region, None)
    _show_next(change)


def set_ways(change: Hotplug, what: str, text: str) -> None:
    """Handle `interleave_ways`: set the number of targets."""
    region, ways = _require_region(change, what), int(text, 0)
    if region.draft.size_bytes:
        raise _refusal(change, region, "interleave_ways", f"EBUSY: {what} has a size")
    if ways not in regions.WAYS:
        raise _refusal(change, region, "interleave_ways", f"EINVAL: {what} cannot have {ways} ways")
    kept = region.draft.targets[:ways]
    targets = (*kept, *("" for _ in range(ways - len(kept))))
    fresh = _take(change, region, "interleave_ways", ways=ways, targets=targets)
    folder = change.root / regions.path(fresh)
    for position in range(len(kept), ways):
        kobjects.write(folder / f"target{position}", kobjects.writable(""))
    for position in range(ways, len(region.draft.targets)):
        (folder / f"target{position}").unlink(missing_ok=True)


def set_granularity(change: Hotplug, what: str, text: str) -> None:
    """Handle `interleave_granularity`, in bytes."""
    region, granularity = _require_region(change, what), int(text, 0)
    if region.draft.size_bytes:
        raise _refusal(change, region, "interleave_granularity", f"EBUSY: {what} has a size")
    if granularity not in regions.GRANULARITIES:
        raise _refusal(
            change, region, "interleave_granularity", f"EINVAL: {what} cannot have {granularity} bytes"
        )
    _take(change, region, "interleave_granularity", granularity=granularity)


def set_uuid(change: Hotplug, what: str, _text: str) -> None:
    """Handle `uuid` of a persistent region: 36 characters and a newline."""
    region = _require_region(change, what)
    file = change.root / regions.path(region) / "uuid"
    written = file.read_text()
    if region.persistent and not region.committed and written.endswith("\n") and _is_uuid(written[:-1]):
        unbinding.remember(change, region, dataclasses.replace(region, uuid=written[:-1]))
        return
    kobjects.write(file, regions.device(region).files["uuid"])
    raise errors.ImpossibleWorld(f"EINVAL: {what} takes no uuid {written!r}")


def set_size(change: Hotplug, what: str, text: str) -> None:
    """Handle `size`; the file shows it in hexadecimal."""
    region, size = _require_region(change, what), int(text, 0)
    draft = region.draft
    if not draft.ways or not draft.granularity or (region.persistent and not region.uuid):
        raise _refusal(change, region, "size", f"ENXIO: {what} has no ways, no granularity or no uuid yet")
    if region.committed or (draft.size_bytes and size not in (0, draft.size_bytes)):
        raise _refusal(change, region, "size", f"EBUSY: {what} has a size")
    if size % (draft.ways * layouts.MEMORY_BLOCK_BYTES):
        raise _refusal(change, region, "size", f"EINVAL: {what} cannot have {size} bytes")
    _take(change, region, "size", size_bytes=size)


def set_target(change: Hotplug, what: str, text: str) -> None:
    """Handle `target0` and so on (`what`: with its region)."""
    name, _, number = what.partition("/target")
    region, file, position = _require_region(change, name), f"target{number}", int(number)
    targets = region.draft.targets
    if not region.draft.size_bytes or position >= len(targets):
        raise _refusal(change, region, file, f"ENXIO: {name} has no size yet")
    if region.committed:
        raise _refusal(change, region, file, f"EBUSY: {name} is committed")
    if text in targets[:position] + targets[position + 1 :] and text:
        raise _refusal(change, region, file, f"EBUSY: {text} is another target of {name}")
    if text and text not in _decoders(change):
        raise _refusal(change, region, file, f"ENODEV: there is no decoder {text}")
    _take(change, region, file, targets=(*targets[:position], text, *targets[position + 1 :]))


def set_commit(change: Hotplug, what: str, text: str) -> None:
    """Handle `commit`: program the decoders, or free them after unbinding `cxl_region`."""
    region, layout = _require_region(change, what), lifecycle.host(change).layout
    if text == "0" and region.committed:
        unbinding.uncommit(change, region)
    elif text == "1" and not region.committed:
        wanted = _build_region(change, region)
        unbinding.remember(change, region, wanted)
        change.take(regions.decoders(wanted, layout))
        resource = kobjects.readable(f"{wanted.start:#x}")
        kobjects.write(change.root / regions.path(wanted) / "resource", resource)


def is_committed(change: Hotplug, name: str) -> bool:
    """Return true if the region of that name is committed."""
    region = _find_region(change, name)
    return region is not None and region.committed


def set_block(change: Hotplug, what: str, text: str) -> None:
    """Handle `state` and `online` of a memory block."""
    number = int(what)
    region = next((candidate for candidate in change.state.regions if number in candidate.blocks), None)
    if region is None:
        return
    fresh = region
    if text in _OFFLINE and number not in region.kept:
        fresh = dataclasses.replace(region, offline=tuple(sorted({*region.offline, number})))
    elif text in _ONLINE and number in region.offline:
        rest = tuple(other for other in region.offline if other != number)
        normal = {*region.normal, number} if text != _MOVABLE else {*region.normal} - {number}
        fresh = dataclasses.replace(region, offline=rest, normal=tuple(sorted(normal)))
    unbinding.remember(change, region, fresh)
    step, _ = regions.memory_block(fresh, lifecycle.host(change).layout, number)
    for name, attribute in regions.block_files(fresh.zone(number)).items():
        kobjects.rewrite(change.root / step.kobject.path / name, attribute)
    if fresh != region:
        change.announce("offline" if number in fresh.offline else "online", step.kobject)


def keep_online(change: Hotplug, name: str) -> None:
    """Keep the region's online blocks online from now on.

    Raises:
        ImpossibleWorld: there is no such region.
    """
    region = _require_region(change, name)
    kept = tuple(block for block in region.blocks if block not in region.offline)
    unbinding.remember(change, region, dataclasses.replace(region, kept=kept))


def unbind(change: Hotplug, what: str, text: str) -> None:
    """Handle `unbind` of a driver of the bus: `what` is the driver, `text` the device."""
    for region in change.state.regions:
        if what == "cxl_region" and text == region.name and region.bound:
            unbinding.release(change, region)
        elif text == region.dax and what == region.dax_driver and what:
            unbinding.release_dax(change, region)


def bind(change: Hotplug, what: str, text: str) -> None:
    """Handle `bind` of a driver of the bus; the arguments are as in `unbind`."""
    for region in change.state.regions:
        if what == "cxl_region" and text == region.name:
            _bind(change, region)
        elif text == region.dax and region.bound and not region.dax_driver and what == "kmem":
            # `device_dax` binds by id only (`add_id`).
            _take_dax(change, region, what)


def add_id(change: Hotplug, what: str, text: str) -> None:
    """Handle `new_id` of a driver of the dax bus: bind it to the device if that has none. The id is not kept."""
    for region in change.state.regions:
        if text == region.dax and region.bound and not region.dax_driver:
            _take_dax(change, region, what)


def probe(change: Hotplug, what: str, text: str) -> None:
    """Handle `drivers_probe` of the bus `what`: bind the usual driver to the device."""
    bind(change, "cxl_region" if what == "cxl" else "kmem", text)


def _bind(change: Hotplug, region: Region) -> None:
    """Bind `cxl_region`, and `kmem` to the dax device, unless the dax bus has `drivers_autoprobe` 0.

    An uncommitted region is not bound (ENXIO).
    """
    if region.bound or not region.committed:
        return
    fresh = dataclasses.replace(region, bound=True)
    unbinding.remember(change, region, fresh)
    if region.persistent:
        change.take(regions.persistent(fresh, lifecycle.host(change).layout))
        return
    layout = lifecycle.host(change).layout
    change.take([*regions.dax_made(fresh, layout), Bind(kobject=regions.device(fresh))])
    if (change.root / "bus/dax/drivers_autoprobe").read_text().strip() != "0":
        _take_dax(change, fresh, "kmem")


def _take_dax(change: Hotplug, region: Region, driver: str) -> None:
    if driver not in {"kmem", "device_dax"}:
        return
    layout = lifecycle.host(change).layout
    policy = (change.root / layouts.ONLINE_POLICY).read_text().strip()
    blocks = tuple(region.blocks)
    fresh = dataclasses.replace(
        region,
        dax_driver=driver,
        offline=blocks if policy == "offline" else (),
        normal=blocks if policy != _MOVABLE else (),
    )
    unbinding.remember(change, region, fresh)
    if driver == "kmem":
        change.take(regions.memory(fresh, layout))
        for number in fresh.blocks:
            if number not in fresh.offline:
                change.announce("online", regions.memory_block(fresh, layout, number)[0].kobject)
    change.take([Bind(kobject=regions.dax_device(fresh, layout))])


def _build_region(change: Hotplug, region: Region) -> Region:
    """Return the region described by its files.

    Raises:
        ImpossibleWorld: they do not describe a possible region.
    """
    _check_named(region)
    draft, host = region.draft, lifecycle.host(change)
    targets, decoders = draft.targets, _decoders(change)
    if not targets or any(target not in decoders for target in targets):
        raise errors.ImpossibleWorld(f"ENXIO: {region.name} has no targets that are there: {targets}")
    remaining = tuple(other for other in change.state.regions if other.number != region.number)
    whole = dataclasses.replace(
        host.new_region([decoders[target] for target in targets], remaining), number=region.number
    )
    if draft.size_bytes != whole.size_bytes:
        raise errors.ImpossibleWorld(
            f"{region.name} must use all of its cards' memory, {whole.size_bytes} bytes"
        )
    if whole.persistent != region.persistent:
        raise errors.ImpossibleWorld(f"ENXIO: the memory of {region.name}'s targets is of the other kind")
    return dataclasses.replace(whole, bound=False, dax_driver="", uuid=region.uuid, draft=draft)


def _decoders(change: Hotplug) -> dict[str, int]:
    """Return the slots of the memory cards by the names of their decoders."""
    host = lifecycle.host(change)
    return {
        cards.endpoint_decoder(host.seat(slot)).rpartition("/")[2]: slot
        for slot, inserted in change.state.inserted_cards.items()
        if inserted.device.device_class is DeviceClass.CXL_MEMORY and inserted.shown
    }


def _take(change: Hotplug, region: Region, file: str, **changes: Any) -> Region:
    """Save an accepted value, show it in the file, and return the region."""
    draft = dataclasses.replace(region.draft, **changes)
    fresh = unbinding.remember(change, region, dataclasses.replace(region, draft=draft))
    _show(change, fresh, file)
    return fresh


def _refusal(change: Hotplug, region: Region, file: str, why: str) -> errors.ImpossibleWorld:
    """Restore the file's content; return the error."""
    _show(change, region, file)
    return errors.ImpossibleWorld(why)


def _show(change: Hotplug, region: Region, file: str) -> None:
    """Rewrite one file as the kernel shows it. Others may have unread writes."""
    draft = region.draft
    shown = {
        "interleave_ways": str(draft.ways),
        "interleave_granularity": str(draft.granularity),
        "size": f"{draft.size_bytes:#x}",
        **{f"target{position}": target for position, target in enumerate(draft.targets)},
    }
    kobjects.rewrite(change.root / regions.path(region) / file, kobjects.writable(shown.get(file, "")))


def _check_named(region: Region) -> None:
    if region.persistent and not region.uuid:
        raise errors.ImpossibleWorld(f"ENXIO: {region.name} is of persistent memory: write its uuid first")


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def _show_next(change: Hotplug) -> None:
    for name in regions.CREATE:
        if (change.root / name).exists():
            kobjects.write(change.root / name, kobjects.writable(f"region{_free(change)}"))


def _free(change: Hotplug) -> int:
    taken = {region.number for region in change.state.regions}
    return next(number for number in range(len(taken) + 1) if number not in taken)


def _find_region(change: Hotplug, name: str) -> Region | None:
    return next((region for region in change.state.regions if region.name == name), None)


def _require_region(change: Hotplug, name: str) -> Region:
    region = _find_region(change, name)
    if region is None:
        raise errors.ImpossibleWorld(f"ENODEV: there is no {name}")
    return region
