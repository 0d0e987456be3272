"""The inventory in motion: each update replaces one object by its latest reading.

`reader.read_subject` reads and blocks, so it runs in a thread. `Live` holds the known state and reads nothing, so it
belongs to the event loop. The two alternate. The reading of one object may show changes of others that have no events of
their own. `take` returns those objects.

Invariant: once every changed object has been read after its last change, `snapshot` equals a fresh read.
"""

from collections.abc import Iterable, Mapping

import msgspec

from drawbar.driver.node.discovery import reader
from drawbar.driver.node.discovery.subjects import SLOTS, Kind, Subject, subjects_of_event
from drawbar.driver.node.inventory import cxl, hotplug, index, model, silences
from drawbar.fabric.classes import DeviceClass


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """The difference from an earlier state.

    Attributes:
        functions: addresses of the functions that changed, appeared or disappeared, and of those with a change on their
            card: its slot, its memory devices, and the use of these.
        slots: names of the slots that changed, appeared or disappeared.
        objects: names of CXL objects and dax devices that changed, appeared or disappeared.
    """

    functions: frozenset[str] = frozenset()
    slots: frozenset[str] = frozenset()
    objects: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.functions or self.slots or self.objects)

    def __or__(self, other: "Changes") -> "Changes":
        return Changes(
            functions=self.functions | other.functions,
            slots=self.slots | other.slots,
            objects=self.objects | other.objects,
        )


class _Notes:
    """The results of one update."""

    def __init__(self) -> None:
        self.functions: set[str] = set()
        self.slots: set[str] = set()
        self.objects: set[str] = set()
        self.further: set[Subject] = set()
        self.moved: set[str] = set()
        """Addresses of slots that appeared, disappeared or moved."""
        self.memdevs: set[str] = set()
        """Addresses of functions whose memory devices changed."""

    def changes(self) -> Changes:
        return Changes(
            functions=frozenset(self.functions), slots=frozenset(self.slots), objects=frozenset(self.objects)
        )


class Live:
    """The known state of the node's devices."""

    def __init__(self) -> None:
        self._entries = index.Entries()
        self._cxl: dict[str, cxl.Object] = {}
        self._dax: dict[str, model.DaxDevice] = {}
        self._slot_names: dict[str, str] = {}
        self._topology: cxl.Topology | None = None
        self._snapshot: index.Inventory | None = None
        self._lagging: set[str] = set()

    @property
    def lagging(self) -> frozenset[str]:
        """Return the addresses of functions not yet initialised by their driver, which shows identifiers later, without an event."""
        return frozenset(self._lagging)

    @property
    def slot_names(self) -> Mapping[str, str]:
        """Return names of slots by location; the mapping is replaced and never changed, so any thread may read it."""
        return self._slot_names

    def card_of(self, address: str) -> model.Card | None:
        """Return the card of the function at this address, or None; makes no snapshot."""
        return self._entries.card_of(address)

    def snapshot(self) -> index.Inventory:
        """Return the known state as a value; the same value until something changes."""
        if self._snapshot is None:
            if self._topology is None:
                self._topology = cxl.topology(self._cxl.values())
            topology = self._topology
            self._snapshot = index.Inventory(
                functions=self._entries.list_functions(),
                slots=tuple(self._entries.slots.values()),
                memdevs=topology.memdevs,
                ports=topology.ports,
                decoders=topology.decoders,
                regions=topology.regions,
                dax=tuple(sorted(self._dax.values(), key=lambda each: cxl.dax_order(each.name))),
                prebuilt=self._entries.index(),
            )
        return self._snapshot

    def subjects(self) -> frozenset[Subject]:
        """Return every known object."""
        return frozenset(
            (
                *(Subject(Kind.SLOT, name) for name in self._entries.slots),
                *(Subject(Kind.FUNCTION, address) for address in self._entries.functions),
                *(Subject(Kind.CXL, name) for name in self._cxl),
                *(Subject(Kind.DAX, name) for name in self._dax),
            )
        )

    def find_concerned(self, devpath: str) -> frozenset[Subject]:
        """Return the objects to read after an event of the device in this directory, including its slot."""
        subjects = subjects_of_event(devpath)
        # With a path below the device, a port's event includes the slot below the port.
        name = hotplug.nearest_slot(f"{devpath}/", self._slot_names) if subjects else None
        return subjects | {Subject(Kind.SLOT, name)} if name is not None else subjects

    def take(self, observed: reader.Observation) -> tuple[Changes, frozenset[Subject]]:
        """Apply a reading; return the changes, and further objects to read because of them."""
        notes = _Notes()
        notes.further.update(Subject(Kind.FUNCTION, address) for address in observed.behind)
        for address, function in observed.functions.items():
            self._take_function(address, function, notes)
        for name, slot in observed.slots.items():
            self._take_slot(name, slot, notes)
        if observed.slot_names is not None:
            different = observed.slot_names.symmetric_difference(self._entries.slots)
            notes.further.update(Subject(Kind.SLOT, name) for name in different)
        for name, each in observed.objects.items():
            self._take_cxl(name, each, notes)
        for name, device in observed.dax_devices.items():
            self._take_dax(name, device, notes)
        if notes.moved:
            self._entries.slots = {
                slot.name: slot for slot in hotplug.sort_slots(self._entries.slots.values())
            }
            self._slot_names = hotplug.slot_locations(self._entries.slots.values())
            notes.further.update(self._functions_in_slots(notes.moved))
        if notes.memdevs:
            self._regroup_memdevs(notes.memdevs)
        if notes.objects:
            self._topology = None
        changes = notes.changes()
        if changes:
            self._snapshot = None
        return changes, frozenset(notes.further)

    def _take_function(self, address: str, function: model.PciFunction | None, notes: _Notes) -> None:
        before = self._entries.functions.get(address)
        if function == before:
            return
        self._entries.put(address, function)
        if function is not None and silences.is_lagging(function):
            self._lagging.add(address)
        else:
            self._lagging.discard(address)
        notes.functions.add(address)
        for each in (before, function):
            if each is not None and each.physical_function is not None:
                notes.further.add(Subject(Kind.FUNCTION, each.physical_function))
            if each is not None and each.device_class is DeviceClass.BRIDGE:
                notes.further.add(SLOTS)  # a hot-plug driver may have bound or unbound it
                device = address.rpartition(".")[0]
                # These decide whether a slot's address is that of ports.
                notes.further.update(
                    Subject(Kind.SLOT, slot.name)
                    for slot in self._entries.slots.values()
                    if slot.address == device
                )

    def _take_slot(self, name: str, slot: model.Slot | None, notes: _Notes) -> None:
        before = self._entries.slots.get(name)
        if slot == before:
            return
        if slot is None:
            del self._entries.slots[name]
        else:
            self._entries.slots[name] = slot
        group = model.slot_group(name)
        self._entries.touch(group)
        notes.slots.add(name)
        notes.functions |= self._entries.members(group)
        if before is None or slot is None or before.location != slot.location:
            notes.moved |= {each.address for each in (before, slot) if each is not None}

    def _functions_in_slots(self, addresses: set[str]) -> Iterable[Subject]:
        """Yield the functions that may be in a slot at one of these addresses. It scans all functions; slots seldom change."""
        for function in self._entries.functions.values():
            devices = {
                function.device_address,
                *(part.rpartition(".")[0] for part in function.path.split("/")),
            }
            if not devices.isdisjoint(addresses):
                yield Subject(Kind.FUNCTION, function.address)

    def _take_cxl(self, name: str, each: cxl.Object | None, notes: _Notes) -> None:
        before = self._cxl.get(name)
        for state in (before, each):
            if state is not None:
                notes.further.update(Subject(Kind.CXL, other) for other in cxl.find_related(state, self._cxl))
        if each == before:
            return
        notes.objects.add(name)
        for state in (before, each):
            if state is None:
                self._cxl.pop(name, None)
            else:
                self._cxl[name] = state
                notes.functions |= cxl.functions_of(state, self._cxl)
        if each is None:
            self._cxl.pop(name, None)
        for state in (before, each):
            if isinstance(state, model.Memdev) and state.pci_address is not None:
                notes.memdevs.add(state.pci_address)

    def _regroup_memdevs(self, changed: set[str]) -> None:
        memdevs = (each for each in self._cxl.values() if isinstance(each, model.Memdev))
        self._entries.memdevs = index.by_function(sorted(memdevs, key=lambda each: cxl.order(each.name)))
        for address in changed:
            function = self._entries.functions.get(address)
            if function is not None:
                self._entries.touch(model.card_group(function))

    def _take_dax(self, name: str, device: model.DaxDevice | None, notes: _Notes) -> None:
        before = self._dax.get(name)
        if device == before:
            return
        notes.objects.add(name)
        if device is None:
            del self._dax[name]
        else:
            self._dax[name] = device
        for each in (before, device):
            region = self._cxl.get(each.region) if each is not None and each.region is not None else None
            if region is not None:
                notes.functions |= cxl.functions_of(region, self._cxl)
