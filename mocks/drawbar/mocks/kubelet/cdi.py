"""The CDI spec files of a node, parsed and checked by a container runtime's rules.

A file that breaks a rule is ignored completely, so that its devices are unresolvable; the reason is kept for the error
message. Of two directories the later one wins; a device defined twice in one directory is dropped. This follows the
CDI specification and shares no code with the product's CDI component, so that each checks the other.

Not checked: the names of annotations.

Source: Container Device Interface specification 1.1.0, SPEC.md.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import yaml

SUFFIXES = {".json", ".yaml"}
# In the order of release.
VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
NAME = r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
KIND = re.compile(f"{NAME}/({NAME})")
DEVICE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
HOOKS = {"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}
NODE_TYPES = {"", "b", "c", "u", "p"}


class _Struct(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """The base of all objects: an unknown field makes the file invalid, as in the runtimes."""


class DeviceNode(_Struct, frozen=True):
    """A device file for the container."""

    path: str
    host_path: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0
    file_mode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None


class Mount(_Struct, frozen=True):
    """A mount for the container."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


class Hook(_Struct, frozen=True):
    """A program run by the runtime at a certain point."""

    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


class NetDevice(_Struct, frozen=True):
    """A network device that moves into the container."""

    host_interface_name: str
    name: str


class IntelRdt(_Struct, frozen=True):
    """Settings of Intel's resource director."""

    clos_id: str = msgspec.field(default="", name="closID")
    l3_cache_schema: str = ""
    mem_bw_schema: str = ""
    enable_cmt: bool = msgspec.field(default=False, name="enableCMT")
    enable_mbm: bool = msgspec.field(default=False, name="enableMBM")
    schemata: tuple[str, ...] = ()
    enable_monitoring: bool = False


class Edits(_Struct, frozen=True):
    """The changes to a container by a device, or by a whole file."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    hooks: tuple[Hook, ...] = ()
    mounts: tuple[Mount, ...] = ()
    intel_rdt: IntelRdt | None = None
    additional_gids: tuple[int, ...] = ()


class Device(_Struct, frozen=True):
    """One device of a file."""

    name: str
    annotations: dict[str, str] = {}
    container_edits: Edits = Edits()


class Spec(_Struct, frozen=True):
    """One file."""

    cdi_version: str
    kind: str
    annotations: dict[str, str] = {}
    devices: tuple[Device, ...] = ()
    container_edits: Edits = Edits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A device, and its file."""

    file: Path
    spec: Spec
    device: Device


@dataclass(slots=True, kw_only=True)
class Devices:
    """All devices of some directories.

    Attributes:
        by_id: the devices by `vendor/class=name`.
        faults: the reasons for ignored files, by file.
    """

    by_id: dict[str, Found] = field(default_factory=dict)
    faults: dict[Path, str] = field(default_factory=dict)


class _Fault(Exception):
    """The problem of a file."""


def devices(directories: Sequence[Path]) -> Devices:
    """Return the devices of the directories; the last directory has the highest priority, and a missing one is empty."""
    defined = Devices()
    for directory in directories:
        by_name: dict[str, Found] = {}
        twice: set[str] = set()
        for file, spec in _specs(directory, defined.faults):
            for device in spec.devices:
                name = f"{spec.kind}={device.name}"
                if name in by_name:
                    twice.add(name)
                    defined.faults[file] = f"device {name} conflicts with {by_name[name].file}"
                by_name[name] = Found(file=file, spec=spec, device=device)
        defined.by_id |= by_name
        for name in twice:
            # A device defined by two files is dropped.
            del defined.by_id[name]
    return defined


def _specs(directory: Path, faults: dict[Path, str]) -> Iterator[tuple[Path, Spec]]:
    for file in sorted(directory.glob("*")):
        if file.suffix not in SUFFIXES:
            continue
        try:
            yield file, _read(file)
        except FileNotFoundError:
            continue
        except _Fault as fault:
            faults[file] = str(fault)


def _read(file: Path) -> Spec:
    try:
        spec = msgspec.convert(yaml.safe_load(file.read_text(encoding="utf-8")), type=Spec)
    except FileNotFoundError:
        raise
    except (yaml.YAMLError, UnicodeDecodeError, msgspec.ValidationError, OSError) as error:
        raise _Fault(" ".join(str(error).split())) from error
    _check(spec)
    return spec


def _check(spec: Spec) -> None:
    version = spec.cdi_version.removeprefix("v")
    if version not in VERSIONS:
        raise _Fault(f"invalid version {spec.cdi_version!r}")
    kind = KIND.fullmatch(spec.kind)
    if kind is None:
        raise _Fault(f"kind {spec.kind!r} is not vendor/class")
    _check_edits(spec.container_edits)
    names: set[str] = set()
    for device in spec.devices:
        if not DEVICE_NAME.fullmatch(device.name):
            raise _Fault(f"invalid device name {device.name!r}")
        if device.name in names:
            raise _Fault(f"invalid spec, multiple device {device.name!r}")
        if device.container_edits == Edits():
            raise _Fault(f"invalid device {device.name!r}, empty device edits")
        names.add(device.name)
        _check_edits(device.container_edits)
    needed = max(_list_required_versions(spec, kind[1]), key=VERSIONS.index)
    if VERSIONS.index(version) < VERSIONS.index(needed):
        raise _Fault(f"the spec version must be at least v{needed}, it is {spec.cdi_version}")


def _check_edits(edits: Edits) -> None:
    for assignment in edits.env:
        if "=" not in assignment:
            raise _Fault(f"invalid environment variable {assignment!r}")
    for node in edits.device_nodes:
        _check_node(node)
    for hook in edits.hooks:
        if hook.hook_name not in HOOKS or not hook.path:
            raise _Fault(f"invalid hook {hook.hook_name!r} with path {hook.path!r}")
    for mount in edits.mounts:
        if not mount.host_path or not mount.container_path:
            raise _Fault(f"invalid mount {mount.host_path!r} at {mount.container_path!r}, a path is empty")
    for net in edits.net_devices:
        if not net.host_interface_name or not net.name:
            raise _Fault("invalid net device, a name is empty")


def _check_node(node: DeviceNode) -> None:
    if not node.path:
        raise _Fault("invalid (empty) device path")
    if node.type not in NODE_TYPES:
        raise _Fault(f"device {node.path!r}: invalid type {node.type!r}")
    if set(node.permissions) - set("rwm"):
        raise _Fault(f"device {node.path!r}: invalid permissions {node.permissions!r}")


def _list_required_versions(spec: Spec, class_name: str) -> Iterable[str]:
    """Yield the versions that introduced the spec's features."""
    yield VERSIONS[0]
    if any(not device.name[0].isalpha() for device in spec.devices):
        yield "0.5.0"
    if "." in class_name or spec.annotations or any(device.annotations for device in spec.devices):
        yield "0.6.0"
    for edits in (spec.container_edits, *(device.container_edits for device in spec.devices)):
        if any(mount.type for mount in edits.mounts):
            yield "0.4.0"
        if any(node.host_path for node in edits.device_nodes):
            yield "0.5.0"
        if edits.intel_rdt is not None or edits.additional_gids:
            yield "0.7.0"
        if edits.net_devices or (
            edits.intel_rdt is not None and (edits.intel_rdt.schemata or edits.intel_rdt.enable_monitoring)
        ):
            yield "1.1.0"
