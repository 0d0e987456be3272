"""The container runtime of the kubelet double: merges CDI edits into an OCI runtime spec and writes it to a file.

As in a real runtime an id that no CDI spec file defines is an error, and so is one that two files of the same directory
define. Nothing is executed. The merging is written from the CDI specification and shares no code with the product's
CDI component, so that each checks the other.

Source: Container Device Interface specification 1.1.0; OCI runtime specification 1.2.
"""

import json
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from drawbar.mocks.kubelet import errors

SUFFIXES = {".json", ".yaml"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """One device, and the spec it stands in."""

    file: Path
    spec: dict[str, Any]
    device: dict[str, Any]


def create(
    container: dict[str, Any], ids: Sequence[str], *, cdi: Path, check_device_nodes: bool
) -> dict[str, Any]:
    """The OCI runtime spec of one container with the edits of these CDI ids.

    Args:
        container: the container's entry in the pod's spec.
        ids: fully qualified CDI ids; repeated ones count once.
        cdi: the directory of CDI spec files.
        check_device_nodes: whether a device node must exist on this host.

    Raises:
        errors.RuntimeFailure: an id is unknown or ambiguous, or an edit cannot be applied.
    """
    given = [f"{one['name']}={one.get('value', '')}" for one in container.get("env") or ()]
    spec: dict[str, Any] = {
        "ociVersion": "1.2.0",
        "process": {"args": list(container.get("command") or ()), "env": given, "cwd": "/"},
        "root": {"path": "rootfs"},
        "mounts": [],
        "linux": {"devices": [], "resources": {"devices": []}},
        "hooks": {},
        "annotations": {},
    }
    known = _devices(cdi)
    unknown = [name for name in dict.fromkeys(ids) if name not in known]
    if unknown:
        raise errors.RuntimeFailure(
            f"CDI device injection failed: unresolvable CDI devices {', '.join(unknown)}"
        )
    applied: set[Path] = set()
    for name in dict.fromkeys(ids):
        found = known[name]
        if found.file not in applied:
            applied.add(found.file)
            _apply(spec, found.spec.get("containerEdits") or {}, check_device_nodes)
        _apply(spec, found.device.get("containerEdits") or {}, check_device_nodes)
    return spec


def write(path: Path, spec: dict[str, Any]) -> None:
    """Writes the spec, making its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(spec, indent=2) + "\n", encoding="utf-8")


def _devices(cdi: Path) -> dict[str, _Found]:
    found: dict[str, _Found] = {}
    twice: set[str] = set()
    for file, spec in _specs(cdi):
        for device in spec.get("devices") or ():
            name = f"{spec.get('kind')}={device.get('name')}"
            if name in found:
                twice.add(name)
            found[name] = _Found(file=file, spec=spec, device=device)
    # What two files claim is nobody's.
    return {name: device for name, device in found.items() if name not in twice}


def _specs(cdi: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for file in sorted(cdi.glob("*")):
        if file.suffix not in SUFFIXES:
            continue
        try:
            spec = yaml.safe_load(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (yaml.YAMLError, UnicodeDecodeError):
            # A broken file hides only its own devices.
            continue
        if isinstance(spec, dict) and "cdiVersion" in spec and "kind" in spec:
            yield file, spec


def _apply(spec: dict[str, Any], edits: dict[str, Any], check_device_nodes: bool) -> None:
    for assignment in edits.get("env") or ():
        name = assignment.partition("=")[0]
        kept = [one for one in spec["process"]["env"] if one.partition("=")[0] != name]
        spec["process"]["env"] = [*kept, assignment]
    for node in edits.get("deviceNodes") or ():
        _add_device(spec["linux"], node, check_device_nodes)
    for mount in edits.get("mounts") or ():
        others = [one for one in spec["mounts"] if one["destination"] != mount["containerPath"]]
        added = {
            "destination": mount["containerPath"],
            "source": mount["hostPath"],
            "type": mount.get("type", ""),
            "options": list(mount.get("options") or ()),
        }
        spec["mounts"] = [*others, added]
    for hook in edits.get("hooks") or ():
        content = {key: value for key, value in hook.items() if key != "hookName"}
        spec["hooks"].setdefault(hook["hookName"], []).append(content)


def _add_device(linux: dict[str, Any], node: dict[str, Any], check: bool) -> None:
    device = {
        "path": node["path"],
        "type": node.get("type", ""),
        "major": node.get("major", 0),
        "minor": node.get("minor", 0),
    }
    for key in ("fileMode", "uid", "gid"):
        if key in node:
            device[key] = node[key]
    if not device["type"] or (not device["major"] and device["type"] != "p"):
        host = Path(node.get("hostPath") or node["path"])
        device |= _numbers(host, check)
    linux["devices"] = [*(one for one in linux["devices"] if one["path"] != device["path"]), device]
    if device["type"] in {"b", "c"}:
        rule = {
            "allow": True,
            "type": device["type"],
            "major": device["major"],
            "minor": device["minor"],
            "access": node.get("permissions") or "rwm",
        }
        linux["resources"]["devices"].append(rule)


def _numbers(host: Path, check: bool) -> dict[str, Any]:
    try:
        status = host.stat()
    except OSError as error:
        if check:
            raise errors.RuntimeFailure(
                f"CDI device injection failed: failed to stat CDI host device {str(host)!r}: {error.strerror}"
            ) from error
        return {}
    letter = "b" if stat.S_ISBLK(status.st_mode) else "c" if stat.S_ISCHR(status.st_mode) else ""
    if not letter:
        if check:
            raise errors.RuntimeFailure(f"CDI device injection failed: {host} is not a device node")
        return {}

    return {"type": letter, "major": os.major(status.st_rdev), "minor": os.minor(status.st_rdev)}
