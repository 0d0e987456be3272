"""The writes that bring the slices of some pools from their published to their desired state; pure.

Invariants, after every write:

- no device is in two pools: slices that are obsolete are deleted first, then those that lose devices are written, and a
  device that is still in another slice then comes in the next round;
- a pool is whole for its readers, or they see that it is not. One slice that changes in place leaves it whole. Where more
  change, or one is new, a new generation marks which belong together, and until all are written nothing of the pool is
  allocated;
- a slice that is published already is not written again.

Source: ResourcePool of `resource.k8s.io/v1`; KEP-5055 on changes of taints.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from drawbar.driver.api import claims, meta, slices
from drawbar.driver.slices import encoding

DEVICES_MAX = 64
"""Any taint halves the API's limit of 128 devices in a slice."""


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A desired pool.

    Attributes:
        slice_name: of the slice with the devices; the slice with the taints, if there is one, has the suffix
            `-taints`.
        node_name: of the only node that can use the devices; otherwise `node_selector` selects the nodes.
        labels: of its slices, in addition to those of other writers.
        owners: of all slices; None leaves them unchanged.
        annotations: of the slice with the devices, in addition to those of other writers; one without a value is
            removed.
    """

    name: str
    slice_name: str
    driver: str
    content: encoding.Content
    node_name: str | None = None
    node_selector: claims.NodeSelector | None = None
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    owners: tuple[meta.OwnerReference, ...] | None = None
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)


class Create(msgspec.Struct, frozen=True, kw_only=True):
    """Publish a new slice."""

    slice: slices.ResourceSlice


class Replace(msgspec.Struct, frozen=True, kw_only=True):
    """Replace a slice in place."""

    slice: slices.ResourceSlice


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Withdraw a slice."""

    slice: slices.ResourceSlice


Write = Create | Replace | Delete


def writes(pools: Iterable[Pool], published: Sequence[slices.ResourceSlice]) -> tuple[Write, ...]:
    """Return the writes that publish just these pools, in the order in which they are safe.

    If two pools exchange devices, the gain of one of them waits for another plan.

    Args:
        pools: all that should be published.
        published: the slices as they are; those of none of the pools are deleted.
    """
    actual = {resource_slice.metadata.name: resource_slice for resource_slice in published}
    wanted = {
        resource_slice.metadata.name: resource_slice
        for pool in sorted(pools, key=lambda pool: pool.name)
        for resource_slice in _slices(pool, actual)
    }
    changes: list[Create | Replace] = [
        Replace(slice=fresh) if name in actual else Create(slice=fresh)
        for name, fresh in wanted.items()
        if fresh != actual.get(name)
    ]
    changes.sort(key=lambda change: not _drops_devices(change.slice, actual.get(change.slice.metadata.name)))
    deletes = (Delete(slice=actual[name]) for name in sorted(actual.keys() - wanted.keys()))
    return (
        *deletes,
        *_drop_doubles(changes, {name: actual[name] for name in actual.keys() & wanted.keys()}),
    )


def _drop_doubles(
    changes: Iterable[Create | Replace], stored: Mapping[str, slices.ResourceSlice]
) -> Iterator[Write]:
    """Yield the changes, without the devices that are in another slice at that moment.

    A slice that would have none left is withdrawn until they come.
    """
    owners = {device.name: name for name, each in stored.items() for device in each.spec.devices}
    for change in changes:
        name, spec = change.slice.metadata.name, change.slice.spec
        devices = tuple(device for device in spec.devices if owners.get(device.name, name) == name)
        owners = {device: owner for device, owner in owners.items() if owner != name}
        owners |= dict.fromkeys((device.name for device in devices), name)
        if len(devices) == len(spec.devices):
            yield change
        elif devices:
            fewer = msgspec.structs.replace(change.slice, spec=msgspec.structs.replace(spec, devices=devices))
            if fewer != stored.get(name):
                yield msgspec.structs.replace(change, slice=fewer)
        elif name in stored:
            yield Delete(slice=stored[name])


def assign_pools(
    homes: Mapping[str, str], first: Mapping[str, str], filled: Mapping[str, int]
) -> dict[str, str]:
    """Return the pool of each device by its name.

    Args:
        homes: devices that have a pool.
        first: by the name of the device the first pool of its kind; the next ones are `<first>/1`, `<first>/2`, ...
        filled: by pool how many devices it has.
    """
    homes, filled = dict(homes), Counter(filled)
    for device in sorted(first.keys() - homes.keys()):
        pool, number = first[device], 0
        while filled[pool] >= DEVICES_MAX:
            number += 1
            pool = f"{first[device]}/{number}"
        homes[device] = pool
        filled[pool] += 1
    return homes


def _slices(pool: Pool, published: Mapping[str, slices.ResourceSlice]) -> tuple[slices.ResourceSlice, ...]:
    """Return the slices of a pool, each with the metadata of the one that it replaces."""
    actual = {
        name: resource_slice
        for name, resource_slice in published.items()
        if resource_slice.spec.pool.name == pool.name
    }
    generation = max((resource_slice.spec.pool.generation for resource_slice in actual.values()), default=1)
    built = _build_slices(pool, actual, generation)
    changed = [
        resource_slice
        for resource_slice in built
        if actual.get(resource_slice.metadata.name) != resource_slice
    ]
    is_new = any(resource_slice.metadata.name not in actual for resource_slice in changed)
    return _build_slices(pool, actual, generation + 1) if actual and (is_new or len(changed) > 1) else built


def _build_slices(
    pool: Pool, actual: Mapping[str, slices.ResourceSlice], generation: int
) -> tuple[slices.ResourceSlice, ...]:
    count = 1 if pool.content.taints is None else 2
    empty = slices.SliceSpec(
        driver=pool.driver,
        pool=slices.Pool(name=pool.name, generation=generation, resource_slice_count=count),
        node_name=pool.node_name,
        node_selector=pool.node_selector,
    )
    parts = {pool.slice_name: msgspec.structs.replace(empty, devices=pool.content.devices)}
    if pool.content.taints is not None:
        parts[f"{pool.slice_name}-taints"] = msgspec.structs.replace(empty, taints=pool.content.taints)
    built = []
    for name, spec in parts.items():
        metadata = actual[name].metadata if name in actual else meta.ObjectMeta(name=name)
        if not pool.labels.items() <= metadata.labels.items():
            labels = {**metadata.labels, **pool.labels}
            metadata = msgspec.structs.replace(metadata, labels=labels)
        notes = pool.annotations if name == pool.slice_name else {}
        if any(metadata.annotations.get(key, "") != value for key, value in notes.items()):
            both = {**metadata.annotations, **notes}
            annotations = {key: value for key, value in both.items() if value or key not in notes}
            metadata = msgspec.structs.replace(metadata, annotations=annotations)
        if pool.owners is not None:
            metadata = msgspec.structs.replace(metadata, owner_references=pool.owners)
        built.append(slices.ResourceSlice(metadata=metadata, spec=spec))
    return tuple(built)


def _drops_devices(fresh: slices.ResourceSlice, actual: slices.ResourceSlice | None) -> bool:
    kept = {device.name for device in fresh.spec.devices}
    return actual is not None and any(device.name not in kept for device in actual.spec.devices)
