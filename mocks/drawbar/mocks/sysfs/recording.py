"""Loading of a recorded snapshot of a real sysfs as a tree of files, and of the recorded uevents.

A recording is the output of `drawbar discover --record DIR`: DIR, or a single snapshot. A snapshot is a JSON object.
Its keys are paths below /sys/, or below /proc/ for the files of NVIDIA's driver. A value has `text` or `b64` (content)
or `link` (target). It has only `mode` and `size` if the file cannot or should not be read, and `errno` if the kernel
refused. Directories are implied; `folder` is an empty one. The file of events has one JSON object a line: `t`,
monotonic seconds, and `msg`, with a newline for each NUL.

Limit: a plain file cannot be longer than its content. Configuration space that was cut for lack of privilege looks
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
    """A uevent: its time in the host's monotonic seconds, and its datagram."""

    seconds: float
    datagram: bytes


def load_events(recording: Path) -> tuple[RecordedEvent, ...]:
    """Return the events of a recording's folder, or of a file of events; empty if none were recorded.

    Raises:
        ImpossibleWorld: the file is not a recording of uevents.
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
    """Write the snapshot below `root`, and nowhere else, even if the file is malicious; make `root` if needed.

    Files of NVIDIA's driver go to the folder `proc` beside it, where the node looks for them. A file that the kernel
    refused to read becomes a directory, so that reading it fails for root, too.

    Args:
        recording: a snapshot (`.json` or `.json.gz`), or the folder of a recording, for its first snapshot.
        root: the folder to write to.

    Raises:
        ImpossibleWorld: the file is not a snapshot.
    """
    snapshot_json = recording / SNAPSHOT if recording.is_dir() else recording
    root.mkdir(parents=True, exist_ok=True)
    entries = _entries(snapshot_json)
    # Links come last, so that no file is written through one.
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
    """Return true if the entry is below /sys and, if it is a link, its target is too."""
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
    return hotplug.find_host_file(root, f"proc/{path.removeprefix(_PROC_PREFIX)}")


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
