"""Kills a process at a moment that the kernel tells of: run in a guest, standard library only.

    python -m lab.snare PID event unbind 0000:01:00.0       at this uevent
    python -m lab.snare PID waits pciehp_sysfs_enable_slot  while a thread of it waits in this function of the kernel
    python -m lab.snare PID file /run/cdi                   once a file is in this folder

It says `set`, then `caught`, and ends. Nobody waits for a write to return: when it is killed in the middle of one, the
kernel finishes what it was asked, and the process ends.

Source: proc(5), `wchan`; lib/kobject_uevent.c.
"""

import os
import signal
import sys
import time
from pathlib import Path

from lab import spyglass

PAUSE_SECONDS = 0.002


def event(action: str, name: str) -> None:
    """Returns at a uevent of this action and device."""
    heard = spyglass.events()
    next(heard)
    _say("set")
    while True:
        one = next(heard)
        if one.get("ACTION") == action and one.get("DEVPATH", "").endswith(f"/{name}"):
            return


def waits(pid: str, function: str) -> None:
    """Returns while a thread of the process waits in this function."""
    tasks = Path("/proc", pid, "task")
    _say("set")
    while not any(_read(task / "wchan") == function for task in tasks.iterdir()):
        time.sleep(PAUSE_SECONDS)


def file(folder: str) -> None:
    """Returns once something is in the folder."""
    _say("set")
    while not any(Path(folder).iterdir()):
        time.sleep(PAUSE_SECONDS)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # the thread has ended


def _say(what: str) -> None:
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


def main(pid: str, moment: str, *about: str) -> None:
    """Waits for the moment, and kills."""
    match moment:
        case "event":
            event(*about)
        case "waits":
            waits(pid, *about)
        case "file":
            file(*about)
        case _:
            raise SystemExit(f"error: there is no moment {moment!r}: use event, waits or file")
    os.kill(int(pid), signal.SIGKILL)
    _say("caught")


if __name__ == "__main__":
    main(*sys.argv[1:])
