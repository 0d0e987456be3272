"""Composites: devices of a fabric that are allocated together as one DRA device; pure.

A Fabric names them, or has rules that make them of the present devices. The slice has one device for all members, and
names these in its attributes. Each member keeps its own DeviceAttachment, and so its lock.

Earlier decisions are read from the slices, the DeviceAttachments and the claims. So a new controller continues with the
composites that another one made.

Invariants:

- a device is a member of one composite at most, and all members of a composite are in one enclosure, with a
  reachability group in common, so that some host can have them all; those of a rule are in the same groups;
- a composite whose members cannot be attached together is not offered, and a sentence says why; none of its members is
  offered separately either, as an administrator has reserved them for it;
- a composite with a DeviceAttachment keeps its members, even if the Fabric names others meanwhile; so does a published
  composite with a claim, unless another claim got a member separately before;
- the name of a rule's composite is derived from its members, so no other devices ever have it;
- a published composite of a rule keeps its members while the rule is the same and they are listed, or are not yet lost,
  even if other devices come and go;
- a rule with one part leaves no complete group over, apart from devices that are given separately.
"""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields

import msgspec

from drawbar.driver import naturalorder
from drawbar.driver.api import attachments, fabrics, slices
from drawbar.driver.controller import names
from drawbar.driver.controller.offers import group
from drawbar.driver.controller.offers.offer import Arrangement, Offer, Stock
from drawbar.fabric import contract

LEAST_MEMBERS = 2
MOST_MEMBERS = 16
# One attribute for each member: a text has 64 bytes, and a list is in no release up to 1.37.
MEMBERS = tuple(f"member{number}" for number in range(MOST_MEMBERS))
NAMED_IN_SENTENCE = 5
_OWN_FIELDS = frozenset(
    {
        "id",
        "memory_bytes",
        "health",
        "serial",
        "identifiers",
        "connection",
        "attributes",
        "refused_attributes",
        "etag",
        "reach_groups",
    }
)
_SHARED_FIELDS = tuple(item.name for item in fields(contract.Device) if item.name not in _OWN_FIELDS)
_EMPTY = contract.Device(id="none", device_class=contract.DeviceClass.OTHER)
_WORST_FIRST = (
    contract.Health.CRITICAL,
    contract.Health.WARNING,
    contract.Health.UNKNOWN,
    contract.Health.OK,
)
_Members = tuple[str, ...]
_Location = tuple[str, str, tuple[str, ...]]
"""An enclosure, a switch and reachability groups."""


def find_held_members(attached: Iterable[attachments.DeviceAttachment]) -> dict[str, _Members]:
    """Return, by name, the members of the composites with DeviceAttachments."""
    return {
        attachment.spec.composite.name: attachment.spec.composite.devices
        for attachment in attached
        if attachment.spec.composite is not None
    }


def find_published_members(listed: Iterable[slices.ResourceSlice]) -> dict[str, _Members]:
    """Return, by name, the members of the composites in slices of a fabric."""
    composites = {}
    for published_slice in listed:
        # A node's own slice has none, even with the labels of one.
        for device in published_slice.spec.devices if published_slice.spec.node_name is None else ():
            if MEMBERS[0] in device.attributes:
                values = (device.attributes.get(name) for name in MEMBERS)
                composites[device.name] = tuple(value.string for value in values if value and value.string)
    return composites


def has_composites(spec: fabrics.FabricSpec) -> bool:
    """Return whether a Fabric names composites, or has rules for them."""
    return bool(spec.composites or spec.composite_rules)


def offer(stock: Stock, taken: Collection[str]) -> Arrangement:
    """Return the composites of a fabric as offers."""
    del taken
    arranged = arrange(stock)
    return msgspec.structs.replace(
        arranged,
        offers={
            name: Offer(name=name, device=compose(name, present), parts=members)
            for name, members in arranged.members.items()
            if (present := [stock.by_name[member] for member in members if member in stock.by_name])
        },
    )


def arrange(stock: Stock) -> Arrangement:
    """Return the composites of a fabric; a device belongs to the first one that names it, in the Fabric or by its rules."""
    spec = stock.spec
    named, rules = (spec.composites, spec.composite_rules) if spec is not None else ((), ())
    if not named and not rules and not stock.held and not stock.published:
        return Arrangement()
    room = _Room(stock)
    for name, members in stock.published.items():
        if name in room.in_use and name not in room.members and not room.is_taken(members):
            room.add(name, members)
    for composite in named:
        room.add_named(composite)
    if rules and stock.chooses:
        room.problems += [
            f"composite rule {rule.name} makes none: the fabric chooses its devices itself; remove the rule"
            for rule in rules
        ]
    elif rules and spec is not None:
        room.add_by_rules(spec, stock.published)
    return room.arrangement()


class _Room:
    """A fabric's devices during their arrangement."""

    def __init__(self, stock: Stock) -> None:
        self.maintenance, self.listed = stock.maintenance, stock.by_name
        self.in_use, self.missing = stock.in_use, stock.missing
        self.members = dict(stock.held)
        self.unlisted: dict[str, _Members] = {}
        self.problems: list[str] = []
        self.owners = {device: name for name, members in self.members.items() for device in members}
        self.withheld = set(self.owners)
        self.alone = set(self.in_use) - self.owners.keys()
        self.carved = {names.label(device_id) for device_id in contract.find_carved(self.listed.values())}

    def arrangement(self) -> Arrangement:
        return Arrangement(
            members=self.members,
            unlisted=self.unlisted,
            withheld=frozenset(self.withheld - self.alone),
            problems=tuple(self.problems),
        )

    def is_taken(self, members: Iterable[str]) -> bool:
        """Return whether a device is a member of a composite, or is in use separately."""
        return any(member in self.owners or member in self.alone for member in members)

    def add(self, name: str, members: _Members) -> None:
        """Add a composite whose devices are free for it."""
        self.members[name] = members
        self._reserve(name, members)

    def add_named(self, composite: fabrics.Composite) -> None:
        """Add a composite that the Fabric names, or a sentence about why it is impossible."""
        own = tuple(names.label(device_id) for device_id in composite.devices)
        if composite.name not in self.members:
            problem = self._problem(composite)
            if problem is None:
                self.members[composite.name] = own
            else:
                self.problems.append(f"composite {composite.name} is not offered: {problem}")
                if any(member in self.missing for member in own):
                    self.unlisted[composite.name] = own
        self._reserve(composite.name, own)

    def add_by_rules(self, spec: fabrics.FabricSpec, published: Mapping[str, _Members]) -> None:
        """Add the composites of the rules: first published ones that may stay, then new ones of the rest."""
        takers = self._takers(spec)
        for index, rule in enumerate(spec.composite_rules):
            takes = {device: part for device, (taker, part) in takers.items() if taker == index}
            for name, members in published.items():
                if self._stands(rule, name, members, takes):
                    if all(member in self.listed for member in members):
                        self.add(name, members)
                    else:
                        self.unlisted[name] = members
                        self._reserve(name, members)
            rest = {device: part for device, part in takes.items() if not self.is_taken((device,))}
            for members in self._groups(rule, rest):
                self._add_new(rule, members)
            over = [device for device in sorted(rest, key=naturalorder.sort_key) if device not in self.owners]
            if rule.leftover is fabrics.Leftover.WITHHELD:
                self.withheld.update(over)
            self._report(rule, frozenset(takes.values()), over)

    def _reserve(self, name: str, members: _Members) -> None:
        self.withheld.update(members)
        for member in members:
            self.owners.setdefault(member, name)

    def _takers(self, spec: fabrics.FabricSpec) -> dict[str, tuple[int, int]]:
        """Return, by device, the first rule and its first part that take the device."""
        parts = [
            (index, number, part)
            for index, rule in enumerate(spec.composite_rules)
            for number, part in enumerate(rule.devices)
        ]
        takers = {}
        for name, device in self.listed.items():
            is_fit = name not in self.carved and device.slice_of is None
            if not is_fit or spec.policy.immediate.holds(device.id, device.model):
                continue
            for index, number, part in parts:
                if part.takes(device.device_class.value, device.model):
                    takers[name] = (index, number)
                    break
        return takers

    def _stands(
        self, rule: fabrics.CompositeRule, name: str, members: _Members, takes: Mapping[str, int]
    ) -> bool:
        """Return whether a published composite is one of the rule's, and all its devices may stay in it."""
        wanted = [number for number, part in enumerate(rule.devices) for _ in range(part.count)]
        if (
            name in self.members
            or name in self.listed
            or len(wanted) != len(members)
            or name != names.composite(rule.name, members)
            or self.is_taken(members)
        ):
            return False
        locations, models = set(), set()
        for member, number in zip(members, wanted, strict=True):
            if member in self.listed:
                if takes.get(member) != number:
                    return False
                locations.add(self._find_location(rule, member))
                models.add((number, self.listed[member].model))
            elif member not in self.missing:
                return False
        return (
            None not in locations and len(locations) <= 1 and len(models) == len({part for part, _ in models})
        )

    def _find_location(self, rule: fabrics.CompositeRule, device: str) -> _Location | None:
        """Return the common location of a composite's devices, or None if it is not known."""
        listed = self.listed[device]
        reached = tuple(sorted(listed.reach_groups))
        if rule.within is fabrics.Within.ENCLOSURE:
            return listed.enclosure, "", reached
        return (listed.enclosure, listed.switch, reached) if listed.switch else None

    def _groups(self, rule: fabrics.CompositeRule, rest: Mapping[str, int]) -> Iterable[_Members]:
        """Yield the complete groups of devices outside of composites, first those that can be attached now."""
        by_location: dict[_Location, dict[tuple[int, str], list[str]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for device in sorted(rest, key=lambda name: (self._is_unusable(name), naturalorder.sort_key(name))):
            location = self._find_location(rule, device)
            if location is not None:
                by_location[location][rest[device], self.listed[device].model].append(device)
        for _, by_model in sorted(by_location.items()):
            runs: list[list[list[str]]] = [[] for _ in rule.devices]
            for (number, _), devices in sorted(by_model.items()):
                count = rule.devices[number].count
                runs[number] += [
                    devices[first : first + count] for first in range(0, len(devices) - count + 1, count)
                ]
            for of_part in runs:
                of_part.sort(key=lambda run: sum(self._is_unusable(device) for device in run))
            for parts in zip(*runs, strict=False):
                yield tuple(device for run in parts for device in sorted(run, key=naturalorder.sort_key))

    def _is_unusable(self, name: str) -> bool:
        device = self.listed[name]
        return (
            device.health is contract.Health.CRITICAL
            or device.connection is not None
            or self.maintenance.has_device(name, device.id)
        )

    def _add_new(self, rule: fabrics.CompositeRule, members: _Members) -> None:
        name = names.composite(rule.name, members)
        if name in self.listed or name in self.members or name in self.unlisted:
            taken = "a device of the fabric" if name in self.listed else "another composite"
            self.problems.append(
                f"composite {name} is not offered: {taken} has this name; choose another name for rule {rule.name}"
            )
            self._reserve(name, members)
        else:
            self.add(name, members)

    def _report(self, rule: fabrics.CompositeRule, taken: Collection[int], over: Sequence[str]) -> None:
        """Add a sentence about the devices that the rule leaves over, and about the missing ones."""
        missing = [part for number, part in enumerate(rule.devices) if number not in taken]
        unknown = [device for device in over if self._find_location(rule, device) is None]
        reasons = [f"the fabric has no {_kind(part)}" for part in missing] or [
            f"a composite takes {_join_texts([f'{part.count} {_kind(part)}' for part in rule.devices])} of one {rule.within}"
        ]
        if unknown:
            reasons.append(f"the fabric names no switch of {self._ids(unknown)}")
        if over and rule.leftover is fabrics.Leftover.WITHHELD:
            begin = f"composite rule {rule.name} leaves {self._ids(over)} over"
        elif missing or unknown:
            begin = f"composite rule {rule.name} makes less than it could"
        else:
            return
        self.problems.append(f"{begin}: {', and '.join(reasons)}")

    def _ids(self, devices: Sequence[str]) -> str:
        shown = [self.listed[device].id for device in devices[:NAMED_IN_SENTENCE]]
        more = len(devices) - len(shown)
        return _join_texts([*shown, *([f"{more} more"] if more else [])])

    def _problem(self, composite: fabrics.Composite) -> str | None:
        """Return why the devices are no composite, or None if they are."""
        if len(set(composite.devices)) < max(LEAST_MEMBERS, len(composite.devices)):
            return f"name at least {LEAST_MEMBERS} devices, each once"
        if composite.name in self.listed:
            return "a device of the fabric has this name; choose another"
        for device_id in composite.devices:
            device = names.label(device_id)
            if device in self.owners:
                return f"device {device_id} is a member of {self.owners[device]}"
            if device not in self.listed:
                return f"the fabric has no device {device_id}"
            if device in self.carved:
                return f"device {device_id} is not attached as a whole, since it has slices"
            if device in self.alone:
                return f"device {device_id} was given to a claim by itself, which has to end first"
        return self._separation(composite)

    def _separation(self, composite: fabrics.Composite) -> str | None:
        """Return the obstacle to attaching listed devices together, or None."""
        enclosures = {
            device_id: self.listed[names.label(device_id)].enclosure for device_id in composite.devices
        }
        first = composite.devices[0]
        for device_id, enclosure in enclosures.items():
            if enclosure != enclosures[first]:
                return f"device {device_id} is in enclosure {enclosure or '(none)'}, and {first} in {enclosures[first] or '(none)'}"
        members = [self.listed[names.label(device_id)] for device_id in composite.devices]
        if _common_reach(members) == frozenset():
            return "its devices have no reachability group in common, so no host can have them all"
        return None


def _common_reach(members: Iterable[contract.Device]) -> frozenset[str] | None:
    """Return the groups whose hosts can have all members, or None if no member has groups."""
    groups = [member.reach_groups for member in members if member.reach_groups]
    return frozenset.intersection(*groups) if groups else None


def compose(name: str, members: Sequence[contract.Device]) -> contract.Device:
    """Return a composite as one device: its members' common properties, common reach, total memory and worst health.

    Args:
        name: the composite's name.
        members: at least one, in order.
    """
    agreed = {
        item: getattr(members[0], item)
        if all(getattr(member, item) == getattr(members[0], item) for member in members)
        else getattr(_EMPTY, item)
        for item in _SHARED_FIELDS
    }
    return contract.Device(
        id=name,
        reach_groups=_common_reach(members) or frozenset(),
        memory_bytes=sum(member.memory_bytes for member in members),
        health=next(health for health in _WORST_FIRST if any(member.health is health for member in members)),
        attributes=tuple(
            attribute
            for attribute in members[0].attributes
            if all(attribute in member.attributes for member in members)
        ),
        **agreed,
    )


def _kind(part: fabrics.CompositePart) -> str:
    return " ".join(filter(None, (part.device_class, part.model)))


def _join_texts(texts: Sequence[str]) -> str:
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last


WAYS = (2, 3, 4, 6, 8, 12, 16)
"""The possible numbers of devices for interleaved memory (CXL 3.1, 8.2.4.20.7)."""


def find_problem(allocated: str, members: Mapping[str, contract.Device | None]) -> str | None:
    """Return why the memory of a claim's devices cannot be interleaved, in a sentence, or None if it may be.

    Devices other than memory ignore the demand, like any other that does not concern them.

    Args:
        allocated: the DRA name of the composite, or of the device.
        members: by name, the composite's devices, or the single device; unlisted ones are judged once they are listed.
    """
    listed = {name: device for name, device in members.items() if device is not None}
    strangers = [
        name for name, device in listed.items() if device.device_class is not contract.DeviceClass.CXL_MEMORY
    ]
    if listed and len(strangers) == len(listed):
        return None
    if len(members) < group.LEAST_MEMBERS:
        return (
            f"memory.interleave is for a composite of CXL memory devices, and {allocated} is a device by itself: leave it out, or "
            f"claim a composite (spec.composites of its Fabric)"
        )
    if strangers:
        return f"memory.interleave is for CXL memory, and {strangers[0]}, a member of composite {allocated}, is none: leave it out"
    if len(members) not in WAYS:
        *fewer, most = WAYS
        return (
            f"memory.interleave takes {', '.join(map(str, fewer))} or {most} devices, and composite {allocated} has {len(members)}: "
            f"leave it out, or change spec.composites of its Fabric"
        )
    sizes = {name: device.memory_bytes for name, device in listed.items() if device.memory_bytes}
    if len(set(sizes.values())) > 1:
        (first, its), (other, differs) = next(
            pair for pair in itertools.pairwise(sizes.items()) if pair[0][1] != pair[1][1]
        )
        return (
            f"memory.interleave needs members of one size, and of composite {allocated} {first} has {its} bytes and {other} "
            f"{differs}: leave it out, or change spec.composites of its Fabric"
        )
    return None
