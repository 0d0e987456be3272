"""The container runtime of the kubelet double: it merges CDI edits into an OCI runtime spec and writes it to a file.

As in a real runtime, an id without a valid CDI spec file is an error. Nothing is executed.

Source: Container Device Interface specification 1.1.0; OCI runtime specification 1.3.
"""

import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from drawbar.mocks.kubelet import cdi, errors, files

FAILED = "failed to create containerd container: CDI device injection failed"


def create(
    container: dict[str, Any], ids: Sequence[str], *, directories: Sequence[Path], check_device_nodes: bool
) -> dict[str, Any]:
    """Return the OCI runtime spec of one container with the edits of these CDI ids.

    Args:
        container: the container's entry in the pod's spec.
        ids: fully qualified CDI ids; repeated ones count once.
        directories: the directories of CDI spec files, the last one with the highest priority.
        check_device_nodes: true if a device node must exist on this host.

    Raises:
        errors.RuntimeFailure: an id is unknown or ambiguous, or an edit cannot be applied.
    """
    environment = [
        f"{variable['name']}={variable.get('value', '')}" for variable in container.get("env") or ()
    ]
    spec: dict[str, Any] = {
        "ociVersion": "1.2.0",
        "process": {"args": list(container.get("command") or ()), "env": environment, "cwd": "/"},
        "root": {"path": "rootfs"},
        "mounts": [],
        "linux": {"devices": [], "resources": {"devices": []}},
        "hooks": {},
        "annotations": {},
    }
    defined = cdi.devices(directories)
    wanted = list(dict.fromkeys(ids))
    unknown = [name for name in wanted if name not in defined.by_id]
    if unknown:
        faults = "".join(f"; {file} is ignored: {reason}" for file, reason in defined.faults.items())
        raise errors.RuntimeFailure(f"{FAILED}: unresolvable CDI devices {', '.join(unknown)}{faults}")
    applied: set[Path] = set()
    for name in wanted:
        definition = defined.by_id[name]
        if definition.file not in applied:
            applied.add(definition.file)
            _apply(spec, definition.spec.container_edits, check_device_nodes)
        _apply(spec, definition.device.container_edits, check_device_nodes)
    return spec


def write(path: Path, spec: dict[str, Any]) -> None:
    """Write the spec; make its folder."""
    files.replace(path, (json.dumps(spec, indent=2) + "\n").encode())


def _apply(spec: dict[str, Any], edits: cdi.Edits, check_device_nodes: bool) -> None:
    for assignment in edits.env:
        name = assignment.partition("=")[0]
        kept = [variable for variable in spec["process"]["env"] if variable.partition("=")[0] != name]
        spec["process"]["env"] = [*kept, assignment]
    for node in edits.device_nodes:
        _add_device(spec["linux"], node, check_device_nodes)
    for net in edits.net_devices:
        spec["linux"].setdefault("netDevices", {})[net.host_interface_name] = {"name": net.name}
    for mount in edits.mounts:
        remaining = [present for present in spec["mounts"] if present["destination"] != mount.container_path]
        added = {
            "destination": mount.container_path,
            "source": mount.host_path,
            "type": mount.type,
            "options": list(mount.options),
        }
        spec["mounts"] = [*remaining, added]
    for hook in edits.hooks:
        content = msgspec.to_builtins(hook)
        spec["hooks"].setdefault(content.pop("hookName"), []).append(content)
    if edits.intel_rdt is not None:
        spec["linux"]["intelRdt"] = msgspec.to_builtins(edits.intel_rdt)
    # Group 0 is skipped, as by the runtimes' library.
    if groups := [group for group in edits.additional_gids if group]:
        user = spec["process"].setdefault("user", {})
        user["additionalGids"] = list(dict.fromkeys([*user.get("additionalGids", ()), *groups]))


def _add_device(linux: dict[str, Any], node: cdi.DeviceNode, check: bool) -> None:
    device: dict[str, Any] = {
        "path": node.path,
        "type": node.type,
        "major": node.major,
        "minor": node.minor,
    }
    optional = {"fileMode": node.file_mode, "uid": node.uid, "gid": node.gid}
    device |= {key: value for key, value in optional.items() if value is not None}
    if not device["type"] or (not device["major"] and device["type"] != "p"):
        device |= _numbers(Path(node.host_path or node.path), check)
    linux["devices"] = [
        *(present for present in linux["devices"] if present["path"] != device["path"]),
        device,
    ]
    if device["type"] in {"b", "c"}:
        rule = {
            "allow": True,
            "type": device["type"],
            "major": device["major"],
            "minor": device["minor"],
            "access": node.permissions or "rwm",
        }
        linux["resources"]["devices"].append(rule)


def _numbers(host: Path, check: bool) -> dict[str, Any]:
    try:
        status = host.stat()
    except OSError as error:
        if check:
            raise errors.RuntimeFailure(
                f"{FAILED}: failed to stat CDI host device {str(host)!r}: {error.strerror}"
            ) from error
        return {}
    letter = "b" if stat.S_ISBLK(status.st_mode) else "c" if stat.S_ISCHR(status.st_mode) else ""
    if not letter:
        if check:
            raise errors.RuntimeFailure(f"{FAILED}: {host} is not a device node")
        return {}
    return {"type": letter, "major": os.major(status.st_rdev), "minor": os.minor(status.st_rdev)}
