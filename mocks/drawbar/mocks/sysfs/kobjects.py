"""One object of the kernel's device model: a directory, its links, its events.

Writing follows the order of `device_add` and `device_del` (drivers/base/core.c). The directory is complete before any
link to it exists. All links to it are gone before the directory is removed.
"""

import dataclasses
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

_DEVICE_NUMBERS = ("MAJOR", "MINOR", "DEVNAME", "DEVTYPE")  # the kernel writes these before DRIVER


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """A file: its content and its mode."""

    content: bytes = b""
    mode: int = 0o444


LOCAL_MAJORS: Mapping[int, int] = {
    240: 60,  # dfl-fme
    241: 61,  # dfl-port
    226: 120,  # drm
    242: 121,  # nvdimm
    245: 122,  # nvme-generic
    246: 123,  # nvme
    247: 124,  # cxl
    252: 125,  # dax
    259: 126,  # block extended
    261: 127,  # accel
    511: 62,  # vfio
    10: 63,  # misc
    235: 63,  # kfd
}
"""The major numbers for real device files, by the driver's usual one. They are from "60-63" and "120-127
LOCAL/EXPERIMENTAL USE", which no driver has (Documentation/admin-guide/devices.txt)."""
Files = Mapping[str, Attribute]
"""Attributes by name."""


def readable(text: str) -> Attribute:
    """Return an attribute readable by all; a final newline is added, as by drivers."""
    return Attribute(content=text.encode() + b"\n")


def writable(text: str) -> Attribute:
    """Return an attribute that root may also write."""
    return Attribute(content=text.encode() + b"\n", mode=0o644)


def trigger(mode: int = 0o200) -> Attribute:
    """Return a write-only attribute. The mock accepts writes and does nothing by itself."""
    return Attribute(mode=mode)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kobject:
    """A device.

    Attributes:
        path: its directory below the root, beginning with `devices/`.
        subsystem: the name of its subsystem in events.
        subsystem_path: the subsystem's own directory, `bus/pci` or `class/nvme`.
        uevent: the variables of its `uevent` file and of its events, without DRIVER.
        files: attributes by name; a name may hold one slash for a group (`link/l0s_aspm`).
        links: the targets of further symbolic links, by name, as paths below the root.
        driver: the driver that binds to it, or None.
    """

    path: str
    subsystem: str
    subsystem_path: str
    uevent: Mapping[str, str] = dataclasses.field(default_factory=dict)
    files: Mapping[str, Attribute] = dataclasses.field(default_factory=dict)
    links: Mapping[str, str] = dataclasses.field(default_factory=dict)
    driver: str | None = None

    @property
    def name(self) -> str:
        """Return the directory's name."""
        return self.path.rpartition("/")[2]

    @property
    def entry(self) -> str:
        """Return the path of the subsystem's link to it, below the root."""
        folder = (
            f"{self.subsystem_path}/devices"
            if self.subsystem_path.startswith("bus/")
            else self.subsystem_path
        )
        return f"{folder}/{self.name}"

    @property
    def driver_path(self) -> str:
        """Return the bound driver's directory below the root."""
        return f"{self.subsystem_path}/drivers/{self.driver}"

    @property
    def harmless(self) -> "Kobject":
        """Return the same device with a number for local use (`LOCAL_MAJORS`), if it has a number."""
        if (major := self.uevent.get("MAJOR")) is None:
            return self
        local, minor = LOCAL_MAJORS[int(major)], self.uevent["MINOR"]
        return dataclasses.replace(
            self,
            uevent={**self.uevent, "MAJOR": str(local)},
            files={**self.files, "dev": readable(f"{local}:{minor}")},
        )

    def variables(self, *, bound: bool) -> dict[str, str]:
        """Return the uevent's variables in the kernel's order."""
        head = {key: value for key, value in self.uevent.items() if key in _DEVICE_NUMBERS}
        driver = {"DRIVER": self.driver} if bound and self.driver else {}
        return {**head, **driver, **self.uevent}


def add(root: Path, staging: Path, kobject: Kobject) -> None:
    """Make the directory appear in one step, then the subsystem's link to it."""
    draft = staging / kobject.name
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    # Nobody reads the draft, so its files need no step of their own.
    for name, attribute in {**kobject.files, "uevent": _uevent_file(kobject, bound=False)}.items():
        _fill(draft / name, attribute)
    for name, target in {"subsystem": kobject.subsystem_path, **kobject.links}.items():
        (draft / name).symlink_to(relative(f"{kobject.path}/{name}", target))
    folder = root / kobject.path
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft.rename(folder)
    link(root, kobject.entry, kobject.path)


def bind(root: Path, kobject: Kobject) -> None:
    """Link device and driver to each other."""
    folder = root / kobject.driver_path
    if not folder.is_dir():
        for name in (
            "bind",
            "unbind",
            "uevent",
            *(("new_id", "remove_id") if kobject.subsystem == "pci" else ()),
        ):
            write(folder / name, trigger())
    link(root, f"{kobject.driver_path}/{kobject.name}", kobject.path)
    link(root, f"{kobject.path}/driver", kobject.driver_path)
    write(root / kobject.path / "uevent", _uevent_file(kobject, bound=True))


def unbind(root: Path, kobject: Kobject) -> None:
    """Remove the links between device and driver."""
    (root / kobject.driver_path / kobject.name).unlink(missing_ok=True)
    (root / kobject.path / "driver").unlink(missing_ok=True)
    write(root / kobject.path / "uevent", _uevent_file(kobject, bound=False))


def remove(root: Path, staging: Path, kobject: Kobject) -> None:
    """Remove the link, then the directory in one step, and the class folder if it is then empty.

    The emptied directory stays in `staging`: a file system gives its number to the next directory, and the kernel does not.
    """
    (root / kobject.entry).unlink(missing_ok=True)
    folder = root / kobject.path
    grave = staging / f"{folder.stat().st_ino}.removed"
    folder.rename(grave)
    for entry in tuple(grave.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    parent = (root / kobject.path).parent
    if parent.name == kobject.subsystem and not any(parent.iterdir()):
        parent.rmdir()


def write(path: Path, attribute: Attribute) -> None:
    """Write a file in one step: a reader sees the old or the new content. Its time becomes 1970; see `take_write`."""
    draft = path.with_name(f".{path.name}.new")
    _fill(draft, attribute)
    draft.replace(path)


def _fill(path: Path, attribute: Attribute) -> None:
    """Write a file's content, mode and time; make its folder if that is missing."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(file, attribute.content)
        os.fchmod(file, attribute.mode)
        os.utime(file, (0, 0))
    finally:
        os.close(file)


def take_write(path: Path) -> str | None:
    """Return another process's write to a file since the last call or the tree's own write; None if there is none.

    The tree's own writes set the file's time to 1970; any other write changes it.
    """
    try:
        status = path.stat()
        if status.st_mtime_ns == 0:
            return None
        if not status.st_mode & 0o400:
            path.chmod(status.st_mode | 0o400)  # only root could read it otherwise
        os.utime(path, (0, 0))  # before it is read, so that a write from now on counts as new
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return None
    # The file is empty between another process's open and its write.
    return text or None


def rewrite(path: Path, attribute: Attribute) -> None:
    """Write a file unless it already has this content."""
    if not path.is_file() or path.read_bytes() != attribute.content:
        write(path, attribute)


def link(root: Path, path: str, target: str) -> None:
    """Make a relative link at `path` to `target`, both below the root."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    file.symlink_to(relative(path, target))


def relative(path: str, target: str) -> str:
    """Return the text of a link at `path` to `target`, as in sysfs: always through the target's parent."""
    folder, _, name = target.rpartition("/")
    return f"{os.path.relpath(f'/{folder}', f'/{path}/..')}/{name}"


def _uevent_file(kobject: Kobject, *, bound: bool) -> Attribute:
    lines = "".join(f"{key}={value}\n" for key, value in kobject.variables(bound=bound).items())
    return Attribute(content=lines.encode(), mode=0o644)
