"""Connections by composition: the resource blocks of computer systems (DSP0266, "Specific composition").

A block is added to an existing system, and removed again. A service with this function shows it by actions of the
system (`AddResourceBlock`, ComputerSystem 1.13). Without these actions, the system's array of blocks is changed,
always from an array and an ETag of the same reading.
"""

import functools
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from drawbar.fabric import budget, contract, errors
from drawbar.fabric.redfish import (
    calls,
    documents,
    entities,
    models,
    parts,
    profiles,
    reading,
    restoring,
    views,
)
from drawbar.fabric.redfish.documents import Document
from drawbar.fabric.redfish.reading import Reader

# A block of one of these types, in lower case, is a machine, or a fixed part of one.
_HOST_TYPES = {"compute", "computersystem"}
# Types of blocks, likewise, whose devices may have a CPU of their own.
_WITH_CPU = {"network", "storage"}
# Arrays of links of a block, the most specific first; the last ones are not in the schema.
_PARTS = (
    "Processors",
    "Memory",
    "Drives",
    "NetworkInterfaces",
    "EthernetInterfaces",
    "Storage",
    "SimpleStorage",
    "Controllers",
    "NetworkAdapters",
    "PCIeDevices",
)
# Below a collection of blocks: the blocks and their parts.
LEVELS = 2
# Of `CompositionState`, in lower case.
_UNUSABLE = {"failed", "unavailable"}
_COMPOSED = {"composed", "composedandavailable", "composing"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """The last reading.

    Attributes:
        blocks: by device id.
        systems: by host id.
        unnamed: systems whose Id is too long or not unique; their blocks are not free.
        devices: not attached, by id.
        parts: the first part of each device, with the name of its array, by device id.
        cards: the URIs of the PCIe devices of each device's parts, by device id.
        elsewhere: the URIs of blocks that are composed, or being composed, and are in no listed system.
        zones: the ids of the resource zones of each block of a host, by the block's URI.
        oddities: see `views.View`.
        unread: see `views.View`; without systems.
        unread_systems: the same for systems; if there is one, a block outside all systems may be in it.
    """

    blocks: Mapping[str, Document] = field(default_factory=dict)
    systems: Mapping[str, Document] = field(default_factory=dict)
    unnamed: tuple[Document, ...] = ()
    devices: Mapping[str, contract.Device] = field(default_factory=dict)
    parts: Mapping[str, tuple[str, Document]] = field(default_factory=dict)
    cards: Mapping[str, frozenset[str]] = field(default_factory=dict)
    elsewhere: frozenset[str] = frozenset()
    zones: Mapping[str, frozenset[str]] = field(default_factory=dict)
    oddities: tuple[str, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)
    unread_systems: Mapping[str, str] = field(default_factory=dict)


class Composition:
    """The method `composition`; see `methods.Method`."""

    def __init__(self, profile: profiles.Profile) -> None:
        self._profile = profile
        self._read = _Read()

    async def read(self, reader: Reader) -> None:
        """Read all resources; see `methods.Method`."""
        service = await _find_service(reader)
        if service is None or service.link("ResourceBlocks") is None:
            raise errors.Unimplemented(
                "the Redfish service has no resource blocks; look at the endpoint, or at `profile`"
            )
        read_blocks = functools.partial(reader.current_members, levels=LEVELS, may_be_remembered=True)
        shown = await reading.read_linked(service, "ResourceBlocks", read_blocks)
        listed = await reading.read_in_parallel(shown, lambda block: _complete(reader, block))
        movable = [block for block in listed if not _is_of_host(block)]
        # The parts of a block show its class, even without a type: the processors first.
        processors = await _read_linked(reader, movable, ("Processors",))
        blocks = [block for block in movable if not _has_cpu(block, processors)]
        resources = await _parts(reader, blocks, processors)
        movable_uris = {block.uri for block in blocks}
        further = await parts.read_identifying(
            reader, ((block, _list_descriptions(block, resources)) for block in blocks)
        )
        read = _devices(blocks, resources, further, unread=reader.unread.keys())
        zones = await _zones(reader, service.link("ResourceZones"), listed)
        of_hosts = {
            block.uri: zones[block.uri]
            for block in listed
            if block.uri not in movable_uris and block.uri in zones
        }
        mixed = (_describe_mixed(block, processors) for block in movable if block.uri not in movable_uris)
        read = replace(
            read,
            zones=of_hosts,
            devices=_group_devices(read, zones),
            oddities=(*read.oddities, *filter(None, mixed)),
            unread=dict(reader.unread),
        )
        read = await self._update_systems(reader, read)
        self._read = replace(read, elsewhere=await _find_elsewhere(reader, read))

    async def read_connections(self, reader: Reader) -> None:
        """Read the connections again; see `methods.Method`."""
        if not self._read.systems:
            await self.read(reader)
            return
        self._read = await self._update_systems(reader, self._read)

    def view(self) -> views.View:
        """Return the devices and hosts of the last reading; see `methods.Method`."""
        read = self._read
        devices = {}
        used: dict[str, list[str]] = {host_id: [] for host_id in read.systems}
        oddities = list(read.oddities)
        oddities += [
            views.explain_unusable_id(f"the host {system.uri}", system.id) for system in read.unnamed
        ]
        owners: dict[str, list[str]] = {}
        for owner, system in sorted(read.systems.items()):
            for uri in system.links("Links", "ResourceBlocks"):
                owners.setdefault(uri, []).append(owner)
        unreachable = {uri for system in read.unnamed for uri in system.links("Links", "ResourceBlocks")}
        for device_id, device in read.devices.items():
            block = read.blocks[device_id]
            host_id, *others = owners.get(block.uri, [None])
            if host_id is not None:
                if others:
                    oddities.append(views.describe_shared(device_id, owners[block.uri]))
                used[host_id].append(device_id)
                connection = contract.Connection(host_id=host_id, port_id=views.port_id(host_id, device_id))
                devices[device_id] = replace(device, connection=connection)
            elif block.uri in unreachable or read.unread_systems:
                continue
            elif _state(block) in _UNUSABLE:
                oddities.append(f"the resource block {block.uri} is {_state(block)}, so it is not offered")
            elif block.uri in read.elsewhere:
                oddities.append(
                    f"the resource block {block.uri} is composed or being composed, and no listed system has it"
                )
            elif documents.is_true(block.value("CompositionStatus", "Reserved")):
                oddities.append(f"the resource block {block.uri} is reserved by another client")
            else:
                devices[device_id] = device
        devices, twins = views.drop_twins(
            devices,
            {
                device_id: frozenset(uri for name in _PARTS for uri in block.links(name))
                for device_id, block in read.blocks.items()
            },
            read.cards,
        )
        oddities += twins
        hosts = {
            host_id: replace(
                entities.host(host_id, system, ()),
                reach_groups=_host_groups(system, read),
                ports=views.ports(host_id, used[host_id], most=self._profile.ports),
            )
            for host_id, system in read.systems.items()
        }
        oddities += views.describe_unreached(devices, hosts, "resource zone")
        unread = {**read.unread, **read.unread_systems}
        return views.View(devices=devices, hosts=hosts, oddities=tuple(oddities), unread=unread)

    def device_ids(self, uris: Set[str]) -> frozenset[str]:
        """Return the ids of the devices of these resources; see `methods.Method`."""
        blocks = set(uris)
        for system in self._read.systems.values():
            if system.uri in uris:
                blocks |= set(system.links("Links", "ResourceBlocks"))
        return frozenset(device_id for device_id, block in self._read.blocks.items() if block.uri in blocks)

    def attach(self, request: contract.AttachRequest, device_id: str, port_id: str) -> calls.Call:
        """Return the request of an attach; see `methods.Method`."""
        del port_id
        system, block = self._read.systems.get(request.host_id), self._read.blocks.get(device_id)
        if system is None:
            raise calls.build_gone_error("host", request.host_id)
        if block is None:
            raise calls.build_gone_error("device", device_id)
        blocks = (*system.links("Links", "ResourceBlocks"), block.uri)
        return self._build_change(system, block, blocks, "#ComputerSystem.AddResourceBlock")

    def detach(self, request: contract.DetachRequest, device_id: str) -> calls.Call | None:
        """Return the request of a detach, or None if there is nothing to do; see `methods.Method`."""
        system, block = self._read.systems.get(request.host_id), self._read.blocks.get(device_id)
        blocks = system.links("Links", "ResourceBlocks") if system is not None else ()
        if system is None or block is None or block.uri not in blocks:
            return None
        rest = tuple(uri for uri in blocks if uri != block.uri)
        return self._build_change(system, block, rest, "#ComputerSystem.RemoveResourceBlock")

    def _build_change(
        self, system: Document, block: Document, blocks: tuple[str, ...], action: str
    ) -> calls.Call:
        """Return the change of a system's blocks: an action if the system offers one, else the whole array."""
        offered = system.action(action)
        if offered is None:
            before = system.links("Links", "ResourceBlocks")
            movable = {each.uri for each in self._read.blocks.values()}
            change = restoring.Change(
                name="ResourceBlocks",
                before=before,
                wanted=blocks,
                own=frozenset(before) - movable,
                etag=system.etag,
            )
            return calls.set_array(system, change, self._read.unread_systems)
        named: dict[str, object] = {"ResourceBlock": {documents.ID: block.uri}}
        named_by = calls.Action(resource_uri=system.uri, etag_parameter="ComputerSystemETag")
        return calls.Call(
            method="POST", uri=offered, body=named, etag=system.etag, is_shared=True, action=named_by
        )

    async def _update_systems(self, reader: Reader, read: _Read) -> _Read:
        """Return the reading with the current systems."""
        is_linked = reader.root.link("Systems") is not None
        with reader.noticing() as find_unread:
            read_systems = functools.partial(reader.current_members, needs="Links")
            listed = await reading.read_linked(reader.root, "Systems", read_systems) if is_linked else ()
        spelled = documents.index_spellings(block.uri for block in read.blocks.values())
        unread = {each: reader.unread[each] for each in find_unread()}
        usable_ids = views.find_usable_ids(system.id for system in listed)
        systems: dict[str, Document] = {}
        unnamed = []
        for system in listed:
            path = system.find_links_path("ResourceBlocks")
            # A change of the whole array would remove the others.
            if system.is_cut(*path):
                reader.note(system.uri, f"{system.uri} shows only a part of its ResourceBlocks")
                unread[system.uri] = reader.unread[system.uri]
            uris = [spelled.get(documents.build_key(uri), uri) for uri in system.links(*path)]
            own = replace(
                system, body={**system.body, "Links": {"ResourceBlocks": documents.references(uris)}}
            )
            if system.id in usable_ids:
                systems[system.id] = own
            else:
                unnamed.append(own)
        return replace(read, systems=systems, unnamed=tuple(unnamed), unread_systems=unread)


async def _find_service(reader: Reader) -> Document | None:
    """Return the CompositionService, or None if the service root links to none.

    Raises:
        FabricError: it cannot be read.
    """
    if reader.root.link("CompositionService") is None:
        return None
    return await reading.read_linked(reader.root, "CompositionService", reader.get_detail)


async def _complete(reader: Reader, block: Document) -> Document:
    """Return a block with links to its parts, which some services show in collections, as those of a system.

    Raises:
        FabricError: the service cannot be read now.
    """
    body = dict(block.body)
    for name in _PARTS:
        uri = block.link(name)
        if uri is not None and uri.endswith(f"/{name}"):
            with reader.noticing() as find_unread:
                parts_read = await reader.available_members(uri)
            # A block with a part that cannot be read is in doubt; other blocks are read at the same time.
            unread = (each for each in find_unread() if each.startswith(uri))
            body[name] = documents.references((*(part.uri for part in parts_read), *unread))
    return replace(block, body=body)


async def _find_elsewhere(reader: Reader, read: _Read) -> frozenset[str]:
    """Return the URIs of the blocks that are composed, or being composed, and that no listed system has.

    Raises:
        FabricError: the service cannot be read now.
    """
    systems = (*read.systems.values(), *read.unnamed)
    listed = {documents.plain(system.uri) for system in systems}
    owned = {uri for system in systems for uri in system.links("Links", "ResourceBlocks")}

    def is_elsewhere(block: Document) -> bool:
        owners = {documents.plain(uri) for uri in block.links("Links", "ComputerSystems")}
        # Some services keep the link to a former system of a block that is not used.
        is_used = _state(block) in _COMPOSED or bool(owners - listed or (owners and not _state(block)))
        return block.uri not in owned and (
            is_used or block.number("CompositionStatus", "NumberOfCompositions") > 0
        )

    # A remembered block may have been freed since.
    links = documents.references(block.uri for block in read.blocks.values() if is_elsewhere(block))
    fresh = await reader.resolve(tuple(map(Document.from_json, links)))
    return frozenset(block.uri for block in fresh if is_elsewhere(block))


def _group_devices(read: _Read, zones: Mapping[str, frozenset[str]]) -> dict[str, contract.Device]:
    """Return the devices by id, with the resource zones of their blocks as reachability groups."""
    return {
        device_id: replace(
            device,
            reach_groups=contract.bound_groups(
                zones.get(read.blocks[device_id].uri, ()), most=contract.DEVICE_GROUPS_MAX
            ),
        )
        for device_id, device in read.devices.items()
    }


def _host_groups(system: Document, read: _Read) -> frozenset[str]:
    """Return the zones that contain all parts of the machine; none if there are none.

    A composition stays within one zone.
    """
    zones = [read.zones[uri] for uri in system.links("Links", "ResourceBlocks") if uri in read.zones]
    common = frozenset.intersection(*zones) if zones else frozenset()
    return contract.bound_groups(common, most=contract.HOST_GROUPS_MAX)


async def _zones(reader: Reader, uri: str | None, blocks: Iterable[Document]) -> Mapping[str, frozenset[str]]:
    """Return the ids of the resource zones of each block, by the block's URI; none for a single zone.

    Both a zone and a block may name the other.

    Raises:
        FabricError: the service exceeds its limits.
    """
    try:
        with reader.noticing() as find_unread:
            zones = await reader.members(uri, may_be_remembered=True) if uri is not None else ()
    except errors.FabricError as error:
        if budget.is_exceeded(error):
            raise
        zones = ()
    # If some zones are unknown, no host is ruled out.
    if unread := find_unread():
        reader.forget_unread(unread)
        return {}
    listed = tuple(blocks)
    ids = {zone.uri: zone.id for zone in zones}
    # A service may show its zones by the links of the blocks alone.
    linked = {zone for block in listed for zone in block.links("Links", "Zones")}
    for zone_uri in linked if uri is None else ():
        ids[zone_uri] = zone_uri.rpartition("/")[2]
    if len(ids) < 2:
        return {}
    bound = [(block, zone.id) for zone in zones for block in zone.links("Links", "ResourceBlocks")]
    bound += [
        (block.uri, ids[zone]) for block in listed for zone in block.links("Links", "Zones") if zone in ids
    ]
    zones_of: dict[str, set[str]] = {}
    for block_uri, zone_id in bound:
        zones_of.setdefault(block_uri, set()).add(zone_id)
    return {block_uri: frozenset(ids_of) for block_uri, ids_of in zones_of.items()}


def _is_of_host(block: Document) -> bool:
    """Return whether the block is a machine, or a fixed part of one."""
    return not _HOST_TYPES.isdisjoint(_kinds(block)) or bool(block.objects("ComputerSystems"))


def _kinds(block: Document) -> frozenset[str]:
    return documents.words(block.body, "ResourceBlockType") - {""}


def _has_cpu(block: Document, read: Mapping[str, Document]) -> bool:
    """Return whether a CPU is in the block, and not only that of a network or storage device."""
    kinds = _kinds(block)
    is_own = bool(kinds) and kinds <= _WITH_CPU
    return not is_own and "CPU" in _processor_types(block, read)


def _processor_types(block: Document, read: Mapping[str, Document]) -> set[str]:
    return {models.processor_type(read[uri]) for uri in block.links("Processors") if uri in read}


def _describe_mixed(block: Document, read: Mapping[str, Document]) -> str:
    """Return a sentence for a block with a CPU and other processors, which is a host's; else an empty one."""
    if _processor_types(block, read) <= {"CPU", ""}:
        return ""
    return f"the resource block {block.uri} has a CPU and other processors, so it is a part of a host and no device"


async def _read_linked(
    reader: Reader, blocks: list[Document], names: tuple[str, ...]
) -> Mapping[str, Document]:
    """Return the resources in these arrays of the blocks, by URI."""
    listed = [
        Document.from_json(entry) for block in blocks for name in names for entry in block.objects(name)
    ]
    inline = {part.uri: part for part in listed if not part.is_reference}
    linked = await parts.read(reader, {part.uri for part in listed if part.uri} - inline.keys())
    return {**inline, **linked}


async def _parts(
    reader: Reader, blocks: list[Document], processors: Mapping[str, Document]
) -> Mapping[str, Document]:
    """Return the parts of the blocks and these parts' PCIe devices, by URI."""
    others = tuple(name for name in _PARTS if name != "Processors")
    own = {uri for block in blocks for uri in block.links("Processors")} & processors.keys()
    consisting = {**{uri: processors[uri] for uri in own}, **await _read_linked(reader, blocks, others)}
    devices = {uri for part in consisting.values() if (uri := _card(part))}
    return {**await parts.read(reader, devices), **consisting}


def _card(part: Document) -> str:
    """Return the URI of the part's PCIe device, or an empty one."""
    return part.link("Links", "PCIeDevice") or ""


def _list_parts(block: Document, read: Mapping[str, Document]) -> list[tuple[str, Document]]:
    """Return the parts of a block but a CPU, each with the name of its array."""
    listed = [(name, read[uri]) for name in _PARTS for uri in block.links(name) if uri in read]
    return [(name, part) for name, part in listed if models.processor_type(part) != "CPU"]


def _list_descriptions(block: Document, read: Mapping[str, Document]) -> tuple[Document, ...]:
    """Return the resources that describe a block: its parts, their PCIe devices, and the functions of these."""
    linked = [part for _, part in _list_parts(block, read)]
    cards = [read[uri] for part in linked if (uri := _card(part)) in read]
    return (*linked, *cards, *models.functions((*linked, *cards)))


def _devices(
    blocks: list[Document],
    read: Mapping[str, Document],
    further: Mapping[str, tuple[Document, ...]],
    *,
    unread: Set[str],
) -> _Read:
    devices: dict[str, contract.Device] = {}
    used: dict[str, Document] = {}
    first: dict[str, tuple[str, Document]] = {}
    cards: dict[str, frozenset[str]] = {}
    oddities = []
    there = sorted((block for block in blocks if not entities.is_gone(block)), key=lambda block: block.uri)
    usable_ids = views.find_usable_ids(block.id for block in there)
    for block in there:
        if block.id not in usable_ids:
            oddities.append(views.explain_unusable_id(f"the resource block {block.uri}", block.id))
            continue
        if not unread.isdisjoint(uri for name in _PARTS for uri in block.links(name)):
            continue
        describing = (*_list_descriptions(block, read), *further.get(block.uri, ()))
        devices[block.id] = entities.device(block.id, block, describing)
        used[block.id] = block
        if named := _list_parts(block, read):
            first[block.id] = named[0]
            cards[block.id] = entities.cards(part for _, part in named)
    return _Read(blocks=used, devices=devices, parts=first, cards=cards, oddities=tuple(oddities))


def _state(block: Document) -> str:
    """Return the state of a block's composition in lower case."""
    return documents.word(block.body, "CompositionStatus", "CompositionState") or documents.word(
        block.body, "CompositionStatus"
    )
