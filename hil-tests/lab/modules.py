"""Which kernel modules are needed for which, as `modprobe --show-depends` would say it.

Debian's package has no `modules.dep` (it is made at its installation), so the dependencies are read from the modules
themselves: section `.modinfo` holds strings such as `depends=9pnet,netfs`.
"""

import lzma
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from lab import errors

_FILES = (".ko", ".ko.xz")
_DEPENDS = re.compile(rb"(?:^|\0)depends=([^\0]*)\0")
_SOFT = re.compile(rb"\0softdep=pre: ([^\0]*?)(?: post:[^\0]*)?\0")


def find(root: Path) -> dict[str, Path]:
    """Return every module file below a folder, by the module's name (dashes are underscores there)."""
    return {
        path.name.partition(".")[0].replace("-", "_"): path
        for path in sorted(root.rglob("*.ko*"))
        if path.name.endswith(_FILES)
    }


def content(path: Path) -> bytes:
    """Return a module as busybox can load it: the modules of newer packages are decompressed."""
    packed = path.read_bytes()
    return lzma.decompress(packed) if path.suffix == ".xz" else packed


def dependencies(module: bytes) -> list[str]:
    """Return the names of the modules that a module needs, its soft dependencies first."""
    match = _DEPENDS.search(module)
    listed = match[1].decode().split(",") if match else []
    soft = _SOFT.search(module)
    soft_modules = soft[1].decode().split() if soft else []
    return [name.replace("-", "_") for name in [*soft_modules, *listed] if name]


def load_order(wanted: Iterable[str], files: Mapping[str, Path], builtin: frozenset[str]) -> list[str]:
    """Return the modules and all that they need, each after what it needs.

    Raises:
        errors.Unavailable: the package has no such module.
    """
    order: list[str] = []

    def add(name: str, *, soft: bool) -> None:
        if name in order or name in builtin:
            return
        if name not in files:
            if soft:
                return
            raise errors.Unavailable(
                f"the kernel package has no module {name}: name another kernel, or leave the module out of the lab"
            )
        for needed in dependencies(content(files[name])):
            add(needed, soft=True)
        order.append(name)

    for name in wanted:
        add(name, soft=False)
    return order
