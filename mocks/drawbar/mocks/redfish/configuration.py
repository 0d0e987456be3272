"""The configuration of a Redfish service: hosts, enclosures with devices, and its behaviour."""

import re
from typing import Annotated, Literal

import msgspec

Id = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
PciId = Annotated[str, msgspec.Meta(pattern=r"^(0x[0-9a-f]{4})?$")]


class Device(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A device in an enclosure.

    Attributes:
        id: the id of its endpoint, PCIe device and resource block.
        kind: the kind of device; a nic is possible only with the method zones.
        vendor_id: the PCI vendor id, such as 0x10de; by default a usual one of its kind.
        device_id: the PCI device id; likewise.
        model: the model name.
        vendor: the manufacturer.
        serial: its serial number; by default its id in upper case.
        memory_mib: the memory of a CXL memory device or GPU.
        slice_mib: the unit of its memory chunks: its memory is in no chunk at first, and chunks of multiples of this
            size can be made; only with the method connections.
    """

    id: Id
    kind: Literal["gpu", "accelerator", "fpga", "nvme", "cxl-memory", "nic"] = "nvme"
    vendor_id: PciId = ""
    device_id: PciId = ""
    model: str = "Model"
    vendor: str = "Vendor"
    serial: str = ""
    memory_mib: int = 0
    slice_mib: Annotated[int, msgspec.Meta(ge=0)] = 0


class Enclosure(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A chassis with devices.

    Attributes:
        hosts: ids of the hosts that it is cabled to; empty for all. If one enclosure names hosts, each enclosure has its
            own resource zone, or a switch without a link to those of the others.
    """

    id: Id
    hosts: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()


class Host(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A computer system that the fabric reaches.

    Attributes:
        id: the id of the system and of its endpoint.
        uuid: the UUID of the system; by default made from the id.
        serial: the serial number of the system.
        sysfs: absolute path of a mocked /sys tree in which its devices appear.
    """

    id: Id
    uuid: str = ""
    serial: str = ""
    sysfs: Annotated[str, msgspec.Meta(pattern="^(/|$)")] = ""


class Configuration(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The service.

    Attributes:
        hosts: see `Host`.
        enclosures: see `Enclosure`.
        method: the type of resource that connects devices and hosts; connections are only for memory chunks, one of each
            device.
        initiators: whether a connection names its host's endpoint. If not, the service is a memory appliance: its
            endpoints are ports with one host each, hosts are no systems, and its memory belongs to systems, one for each
            enclosure.
        named_connections: whether clients must name their connections and give them the type CXL, as the manager of such
            appliances requires (Seagate's cfm-service); only without initiators.
        zones: `pair` for a zone per connection; `port` for an existing zone per host, to which endpoints are added.
        actions: whether connections can also be changed by an action.
        constrained: whether clients request blocks only by count and model, and the service chooses them, the last
            first; only with the method composition.
        expand: whether collections are expanded.
        task_seconds: the duration of a change; 0: it is made before the answer.
        events: whether there is a stream of events.
        username: the user of the service; empty for no authentication.
        password: the user's password.
        product: the product in the service root.
        max_sessions: the maximum number of concurrent sessions.
        quirks: names of its quirks, see `quirks`.
        manners: the manufacturer whose formats of serial numbers, PCI ids and class codes it imitates; empty for none.
        exclusive: whether it refuses to connect a connected device; if not, clients must prevent that.
    """

    hosts: tuple[Host, ...] = ()
    enclosures: tuple[Enclosure, ...] = ()
    method: Literal["zones", "connections", "composition"] = "zones"
    initiators: bool = True
    named_connections: bool = False
    zones: Literal["pair", "port"] = "pair"
    actions: bool = False
    constrained: bool = False
    expand: bool = True
    task_seconds: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 0.0
    events: bool = True
    username: str = ""
    password: str = ""
    product: str = "Drawbar Redfish Emulator"
    max_sessions: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 16
    quirks: tuple[str, ...] = ()
    manners: Literal["", "dell", "hpe", "supermicro"] = ""
    exclusive: bool = True

    @property
    def is_divided(self) -> bool:
        """Return whether an enclosure names the hosts that it is cabled to."""
        return any(enclosure.hosts for enclosure in self.enclosures)

    def enclosures_of(self, name: str) -> tuple[str, ...]:
        """Return the enclosure that a device is in, or those that a host is cabled to, by their ids."""
        is_host = any(host.id == name for host in self.hosts)
        return tuple(
            enclosure.id
            for enclosure in self.enclosures
            if (is_host and name in (enclosure.hosts or (name,)))
            or any(device.id == name for device in enclosure.devices)
        )

    @property
    def has_fabric(self) -> bool:
        """Return whether hosts and devices are endpoints of a fabric."""
        return self.method != "composition"

    @property
    def has_blocks(self) -> bool:
        """Return whether there are resource blocks, of compositions or of an appliance's memory."""
        return not self.has_fabric or self.is_appliance

    @property
    def is_appliance(self) -> bool:
        """Return whether connections have no initiators."""
        return not self.initiators


def parse(raw: bytes) -> Configuration:
    """Return the configuration in JSON.

    Raises:
        ValueError: it is invalid; the message names the place.
    """
    configuration = msgspec.json.decode(raw, type=Configuration)
    ids = [host.id for host in configuration.hosts]
    ids += [device.id for enclosure in configuration.enclosures for device in enclosure.devices]
    repeated = {name for name in ids if ids.count(name) > 1}
    if repeated:
        raise ValueError(f'the id "{min(repeated)}" is there twice; hosts and devices have ids of their own')
    cards = [
        device.id
        for enclosure in configuration.enclosures
        for device in enclosure.devices
        if device.kind == "nic"
    ]
    if cards and configuration.method == "composition":
        raise ValueError(f'the device "{cards[0]}" is a nic, and these have no resource blocks here')
    unconnectable = [
        device.id
        for enclosure in configuration.enclosures
        for device in enclosure.devices
        if device.kind != "cxl-memory"
    ]
    if unconnectable and configuration.method == "connections":
        raise ValueError(
            f'the device "{unconnectable[0]}" is no cxl-memory, and connections are of memory chunks'
        )
    whole = [
        device.id
        for enclosure in configuration.enclosures
        for device in enclosure.devices
        if device.slice_mib and (configuration.method != "connections" or configuration.is_appliance)
    ]
    if whole:
        raise ValueError(
            f'the device "{whole[0]}" has a sliceMib, and only connections with initiators have such'
        )
    if not configuration.initiators and configuration.method != "connections":
        raise ValueError(
            "only connections can be without initiators; choose this method, or leave initiators out"
        )
    if configuration.named_connections and not configuration.is_appliance:
        raise ValueError("only connections without initiators are named; leave namedConnections out")
    if configuration.is_divided and (configuration.method == "connections" or configuration.constrained):
        raise ValueError("enclosures name their hosts with zones, and with compositions by name, alone")
    strangers = {name for enclosure in configuration.enclosures for name in enclosure.hosts}
    strangers -= {host.id for host in configuration.hosts}
    if strangers:
        raise ValueError(f'an enclosure is cabled to the host "{min(strangers)}", which does not exist')
    for host in configuration.hosts:
        if host.uuid and not re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", host.uuid):
            raise ValueError(f'the uuid "{host.uuid}" of the host {host.id} is none')
    return configuration
