"""The directories of CDI files as a container runtime sees them: which device wins where two files name it.

A runtime reads several directories. Static files, which an administrator or an installer writes, are in `/etc/cdi`;
files that come and go, such as ours, in `/var/run/cdi`, whose files win over the others'. Two files of one directory
that name one device make it nobody's: no container with it starts. `conflicts` finds both before a pod does.

Files of any version are looked at, and files that cannot be read are left to the runtimes to complain about: what counts
is which devices they name.

Source: Container Device Interface, pkg/cdi/spec-dirs.go (`DefaultSpecDirs`) and pkg/cdi/cache.go (`refresh`).
"""

import enum
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from drawbar.cdi import files, spec

STATIC = Path("/etc/cdi")
DYNAMIC = Path("/var/run/cdi")
# From the lowest priority to the highest, as the runtimes have it.
DEFAULT = (STATIC, DYNAMIC)
SUFFIXES = (".json", ".yaml")


class Effect(enum.StrEnum):
    """What it means for our device that another file names it."""

    OURS_WINS = "ours is used, the other one never is"
    OURS_LOSES = "the other one is used, ours never is"
    NOBODY_WINS = "no container gets either"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A device of ours that another file names too."""

    device: str
    file: Path
    effect: Effect

    def __str__(self) -> str:
        return f"CDI device {self.device} is in {self.file}, too: {self.effect}; remove that file"


def read_by_runtimes(written: Path) -> tuple[Path, ...]:
    """All directories to look at when we write to `written`, which has the highest priority unless it is a known one."""
    return DEFAULT if written in DEFAULT else (*DEFAULT, written)


def conflicts(directories: Sequence[Path], file: Path, content: spec.Spec) -> tuple[Conflict, ...]:
    """The devices of our file that another file names; a few file reads, so for a thread.

    Args:
        directories: from the lowest priority to the highest; the one of `file` among them.
        file: where we wrote.
        content: what we wrote.
    """
    ours = {content.qualified(device) for device in content.devices}
    own_rank = directories.index(file.parent)
    found = []
    for rank, directory in enumerate(directories):
        effect = _effect(rank, own_rank)
        for other in _files(directory):
            if other != file:
                names = sorted(ours & set(_names(other)))
                found += [Conflict(device=name, file=other, effect=effect) for name in names]
    return tuple(found)


def _effect(rank: int, own_rank: int) -> Effect:
    if rank == own_rank:
        return Effect.NOBODY_WINS
    return Effect.OURS_WINS if rank < own_rank else Effect.OURS_LOSES


def _files(directory: Path) -> Iterator[Path]:
    try:
        yield from sorted(entry for entry in directory.iterdir() if entry.suffix in SUFFIXES)
    except OSError:
        return


def _names(file: Path) -> Iterator[str]:
    document = _document(file)
    if not isinstance(document, dict) or not isinstance(document.get("devices"), list):
        return
    for device in document["devices"]:
        if isinstance(device, dict) and isinstance(device.get("name"), str):
            yield f"{document.get('kind')}={device['name']}"


def _document(file: Path) -> object:
    try:
        if file.stat().st_size > files.FILE_BYTES:
            return None
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".json":
            content: object = json.loads(text)
            return content
    except (OSError, ValueError, RecursionError):
        return None
    return _yaml(text)


def _yaml(text: str) -> object:
    # Few nodes have such a file; the parser costs memory that the others need not pay.
    import yaml

    try:
        content: object = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    return content
