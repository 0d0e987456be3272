"""CDI files: Drawbar writes them atomically and removes only its own.

A container runtime may read the directory at any moment. So a file is written under a hidden name without the ending
`.json`, and renamed when it is complete. The directory is on tmpfs, so nothing is fsynced; after a reboot the file is
written again.

Drawbar's own file is named `<prefix>-<owner>.json`. `path` accepts the owner, and the file's kind has the prefix as
its vendor, if the file can be read. So a driver `a.b` never removes `a.b-c-<uid>.json` of a driver `a.b-c`. A writer
that was killed leaves a hidden file behind; `sweep` removes it after `DRAFT_AGE_SECONDS`.

A runtime reads several directories. `/etc/cdi` holds static files of administrators and installers. `/var/run/cdi`
holds changing files, such as Drawbar's, and has the higher priority. If two files of one directory name the same
device, no container with that device starts. `conflicts` finds both cases before a pod does. It reads files of any
version, and skips unreadable ones: only the names of their devices matter.

Source: Container Device Interface, pkg/cdi/spec-dirs.go (`DefaultSpecDirs`) and pkg/cdi/cache.go (`refresh`).
"""

import enum
import errno
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from drawbar.cdi import errors, spec

STATIC = Path("/etc/cdi")
DYNAMIC = Path("/var/run/cdi")
# From the lowest priority to the highest, as in the runtimes.
DEFAULT = (STATIC, DYNAMIC)
SUFFIXES = (".json", ".yaml")


class Effect(enum.StrEnum):
    """The effect of another file that names our device."""

    OURS_WINS = "ours is used, the other one never is"
    OURS_LOSES = "the other one is used, ours never is"
    NOBODY_WINS = "no container gets either"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A device of ours that is also named in another file."""

    device: str
    file: Path
    effect: Effect

    def __str__(self) -> str:
        return f"CDI device {self.device} is in {self.file}, too: {self.effect}; remove that file"


def read_by_runtimes(written: Path) -> tuple[Path, ...]:
    """Return the directories that the runtimes read, from the lowest priority to the highest.

    If `written` is not a default directory, it is added with the highest priority.
    """
    return DEFAULT if written in DEFAULT else (*DEFAULT, written)


def conflicts(directories: Sequence[Path], file: Path, content: spec.Spec) -> tuple[Conflict, ...]:
    """Return the devices of our file that other files name too. It reads files, so call it in a thread.

    Args:
        directories: from the lowest priority to the highest; must include the directory of `file`.
        file: the path of our file.
        content: the content of our file.
    """
    ours = {device.name for device in content.devices}
    own_rank = directories.index(file.parent)
    listed = []
    for rank, directory in enumerate(directories):
        effect = _effect(rank, own_rank)
        for other in _files(directory):
            if other != file:
                theirs = {name for kind, name, _ in _devices(other) if kind == content.kind}
                listed += [
                    Conflict(device=f"{content.kind}={name}", file=other, effect=effect)
                    for name in sorted(ours & theirs)
                ]
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
    """Return the qualified name of a device in another vendor's files, or None if no device matches. It reads files.

    Args:
        directories: from the lowest priority to the highest.
        kind: `vendor/class`.
        names: possible names of the device, in small letters.
        own: paths of the device's own files. If no name matches, a device matches that has some of these files and
            none but these and `common`. The device `all` never matches by files.
        common: paths of device files shared with other devices.

    Raises:
        errors.AmbiguousDevice: the device is in two files of one directory, so no container can get it.
    """
    by_files = None
    hidden: set[str] = set()
    for directory in reversed(directories):
        listed = [
            (file, name, device)
            for file in _files(directory)
            for file_kind, name, device in _devices(file)
            if file_kind == kind and name not in hidden
        ]
        for _, name, device in listed:
            if name.lower() in names:
                return _qualify(kind, name, listed)
            paths = _paths(device)
            if by_files is None and name != "all" and paths & own and paths <= own | common:
                by_files = name, listed
        # A runtime takes them from this directory, even if a directory of lower priority has files of their names.
        hidden.update(name for _, name, _ in listed)
    return None if by_files is None else _qualify(kind, *by_files)


_Listed = Sequence[tuple[Path, str, dict[str, object]]]


def _qualify(kind: str, name: str, listed: _Listed) -> str:
    """Return the qualified name of a device among those of one directory."""
    named_in = sorted({str(file) for file, other, _ in listed if other == name})
    if len(named_in) > 1:
        raise errors.AmbiguousDevice(
            f"CDI device {kind}={name} is in {' and '.join(named_in)}, so no container gets it; remove all but one"
        )
    return f"{kind}={name}"


def _paths(device: dict[str, object]) -> frozenset[str]:
    edits = device.get("containerEdits")
    nodes = edits.get("deviceNodes") if isinstance(edits, dict) else None
    # With an alias of YAML, each device of a file has the same list.
    nodes = nodes if isinstance(nodes, list) and len(nodes) <= DEVICE_NODES_MAX else []
    paths = [_path_on_host(node) for node in nodes if isinstance(node, dict)]
    return frozenset(path for path in paths if path is not None)


def _path_on_host(node: dict[str, object]) -> str | None:
    """Return the path of a device file on the host. A driver in a container has the same file below its own root."""
    host, path = node.get("hostPath") or node.get("path"), node.get("path")
    if isinstance(host, str) and isinstance(path, str) and host.endswith(path):
        return path
    return host if isinstance(host, str) else None


def _devices(file: Path) -> Iterator[tuple[str, str, dict[str, object]]]:
    """Yield the kind, name and content of each readable device."""
    document = _document(file)
    fields = document if isinstance(document, dict) else {}
    kind, devices = fields.get("kind"), fields.get("devices")
    if not isinstance(kind, str) or not isinstance(devices, list):
        return
    for device in devices:
        if isinstance(device, dict) and isinstance(device.get("name"), str):
            yield kind, device["name"], device


def _document(file: Path) -> object:
    try:
        most_bytes = FILE_BYTES if file.suffix == ".json" else YAML_BYTES
        raw = read_regular(file, most_bytes + 1)
        if len(raw) > most_bytes:
            return None
        text = raw.decode()
        if file.suffix == ".json":
            content: object = json.loads(text)
            return content
    except (OSError, ValueError, RecursionError):
        return None
    return _yaml(text)


def _yaml(text: str) -> object:
    # Few nodes have YAML files, and the parser costs memory.
    import yaml

    try:
        # As in the runtimes, a number is a name, too. Merge keys and numbers are not evaluated, which could take hours.
        content: object = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - it makes only texts, lists and dictionaries
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    return content


SUFFIX = ".json"
DRAFT_SUFFIX = ".tmp"
# A write takes milliseconds; two instances of a rolling update share the directory.
DRAFT_AGE_SECONDS = 60.0
# Our files have less than 10 kB per device; the limit bounds the reading of foreign ones.
FILE_BYTES = 16 * 1024 * 1024
# Leaves room for prefix and endings in the 255 bytes of a file's name.
OWNER_CHARS = 128
# The parser reads some 50 kB in a second. Vendors' files have less than 1 kB per device.
YAML_BYTES = 256 * 1024
# A device of a vendor has some ten.
DEVICE_NODES_MAX = 256
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def path(directory: Path, prefix: str, owner: str) -> Path:
    """Return the path of one owner's file; an owner is, for example, a claim's UID.

    Raises:
        errors.InvalidSpec: the owner is no valid part of a file name, or leads out of the directory.
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
    """Write the spec to the file atomically.

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
    # Two instances may write the same file at once, so each has its own draft.
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
    # Plain calls are faster, and every Prepare waits for them.
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
    """Return the content of a file of ours, or None if the file does not exist.

    Raises:
        errors.InvalidSpec: the file holds no valid specification, so no runtime uses it either.
        errors.Unreadable: the file exists and cannot be read.
    """
    try:
        # One byte above the limit shows that the file is too large.
        text = read_regular(file, FILE_BYTES + 1)
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


def read_regular(file: Path, most_bytes: int) -> bytes:
    """Return the first bytes of a regular file, up to `most_bytes`. A pipe or a device would keep its reader waiting.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(file))
        return opened.read(most_bytes)


def remove(file: Path) -> None:
    """Remove the file; an absent file is a success.

    Raises:
        errors.UnwritableDir: the file cannot be removed.
    """
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise errors.UnwritableDir(
            f"cannot remove CDI file {file}: {error.strerror}; mount the directory read-write into the pod"
        ) from error


def owners(directory: Path, prefix: str) -> frozenset[str]:
    """Return the owners of our files in the directory; empty if the directory does not exist.

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
    """Remove the drafts of killed writers and return their number.

    Args:
        directory: the directory of our files.
        prefix: as in `path`.
        now: seconds since the epoch; None for the current time.

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
    """Return whether the file is ours by its kind. An unreadable file with our name counts as ours."""
    try:
        content = read(file)
    except errors.CdiError:
        return True
    return content is not None and content.vendor == prefix
