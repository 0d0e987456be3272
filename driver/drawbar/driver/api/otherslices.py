"""ResourceSlices of other drivers: the PCI devices of a node that they offer; pure.

The content is foreign. Each driver names a PCI address in its own way, so an address is recognised by its form, and the
attribute's name decides whose address it is. `0000:3b:00.0`, NVML's `00000000:3B:00.0` and lspci's `3b:00.0` are the same.

Sources, each read in the driver's code: `resource.kubernetes.io/pciBusID` (Kubernetes' deviceattribute helper; NVIDIA, Intel
GPU, SR-IOV), `pcieBusID` (NVIDIA up to 25.8), `pciAddr` and `parentPciAddr` (AMD), `pciAddress` (Intel GPU),
`dra.net/pciAddress` (dranet), `pfPciAddress` (SR-IOV). Intel's Gaudi and QAT drivers have the address in the device's name.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec

from drawbar.driver.api import core, meta
from drawbar.fabric import witnesses

TEXT_CHARS = 128
"""The longest name or value of an attribute that is regarded; the API's own limits are lower."""

_ADDRESS = re.compile(
    r"(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<bus>[0-9a-f]{2}):(?P<device>[01][0-9a-f])(?:\.(?P<function>[0-7]))?"
)
_IN_NAME = re.compile(
    r"(?<![0-9a-f])(?P<domain>[0-9a-f]{4})-(?P<bus>[0-9a-f]{2})-(?P<device>[01][0-9a-f])-(?P<function>[0-7])(?![0-9a-f])"
)
# A card behind one of these is not the offered one.
_ELSEWHERE = re.compile(r"root|bridge|switch|upstream|downstream|peer|near|closest|sibling")
_PARENT = re.compile(r"parent|^pf|physfn|physicalfunction")
_NUMBER = re.compile(r"uuid|serial|guid|mac|nqn|eui|unique")


class Attribute(meta.Struct, frozen=True):
    """The text of an attribute, or its list of texts (gate DRAListTypeAttributes); neither of another type of value."""

    string: str | None = None
    strings: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """Return all texts of the attribute."""
        return self.strings if self.string is None else (self.string, *self.strings)


class Device(meta.Struct, frozen=True):
    """A device of another driver."""

    name: str
    attributes: dict[str, Attribute] = {}


class Pool(meta.Struct, frozen=True):
    """The pool of a slice."""

    name: str = ""
    generation: int = 0


class SliceSpec(meta.Struct, frozen=True):
    """The content of a slice."""

    driver: str
    pool: Pool = Pool()
    devices: tuple[Device, ...] = ()


class Slice(meta.Struct, frozen=True):
    """A slice of another driver."""

    metadata: meta.ObjectMeta
    spec: SliceSpec


class NodeStatus(core.NodeStatus, frozen=True):
    """The status of a node with its resources and their quantities."""

    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}


class Node(core.Node, frozen=True):
    """A node with the resources of its device plugins."""

    status: NodeStatus = NodeStatus()

    @property
    def resources(self) -> frozenset[str]:
        """Return the extended resources that a device plugin has registered.

        The kubelet keeps a quantity of zero after the last device of a plugin is gone.
        """
        both = (*self.status.capacity.items(), *self.status.allocatable.items())
        return frozenset(name for name, quantity in both if "/" in name and quantity.strip("0"))


class OtherDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device that another driver offers.

    Attributes:
        addresses: PCI addresses of the device, in the kernel's form.
        parents: addresses of the cards that contain it.
        numbers: texts that may be serial numbers or UUIDs.
    """

    driver: str
    pool: str
    name: str
    addresses: frozenset[str] = frozenset()
    parents: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()

    @property
    def is_located(self) -> bool:
        """Return whether any attribute identifies the card."""
        return bool(self.addresses or self.parents or self.numbers)

    def is_at(self, addresses: Iterable[str], *, whole: bool) -> bool:
        """Return whether it is at one of these addresses.

        Args:
            addresses: of PCI functions.
            whole: they are those of a whole card, so that a part of it counts.
        """
        return not (self.addresses | self.parents if whole else self.addresses).isdisjoint(addresses)

    def has_number(self, identifiers: Iterable[witnesses.Identifier]) -> bool:
        """Return whether one of its numbers is one of these. Part numbers name models and do not count."""
        return any(
            witnesses.normal(each.kind, number) == each.value
            for each in identifiers
            if each.kind is not witnesses.Kind.PART_NUMBER
            for number in self.numbers
        )


def devices(listed: Iterable[Slice]) -> Iterator[OtherDevice]:
    """Yield the devices of each pool's newest generation."""
    every, newest = tuple(listed), dict[tuple[str, str], int]()
    for item in every:
        key = (item.spec.driver, item.spec.pool.name)
        newest[key] = max(newest.get(key, 0), item.spec.pool.generation)
    for item in every:
        spec = item.spec
        if spec.pool.generation == newest[spec.driver, spec.pool.name]:
            for device in spec.devices:
                yield _read_device(spec.driver, spec.pool.name, device)


def address(text: str) -> str:
    """Return a PCI address as the kernel writes it, or nothing where the text is none."""
    match = _ADDRESS.fullmatch(text.strip().lower()) if len(text) <= TEXT_CHARS else None
    return _format_address(match) if match is not None else ""


def _format_address(match: re.Match[str]) -> str:
    domain = int(match["domain"] or "0", 16)
    return f"{domain:04x}:{match['bus']}:{match['device']}.{match['function'] or '0'}"


def _read_device(driver: str, pool: str, device: Device) -> OtherDevice:
    own: set[str] = set()
    parents: set[str] = set()
    numbers: set[str] = set()
    for name, attribute in device.attributes.items():
        plain = name.rpartition("/")[2].lower()
        for text in attribute.texts:
            pci_address = address(text)
            # Without a domain the form is too common: a time of day has it.
            if pci_address and (text.count(":") > 1 or "pci" in plain or "bdf" in plain):
                if not _ELSEWHERE.search(plain):
                    (parents if _PARENT.search(plain) else own).add(pci_address)
            elif _NUMBER.search(plain) and len(text) <= TEXT_CHARS:
                numbers.add(text)
    if not own and not parents:
        own = {_format_address(match) for match in _IN_NAME.finditer(device.name[:TEXT_CHARS].lower())}
    return OtherDevice(
        driver=driver,
        pool=pool,
        name=device.name,
        addresses=frozenset(own),
        parents=frozenset(parents),
        numbers=frozenset(numbers),
    )
