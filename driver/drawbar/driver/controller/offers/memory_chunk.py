"""Shares of a fabric's pools of memory: the memory chunk of each, and its form as a device; pure.

A pool of memory is offered with consumable capacity, and each share that the scheduler makes of it becomes a memory
chunk of its own. To the rest of the controller a share is a device: its name is the lock, and its connection is that of
the chunk.

Invariants:

- a chunk belongs to the share whose id its request names, and to no other, even if another asks for it again;
- a chunk whose share has a DeviceAttachment is shown only as that share, and any other as itself;
- a share whose chunk existed and is no longer listed is not shown: it is lost, and never carved a second time;
- a chunk with our mark whose share has neither a DeviceAttachment nor a claim, except a failed one, is an orphan: it is
  detached and deleted.
"""

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping

import msgspec

from drawbar.driver.api import attachments, claims, quantities
from drawbar.driver.controller import names
from drawbar.driver.controller.offers.holdings import Holding
from drawbar.driver.controller.offers.offer import Arrangement as Offers
from drawbar.driver.controller.offers.offer import Offer, Stock
from drawbar.fabric import contract

MEMORY = "memory"
_REQUEST = re.compile(r"(.+)-s([0-9]{1,9})")
_ATTEMPT = re.compile(r".*-a([0-9]{1,9})")
_DELETION = re.compile(r"(.+)-x[0-9]{1,19}")


class CannotCarve(ValueError):
    """A share that cannot be carved from its device; one sentence."""


class Arrangement(msgspec.Struct, frozen=True, kw_only=True):
    """The shares of a fabric.

    Attributes:
        shown: the share as a device, by its name.
        contents: the share's memory chunk, by its name.
        carved: the names of shares with an attachment whose chunk was listed at least once.
    """

    shown: Mapping[str, contract.Device]
    contents: Mapping[str, contract.Device]
    carved: frozenset[str] = frozenset()


NOTHING = Arrangement(shown={}, contents={})


def arrange(
    held: Iterable[Holding],
    slices: Iterable[contract.Device],
    origins: Mapping[str, contract.Device],
    carved: Collection[str] = (),
) -> Arrangement:
    """Return the shares of a fabric.

    Args:
        held: the memory chunks with DeviceAttachments.
        slices: all memory chunks that the fabric lists.
        origins: its devices by id.
        carved: the result of the last arrangement.
    """
    by_share, by_id = dict[str, contract.Device](), dict[str, contract.Device]()
    for made in slices:
        by_id[made.id] = made
        name = name_of(made)
        if name is not None:
            by_share[name] = made
    shown, contents, seen = {}, {}, set()
    for part in held:
        if part.share is None:
            continue
        # If a fabric keeps no requests, only the record tells.
        slice_ = by_share.get(part.name) or by_id.get(part.device_id)
        origin = origins.get(part.share.device_id)
        if slice_ is not None:
            contents[part.name] = slice_
            shown[part.name] = as_share(slice_, part.name)
        elif part.name not in carved and not part.device_id and origin is not None:
            shown[part.name] = unmade(part.name, part.share.memory_bytes, origin)
        if slice_ is not None or part.name in carved:
            seen.add(part.name)
    return Arrangement(shown=shown, contents=contents, carved=frozenset(seen))


def as_share(made: contract.Device, name: str) -> contract.Device:
    """Return a memory chunk as its share."""
    return dataclasses.replace(made, id=name, slice_of=None)


def unmade(name: str, memory_bytes: int, origin: contract.Device) -> contract.Device:
    """Return the share of a device before its memory chunk is made."""
    return dataclasses.replace(
        origin,
        id=name,
        memory_bytes=memory_bytes,
        serial=None,
        identifiers=(),
        connection=None,
        carving=None,
        slice_of=None,
        etag=None,
    )


def name_of(made: contract.Device) -> str | None:
    """Return the name of the share that a memory chunk was made for, or None if its request names none."""
    return parse_requested_share(made.slice_of.request_id or "") if made.slice_of is not None else None


def find_chunk(name: str, devices: Iterable[contract.Device]) -> contract.Device | None:
    """Return the memory chunk of a share, or None if there is none."""
    return next((device for device in devices if name_of(device) == name), None)


def made_bytes(origin_id: str, mark: str | None, devices: Iterable[contract.Device]) -> int:
    """Return the bytes of a device's memory in chunks with this mark."""
    return sum(
        device.memory_bytes
        for device in devices
        if device.slice_of is not None
        and device.slice_of.origin_id == origin_id
        and device.slice_of.mark == mark
    )


def parse_requested_share(request_id: str) -> str | None:
    """Return the name of the share in a request for a memory chunk, or None for any other request."""
    match = _REQUEST.fullmatch(request_id)
    name = f"{names.SHARE_PREFIX}{match[1]}" if match is not None else ""
    return name if names.is_share(name) else None


def is_ours(device: contract.Device, mark: str | None) -> bool:
    """Return whether a device is a memory chunk that this cluster made for a share."""
    made = device.slice_of
    return made is not None and mark is not None and made.mark == mark and name_of(device) is not None


def slice_request(name: str, request_id: str) -> str:
    """Return the request id for a share's memory chunk, for an attach with that id."""
    match = _ATTEMPT.fullmatch(request_id)
    return f"{name.removeprefix(names.SHARE_PREFIX)}-s{match[1] if match is not None else 1}"


def deletion_request(made: contract.Slice, attempt: int) -> str:
    """Return the request id for the deletion of a memory chunk."""
    return f"{made.request_id}-x{attempt}"


def parse_deleted_share(request_id: str) -> str | None:
    """Return the name of the share in a request for a deletion, or None for any other request."""
    match = _DELETION.fullmatch(request_id)
    return parse_requested_share(match[1]) if match is not None else None


def is_needed(can: contract.Capabilities, mark: str | None) -> bool:
    """Return whether a fabric carves memory for claims; lost chunks are found by our mark."""
    return can.slices and can.exact_device and mark is not None


def offer(stock: Stock, taken: Collection[str]) -> Offers:
    """Return the pools of memory with room for a chunk; no other pool, and no chunk, is offered as a whole."""
    pools = {
        name: Offer(name=name, device=device, parts=(name,), made_bytes=stock.made[device.id])
        for name, device in stock.by_name.items()
        if name not in taken and device.id in stock.made and room_bytes(device, stock.made[device.id])
    }
    whole = find_carved(stock.devices).difference(stock.kept_whole)
    # A pool of memory is not offered as a whole even while its chunks are held.
    whole |= {name for name, device in stock.by_name.items() if is_pool(device)}
    return Offers(offers=pools, withheld=whole - pools.keys())


def is_pool(device: contract.Device) -> bool:
    """Return whether claims get chunks of a device, and never the device."""
    return device.carving is not None and device.carving.is_pool


def find_carved(devices: Iterable[contract.Device]) -> frozenset[str]:
    """Return the names of the devices that no claim gets as a whole: carved devices, and chunks that a cluster made."""
    listed = tuple(devices)
    marked = (
        device.id for device in listed if device.slice_of is not None and device.slice_of.mark is not None
    )
    return frozenset(map(names.label, (*contract.find_carved(listed), *marked)))


def room_bytes(device: contract.Device, made_bytes: int) -> int:
    """Return the bytes of a pool in whole steps, free or in chunks of this cluster; 0 without room for one."""
    if device.carving is None:
        return 0
    step, room = step_bytes(device.carving), device.carving.free_bytes + made_bytes
    # While a chunk is made or deleted, its free and its made memory may be reported one after the other.
    return min(room, device.memory_bytes or room) // step * step


def step_bytes(carving: contract.Carving) -> int:
    """Return the bytes of the smallest share; each share is a multiple of it."""
    return max(carving.step_bytes, _STEP_MIN)


_STEP_MIN = 1024**2


def read_share(
    result: claims.AllocationResult, share_id: str, origin: contract.Device | None
) -> attachments.Share:
    """Return the share in a claim's allocation of a device.

    Raises:
        Unfit: the allocation does not say how much memory, or says an amount that cannot be carved.
    """
    taken = result.consumed_capacity.get(MEMORY)
    if taken is None:
        raise CannotCarve(
            f"the allocation of share {share_id} of device {result.device} names no {MEMORY} in consumedCapacity; "
            "ask for it in the claim's request: capacity.requests.memory"
        )
    try:
        memory_bytes = quantities.parse(taken)
    except ValueError as error:
        raise CannotCarve(f"share {share_id} of device {result.device}: {error}") from error
    step = step_bytes(origin.carving) if origin is not None and origin.carving is not None else 1
    if not isinstance(memory_bytes, int) or memory_bytes <= 0 or memory_bytes % step:
        raise CannotCarve(
            f"share {share_id} of device {result.device} takes {taken} of memory, and the device is carved in "
            f"steps of {quantities.format_bytes(step)}"
        )
    return attachments.Share(
        device=result.device,
        device_id=origin.id if origin is not None else "",
        share_id=share_id,
        memory_bytes=memory_bytes,
    )
