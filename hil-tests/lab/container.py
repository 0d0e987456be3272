"""Runs a program as a container runtime would have it, from the runtime spec that the kubelet double wrote.

    python -m lab.container /var/lib/kubelet/pods/UID/config.json -- head -c 5 /dev/nvme0n1

The program gets mounts, processes and a /dev of its own: device nodes that the spec does not name are not there. What the
spec says of environment and mounts is done. Not done: the device cgroup, users, capabilities, hooks, network devices.
Standard library only, since a guest takes seconds for more.

Source: OCI runtime specification 1.3, config-linux.md; the default devices of that page.
"""

import ctypes
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

CLONE_NEWNS, CLONE_NEWPID = 0x00020000, 0x20000000
MS_RDONLY, MS_NOSUID, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 32, 4096, 16384, 1 << 18
DEFAULT_DEVICES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
}
_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: list[str]) -> int:
    """Run it, and return its status."""
    spec = json.loads(Path(arguments[0]).read_text())
    argv = arguments[arguments.index("--") + 1 :]
    _check(_libc.unshare(CLONE_NEWNS | CLONE_NEWPID), "unshare")
    child = os.fork()  # the first process of the new process namespace
    if child == 0:
        try:
            _enter(spec)
            os.execvpe(argv[0], argv, os.environ | _environment(spec))
        except OSError as error:
            sys.stderr.write(f"container: {error}\n")
            sys.stderr.flush()
        finally:
            os._exit(127)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _enter(spec: dict[str, Any]) -> None:
    _mount("none", "/", "", MS_REC | MS_PRIVATE)
    nodes = [(path, _host_node(path, node)) for path, node in _device_nodes(spec)]
    binds = [(mount, Path(mount["source"])) for mount in spec.get("mounts") or ()]
    _mount("tmpfs", "/dev", "tmpfs", MS_NOSUID)
    for name, (major, minor) in DEFAULT_DEVICES.items():
        os.mknod(f"/dev/{name}", stat.S_IFCHR | 0o666, os.makedev(major, minor))
    for path, (kind, number, mode) in nodes:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, kind | mode, number)
    _mount("proc", "/proc", "proc", 0)
    for mount, source in binds:
        _bind(source, Path(mount["destination"]), mount.get("options") or ())


def _device_nodes(spec: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(node["path"], node) for node in (spec.get("linux") or {}).get("devices") or ()]


def _host_node(path: str, node: dict[str, Any]) -> tuple[int, int, int]:
    kind = stat.S_IFBLK if node.get("type") == "b" else stat.S_IFCHR
    return kind, os.makedev(node["major"], node["minor"]), node.get("fileMode", 0o660)


def _bind(source: Path, target: Path, options: Any) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    _mount(str(source), str(target), "", MS_BIND | MS_REC)
    if "ro" in options:
        _mount("none", str(target), "", MS_REMOUNT | MS_BIND | MS_RDONLY)


def _environment(spec: dict[str, Any]) -> dict[str, str]:
    environment = (spec.get("process") or {}).get("env") or ()
    return dict(text.split("=", 1) for text in environment)


def _mount(source: str, target: str, kind: str, flags: int) -> None:
    done = _libc.mount(source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), None)
    _check(done, f"mount {target}")


def _check(done: int, what: str) -> None:
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
