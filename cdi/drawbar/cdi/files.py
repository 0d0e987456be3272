"""CDI files: written atomically, removed only when they are ours.

A container runtime reads the directory at any moment, so a file is complete before it has its name: it is written
under a name that runtimes skip (no `.json` ending) and renamed. The directory is on tmpfs, hence nothing is fsynced;
whoever needs a file after a reboot writes it again.
"""

import json
from pathlib import Path

from drawbar.cdi import errors, spec

SUFFIX = ".json"


def path(directory: Path, prefix: str, owner: str) -> Path:
    """The file of one owner, such as a claim's uid."""
    return directory / f"{prefix}-{owner}{SUFFIX}"


def write(file: Path, content: spec.Spec) -> None:
    """Puts the spec in place, whole or not at all.

    Raises:
        errors.InvalidSpec: the content breaks the specification.
        errors.UnwritableDir: the directory cannot be made or written.
    """
    text = json.dumps(spec.document(content), indent=1)
    draft = file.with_name(f".{file.stem}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, encoding="utf-8")
        draft.rename(file)
    except OSError as error:
        raise errors.UnwritableDir(
            f"cannot write CDI file {file}: {error.strerror}; mount the directory read-write into the pod"
        ) from error


def remove(file: Path) -> None:
    """Removes the file; absence is success.

    Raises:
        errors.UnwritableDir: it cannot be removed.
    """
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise errors.UnwritableDir(f"cannot remove CDI file {file}: {error.strerror}") from error


def owners(directory: Path, prefix: str) -> frozenset[str]:
    """Whose files are there; empty when the directory is not."""
    if not directory.is_dir():
        return frozenset()
    start = f"{prefix}-"
    return frozenset(
        entry.name[len(start) : -len(SUFFIX)]
        for entry in directory.iterdir()
        if entry.name.startswith(start) and entry.name.endswith(SUFFIX)
    )
