"""What a kernel says and shows, raw: run in a guest, standard library only.

    python -m lab.spyglass events                 one JSON object per uevent, until it is killed; the first line is {}
    python -m lab.spyglass tree /sys/devices/...   every file below: its mode, and its content or the errno of reading it

Source: lib/kobject_uevent.c (datagrams of NUL-separated text); sysfs(5).
"""

import json
import os
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NETLINK_KOBJECT_UEVENT = 15
KERNEL_GROUP = 1
DATAGRAM_BYTES = 16 * 1024
CONTENT_BYTES = 4096


def events() -> Iterator[dict[str, str]]:
    """The kernel's uevents; first an empty one, once it listens."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_KOBJECT_UEVENT) as listener:
        listener.bind((0, KERNEL_GROUP))
        yield {}
        while True:
            fields = listener.recv(DATAGRAM_BYTES).decode(errors="replace").split("\0")
            yield dict(field.split("=", 1) for field in fields[1:] if "=" in field)


def tree(root: Path) -> dict[str, dict[str, Any]]:
    """The files and links below a directory, by relative path."""
    found: dict[str, dict[str, Any]] = {}
    for folder, folders, names in os.walk(root):
        for name in [*names, *(one for one in folders if Path(folder, one).is_symlink())]:
            path = Path(folder, name)
            found[str(path.relative_to(root))] = _entry(path)
    return found


def _entry(path: Path) -> dict[str, Any]:
    if path.is_symlink():
        return {"link": str(path.readlink())}
    entry: dict[str, Any] = {"mode": oct(stat.S_IMODE(path.stat().st_mode))}
    try:
        with path.open("rb") as file:
            entry["content"] = file.read(CONTENT_BYTES).decode("latin-1")
    except OSError as error:
        entry["errno"] = error.errno
    return entry


def main(arguments: list[str]) -> None:
    """Prints what was asked for."""
    if arguments[0] == "events":
        for event in events():
            sys.stdout.write(json.dumps(event) + "\n")
            sys.stdout.flush()
    else:
        sys.stdout.write(json.dumps(tree(Path(arguments[1]))))


if __name__ == "__main__":
    main(sys.argv[1:])
