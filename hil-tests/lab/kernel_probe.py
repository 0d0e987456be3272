"""What a kernel shows, raw, and killing a process at a moment that it shows: run in a guest, standard library only.

    python -m lab.kernel_probe events                  one JSON object per uevent, until it is killed; the first line is {}
    python -m lab.kernel_probe tree /sys/devices/...   every file below: its mode, and its content or the errno of reading it
    python -m lab.kernel_probe kill PID MOMENT         prints `set`, then `caught` once it has killed the process

A MOMENT is one of these. A process that is killed in the middle of a write ends once the kernel has finished the write.

    event unbind 0000:01:00.0        this uevent
    waits pciehp_sysfs_enable_slot   a thread of the process waits in this function of the kernel
    file /run/cdi                    a file is in this folder

Source: lib/kobject_uevent.c (datagrams of NUL-separated text); sysfs(5); proc(5), `wchan`.
"""

import json
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NETLINK_KOBJECT_UEVENT = 15
KERNEL_GROUP = 1
DATAGRAM_BYTES = 16 * 1024
CONTENT_BYTES = 4096
PAUSE_SECONDS = 0.002


def events() -> Iterator[dict[str, str]]:
    """Yield the kernel's uevents; first an empty one, once the socket is bound."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_KOBJECT_UEVENT) as listener:
        listener.bind((0, KERNEL_GROUP))
        yield {}
        while True:
            fields = listener.recv(DATAGRAM_BYTES).decode(errors="replace").split("\0")
            yield dict(field.split("=", 1) for field in fields[1:] if "=" in field)


def tree(root: Path) -> dict[str, dict[str, Any]]:
    """Return the files and links below a directory, by relative path."""
    entries: dict[str, dict[str, Any]] = {}
    for folder, folders, names in os.walk(root):
        for name in [*names, *(link for link in folders if Path(folder, link).is_symlink())]:
            path = Path(folder, name)
            entries[str(path.relative_to(root))] = _entry(path)
    return entries


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


def wait_for(pid: str, moment: str, *about: str) -> None:
    """Return at the moment; print `set` once it cannot be missed any more.

    Raises:
        SystemExit: there is no such moment.
    """
    match moment, about:
        case "event", (action, name):
            received = events()
            next(received)
            _print("set")
            while not _is(next(received), action, name):
                pass
        case "waits", (function,):
            tasks = Path("/proc", pid, "task")
            _print("set")
            while not any(_read(task / "wchan") == function for task in tasks.iterdir()):
                time.sleep(PAUSE_SECONDS)
        case "file", (folder,):
            _print("set")
            while not any(Path(folder).iterdir()):
                time.sleep(PAUSE_SECONDS)
        case _:
            raise SystemExit(f"error: there is no moment {moment!r}: use event, waits or file")


def _is(event: dict[str, str], action: str, name: str) -> bool:
    return event.get("ACTION") == action and event.get("DEVPATH", "").endswith(f"/{name}")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # the thread has ended


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(verb: str, *arguments: str) -> None:
    """Do what the command line says."""
    match verb:
        case "events":
            for event in events():
                _print(json.dumps(event))
        case "tree":
            sys.stdout.write(json.dumps(tree(Path(arguments[0]))))
        case "kill":
            wait_for(*arguments)
            os.kill(int(arguments[0]), signal.SIGKILL)
            _print("caught")
        case _:
            raise SystemExit(f"error: there is no verb {verb!r}: use events, tree or kill")


if __name__ == "__main__":
    main(*sys.argv[1:])
