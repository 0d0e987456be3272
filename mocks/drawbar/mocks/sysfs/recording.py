"""Loads a recorded snapshot of a real sysfs as a tree of files.

A snapshot is a JSON object, path (beginning with /sys/) to one of: `text` or `b64` (content), `link`
(target), or only `mode` and `size` where reading is impossible or makes no sense; `errno` where the
kernel refused. Directories are implied.
"""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

from drawbar.mocks.sysfs import errors

_PREFIX = "/sys/"


def load_recording(snapshot_json: Path, root: Path) -> None:
    """Writes the snapshot (`.json`, or `.json.gz`) below `root`, which is made if need be.

    A file that the kernel refused to read becomes a directory: opening it succeeds and reading it fails,
    for root as well.

    Raises:
        ImpossibleWorld: the file is no snapshot.
    """
    for path, entry in _entries(snapshot_json).items():
        if not path.startswith(_PREFIX) or ".." in path.split("/"):
            raise errors.ImpossibleWorld(f"{snapshot_json} is no recording of /sys: it holds {path}")
        target = root / path.removeprefix(_PREFIX)
        target.parent.mkdir(parents=True, exist_ok=True)
        _write(target, entry)


def _entries(snapshot_json: Path) -> dict[str, dict[str, Any]]:
    content = snapshot_json.read_bytes()
    if snapshot_json.suffix == ".gz":
        content = gzip.decompress(content)
    try:
        entries = json.loads(content)
    except ValueError as error:
        raise errors.ImpossibleWorld(f"{snapshot_json} is no recording of /sys: {error}") from error
    if not isinstance(entries, dict):
        raise errors.ImpossibleWorld(f"{snapshot_json} is no recording of /sys: it is not an object")
    return entries


def _write(target: Path, entry: dict[str, Any]) -> None:
    if "link" in entry:
        target.symlink_to(entry["link"])
        return
    if "errno" in entry:
        target.mkdir()
        return
    target.write_bytes(base64.b64decode(entry["b64"]) if "b64" in entry else entry.get("text", "").encode())
    if "mode" in entry:
        target.chmod(int(entry["mode"], 8))
