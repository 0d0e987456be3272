"""CDI files: written atomically, removed only when they are ours.

A container runtime reads the directory at any moment, so a file is complete before it has its name: it is written
under a name that runtimes skip (no `.json` ending) and renamed. The directory is on tmpfs, hence nothing is fsynced;
whoever needs a file after a reboot writes it again.

Ours is a file that is named `<prefix>-<owner>.json` after an owner that `path` accepts, and whose kind has the prefix as its vendor where it can be read:
a driver `a.b` never takes `a.b-c-<uid>.json` of a driver `a.b-c` for its own. What a writer left that was killed
halfway is a hidden file of no consequence; `sweep` removes it once it is so old that no process can still be writing.

A runtime reads several directories. Static files, which an administrator or an installer writes, are in `/etc/cdi`;
files that come and go, such as ours, in `/var/run/cdi`, whose files win over the others'. Two files of one directory
that name one device make it unusable: no container with it starts. `conflicts` finds both before a pod does. It reads
files of any version, and leaves those that cannot be read to the runtimes: what counts is which devices they name.

Source: Container Device Interface, pkg/cdi/spec-dirs.go (`DefaultSpecDirs`) and pkg/cdi/cache.go (`refresh`).
"""

import enum
import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from drawbar.cdi import errors, spec

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
    listed = []
    for rank, directory in enumerate(directories):
        effect = _effect(rank, own_rank)
        for other in _files(directory):
            if other != file:
                names = sorted(ours & set(_names(other)))
                listed += [Conflict(device=name, file=other, effect=effect) for name in names]
    return tuple(listed)


def _effect(rank: int, own_rank: int) -> Effect:
    if rank == own_rank:
        return Effect.NOBODY_WINS
    return Effect.OURS_WINS if rank < own_rank else Effect.OURS_LOSES


def _files(directory: Path) -> Iterator[Path]:
    try:
        yield from sorted(entry for entry in directory.iterdir() if entry.suffix in SUFFIXES)
    except OSError:
        return


def find(
    directories: Sequence[Path],
    kind: str,
    *,
    names: frozenset[str],
    own: frozenset[str],
    common: frozenset[str],
) -> str | None:
    """The qualified name of a device of another vendor's files; None where none is the wanted one. Reads files.

    Args:
        directories: from the lowest priority to the highest.
        kind: `vendor/class`.
        names: what it may be called, in small letters.
        own: paths of device files. Failing a name, it is the device that has some of them, and no file but these and `common`:
            such as has those of other devices as well (`all`) is never chosen.
        common: paths of device files that other devices have, too.
    """
    by_files = None
    for directory in reversed(directories):
        for file in _files(directory):
            for said, name, device in _devices(file):
                if said != kind:
                    continue
                if name.lower() in names:
                    return f"{kind}={name}"
                paths = _paths(device)
                if by_files is None and name != "all" and paths & own and paths <= own | common:
                    by_files = f"{kind}={name}"
    return by_files


def _paths(device: dict[str, object]) -> frozenset[str]:
    edits = device.get("containerEdits")
    nodes = edits.get("deviceNodes") if isinstance(edits, dict) else None
    nodes = nodes if isinstance(nodes, list) else []
    said = [node.get("hostPath") or node.get("path") for node in nodes if isinstance(node, dict)]
    return frozenset(path for path in said if isinstance(path, str))


def _names(file: Path) -> Iterator[str]:
    return (f"{kind}={name}" for kind, name, _ in _devices(file))


def _devices(file: Path) -> Iterator[tuple[str, str, dict[str, object]]]:
    """Kind, name and content of the devices that can be read."""
    document = _document(file)
    if not isinstance(document, dict) or not isinstance(document.get("devices"), list):
        return
    for device in document["devices"]:
        if isinstance(device, dict) and isinstance(device.get("name"), str):
            yield str(document.get("kind")), device["name"], device


def _document(file: Path) -> object:
    try:
        if file.stat().st_size > FILE_BYTES:
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


SUFFIX = ".json"
DRAFT_SUFFIX = ".tmp"
# A write takes milliseconds; two instances of a rolling update share the directory.
DRAFT_AGE_SECONDS = 60.0
# Ours are below 10 kB per device; nothing else may make us read without end.
FILE_BYTES = 16 * 1024 * 1024
# Leaves room for prefix and endings in the 255 bytes of a file's name.
OWNER_CHARS = 128
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def path(directory: Path, prefix: str, owner: str) -> Path:
    """The file of one owner, such as a claim's uid.

    Raises:
        errors.InvalidSpec: the owner cannot be part of a file's name, or would lead out of the directory.
    """
    if not _is_owner(owner):
        raise errors.InvalidSpec(
            f"no CDI file can be named after {owner[:OWNER_CHARS]!r}: it has other characters than letters, digits, dots, "
            f"underscores and hyphens, or more than {OWNER_CHARS} of them"
        )
    return directory / f"{prefix}-{owner}{SUFFIX}"


def _is_owner(text: str) -> bool:
    return _OWNER.fullmatch(text) is not None and len(text) <= OWNER_CHARS


def write(file: Path, content: spec.Spec) -> None:
    """Puts the spec in place, whole or not at all.

    Raises:
        errors.InvalidSpec: the content breaks the specification.
        errors.UnwritableDir: the directory cannot be made or written.
    """
    try:
        raw = msgspec.json.encode(spec.encode(content))
    except UnicodeEncodeError as error:
        # A file name that is no UTF-8 comes from the kernel's listings as half characters.
        raise errors.InvalidSpec(
            f"CDI spec {content.kind} holds {error.object!r}, which is not Unicode text; rename what is called so"
        ) from error
    folder, name = os.path.split(file)
    # Two instances may write the same file at once, each its own draft.
    draft = f"{folder}/.{name.removesuffix(SUFFIX)}.{secrets.token_hex(4)}{DRAFT_SUFFIX}"
    try:
        try:
            _put(draft, file, raw)
        except FileNotFoundError:
            file.parent.mkdir(parents=True, exist_ok=True)
            _put(draft, file, raw)
    except OSError as error:
        raise errors.UnwritableDir(
            f"cannot write CDI file {file}: {error.strerror}; mount the directory read-write into the pod"
        ) from error


def _put(draft: str, file: Path, raw: bytes) -> None:
    # Plain calls: this is on the way of every Prepare.
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            while raw:
                raw = raw[os.write(descriptor, raw) :]
        finally:
            os.close(descriptor)
        os.rename(draft, file)  # noqa: PTH104 - see above
    except OSError:
        Path(draft).unlink(missing_ok=True)
        raise


def read(file: Path) -> spec.Spec | None:
    """The content of a file of ours; None where there is no such file.

    Raises:
        errors.InvalidSpec: what is in it is no valid specification, so no runtime uses it either.
        errors.Unreadable: it is there and cannot be read.
    """
    try:
        # One byte more than it may have, to see that it has more.
        with file.open("rb") as opened:
            text = opened.read(FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.Unreadable(
            f"cannot read CDI file {file}: {error.strerror}; give the pod the right to, or remove the file"
        ) from error
    if len(text) > FILE_BYTES:
        raise errors.InvalidSpec(f"CDI file {file} is larger than {FILE_BYTES} bytes")
    try:
        return spec.decode(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise errors.InvalidSpec(f"CDI file {file} is not JSON: {error}") from error
    except errors.InvalidSpec as error:
        raise errors.InvalidSpec(f"{file}: {error}") from error


def remove(file: Path) -> None:
    """Removes the file; absence is success.

    Raises:
        errors.UnwritableDir: it cannot be removed.
    """
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise errors.UnwritableDir(
            f"cannot remove CDI file {file}: {error.strerror}; mount the directory read-write into the pod"
        ) from error


def owners(directory: Path, prefix: str) -> frozenset[str]:
    """Whose files of ours are there; empty when the directory is not.

    Raises:
        errors.Unreadable: the directory cannot be listed.
    """
    start = f"{prefix}-"
    named = (
        (entry, entry.name[len(start) : -len(SUFFIX)])
        for entry in _entries(directory)
        if entry.name.startswith(start) and entry.name.endswith(SUFFIX)
    )
    return frozenset(owner for entry, owner in named if _is_owner(owner) and _is_ours(entry, prefix))


def sweep(directory: Path, prefix: str, now: float | None = None) -> int:
    """Removes the drafts of writers that were killed; gives how many.

    Args:
        directory: where we write.
        prefix: as of `path`.
        now: seconds since the epoch; the clock's when None.

    Raises:
        errors.Unreadable: the directory cannot be listed.
        errors.UnwritableDir: a draft cannot be removed.
    """
    before = (time.time() if now is None else now) - DRAFT_AGE_SECONDS
    removed = 0
    for entry in _entries(directory):
        if not (entry.name.startswith(f".{prefix}-") and entry.name.endswith(DRAFT_SUFFIX)):
            continue
        try:
            stale = entry.lstat().st_mtime < before
        except FileNotFoundError:
            continue
        if stale:
            remove(entry)
            removed += 1
    return removed


def _entries(directory: Path) -> tuple[Path, ...]:
    try:
        return tuple(directory.iterdir())
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise errors.Unreadable(
            f"cannot list the CDI directory {directory}: {error.strerror}; mount it into the pod"
        ) from error


def _is_ours(file: Path, prefix: str) -> bool:
    """By its kind; a file that holds no specification is what its name says."""
    try:
        content = read(file)
    except errors.CdiError:
        return True
    return content is not None and content.vendor == prefix
