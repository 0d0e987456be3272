"""The pools of devices in the published slices. Pure.

Guarantees: only the newest generation of a pool counts. A pool without all slices of it is incomplete. A pool with a
repeated device name is invalid. Nothing is allocated from either.
Releases before 1.36 allocate from an incomplete pool, except to a request for all devices. Pools without binding
conditions come first, each group sorted by driver and name. In a pool slices are sorted by name, and devices keep
their order. A taint counts in its device or in a taint slice of the pool.

Source: the allocator of `k8s.io/dynamic-resource-allocation/structured`, its pools.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from drawbar.mocks.claims import documents
from drawbar.mocks.scheduler import matching, objects


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """One published device, compared by identity, so that selector results can be cached for it.

    Attributes:
        id: driver, pool and name.
        device: the device.
        slice: its slice.
    """

    id: documents.DeviceID
    device: objects.Device
    slice: objects.SliceSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSupply:
    """The newest generation of one pool.

    Attributes:
        name: `driver/pool`.
        complete: true if all its slices are present.
        problem: the reason why it is invalid; empty if it is valid.
        slices: its slices, sorted by name.
        candidates: its devices, slices sorted by name, devices in their order.
        from_incomplete: true if devices of an incomplete pool can be allocated.
    """

    name: str
    complete: bool
    problem: str
    slices: tuple[objects.SliceSpec, ...]
    candidates: tuple[Candidate, ...]
    from_incomplete: bool = False

    @property
    def usable(self) -> bool:
        """Return true if devices can be allocated from the pool."""
        return (self.complete or self.from_incomplete) and not self.problem


def from_slices(slices: Iterable[objects.Slice], *, from_incomplete: bool = False) -> tuple[PoolSupply, ...]:
    """Return the pools in the allocator's order; releases before 1.36 guarantee none."""
    grouped: dict[tuple[str, str], list[objects.Slice]] = {}
    for item in slices:
        grouped.setdefault((item.spec.driver, item.spec.pool.name), []).append(item)
    supplies = [_supply(key, members, from_incomplete) for key, members in sorted(grouped.items())]
    return tuple(sorted(supplies, key=_has_binding_conditions))


def serves(pool: PoolSupply, node: matching.Node) -> bool:
    """Return true if at least one slice of the pool is for the node."""
    return any(_selects_node(slice_, node) for slice_ in pool.slices)


def offer(supply: Iterable[PoolSupply], node: matching.Node) -> tuple[bool, ...]:
    """Return true or false for each slice, by its usability on the node.

    Two nodes with the same offer get the same answer to the same request.
    """
    return tuple(_selects_node(slice_, node) for pool in supply for slice_ in pool.slices)


def reaches(candidate: Candidate, node: matching.Node) -> bool:
    """Return true if the device can be used on the node."""
    return _selects_node(candidate.slice, node)


def _supply(key: tuple[str, str], members: Sequence[objects.Slice], from_incomplete: bool) -> PoolSupply:
    newest = max(member.spec.pool.generation for member in members)
    current = sorted(
        (member for member in members if member.spec.pool.generation == newest),
        key=lambda member: member.metadata.name,
    )
    apart = [entry for member in current for entry in member.spec.taints]
    candidates = tuple(
        Candidate(id=(*key, device.name), device=_add_taints(device, apart), slice=member.spec)
        for member in current
        for device in member.spec.devices
    )
    return PoolSupply(
        name="/".join(key),
        complete=len(current) == current[0].spec.pool.resource_slice_count,
        problem=_problem(candidates),
        slices=tuple(member.spec for member in current),
        candidates=candidates,
        from_incomplete=from_incomplete,
    )


def _add_taints(device: objects.Device, apart: Iterable[objects.SliceTaint]) -> objects.Device:
    """Return the device with the taints of its pool's taint slices."""
    more = tuple(entry.taint for entry in apart if entry.device == device.name)
    return msgspec.structs.replace(device, taints=(*device.taints, *more)) if more else device


def _problem(candidates: Sequence[Candidate]) -> str:
    seen: set[documents.DeviceID] = set()
    for candidate in candidates:
        if candidate.id in seen:
            return f"duplicate device name {candidate.device.name}"
        seen.add(candidate.id)
    return ""


def _has_binding_conditions(pool: PoolSupply) -> bool:
    return any(candidate.device.binding_conditions for candidate in pool.candidates)


def _selects_node(selection: objects.SliceSpec, node: matching.Node) -> bool:
    if selection.node_name:
        return selection.node_name == node.name
    if selection.all_nodes:
        return True
    return selection.node_selector is not None and matching.selects(selection.node_selector, node)
