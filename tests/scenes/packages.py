"""Installed packages: their dependencies, and an environment with a selection of them."""

import sys
import venv
from importlib import metadata
from pathlib import Path

from packaging import requirements, utils


def list_dependencies(*names):
    """Return the given packages with all their dependencies."""
    todo, done = [requirements.Requirement(name) for name in names], set()
    while todo:
        needed = todo.pop()
        key = (utils.canonicalize_name(needed.name), frozenset(needed.extras))
        if key in done:
            continue
        done.add(key)
        below = (requirements.Requirement(text) for text in metadata.requires(needed.name) or ())
        extras = needed.extras or {""}
        todo += [
            each
            for each in below
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras)
        ]
    return {name for name, _ in done}


def make_environment(folder, names):
    """Make a virtual environment with these packages by links to the installed ones; return its folder of packages."""
    venv.create(folder, symlinks=True)
    site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    for name in names:
        package = metadata.distribution(name)
        for top in {file.parts[0] for file in package.files} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(package.locate_file(top)))
    return site
