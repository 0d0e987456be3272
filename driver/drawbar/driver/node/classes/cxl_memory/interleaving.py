"""The plan for one region over the memory of all members of a composite: its next step. `region_steps` has the way back. Pure.

Invariant: a region is committed only with all memory of all members, the same amount from each. Other regions on members
only are removed first, in the order of a release. They are a member's own region, which a device without a claim has, or
the rest of a crash. Persistent regions, and regions with other devices, are left unchanged.

The ports above the members determine each member's position. The window alternates between its host bridges, each bridge
between the ports below it, and so on. The kernel refuses the last target of any other order (drivers/cxl/core/region.c,
`cxl_port_setup_targets`). Members at the same port may be in any order.

Sizes are bytes. Source: Documentation/ABI/testing/sysfs-bus-cxl; CXL 3.1, 9.13.1.
"""

import itertools

import msgspec

from drawbar.driver.node.classes.cxl_memory import region_steps
from drawbar.driver.node.inventory import model


class Ensemble(msgspec.Struct, frozen=True, kw_only=True):
    """Several memory devices for one region.

    Attributes:
        members: in the composite's order.
        windows: the root decoders for volatile memory above any member, by member and then the widest first.
        empties: regions without any target yet.
    """

    members: tuple[region_steps.Layout, ...]
    windows: tuple[region_steps.Window, ...] = ()
    empties: tuple[region_steps.Region, ...] = ()

    @property
    def regions(self) -> tuple[region_steps.Region, ...]:
        """Return the regions with a decoder of any member, each once."""
        by_name = {region.name: region for member in self.members for region in member.regions}
        return tuple(by_name.values())


class CannotInterleave(msgspec.Struct, frozen=True, kw_only=True):
    """The devices can never form one region; `why` is a clause with the remedy."""

    why: str


WAYS = (1, 2, 3, 4, 6, 8, 12, 16)
"""The possible interleave ways of a region; multiples of three need a window over three host bridges."""


def towards_interleaved(
    ensemble: Ensemble,
    driver: model.DaxDriver = region_steps.DEVICE_DAX,
    granularity_bytes: int | None = None,
) -> region_steps.Action | region_steps.Missing | CannotInterleave | None:
    """Return the next step to usable memory in one region of all members, or None if it is ready.

    Args:
        ensemble: all members, with their regions.
        driver: the driver for its dax device.
        granularity_bytes: the interleave granularity; None for the window's.
    """
    problem = _find_problem(ensemble.members)
    if problem is not None:
        return problem
    decoders = {name for member in ensemble.members for name in member.decoders}
    for region in ensemble.regions:
        if region.mode not in (None, region_steps.VOLATILE):
            return CannotInterleave(
                why=f"{region.name} holds persistent memory of these devices: destroy it, or leave memory.interleave out"
            )
        foreign = [target for target in region.targets if target not in decoders]
        if foreign:
            return CannotInterleave(
                why=f"{region.name} is interleaved with devices that are not of the composite ({', '.join(foreign)}): destroy it first"
            )
    shape = _shape(ensemble, granularity_bytes)
    return (
        shape
        if isinstance(shape, CannotInterleave)
        else _next_step(ensemble, shape, driver, granularity_bytes)
    )


def _find_problem(members: tuple[region_steps.Layout, ...]) -> region_steps.Missing | CannotInterleave | None:
    for member in members:
        if member.memdev is None:
            return region_steps.Missing(
                why="the driver of a member has made no CXL memory device; look at the kernel's log"
            )
        if not member.ram_bytes:
            return CannotInterleave(
                why=f"{member.memdev} has no volatile memory: leave it out of the composite, or memory.interleave out"
            )
    if len(members) not in WAYS:
        return CannotInterleave(
            why=f"the kernel does not interleave {len(members)} devices: change the composite"
        )
    first = members[0]
    other = next((member for member in members if member.ram_bytes != first.ram_bytes), None)
    if other is not None:
        return CannotInterleave(
            why=f"{first.memdev} has {first.ram_bytes} bytes of volatile memory and {other.memdev} {other.ram_bytes}, and only "
            f"devices of one size are interleaved: change the composite, or leave memory.interleave out"
        )
    return None


class _Misplaced(Exception):
    """A window cannot interleave the devices at their places; the text is a clause with the remedy."""


def _shape(ensemble: Ensemble, granularity_bytes: int | None) -> region_steps.Shape | CannotInterleave:
    """Return the region's shape in the first window that takes all members, or else the first window's problem."""
    problems = []
    for window in ensemble.windows:
        try:
            order = _order(ensemble.members, window)
        except _Misplaced as misplaced:
            problems.append(str(misplaced))
            continue
        if window.ways == 1 or granularity_bytes in (None, window.granularity_bytes):
            wanted = granularity_bytes or window.granularity_bytes
            return region_steps.Shape(window=window, order=order, granularity_bytes=wanted)
        problems.append(
            f"{window.name} alternates between its host bridges after {window.granularity_bytes} bytes, and so does what is "
            f"made in it, not after {granularity_bytes}: leave memory.granularity out"
        )
    if not problems:
        problems.append(
            "no CXL memory window above them takes volatile memory; look at the firmware's CXL settings"
        )
    return CannotInterleave(why=problems[0])


def _order(
    members: tuple[region_steps.Layout, ...], window: region_steps.Window
) -> tuple[region_steps.Layout, ...]:
    """Return the members by position.

    Raises:
        _Misplaced: the window cannot interleave them.
    """
    each, rest = divmod(len(members), window.ways)
    if rest or each & (each - 1):
        raise _Misplaced(
            f"{window.name} leads to {window.ways} host bridges, and takes 1, 2, 4, 8 or 16 devices at each, not "
            f"{len(members)} in all: change the composite"
        )
    bridges = window.bridges if len(window.bridges) == window.ways else ("",) * window.ways
    groups = [
        tuple(member for member in members if not bridge or member.bridge in (None, bridge))
        for bridge in bridges
    ]
    if any(len(group) != each for group in groups):
        listed = ", ".join(f"{member.memdev} at {member.bridge}" for member in members)
        raise _Misplaced(
            f"{window.name} leads to {', '.join(bridge or 'a host bridge' for bridge in bridges)}, and takes {each} of the "
            f"devices at each ({listed}): change the composite, or look at the firmware's CXL settings"
        )
    rows = zip(*(_alternate(group, 0) for group in groups), strict=True)
    return tuple(itertools.chain(*rows))


def _alternate(members: tuple[region_steps.Layout, ...], level: int) -> tuple[region_steps.Layout, ...]:
    """Return the members below one port, alternating between the ports below it.

    Raises:
        _Misplaced: the ports have different numbers of members.
    """
    if len(members) == 1:
        return members
    below: dict[str, list[region_steps.Layout]] = {}
    for member in members:
        if level >= len(member.route):
            raise _Misplaced(
                f"the ports above {member.memdev} are not known yet; look whether cxl_port is loaded"
            )
        below.setdefault(member.route[level], []).append(member)
    groups = [_alternate(tuple(below[name]), level + 1) for name in sorted(below)]
    if len({len(group) for group in groups}) > 1:
        counts = ", ".join(f"{len(below[name])} below {name}" for name in sorted(below))
        raise _Misplaced(
            f"the devices are not spread alike over the ports above them ({counts}): change the composite"
        )
    return tuple(itertools.chain(*zip(*groups, strict=True)))


def _next_step(
    ensemble: Ensemble,
    shape: region_steps.Shape,
    driver: model.DaxDriver,
    granularity_bytes: int | None,
) -> region_steps.Action | region_steps.Missing | None:
    """Return the next step to a region of that shape, from any state of the members."""
    whole = next((region for region in ensemble.regions if shape.is_whole(region, granularity_bytes)), None)
    if whole is not None and whole.driver is None:
        return region_steps.BindRegion(region=whole.name)
    if whole is not None:
        return region_steps.drive(whole, driver)
    begun = next((region for region in ensemble.regions if shape.has_begun(region)), None)
    other = next((region for region in ensemble.regions if region is not begun), None)
    if other is not None:
        return region_steps.take_down(other)
    for member in shape.order:
        step = region_steps.allot(member)
        if step is not None:
            return step
    empty = next((region for region in ensemble.empties if region.window == shape.window.name), None)
    started = begun or empty
    if started is not None:
        return region_steps.fill(started, shape)
    if not shape.window.makes_ram:
        return region_steps.Missing(why=region_steps.TOO_OLD)
    return region_steps.CreateRegion(window=shape.window.name)
