"""The content of a CDI file: its fields, its JSON, its rules and its lowest version; pure.

The fields have the order of the file. `encode` leaves out unset fields. `decode` accepts exactly the output of
`encode`. Like every runtime, it refuses unknown fields, because the next write would lose them.

`validate` returns for a valid content; otherwise it names the broken rule. It is stricter than the runtimes for values
that they accept and misunderstand: relative paths, one of two device numbers, a value with a NUL.

Older runtimes refuse a whole file of a newer version. Newer runtimes refuse a file with a version below its
content's.

| version | new |
|---|---|
| 0.3.0 | the first release |
| 0.4.0 | `type` of a mount |
| 0.5.0 | `hostPath` of a device node; names of devices that begin with a digit |
| 0.6.0 | annotations of the file and of a device; dots in the class, the second half of the kind |
| 0.7.0 | `intelRdt`, `additionalGids` |
| 0.8.0, 1.0.0 | nothing in the format: the reference library changed |
| 1.1.0 | `netDevices`; `schemata` and `enableMonitoring` of `intelRdt`, from which `enableCMT` and `enableMBM` went |

Source: Container Device Interface specification 1.1.0, SPEC.md, schema/schema.json and schema/defs.json;
specs-go/version.go, which computes the same versions; the rules of the runtimes' common library
(tags.cncf.io/container-device-interface); annotations as in `k8s.io/apimachinery`.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from drawbar.cdi import errors

READ_WRITE = "rw"


class _Struct(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """The common base of all objects of the document."""


class DeviceNode(_Struct, frozen=True, kw_only=True):
    """A device file that appears in the container.

    Attributes:
        path: absolute path in the container.
        host_path: path on the host where it differs.
        type: `b` for block, `c` or `u` for character devices, `p` for a pipe; empty lets the runtime read it from
            the host's file.
        major: device number; None, and 0 too, let the runtime read both numbers from the host's file.
        minor: device number.
        file_mode: permission bits of the file, such as 0o660.
        permissions: of the device cgroup: any of `r`, `w`, `m`; empty for all.
        uid: the file's owner in the container; None for the container's own user.
        gid: the file's group in the container.
    """

    path: str
    host_path: str = ""
    type: str = ""
    major: int | None = None
    minor: int | None = None
    file_mode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None


class Mount(_Struct, frozen=True, kw_only=True):
    """A part of the host's file system that appears in the container.

    Attributes:
        host_path: absolute path on the host, or the source in the form of the file system's type.
        container_path: absolute path in the container.
        type: the file system's type; empty for a bind mount.
        options: of mount(8), such as `ro`, `bind`.
    """

    host_path: str
    container_path: str
    type: str = ""
    options: tuple[str, ...] = ()


class Hook(_Struct, frozen=True, kw_only=True, rename={"name": "hookName", "timeout_seconds": "timeout"}):
    """A program that the runtime runs at one point of a container's life.

    Attributes:
        name: one of `HOOK_NAMES`.
        path: the program's absolute path.
        args: the program's name and its arguments.
        env: `NAME=VALUE` each.
        timeout_seconds: the longest run before the runtime gives up; None for no limit.
    """

    name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout_seconds: int | None = None


class NetDevice(_Struct, frozen=True, kw_only=True, rename={"host_name": "hostInterfaceName"}):
    """A network interface that moves into the container.

    Attributes:
        host_name: the interface on the host.
        name: the interface's name in the container.
    """

    host_name: str
    name: str


_RDT_NAMES = {
    "clos_id": "closID",
    "l3_cache_schema": "l3CacheSchema",
    "mem_bw_schema": "memBwSchema",
    "enable_monitoring": "enableMonitoring",
    "enable_cmt": "enableCMT",
    "enable_mbm": "enableMBM",
}


class IntelRdt(_Struct, frozen=True, kw_only=True, rename=_RDT_NAMES):
    """Cache and memory bandwidth: Documentation/arch/x86/resctrl.rst.

    Attributes:
        clos_id: the class of service, a directory of resctrl; `/` for the root.
        schemata: lines of the schemata file; since 1.1.0.
        enable_monitoring: since 1.1.0, in place of `enable_cmt` and `enable_mbm`, which 1.1.0 dropped.
    """

    clos_id: str = ""
    l3_cache_schema: str = ""
    mem_bw_schema: str = ""
    schemata: tuple[str, ...] = ()
    enable_monitoring: bool = False
    enable_cmt: bool = False
    enable_mbm: bool = False


class ContainerEdits(_Struct, frozen=True, kw_only=True):
    """The changes that a device, or every device of a file, makes in a container.

    Attributes:
        env: `NAME=VALUE` each.
        additional_gids: groups that the container's process joins; the runtime ignores 0.
    """

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    additional_gids: tuple[int, ...] = ()
    intel_rdt: IntelRdt | None = None


EMPTY = ContainerEdits()
_EDITS_NAME = {"edits": "containerEdits"}


class Device(_Struct, frozen=True, kw_only=True, rename=_EDITS_NAME):
    """One device that a container can ask for.

    Attributes:
        name: unique in its file.
        annotations: notes about the device; no container sees them.
        edits: the device's changes; not empty.
    """

    name: str
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    edits: ContainerEdits


class Spec(_Struct, frozen=True, kw_only=True, rename=_EDITS_NAME):
    """One CDI file.

    Attributes:
        kind: `vendor/class`.
        annotations: notes about the file; no container sees them.
        devices: at least one, names unique.
        edits: the changes that come with any device of the file, once.
    """

    kind: str
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    devices: tuple[Device, ...]
    edits: ContainerEdits = EMPTY

    @property
    def vendor(self) -> str:
        """Return the first half of the kind."""
        return self.kind.partition("/")[0]

    def qualify(self, device: Device) -> str:
        """Return the name that a runtime resolves: `vendor/class=name`."""
        return f"{self.kind}={device.name}"

    def all_edits(self) -> tuple[ContainerEdits, ...]:
        """Return the file's own edits and those of each device."""
        return (self.edits, *(device.edits for device in self.devices))


def encode(content: Spec) -> dict[str, Any]:
    """Return the document of a valid specification, in the lowest version for its content.

    Raises:
        errors.InvalidSpec: the specification is not valid.
    """
    validate(content)
    document = {"cdiVersion": lowest_version(content), **msgspec.to_builtins(content)}
    if content.edits == EMPTY:
        # msgspec leaves out the default object, but not an equal one.
        document.pop("containerEdits", None)
    return document


def decode(document: object) -> Spec:
    """Return the specification in a document.

    Raises:
        errors.InvalidSpec: the document is no specification, or breaks a rule; the message names the place.
    """
    fields = dict(document) if isinstance(document, dict) else {}
    version = fields.pop("cdiVersion", None)
    if not isinstance(version, str):
        raise errors.InvalidSpec("the CDI file is not an object with a text 'cdiVersion'")
    try:
        content = msgspec.convert(fields, Spec)
    except msgspec.ValidationError as error:
        raise errors.InvalidSpec(f"the CDI file is not as its schema has it: {error}") from error
    validate(content)
    version = version.removeprefix("v")
    if version not in KNOWN_VERSIONS:
        raise errors.InvalidSpec(f"CDI spec {content.kind} is of the unknown version {version!r}")
    if not version_covers(version, content):
        raise errors.InvalidSpec(
            f"CDI spec {content.kind} says version {version} and uses what came with {lowest_version(content)}"
        )
    return content


_NAME = r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
KIND = re.compile(rf"(?P<vendor>{_NAME})/(?P<name>{_NAME})")
DEVICE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
ENVIRONMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=[^\0]*")
ANNOTATION_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
# Possible names of a directory of resctrl; `/` stands for the root's class.
CLOS_ID = re.compile(r"/|(?!\.{1,2}\Z)[^/\n\0]{0,4095}")

VENDOR_CHARS = 253
CLASS_CHARS = 63
SUBDOMAIN_CHARS = 253
ANNOTATIONS_BYTES = 256 * 1024
INTERFACE_BYTES = 15  # IFNAMSIZ less the closing NUL
ID_MAX = 2**32 - 1
NUMBER_MAX = 2**63 - 1
MODE_MAX = 0o7777
# More than a node has devices.
EDITS_KEPT = 128
NODE_TYPES = ("b", "c", "u", "p")
HOOK_NAMES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
PERMISSIONS = "rwm"


def validate(content: Spec) -> None:
    """Check every rule.

    Raises:
        errors.InvalidSpec: a rule is broken; the message names the first fault.
    """
    for fault in _faults(content):
        raise errors.InvalidSpec(fault)


def _faults(content: Spec) -> Iterator[str]:
    kind = KIND.fullmatch(content.kind)
    if kind is None:
        yield f"CDI kind {content.kind!r} is not vendor/class"
    elif len(kind["vendor"]) > VENDOR_CHARS or len(kind["name"]) > CLASS_CHARS:
        yield (
            f"CDI kind {content.kind!r} is too long: {VENDOR_CHARS} characters for the vendor, "
            f"{CLASS_CHARS} for the class"
        )
    if not content.devices:
        yield f"CDI spec {content.kind} has no device"
    where = f"CDI spec {content.kind}"
    yield from _annotations(content.annotations, where)
    yield from _edits_faults(content.edits, where)
    seen: set[str] = set()
    for device in content.devices:
        if not DEVICE_NAME.fullmatch(device.name):
            yield (
                f"CDI device name {device.name!r} may hold letters, digits and _ . : - only, "
                "and none of these at its ends"
            )
        if device.name in seen:
            yield f"CDI spec {content.kind} names device {device.name!r} twice"
        seen.add(device.name)
        yield from _device(device)


def _device(device: Device) -> Iterator[str]:
    where = f"CDI device {device.name!r}"
    if device.edits == EMPTY:
        yield f"{where} changes nothing in a container"
    yield from _annotations(device.annotations, where)
    yield from _edits_faults(device.edits, where)


def _annotations(held: Mapping[str, str], where: str) -> Iterator[str]:
    for key in held:
        prefix, slash, name = key.rpartition("/")
        good = ANNOTATION_NAME.fullmatch(name) and (
            not slash or (len(prefix) <= SUBDOMAIN_CHARS and SUBDOMAIN.fullmatch(prefix.lower()))
        )
        if not good:
            yield f"{where}: annotation {key!r} is not named [domain/]name"
    size = sum(len(key.encode()) + len(value.encode()) for key, value in held.items())
    if size > ANNOTATIONS_BYTES:
        yield f"{where}: its annotations hold {size} bytes, more than {ANNOTATIONS_BYTES}"


def _edits_faults(edits: ContainerEdits, where: str) -> Iterator[str]:
    return iter(()) if _are_valid(edits) else _edits(edits, where)


@functools.lru_cache(maxsize=EDITS_KEPT)
def _are_valid(edits: ContainerEdits) -> bool:
    # A device has the same edits for every claim that gets it.
    return not any(True for _ in _edits(edits, ""))


def _edits(edits: ContainerEdits, where: str) -> Iterator[str]:
    yield from _environment(edits.env, where)
    yield from _nodes(edits.device_nodes, where)
    for mount in edits.mounts:
        yield from _mount(mount, where)
    for hook in edits.hooks:
        yield from _hook(hook, where)
    yield from _net_devices(edits.net_devices, where)
    for gid in edits.additional_gids:
        if not 0 <= gid <= ID_MAX:
            yield f"{where}: {gid} is not a group id"
    if edits.intel_rdt is not None:
        yield from _intel_rdt(edits.intel_rdt, where)


def _environment(held: tuple[str, ...], where: str) -> Iterator[str]:
    for entry in held:
        if not ENVIRONMENT.fullmatch(entry):
            yield f"{where}: {entry!r} is not NAME=VALUE"


def _nodes(nodes: tuple[DeviceNode, ...], where: str) -> Iterator[str]:
    by_path: dict[str, DeviceNode] = {}
    for node in nodes:
        yield from _path(node.path, f"{where}: device node")
        if node.host_path:
            yield from _path(node.host_path, f"{where}: device node on the host")
        if node.type and node.type not in NODE_TYPES:
            yield f"{where}: {node.path} has unknown type {node.type!r}, not one of {', '.join(NODE_TYPES)}"
        if set(node.permissions) - set(PERMISSIONS) or len(set(node.permissions)) < len(node.permissions):
            yield f"{where}: {node.path} has permissions {node.permissions!r}, not some of {PERMISSIONS}"
        yield from _numbers(node, where)
        if by_path.setdefault(node.path, node) != node:
            yield f"{where}: two different device nodes would be {node.path}"


def _numbers(node: DeviceNode, where: str) -> Iterator[str]:
    if (node.major is None) != (node.minor is None):
        yield f"{where}: {node.path} has one of major and minor; it needs both or neither"
    for name, value, most in (
        ("major", node.major, NUMBER_MAX),
        ("minor", node.minor, NUMBER_MAX),
        ("file mode", node.file_mode, MODE_MAX),
        ("uid", node.uid, ID_MAX),
        ("gid", node.gid, ID_MAX),
    ):
        # A runtime takes -1 for "any device".
        if value is not None and not 0 <= value <= most:
            yield f"{where}: {node.path} has {name} {value}, which is not from 0 to {most}"


def _mount(mount: Mount, where: str) -> Iterator[str]:
    yield from _path(mount.container_path, f"{where}: mount point")
    if mount.type and mount.type not in ("none", "bind"):
        # Here the source has a name of its own, such as tmpfs.
        if not mount.host_path or "\0" in mount.host_path:
            yield f"{where}: the {mount.type} mount at {mount.container_path} does not say of what"
    else:
        yield from _path(mount.host_path, f"{where}: mounted host path")
    if not all(option and "\0" not in option for option in mount.options):
        yield f"{where}: the mount at {mount.container_path} has an empty option"


def _hook(hook: Hook, where: str) -> Iterator[str]:
    if hook.name not in HOOK_NAMES:
        yield f"{where}: hook {hook.name!r} is not one of {', '.join(HOOK_NAMES)}"
    yield from _path(hook.path, f"{where}: program of hook {hook.name}")
    yield from _environment(hook.env, f"{where}: hook {hook.name}")
    if hook.timeout_seconds is not None and not 0 < hook.timeout_seconds <= ID_MAX:
        yield f"{where}: hook {hook.name} has timeout {hook.timeout_seconds}, which is not above 0 seconds"


def _net_devices(held: tuple[NetDevice, ...], where: str) -> Iterator[str]:
    for name in (name for net in held for name in (net.host_name, net.name)):
        # The rules of net/core/dev.c, dev_valid_name.
        if (
            not 0 < len(name.encode()) <= INTERFACE_BYTES
            or name in (".", "..")
            or re.search(r"[/:\s\0]", name)
        ):
            yield f"{where}: {name!r} is not the name of a network interface"
    for names in ([net.host_name for net in held], [net.name for net in held]):
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"{where}: network interface {name!r} is there twice"


def _intel_rdt(rdt: IntelRdt, where: str) -> Iterator[str]:
    if not CLOS_ID.fullmatch(rdt.clos_id):
        yield f"{where}: intelRdt has closID {rdt.clos_id!r}, which is not a file name"


def _path(path: str, what: str) -> Iterator[str]:
    if not path.startswith("/") or "\0" in path:
        yield f"{what} {path!r} is not an absolute path"


# In the order of their release.
KNOWN_VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
BASE_VERSION = KNOWN_VERSIONS[0]


def lowest_version(content: Spec) -> str:
    """Return the lowest cdiVersion with all features of the content.

    Raises:
        errors.InvalidSpec: no version has all of them.
    """
    lowest = max((BASE_VERSION, *_list_needed_versions(content)), key=KNOWN_VERSIONS.index)
    if lowest == "1.1.0":
        for rdt in (edits.intel_rdt for edits in content.all_edits()):
            if rdt is not None and (rdt.enable_cmt or rdt.enable_mbm):
                raise errors.InvalidSpec(
                    f"CDI spec {content.kind}: enableCMT and enableMBM are not in version 1.1.0, which the rest "
                    "needs; use enableMonitoring"
                )
    return lowest


def version_covers(version: str, content: Spec) -> bool:
    """Return whether a file of this known version may hold the content."""
    return KNOWN_VERSIONS.index(version) >= KNOWN_VERSIONS.index(lowest_version(content))


def _list_needed_versions(content: Spec) -> Iterator[str]:
    if any(not (device.name[0].isascii() and device.name[0].isalpha()) for device in content.devices):
        # A runtime of an older version regards such a name as malformed and drops the whole file.
        yield "0.5.0"
    if "." in content.kind.partition("/")[2]:
        yield "0.6.0"
    if content.annotations or any(device.annotations for device in content.devices):
        yield "0.6.0"
    for edits in content.all_edits():
        yield from _list_needs(edits)


@functools.lru_cache(maxsize=EDITS_KEPT)
def _list_needs(edits: ContainerEdits) -> tuple[str, ...]:
    return tuple(_yield_needs(edits))


def _yield_needs(edits: ContainerEdits) -> Iterator[str]:
    rdt = edits.intel_rdt
    if any(mount.type for mount in edits.mounts):
        yield "0.4.0"
    if any(node.host_path for node in edits.device_nodes):
        yield "0.5.0"
    if rdt is not None or edits.additional_gids:
        yield "0.7.0"
    if edits.net_devices or (rdt is not None and (rdt.schemata or rdt.enable_monitoring)):
        yield "1.1.0"
