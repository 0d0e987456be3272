"""The unbinding of a CXL region and its dax device, and a region's loss of a memory device.

If a memory device's driver unbinds or the card goes, each region with its decoder loses that target, its own driver
and its commitment, even if in use. The rest of the region stays (drivers/cxl/core/region.c, `cxl_decoder_kill_region`;
as seen on Linux 6.12).
"""

import dataclasses

from drawbar.mocks.sysfs import cards, hosts, kobjects, layouts, regions
from drawbar.mocks.sysfs.hotplug import Hotplug
from drawbar.mocks.sysfs.regions import Region


def release(change: Hotplug, region: Region) -> Region:
    """Unbind `cxl_region` from the region; return the region."""
    region, layout = release_dax(change, region), _layout(change)
    if region.bound:
        change.undo(regions.persistent(region, layout) if region.persistent else regions.dax(region, layout))
    change.part(regions.device(region))
    return remember(change, region, dataclasses.replace(region, bound=False))


def release_dax(change: Hotplug, region: Region) -> Region:
    """Unbind the dax device's driver; return the region. `kmem` removes the memory only if all of it is offline."""
    if not region.dax_driver:
        return region
    layout = _layout(change)
    if region.dax_driver == "kmem" and all(block in region.offline for block in region.blocks):
        change.undo(regions.memory(region, layout))
    change.part(regions.dax_device(region, layout))
    return remember(change, region, dataclasses.replace(region, dax_driver=""))


def uncommit(change: Hotplug, region: Region) -> Region:
    """Mark the region as uncommitted after unbinding it; return the region. Its decoders still belong to it."""
    released = release(change, region)
    return remember(change, released, dataclasses.replace(released, committed=False))


def lose(change: Hotplug, seat: cards.Seat) -> None:
    """Remove a memory device from its regions, before it or its driver goes."""
    lost = cards.endpoint_decoder(seat).rpartition("/")[2]
    for region in change.state.regions:
        if lost not in region.draft.targets:
            continue
        rest = uncommit(change, region) if region.committed else region
        targets = tuple("" if target == lost else target for target in rest.draft.targets)
        draft = dataclasses.replace(rest.draft, targets=targets)
        remember(change, rest, dataclasses.replace(rest, draft=draft))
        files = {"commit": "0", f"target{rest.draft.targets.index(lost)}": ""}
        for name, text in files.items():
            kobjects.rewrite(change.root / regions.path(rest) / name, kobjects.writable(text))


def remember(change: Hotplug, old: Region | None, new: Region | None) -> Region:
    """Replace, add or remove a region; return the new region, or the removed region."""
    remaining = [region for region in change.state.regions if old is None or region.number != old.number]
    fresh = tuple(sorted([*remaining, *([new] if new is not None else [])], key=lambda region: region.number))
    change.state = dataclasses.replace(change.state, regions=fresh)
    kept = new or old
    assert kept is not None, "a region must be named"
    return kept


def _layout(change: Hotplug) -> layouts.Layout:
    return hosts.Host(str(change.root), change.state).layout
