"""DFL cards: FPGAs whose kernel driver loads a bitstream into one of their ports, by port reconfiguration.

Such a card has one management engine (FME), with a manager and a region for each port. A port may have been released to
a virtual function, and then no longer belongs to the card itself.

**Bitstreams** are files of OPAE (`.gbs`): a GUID, a length, metadata in JSON, and then the data for the card. The kernel
does not compare a bitstream's target with the card, and a bitstream for another card can make the host unstable. This
module makes the comparison and refuses a file without metadata.

Source: Documentation/fpga/dfl.rst; Documentation/ABI/testing/sysfs-platform-dfl-fme, sysfs-platform-dfl-port,
sysfs-class-fpga-region and sysfs-class-fpga-manager; drivers/fpga/dfl-fme-pr.c; OPAE's libbitstream for the files.
"""

import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from drawbar.driver.node import errors, kernel
from drawbar.driver.node.classes.users import Host
from drawbar.driver.node.inventory import files, model, pci

DRIVER = "dfl-pci"
GBS = uuid.UUID("58656f6e-4650-4741-b747-425376303031").bytes
LENGTH_BYTES = 4
METADATA_BYTES = 64 << 10
_VERSIONS = frozenset({1, 640, 650})  # files of some releases have 640 or 650 for 1
_ENGINE = re.compile(r"dfl-fme\.\d+")
_PORT = re.compile(r"dfl-port\.\d+")
_REGION = re.compile(r"dfl-fme-region\.\d+")
_BY_HOOK = 'load it by a hook (initialise.hook of the DeviceClass) that runs OPAE\'s "fpgaconf"'
SETTLE_SECONDS = 10.0
"""The limit for the drivers of a card's engine and ports to bind after the card's own; udev loads them one after the other."""
LOOK_SECONDS = 0.05
"""The interval between two checks of these drivers."""
_DEV = Path("/dev")


class _AfuImage(msgspec.Struct, rename="kebab"):
    """The design's part of the metadata; clocks are in MHz, 0 if it needs none of its own."""

    interface_uuid: str
    clock_frequency_high: float = 0
    clock_frequency_low: float = 0


class _Metadata(msgspec.Struct, rename="kebab"):
    version: int
    afu_image: _AfuImage


class Bitstream(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a bitstream file.

    Attributes:
        interface: the interface of its target, as in a region's `compat_id`: 32 hexadecimal digits.
        offset: the start of the data for the card, in bytes.
    """

    interface: str
    offset: int


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """A port that belongs to the card itself.

    Attributes:
        node: its device file.
    """

    number: int
    node: model.DeviceNode


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """The management engine of a card.

    Attributes:
        name: `dfl-fme.N`.
        path: its directory below the sysfs root.
        node: its device file; None while its driver is not bound.
        interfaces: the `compat_id` of its regions: one, or none while its drivers are not loaded.
        ports: its ports, the lowest number first.
    """

    name: str
    path: str
    node: model.DeviceNode | None
    interfaces: frozenset[str]
    ports: tuple[Port, ...]

    @property
    def is_complete(self) -> bool:
        """Return whether all drivers are bound and the engine has a port."""
        return self.node is not None and bool(self.interfaces) and bool(self.ports)


def parse(content: memoryview, name: str) -> Bitstream:
    """Return the contents of a bitstream file.

    Args:
        content: the file's bytes.
        name: the file's name, for messages.

    Raises:
        errors.BitstreamNotLoaded: it is no bitstream for a DFL card, or it needs more than to be loaded.
    """
    start = len(GBS) + LENGTH_BYTES
    if len(content) < start or bytes(content[: len(GBS)]) != GBS:
        raise errors.BitstreamNotLoaded(
            f"bitstream {name} has no metadata of OPAE, so the card that it was made for is unknown: give the .gbs file, or {_BY_HOOK}"
        )
    length = int.from_bytes(content[len(GBS) : start], "little")
    if length > METADATA_BYTES or start + length >= len(content):
        raise errors.BitstreamNotLoaded(f"bitstream {name} is cut off, or broken: put the whole file there")
    try:
        metadata = msgspec.json.decode(bytes(content[start : start + length]).rstrip(b"\0"), type=_Metadata)
        interface = uuid.UUID(metadata.afu_image.interface_uuid).hex
    except (ValueError, RecursionError) as error:
        raise errors.BitstreamNotLoaded(
            f"bitstream {name} has metadata that cannot be read ({error}): make the file again with OPAE's packager"
        ) from error
    if metadata.version not in _VERSIONS:
        raise errors.BitstreamNotLoaded(
            f"bitstream {name} has metadata of version {metadata.version}, which is not known here: {_BY_HOOK}"
        )
    image = metadata.afu_image
    if clocks := max(image.clock_frequency_high, image.clock_frequency_low):
        raise errors.BitstreamNotLoaded(
            f"bitstream {name} needs a clock of {clocks:g} MHz set, which is not done here: {_BY_HOOK}"
        )
    return Bitstream(interface=interface, offset=start + length)


def find(sysfs: Path, card: model.Card) -> Engine | None:
    """Return the management engine of a card, or None if it is not a DFL card. Reads files."""
    for function in card.functions:
        if function.driver != DRIVER:
            continue
        for region in files.names(f"{sysfs}/{function.path}/fpga_region"):
            base = f"{function.path}/fpga_region/{region}"
            for name in files.names(f"{sysfs}/{base}"):
                if _ENGINE.fullmatch(name):
                    return _read(str(sysfs), base, name)
    return None


def await_engine(sysfs: Path, card: model.Card, is_wanted: Callable[[], bool]) -> Engine | None:
    """Return the card's engine, as `find` does, once it is complete. Blocks.

    It returns an incomplete engine after `SETTLE_SECONDS`, or as soon as `is_wanted()` is false.
    """
    ends = time.monotonic() + SETTLE_SECONDS
    while True:
        engine = find(sysfs, card)
        if engine is None or engine.is_complete or time.monotonic() >= ends or not is_wanted():
            return engine
        time.sleep(LOOK_SECONDS)


def _read(root: str, base: str, name: str) -> Engine:
    path = f"{base}/{name}"
    count = files.number(f"{root}/{path}/ports_num") or 0
    ports = (
        _port(f"{root}/{base}/{each}") for each in files.names(f"{root}/{base}") if _PORT.fullmatch(each)
    )
    own = (port for port in ports if port is not None and port.number < count)
    return Engine(
        name=name,
        path=path,
        node=pci.device_node(f"{root}/{path}"),
        interfaces=frozenset(_interfaces(f"{root}/{path}")),
        ports=tuple(sorted(own, key=lambda port: port.number)),
    )


def _port(path: str) -> Port | None:
    number, node = files.number(f"{path}/id"), pci.device_node(path)
    return Port(number=number, node=node) if number is not None and node is not None else None


def _interfaces(path: str) -> Iterator[str]:
    for device in files.names(path):
        if _REGION.fullmatch(device):
            for region in files.names(f"{path}/{device}/fpga_region"):
                if compat_id := files.text(f"{path}/{device}/fpga_region/{region}/compat_id"):
                    yield compat_id.lower()


def load(
    host: Host, engine: Engine, content: memoryview, name: str, *, is_wanted: Callable[[], bool]
) -> None:
    """Load a bitstream into the card's port with the lowest number. Blocks until the kernel is done.

    Args:
        host: the card's host.
        engine: the card's engine.
        content: the bitstream file's bytes, in writable memory.
        name: the file's name, for messages.
        is_wanted: whether the load is still wanted; called just before the load.

    Raises:
        errors.BitstreamNotLoaded: it is no bitstream for this card, or the card or its kernel refused it.
    """
    bitstream = parse(content, name)
    if engine.node is None or not engine.interfaces:
        raise errors.BitstreamNotLoaded(
            f"{engine.name} has no region to load {name} into: load the modules dfl-fme, dfl-fme-mgr, dfl-fme-region and "
            "dfl-fme-br on this node"
        )
    if bitstream.interface not in engine.interfaces:
        raise errors.BitstreamNotLoaded(
            f"bitstream {name} was made for a card of the interface {bitstream.interface}, and {engine.name} has "
            f"{', '.join(sorted(engine.interfaces))}: have the class or claim name one for this card"
        )
    if not engine.ports:
        raise errors.BitstreamNotLoaded(
            f"{engine.name} has no port of its own to load {name} into: load the module dfl-afu on this node, or give the ports "
            "back that were released to virtual functions"
        )
    port = engine.ports[0]
    if not is_wanted():
        raise errors.BitstreamNotLoaded(f"{name} was not loaded in time; see initialise.timeoutSeconds")
    try:
        kernel.reconfigure_port(
            _device(host, engine.node), _device(host, port.node), port.number, content[bitstream.offset :]
        )
    except errors.KernelRefused as refused:
        status = "".join(f"; {clause}" for clause in _status(host, engine))
        raise errors.BitstreamNotLoaded(f"bitstream {name} is not loaded: {refused}{status}") from refused


def managers(sysfs: Path, engine: Engine) -> tuple[model.FpgaManager, ...]:
    """Return the current managers of an engine. Reads files."""
    every = pci.fpga_manager_paths(str(sysfs)).values()
    own = [path for paths in every for path in paths if path.startswith(f"{engine.path}/")]
    return pci.read_fpga_managers(str(sysfs), own)


def _status(host: Host, engine: Engine) -> Iterator[str]:
    """Yield the managers' reports about the last load, as clauses."""
    for manager in managers(host.sysfs, engine):
        # The file has one line for each hardware error.
        lines = (files.text(f"{host.sysfs}/{manager.path}/status") or "").splitlines()
        yield f"{manager.name} shows {manager.state!r}" + "".join(f", {line!r}" for line in lines)


def _device(host: Host, node: model.DeviceNode) -> kernel.CharacterDevice:
    return kernel.CharacterDevice(
        path=host.dev / node.path.removeprefix("/dev/"),
        numbers=(node.major, node.minor) if host.dev == _DEV else None,
    )
