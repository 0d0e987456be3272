"""What makes a CDI specification valid; pure.

`validate` returns for a valid one, and names what breaks which rule of any other. Stricter than the runtimes in what
they would take and misunderstand: relative paths, one of two device numbers, a value with a NUL in it.

Source: Container Device Interface specification 1.1.0, SPEC.md and schema/defs.json; what the runtimes' common library
(tags.cncf.io/container-device-interface) refuses; annotations as `k8s.io/apimachinery` has them.
"""

import functools
import re
from collections.abc import Iterator, Mapping

from drawbar.cdi import errors, spec

_NAME = r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
KIND = re.compile(rf"(?P<vendor>{_NAME})/(?P<name>{_NAME})")
DEVICE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
ENVIRONMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=[^\0]*")
ANNOTATION_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
# What a directory of resctrl can be called; `/` stands for the root's class.
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


def validate(content: spec.Spec) -> None:
    """Checks every rule.

    Raises:
        errors.InvalidSpec: names the first thing that breaks one.
    """
    for fault in _faults(content):
        raise errors.InvalidSpec(fault)


def _faults(content: spec.Spec) -> Iterator[str]:
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


def _device(device: spec.Device) -> Iterator[str]:
    where = f"CDI device {device.name!r}"
    if device.edits == spec.EMPTY:
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


def _edits_faults(edits: spec.ContainerEdits, where: str) -> Iterator[str]:
    return iter(()) if _are_valid(edits) else _edits(edits, where)


@functools.lru_cache(maxsize=EDITS_KEPT)
def _are_valid(edits: spec.ContainerEdits) -> bool:
    # A device has the same edits for every claim that gets it.
    return not any(True for _ in _edits(edits, ""))


def _edits(edits: spec.ContainerEdits, where: str) -> Iterator[str]:
    yield from _environment(edits.env, where)
    yield from _nodes(edits.device_nodes, where)
    for mount in edits.mounts:
        yield from _mount(mount, where)
    for hook in edits.hooks:
        yield from _hook(hook, where)
    yield from _net_devices(edits.net_devices, where)
    for gid in edits.additional_gids:
        if not 0 <= gid <= ID_MAX:
            yield f"{where}: {gid} is no group id"
    if edits.intel_rdt is not None:
        yield from _intel_rdt(edits.intel_rdt, where)


def _environment(held: tuple[str, ...], where: str) -> Iterator[str]:
    for entry in held:
        if not ENVIRONMENT.fullmatch(entry):
            yield f"{where}: {entry!r} is not NAME=VALUE"


def _nodes(nodes: tuple[spec.DeviceNode, ...], where: str) -> Iterator[str]:
    known: dict[str, spec.DeviceNode] = {}
    for node in nodes:
        yield from _path(node.path, f"{where}: device node")
        if node.host_path:
            yield from _path(node.host_path, f"{where}: device node on the host")
        if node.type and node.type not in NODE_TYPES:
            yield f"{where}: {node.path} has unknown type {node.type!r}, not one of {', '.join(NODE_TYPES)}"
        if set(node.permissions) - set(PERMISSIONS) or len(set(node.permissions)) < len(node.permissions):
            yield f"{where}: {node.path} has permissions {node.permissions!r}, not some of {PERMISSIONS}"
        yield from _numbers(node, where)
        if known.setdefault(node.path, node) != node:
            yield f"{where}: two different device nodes would be {node.path}"


def _numbers(node: spec.DeviceNode, where: str) -> Iterator[str]:
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


def _mount(mount: spec.Mount, where: str) -> Iterator[str]:
    yield from _path(mount.container_path, f"{where}: mount point")
    if mount.type and mount.type not in ("none", "bind"):
        # What is mounted has a name of its own there, such as tmpfs.
        if not mount.host_path or "\0" in mount.host_path:
            yield f"{where}: the {mount.type} mount at {mount.container_path} does not say of what"
    else:
        yield from _path(mount.host_path, f"{where}: mounted host path")
    if not all(option and "\0" not in option for option in mount.options):
        yield f"{where}: the mount at {mount.container_path} has an empty option"


def _hook(hook: spec.Hook, where: str) -> Iterator[str]:
    if hook.name not in HOOK_NAMES:
        yield f"{where}: hook {hook.name!r} is not one of {', '.join(HOOK_NAMES)}"
    yield from _path(hook.path, f"{where}: program of hook {hook.name}")
    yield from _environment(hook.env, f"{where}: hook {hook.name}")
    if hook.timeout_seconds is not None and not 0 < hook.timeout_seconds <= ID_MAX:
        yield f"{where}: hook {hook.name} has timeout {hook.timeout_seconds}, which is not above 0 seconds"


def _net_devices(held: tuple[spec.NetDevice, ...], where: str) -> Iterator[str]:
    for name in (name for net in held for name in (net.host_name, net.name)):
        # As net/core/dev.c, dev_valid_name.
        if (
            not 0 < len(name.encode()) <= INTERFACE_BYTES
            or name in (".", "..")
            or re.search(r"[/:\s\0]", name)
        ):
            yield f"{where}: {name!r} is no name of a network interface"
    for names in ([net.host_name for net in held], [net.name for net in held]):
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"{where}: network interface {name!r} is there twice"


def _intel_rdt(rdt: spec.IntelRdt, where: str) -> Iterator[str]:
    if not CLOS_ID.fullmatch(rdt.clos_id):
        yield f"{where}: intelRdt has closID {rdt.clos_id!r}, which is no file name"


def _path(path: str, what: str) -> Iterator[str]:
    if not path.startswith("/") or "\0" in path:
        yield f"{what} {path!r} is not an absolute path"
