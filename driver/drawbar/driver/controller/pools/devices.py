"""A fabric's devices in published form: their attributes for selectors, and the pool of each; pure.

The names and types of the attributes are those of a node's own devices, so that one selector fits both;
`docs/attributes.md` describes each of them.

Invariant: a device never changes its pool while it is published, wherever others come and go. Only its own change (of
enclosure, model or reachability groups, or a refusal of its own) or a new rule about its model moves it, and never
while a claim has it. If a device moved before its claim was seen, it goes back to the pool that the claim names. In the
other pool it would be offered again, and a taint there would not be about the claim's device.

Source: `resource.k8s.io/v1` Device; limits from its validation (the text of an attribute has at most 64 bytes, and a
version all three numbers of semver 2.0.0).
"""

import itertools
from collections import Counter
from collections.abc import Collection, Mapping

import msgspec

from drawbar.driver.api import bindings, quantities, slices
from drawbar.driver.controller import names, reach
from drawbar.driver.controller.offers import group, memory_chunk
from drawbar.driver.controller.offers.offer import Offer
from drawbar.driver.slices import pool_writes
from drawbar.fabric import contract

ATTRIBUTE_BYTES = 64
ATTRIBUTES_AND_CAPACITIES_MAX = 32
POOL_CLASS = "cxl-memory-pool"
_VERSION_NUMBERS = 3


def build_device(
    driver: str,
    fabric: str,
    device: contract.Device,
    taints: tuple[slices.Taint, ...] = (),
    *,
    name: str = "",
    members: tuple[str, ...] = (),
) -> slices.Device:
    """Return the device with all its attributes for selectors.

    Args:
        driver: the DRA driver's name.
        fabric: the name of the Fabric object.
        device: the device in the fabric manager's report.
        taints: the reasons not to give it out now.
        name: a composite's name, which is not made from an id.
        members: the names of a composite's devices.
    """
    described = _attributes(fabric, device) | _describe_members(members)
    room = ATTRIBUTES_AND_CAPACITIES_MAX - len(described) - bool(device.memory_bytes)
    return slices.Device(
        name=name or names.label(device.id),
        attributes=described | dict(itertools.islice(own_attributes(driver, device).items(), room)),
        capacity={"memory": slices.Capacity(value=quantities.format_bytes(device.memory_bytes))}
        if device.memory_bytes
        else {},
        binds_to_node=True,
        binding_conditions=bindings.binding_conditions(driver),
        binding_failure_conditions=bindings.failure_conditions(driver),
        taints=taints,
    )


def build_offer(driver: str, fabric: str, offer: Offer) -> slices.Device:
    """Return an offer in its published form."""
    members = offer.parts if offer.parts != (offer.name,) else ()
    device = build_device(driver, fabric, offer.device, name=offer.name, members=members)
    return device if offer.made_bytes is None else build_shared_pool(device, offer.device, offer.made_bytes)


def build_shared_pool(
    published_device: slices.Device, device: contract.Device, made_bytes: int
) -> slices.Device:
    """Return a pool of memory in its published form; each claim takes a chunk of it.

    It has a class of its own, so that no claim for a whole device gets it. Source: `resource.k8s.io/v1`
    CapacityRequestPolicy, whose validation wants each value of the range to be within the capacity.

    Args:
        published_device: the device as if it were attached as a whole.
        device: the device in the fabric manager's report, with room for a chunk.
        made_bytes: the bytes of its memory with this cluster's claims.
    """
    assert device.carving is not None
    step, value = memory_chunk.step_bytes(device.carving), memory_chunk.room_bytes(device, made_bytes)
    least = quantities.format_bytes(step)
    allowed = (
        slices.ValidRange(min=least, max=least)
        if value < 2 * step
        else slices.ValidRange(min=least, step=least)
    )
    memory = slices.Capacity(
        value=quantities.format_bytes(value),
        request_policy=slices.RequestPolicy(default=least, valid_range=allowed),
    )
    attributes = {**published_device.attributes, "class": slices.Attribute(string=POOL_CLASS)}
    return msgspec.structs.replace(
        published_device,
        attributes=attributes,
        capacity={memory_chunk.MEMORY: memory},
        allow_multiple_allocations=True,
    )


def _attributes(fabric: str, device: contract.Device) -> dict[str, slices.Attribute]:
    texts = {
        "class": device.device_class.value,
        "fabric": fabric,
        "enclosure": device.enclosure,
        "switch": device.switch,
        "deviceID": device.id,
        "model": device.model,
        "vendor": device.vendor,
        "serial": device.serial or "",
        "pciVendorID": _hexadecimal(device.pci_vendor_id),
        "pciDeviceID": _hexadecimal(device.pci_device_id),
    }
    numbers = {"maxLinkSpeedMTs": device.max_link_speed_mts, "maxLinkWidth": device.max_link_width}
    version = _version(device.compute_capability)
    # A cut value would select other devices than the whole one, so a value that does not fit is left out.
    return (
        {
            name: slices.Attribute(string=text)
            for name, text in texts.items()
            if 0 < len(text.encode()) <= ATTRIBUTE_BYTES
        }
        | {name: slices.Attribute(int_=number) for name, number in numbers.items() if number}
        | ({"computeCapability": slices.Attribute(version=version)} if version else {})
    )


def own_attributes(driver: str, device: contract.Device) -> dict[str, slices.Attribute]:
    """Return the attributes from the fabric's adapter, by name, without those in the driver's own domain.

    A name without a domain means the driver's own domain.
    """
    return {
        each.name: slices.Attribute.from_value(each.value)
        for each in device.attributes
        if each.domain != driver
    }


def _describe_members(members: tuple[str, ...]) -> dict[str, slices.Attribute]:
    return {
        attribute: slices.Attribute(string=member)
        for attribute, member in zip(group.MEMBERS, members, strict=False)
    }


def _version(text: str) -> str:
    """Return the text with the three numbers of a version; empty for an invalid one, which would cost the whole pool."""
    if not contract.COMPUTE_CAPABILITY.fullmatch(text):
        return ""
    numbers = text.split(".")
    return ".".join([*numbers, *["0"] * (_VERSION_NUMBERS - len(numbers))])


def _hexadecimal(number: int | None) -> str:
    return "" if number is None else f"0x{number:04x}"


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules for the pools of devices.

    Attributes:
        restricted: models whose devices have pools of their own.
        held: the names of devices that stay in their pool.
        unlisted: the names of unlisted devices that stay published and keep their room.
        allocated_pools: by device name, the pool in a claim's allocation.
        attached_pools: by device name, the pool in the attachment of its claim; a published pool goes first.
        refusing: by device name, the hosts that the manager refused it to.
        pools_max: the limit of pools; pools for refused devices leave room to others.
    """

    restricted: Collection[str] = ()
    held: Collection[str] = ()
    unlisted: Collection[str] = ()
    allocated_pools: Mapping[str, str] = msgspec.field(default_factory=dict)
    attached_pools: Mapping[str, str] = msgspec.field(default_factory=dict)
    refusing: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)
    pools_max: int = 0


def homes(
    fabric: str,
    devices: Mapping[str, contract.Device],
    published: tuple[slices.ResourceSlice, ...],
    rules: Rules | None = None,
) -> dict[str, str]:
    """Return the pool of each device by its name: its published or claimed pool, else the first of its kind with room."""
    rules = rules or Rules()
    first = _first_pools(fabric, devices, published, rules)
    pools: dict[str, str] = {}
    filled: Counter[str] = Counter()
    full = {
        published_slice.spec.pool.name
        for published_slice in published
        if len(published_slice.spec.devices) >= pool_writes.DEVICES_MAX
    }
    for published_slice in published:
        pool = published_slice.spec.pool.name
        for device in published_slice.spec.devices:
            wanted, claimed = first.get(device.name), rules.allocated_pools.get(device.name)
            stays = device.name in rules.held or pool == claimed or (wanted and _belongs(pool, wanted))
            returns = claimed is not None and claimed != pool and claimed not in full
            if device.name in rules.unlisted:
                filled[pool] += 1
            if wanted is not None and stays and not returns:
                pools[device.name] = pool
                filled[pool] += 1
    claimed_pools = {**rules.attached_pools, **rules.allocated_pools}
    for name in sorted(claimed_pools.keys() & (first.keys() - pools.keys())):
        pools[name] = claimed_pools[name]
        filled[claimed_pools[name]] += 1
    return pool_writes.assign_pools(pools, first, filled)


def _first_pools(
    fabric: str,
    devices: Mapping[str, contract.Device],
    published: tuple[slices.ResourceSlice, ...],
    rules: Rules,
) -> dict[str, str]:
    """Return, by device name, the first pool of its kind."""

    def pool(name: str, refusing: Collection[str] = ()) -> str:
        device = devices[name]
        return names.pool(
            fabric,
            device.enclosure,
            device.model if device.model in rules.restricted else "",
            reach=names.reach_key(device.reach_groups),
            refusing=refusing,
        )

    first = {name: pool(name) for name in devices}
    if not rules.refusing:
        return first
    kinds = Counter(first.values())
    ordinary = sum(-(-number // pool_writes.DEVICES_MAX) for number in kinds.values())
    there = {published_slice.spec.pool.name for published_slice in published}
    apart = reach.separate(rules.refusing, first, there, rules.pools_max - ordinary)
    return first | {name: pool(name, hosts) for name, hosts in apart.items()}


def _belongs(pool: str, first: str) -> bool:
    return pool == first or (pool.startswith(f"{first}/") and pool[len(first) + 1 :].isdigit())
