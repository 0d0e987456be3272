"""Loads a recorded snapshot of a real sysfs as a tree of files, and the uevents that were recorded with it.

A recording is what `drawbar discover --record DIR` writes: DIR, or one snapshot by itself. A snapshot is a JSON object,
path (beginning with /sys/, or with /proc/ for the files of NVIDIA's driver) to one of: `text` or `b64` (content), `link` (target), or only `mode` and `size` where
reading is impossible or makes no sense; `errno` where the kernel refused. Directories are implied; `folder` is an empty
one. Events are a file of lines, each a JSON object: `t`, monotonic seconds, and `msg`, with a newline for each NUL.

A plain file cannot be longer than what is read from it: configuration space that was cut for lack of privilege looks
like that of a conventional PCI function.
"""

import base64
import dataclasses
import gzip
import json
import posixpath
import re
from pathlib import Path
from typing import Any

from drawbar.mocks.sysfs import errors, hotplug

SNAPSHOT, EVENTS = "sysfs.json.gz", "uevents.jsonl"
_PREFIX, _PROC_PREFIX = "/sys/", "/proc/"
_DRIVERS_FILE = re.compile(r"/proc/driver/nvidia/gpus/[0-9a-f:.]{12,16}/information")
_MOST_BYTES = 1 << 30


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """A uevent: when it came, in the host's monotonic seconds, and what was on the wire."""

    seconds: float
    datagram: bytes


def load_events(recording: Path) -> tuple[RecordedEvent, ...]:
    """The events of a recording's folder, or of a file of them; none where none were recorded.

    Raises:
        ImpossibleWorld: the file holds something else.
    """
    path = recording / EVENTS if recording.is_dir() else recording
    if not path.exists():
        return ()
    try:
        return tuple(_event(json.loads(line)) for line in path.read_text().splitlines())
    except (ValueError, KeyError, TypeError) as error:
        raise errors.ImpossibleWorld(f"{path} is no recording of uevents: {error!r}") from error


def _event(line: dict[str, Any]) -> RecordedEvent:
    message = line["msg"]
    if not isinstance(message, str):
        raise TypeError(f"msg is {message!r}")
    return RecordedEvent(seconds=float(line["t"]), datagram=message.replace("\n", "\0").encode())


def load_recording(recording: Path, root: Path) -> None:
    """Writes the snapshot below `root`, which is made if need be, and nowhere else, whatever a stranger's file says.

    Files of NVIDIA's driver go to the folder `proc` beside it, where the node looks for them.

    A file that the kernel refused to read becomes a directory: opening it succeeds and reading it fails,
    for root as well.

    Args:
        recording: a snapshot (`.json`, or `.json.gz`), or the folder of a recording, whose first snapshot it is then.
        root: where to.

    Raises:
        ImpossibleWorld: the file is no snapshot.
    """
    snapshot_json = recording / SNAPSHOT if recording.is_dir() else recording
    root.mkdir(parents=True, exist_ok=True)
    entries = _entries(snapshot_json)
    # Links come last, so that nothing is written through one.
    for path in sorted(entries, key=lambda path: "link" in entries[path]):
        target = _target(root, path)
        if target is None:
            continue
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _write(target, entries[path])
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise errors.ImpossibleWorld(
                f"{snapshot_json} is no recording of /sys: {path} is two things in it"
            ) from error


def _entries(snapshot_json: Path) -> dict[str, dict[str, Any]]:
    opened = gzip.open if snapshot_json.suffix == ".gz" else open
    try:
        with opened(snapshot_json, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
        entries = json.loads(content) if len(content) <= _MOST_BYTES else None
    except (ValueError, EOFError, gzip.BadGzipFile) as error:
        raise errors.ImpossibleWorld(f"{snapshot_json} is no recording of /sys: {error}") from error
    if not isinstance(entries, dict):
        raise errors.ImpossibleWorld(
            f"{snapshot_json} is no recording of /sys: it is not an object, or larger than {_MOST_BYTES} bytes"
        )
    for path, entry in entries.items():
        if not _is_sound(path, entry):
            raise errors.ImpossibleWorld(f"{snapshot_json} is no recording of /sys: it holds {path}")
    return entries


def _is_sound(path: str, entry: Any) -> bool:
    """Whether it is below /sys and, if it is a link, leads nowhere else."""
    if ".." in path.split("/") or not isinstance(entry, dict):
        return False
    if _DRIVERS_FILE.fullmatch(path):
        return "link" not in entry
    if not path.startswith(_PREFIX):
        return False
    if "link" not in entry:
        return True
    target = str(entry["link"])
    leads_to = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return leads_to.startswith(_PREFIX) and not target.startswith("/")


def _target(root: Path, path: str) -> Path | None:
    if path.startswith(_PREFIX):
        return root / path.removeprefix(_PREFIX)
    return hotplug.beside(root, f"proc/{path.removeprefix(_PROC_PREFIX)}")


def _write(target: Path, entry: dict[str, Any]) -> None:
    if "link" in entry:
        target.symlink_to(entry["link"])
        return
    if "errno" in entry or "folder" in entry:
        target.mkdir(exist_ok=True)
        return
    target.write_bytes(base64.b64decode(entry["b64"]) if "b64" in entry else entry.get("text", "").encode())
    if "mode" in entry:
        target.chmod(int(entry["mode"], 8) & 0o777)
