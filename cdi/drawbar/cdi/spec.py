"""The part of the CDI specification that Drawbar writes.

A `Spec` is valid when `validate` returned; `version` gives the lowest `cdiVersion` that expresses it, because older
runtimes refuse newer versions. Source: Container Device Interface specification, SPEC.md, sections "CDI JSON
Specification" and "Versioning".
"""

import re
from dataclasses import dataclass

from drawbar.cdi import errors

KIND = re.compile(
    r"(?P<vendor>[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?)/(?P<name>[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?)"
)
DEVICE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
ENVIRONMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)

BASE_VERSION = "0.3.0"
HOST_PATH_VERSION = "0.5.0"
DIGIT_FIRST_VERSION = "0.5.0"
DOTTED_CLASS_VERSION = "0.6.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """A device file that appears in the container.

    Attributes:
        path: absolute path in the container.
        host_path: path on the host where it differs.
        type: `b` for block, `c` for character devices.
        major: device number; None lets the runtime read it from the host's file.
        minor: device number.
        permissions: any of `r`, `w`, `m`.
    """

    path: str
    host_path: str = ""
    type: str = ""
    major: int | None = None
    minor: int | None = None
    permissions: str = "rw"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEdits:
    """What a device changes in a container."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device that a container can ask for."""

    name: str
    edits: ContainerEdits


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One CDI file.

    Attributes:
        kind: `vendor/class`.
        devices: at least one, names unique.
    """

    kind: str
    devices: tuple[Device, ...]

    def qualified(self, device: Device) -> str:
        """The name a runtime resolves: `vendor/class=name`."""
        return f"{self.kind}={device.name}"


def validate(spec: Spec) -> None:
    """Checks the rules of the specification.

    Raises:
        errors.InvalidSpec: names what breaks which rule.
    """
    if not KIND.fullmatch(spec.kind):
        raise errors.InvalidSpec(f"CDI kind {spec.kind!r} is not vendor/class")
    if not spec.devices:
        raise errors.InvalidSpec(f"CDI spec {spec.kind} has no device")
    seen: set[str] = set()
    for device in spec.devices:
        if not DEVICE_NAME.fullmatch(device.name):
            raise errors.InvalidSpec(
                f"CDI device name {device.name!r} may hold letters, digits and _ . : - only, and none of these at its ends"
            )
        if device.name in seen:
            raise errors.InvalidSpec(f"CDI spec {spec.kind} names device {device.name!r} twice")
        seen.add(device.name)
        _validate_edits(device)


def _validate_edits(device: Device) -> None:
    for entry in device.edits.env:
        if not ENVIRONMENT.fullmatch(entry):
            raise errors.InvalidSpec(f"CDI device {device.name!r}: {entry!r} is not NAME=VALUE")
    for node in device.edits.device_nodes:
        if not node.path.startswith("/"):
            raise errors.InvalidSpec(
                f"CDI device {device.name!r}: device node {node.path!r} is not an absolute path"
            )
        if node.type not in ("", "b", "c", "u", "p"):
            raise errors.InvalidSpec(
                f"CDI device {device.name!r}: {node.path} has unknown type {node.type!r}"
            )
        if not node.permissions or set(node.permissions) - set("rwm"):
            raise errors.InvalidSpec(
                f"CDI device {device.name!r}: {node.path} has permissions {node.permissions!r}"
            )


def version(spec: Spec) -> str:
    """The lowest cdiVersion with all that the spec uses."""
    needed = [BASE_VERSION]
    if any(node.host_path for device in spec.devices for node in device.edits.device_nodes):
        needed.append(HOST_PATH_VERSION)
    if any(device.name[0].isdigit() for device in spec.devices):
        # A runtime that reads an older version takes such a name for malformed and drops the whole file.
        needed.append(DIGIT_FIRST_VERSION)
    if "." in spec.kind.split("/", 1)[1]:
        needed.append(DOTTED_CLASS_VERSION)
    return max(needed, key=lambda text: tuple(int(part) for part in text.split(".")))


def document(spec: Spec) -> dict[str, object]:
    """The JSON document of a valid spec.

    Raises:
        errors.InvalidSpec: it is not valid.
    """
    validate(spec)
    return {
        "cdiVersion": version(spec),
        "kind": spec.kind,
        "devices": [{"name": device.name, "containerEdits": _edits(device.edits)} for device in spec.devices],
    }


def _edits(edits: ContainerEdits) -> dict[str, object]:
    content: dict[str, object] = {
        "env": list(edits.env),
        "deviceNodes": [_node(node) for node in edits.device_nodes],
    }
    return {key: value for key, value in content.items() if value}


def _node(node: DeviceNode) -> dict[str, object]:
    content: dict[str, object | None] = {
        "path": node.path,
        "hostPath": node.host_path or None,
        "type": node.type or None,
        "major": node.major,
        "minor": node.minor,
        "permissions": node.permissions,
    }
    return {key: value for key, value in content.items() if value is not None}
