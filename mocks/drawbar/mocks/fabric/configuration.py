"""The configuration file of a simulated fabric: hosts with ports, enclosures with devices, times, failures.

It is strict JSON in camelCase: an unknown field is an error. All problems are reported at once, one sentence each.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from drawbar.fabric import attributes as own_attributes
from drawbar.fabric import contract, errors, witnesses
from drawbar.mocks import identities
from drawbar.mocks.fabric import faults as fault_kinds
from drawbar.mocks.fabric import slots
from drawbar.mocks.fabric.faults import Fault

PORTS_PER_HOST = 4

Value = TypeVar("Value")


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The base of all objects of the file."""


class HostSpec(_Strict, frozen=True, kw_only=True):
    """One host.

    Attributes:
        id: its unique id.
        name: the node's name; the default is the id.
        ports: the number of ports; their ids "1", "2", ... are also the slot numbers in the mocked tree.
        sysfs: the absolute path of a mocked /sys tree for its devices.
        identifiers: further identifiers; "hostname" is always the name.
    """

    id: str
    name: str = ""
    ports: int = PORTS_PER_HOST
    sysfs: str | None = None
    identifiers: dict[str, str] = {}


class IdentifierSpec(_Strict, frozen=True, kw_only=True):
    """An identifier of a device: its kind, and its value in any notation of that kind."""

    kind: witnesses.Kind
    value: str


class VersionSpec(_Strict, frozen=True, kw_only=True):
    """A version as an attribute's value, such as `{"version": "1.2.3"}`."""

    version: str


class DeviceSpec(_Strict, frozen=True, kw_only=True):
    """One device. PCI ids are numbers or strings like "0x10de"; the other fields are as in `contract.Device`.

    Attributes:
        identifiers: the identifiers shown by the manager. The default follows from class and serial number
            (`drawbar.mocks.identities`); with an empty list the manager shows none.
        slice_step_bytes: the unit of carved sizes, in bytes; 0 if the device cannot be carved.
        is_pool: true if it is carved only and never attached itself; requires `slice_step_bytes`.
        attributes: the attributes by name, such as "example.com/nvlinkDomain".
    """

    id: str
    device_class: contract.DeviceClass = msgspec.field(name="class")
    model: str = ""
    vendor: str = ""
    serial: str | None = None
    identifiers: tuple[IdentifierSpec, ...] | None = None
    switch: str = ""
    memory_bytes: int = 0
    compute_capability: str = ""
    max_link_speed_mts: int = msgspec.field(name="maxLinkSpeedMTs", default=0)
    max_link_width: int = 0
    pci_vendor: int | str | None = None
    pci_device: int | str | None = None
    slice_step_bytes: int = 0
    is_pool: bool = False
    attributes: dict[str, str | int | bool | VersionSpec] = {}

    def judged_attributes(self) -> own_attributes.Collected:
        """Return the accepted and the refused attributes."""
        return own_attributes.collect(
            (name, own_attributes.Version(value.version) if isinstance(value, VersionSpec) else value)
            for name, value in self.attributes.items()
        )


class EnclosureSpec(_Strict, frozen=True, kw_only=True):
    """One chassis.

    Attributes:
        hosts: the ids of the hosts cabled to it; empty for all hosts.
    """

    id: str
    hosts: tuple[str, ...] = ()
    devices: tuple[DeviceSpec, ...] = ()


class AttachFailure(_Strict, frozen=True, kw_only=True):
    """A number of failing attaches of a device; each fails after its time.

    Attributes:
        device: the device's id.
        reason: the error's reason.
        message: the error's message.
        times: the number of failing attaches before one succeeds.
        code: the error's code.
        retryable: true if the caller may retry; None for the code's default.
    """

    device: str
    reason: str = "LINK_DOWN"
    message: str = "the link did not come up"
    times: int = 1
    code: errors.Code = errors.Code.FAILED_PRECONDITION
    retryable: bool | None = None

    def fault(self) -> fault_kinds.Fail:
        """Return the same as a fault."""
        return fault_kinds.Fail(
            method=contract.OperationKind.ATTACH,
            device=self.device,
            times=self.times,
            code=self.code,
            reason=self.reason,
            message=self.message,
            retryable=self.retryable,
        )


class Configuration(_Strict, frozen=True, kw_only=True):
    """The whole fabric.

    Attributes:
        hosts: the hosts of the fabric.
        enclosures: the chassis with their devices.
        attach_seconds: the time of an attach, in seconds; so long takes also an operation on a slice.
        detach_seconds: the time of a detach, in seconds.
        most_attach_seconds: if it is above `attach_seconds`, attaches take different times up to this one.
        most_detach_seconds: the same for detaches.
        attach_fails: the failing attaches; a short form of `faults`.
        faults: the faults; see `drawbar.mocks.fabric.faults`.
        token: the token required of callers; empty for none.
        keeps_marks: true if the mark of an attach is kept with the connection.
        names_slots: true if the manager shows the host's slot of each port.
        chooses: the device of an attach by model. With `any` it is the first free one, and an attach may name a device
            instead. With `first` and `last` the fabric chooses the first or last free one; naming a device is refused.
    """

    hosts: tuple[HostSpec, ...] = ()
    enclosures: tuple[EnclosureSpec, ...] = ()
    attach_seconds: float = 0.0
    detach_seconds: float = 0.0
    most_attach_seconds: float = 0.0
    most_detach_seconds: float = 0.0
    attach_fails: tuple[AttachFailure, ...] = ()
    faults: tuple[Fault, ...] = ()
    token: str = ""
    keeps_marks: bool = True
    names_slots: bool = True
    chooses: Literal["any", "first", "last"] = "any"

    def all_faults(self) -> tuple[Fault, ...]:
        """Return the faults; those of `attach_fails` come first."""
        return (*(failure.fault() for failure in self.attach_fails), *self.faults)

    def operation_bounds(self, kind: contract.OperationKind) -> tuple[float, float]:
        """Return the shortest and the longest time of an operation, in seconds."""
        if kind is contract.OperationKind.DETACH:
            return self.detach_seconds, max(self.detach_seconds, self.most_detach_seconds)
        return self.attach_seconds, max(self.attach_seconds, self.most_attach_seconds)

    def device_ids(self) -> frozenset[str]:
        """Return the ids of all devices."""
        return frozenset(spec.id for _, spec in self.devices())

    def devices(self) -> Iterator[tuple[EnclosureSpec, DeviceSpec]]:
        """Return all devices, each with its enclosure."""
        return ((enclosure, device) for enclosure in self.enclosures for device in enclosure.devices)


class _EnclosureOutline(_Strict, frozen=True, kw_only=True):
    """An enclosure with undecoded devices, so that each device's problem is found."""

    id: str
    hosts: tuple[str, ...] = ()
    devices: list[msgspec.Raw] = []


class _Outline(_Strict, frozen=True, kw_only=True):
    """The file with undecoded lists."""

    hosts: list[msgspec.Raw] = []
    enclosures: list[msgspec.Raw] = []
    attach_seconds: float = 0.0
    detach_seconds: float = 0.0
    most_attach_seconds: float = 0.0
    most_detach_seconds: float = 0.0
    attach_fails: list[msgspec.Raw] = []
    faults: list[msgspec.Raw] = []
    token: str = ""
    keeps_marks: bool = True
    names_slots: bool = True
    chooses: Literal["any", "first", "last"] = "any"


def pci_id(value: int | str | None) -> int | None:
    """Return a PCI id as a number, or None.

    Raises:
        ValueError: it is not a number or a numeric string, is not above 0, or has more than 16 bits.
    """
    if value is None:
        return None
    number = int(value, 0) if isinstance(value, str) else value
    if not 0 < number <= 0xFFFF:
        raise ValueError(value)
    return number


def device(enclosure: EnclosureSpec, spec: DeviceSpec) -> contract.Device:
    """Return a free device from a specification without problems."""
    return contract.Device(
        id=spec.id,
        device_class=spec.device_class,
        model=spec.model,
        vendor=spec.vendor,
        pci_vendor_id=pci_id(spec.pci_vendor),
        pci_device_id=pci_id(spec.pci_device),
        serial=spec.serial,
        identifiers=_identifiers(spec),
        enclosure=enclosure.id,
        switch=spec.switch,
        reach_groups=frozenset({enclosure.id}) if enclosure.hosts else frozenset(),
        memory_bytes=spec.memory_bytes,
        compute_capability=spec.compute_capability,
        max_link_speed_mts=spec.max_link_speed_mts,
        max_link_width=spec.max_link_width,
        health=contract.Health.OK,
        carving=contract.Carving(
            free_bytes=spec.memory_bytes, step_bytes=spec.slice_step_bytes, is_pool=spec.is_pool
        )
        if spec.slice_step_bytes
        else None,
        attributes=spec.judged_attributes().kept,
    )


def _identifiers(spec: DeviceSpec) -> tuple[witnesses.Identifier, ...]:
    if spec.identifiers is None:
        return identities.defaults(spec.device_class, spec.serial or "")
    made = (witnesses.identifier(each.kind, each.value, "identifiers") for each in spec.identifiers)
    return tuple(each for each in made if each is not None)


def enclosure_groups(configuration: Configuration, enclosure_id: str) -> frozenset[str]:
    """Return the reachability groups of an enclosure's devices: the enclosure if it names its hosts, else none."""
    cabled = {enclosure.id for enclosure in configuration.enclosures if enclosure.hosts}
    return frozenset({enclosure_id} & cabled)


def reach_groups(configuration: Configuration, host_id: str) -> frozenset[str]:
    """Return the reachability groups of a host: the enclosures that name it, or a group of its own if none does."""
    cabled = [enclosure for enclosure in configuration.enclosures if enclosure.hosts]
    if not cabled:
        return frozenset()
    return frozenset(enclosure.id for enclosure in cabled if host_id in enclosure.hosts) or frozenset(
        {f"host {host_id}"}
    )


def new_device(enclosure_id: str, spec: DeviceSpec) -> contract.Device:
    """Return a new device for an enclosure of a running fabric.

    Raises:
        InvalidArgument: the specification has problems; the message lists all.
    """
    enclosure = EnclosureSpec(id=enclosure_id, devices=(spec,))
    problems = find_problems(Configuration(enclosures=(enclosure,)))
    if problems:
        raise errors.InvalidArgument("; ".join(problems))
    return device(enclosure, spec)


def load(path: Path) -> Configuration:
    """Read a file.

    Raises:
        InvalidConfiguration: the file is unreadable or has problems; the error lists all.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise errors.InvalidConfiguration(
            [f"the fabric's configuration {path} cannot be read: {error.strerror}"]
        ) from error
    try:
        return parse(text)
    except errors.InvalidConfiguration as error:
        raise errors.InvalidConfiguration([f"{path}: {problem}" for problem in error.problems]) from error


def parse(text: bytes) -> Configuration:
    """Parse a configuration.

    Raises:
        InvalidConfiguration: it has problems; the error lists all.
    """
    problems: list[str] = []
    outline = _read(text, _Outline, "the configuration", problems)
    if outline is None:
        raise errors.InvalidConfiguration(problems)
    enclosures = []
    for shell in _read_all(outline.enclosures, _EnclosureOutline, "enclosures", problems):
        devices = _read_all(shell.devices, DeviceSpec, f"enclosure {shell.id}: devices", problems)
        enclosures.append(EnclosureSpec(id=shell.id, hosts=shell.hosts, devices=tuple(devices)))
    configuration = Configuration(
        hosts=tuple(_read_all(outline.hosts, HostSpec, "hosts", problems)),
        enclosures=tuple(enclosures),
        attach_seconds=outline.attach_seconds,
        detach_seconds=outline.detach_seconds,
        most_attach_seconds=outline.most_attach_seconds,
        most_detach_seconds=outline.most_detach_seconds,
        attach_fails=tuple(_read_all(outline.attach_fails, AttachFailure, "attachFails", problems)),
        faults=tuple(_read_all(outline.faults, fault_kinds.FAULT, "faults", problems)),
        token=outline.token,
        keeps_marks=outline.keeps_marks,
        names_slots=outline.names_slots,
        chooses=outline.chooses,
    )
    problems += find_problems(configuration)
    if problems:
        raise errors.InvalidConfiguration(problems)
    return configuration


def _read(text: bytes | msgspec.Raw, kind: type[Value], where: str, problems: list[str]) -> Value | None:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        problems.append(f"{where}: {error}")
        return None


def _read_all(
    texts: Sequence[msgspec.Raw], kind: type[Value], where: str, problems: list[str]
) -> list[Value]:
    values = [_read(text, kind, f"{where}[{index}]", problems) for index, text in enumerate(texts)]
    return [value for value in values if value is not None]


def find_problems(configuration: Configuration) -> list[str]:
    """Return the problems of a decoded configuration, a sentence each."""
    ids = [spec.id for _, spec in configuration.devices()]
    problems = _names("host", [host.id for host in configuration.hosts])
    problems += _names("enclosure", [enclosure.id for enclosure in configuration.enclosures])
    problems += _names("device", ids)
    problems += [
        f"host {host.id}: ports is {host.ports}, at least 1 is needed"
        for host in configuration.hosts
        if host.ports < 1
    ]
    problems += [
        f"host {host.id}: sysfs {host.sysfs} is not an absolute path"
        for host in configuration.hosts
        if host.sysfs is not None and not host.sysfs.startswith("/")
    ]
    for name in ("attach_seconds", "detach_seconds"):
        if getattr(configuration, name) < 0:
            problems.append(f"{_camel(name)} is negative")
    mocked = any(host.sysfs for host in configuration.hosts)
    for enclosure, spec in configuration.devices():
        wrong = _device_problems(spec, mocked=mocked)
        if mocked and not wrong:
            wrong = slots.problems(device(enclosure, spec))
        problems += wrong
    problems += [
        f"enclosure {enclosure.id}: hosts names {host_id}, which is not a host"
        for enclosure in configuration.enclosures
        for host_id in enclosure.hosts
        if host_id not in {host.id for host in configuration.hosts}
    ]
    devices = set(ids)
    host_ids = frozenset(host.id for host in configuration.hosts)
    problems += [
        f"faults[{index}]: {problem}"
        for index, fault in enumerate(configuration.faults)
        for problem in fault_kinds.problems(fault, devices=frozenset(ids), hosts=host_ids)
    ]
    problems += [
        f"attachFails names the device {failure.device}, which no enclosure has"
        for failure in configuration.attach_fails
        if failure.device not in devices
    ]
    return problems


def _names(kind: str, ids: Sequence[str]) -> list[str]:
    """Return the problems of ids: empty, long and repeated ones."""
    problems = [
        f"{kind} id {name} is used {count} times" for name, count in Counter(ids).items() if count > 1
    ]
    if "" in ids:
        problems.append(f"a {kind} has an empty id")
    long = [name for name in ids if len(name.encode()) > contract.STRING_BYTES]
    return problems + [f"{kind} id {name} has more than {contract.STRING_BYTES} bytes" for name in long]


def _device_problems(spec: DeviceSpec, *, mocked: bool) -> list[str]:
    problems = []
    values: dict[str, Any] = {"pciVendor": spec.pci_vendor, "pciDevice": spec.pci_device}
    for name, value in values.items():
        try:
            number = pci_id(value)
        except ValueError:
            problems.append(f'device {spec.id}: {name} {value} is no PCI id; write a string like "0x10de"')
            continue
        if number is None and mocked:
            problems.append(f"device {spec.id}: {name} is missing; hosts with a sysfs tree need it")
    if len(spec.identifiers or ()) > witnesses.IDENTIFIERS_MAX:
        problems.append(
            f"device {spec.id}: it has more than {witnesses.IDENTIFIERS_MAX} identifiers; leave some out"
        )
    problems += [
        f"device {spec.id}: {each.value[: witnesses.VALUE_MAX]!r} is no {each.kind}, or a placeholder; "
        "write a value of this kind, or leave it out"
        for each in spec.identifiers or ()
        if witnesses.identifier(each.kind, each.value) is None
    ]
    if spec.is_pool and not spec.slice_step_bytes:
        problems.append(f"device {spec.id}: isPool is for what can be carved; give sliceStepBytes as well")
    amounts = {
        "memoryBytes": (spec.memory_bytes, 64),
        "sliceStepBytes": (spec.slice_step_bytes, 64),
        "maxLinkSpeedMTs": (spec.max_link_speed_mts, 32),
        "maxLinkWidth": (spec.max_link_width, 32),
    }
    for name, (amount, bits) in amounts.items():
        if amount < 0:
            problems.append(f"device {spec.id}: {name} is negative")
        elif amount >> bits:
            problems.append(f"device {spec.id}: {name} has more than {bits} bits")
    if spec.compute_capability and not contract.COMPUTE_CAPABILITY.fullmatch(spec.compute_capability):
        problems.append(
            f"device {spec.id}: computeCapability {spec.compute_capability} is not one to three numbers with points "
            'between them; write a string like "9.0"'
        )
    problems += [f"device {spec.id}: {refused}" for refused in spec.judged_attributes().refused]
    if spec.switch and not contract.SWITCH.fullmatch(spec.switch):
        problems.append(
            f"device {spec.id}: switch {spec.switch[:64]} is not at most 64 letters, digits and _ . : / - with a letter or "
            'digit at both ends; write a string like "sw-0"'
        )
    return problems


def _camel(name: str) -> str:
    first, *following = name.split("_")
    return first + "".join(other.capitalize() for other in following)
