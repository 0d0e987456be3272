"""One object of the kernel's device model: a directory, its links, its events.

Writing follows the order of `device_add` and `device_del` (drivers/base/core.c): the directory is
complete before anything points to it, and everything that points to it is gone before the directory is.
"""

import dataclasses
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

_DEVICE_NUMBERS = ("MAJOR", "MINOR", "DEVNAME", "DEVTYPE")  # the kernel writes these before DRIVER


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """A file: what reading it yields, and its mode."""

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
"""What stands for the number of a driver where device files are made for real: "60-63" and "120-127 LOCAL/EXPERIMENTAL USE", of which no
driver has one (Documentation/admin-guide/devices.txt)."""
Files = Mapping[str, Attribute]
"""Attributes by name."""


def readable(text: str) -> Attribute:
    """An attribute that everybody may read; a final newline is added, as drivers do."""
    return Attribute(content=text.encode() + b"\n")


def writable(text: str) -> Attribute:
    """An attribute that root may also write."""
    return Attribute(content=text.encode() + b"\n", mode=0o644)


def trigger(mode: int = 0o200) -> Attribute:
    """An attribute that can only be written. The mock takes what is written and does nothing."""
    return Attribute(mode=mode)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kobject:
    """A device.

    Attributes:
        path: its directory below the root, beginning with `devices/`.
        subsystem: what its events call its subsystem.
        subsystem_path: the subsystem's own directory, `bus/pci` or `class/nvme`.
        uevent: the variables of its `uevent` file and of its events, without DRIVER.
        files: attributes by name; a name may hold one slash for a group (`link/l0s_aspm`).
        links: further symbolic links, each with the path below the root that it leads to.
        driver: the driver that binds to it, if one does.
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
        """The directory's own name."""
        return self.path.rpartition("/")[2]

    @property
    def entry(self) -> str:
        """Where the subsystem lists it, below the root."""
        folder = (
            f"{self.subsystem_path}/devices"
            if self.subsystem_path.startswith("bus/")
            else self.subsystem_path
        )
        return f"{folder}/{self.name}"

    @property
    def driver_path(self) -> str:
        """The bound driver's directory below the root."""
        return f"{self.subsystem_path}/drivers/{self.driver}"

    @property
    def harmless(self) -> "Kobject":
        """The same with a device number for local use, if it has one: `LOCAL_MAJORS`."""
        if (major := self.uevent.get("MAJOR")) is None:
            return self
        local, minor = LOCAL_MAJORS[int(major)], self.uevent["MINOR"]
        return dataclasses.replace(
            self,
            uevent={**self.uevent, "MAJOR": str(local)},
            files={**self.files, "dev": readable(f"{local}:{minor}")},
        )

    def variables(self, *, bound: bool) -> dict[str, str]:
        """The uevent's variables in the kernel's order."""
        head = {key: value for key, value in self.uevent.items() if key in _DEVICE_NUMBERS}
        driver = {"DRIVER": self.driver} if bound and self.driver else {}
        return {**head, **driver, **self.uevent}


def add(root: Path, staging: Path, kobject: Kobject) -> None:
    """Makes the directory appear in one step, then its subsystem's link to it."""
    draft = staging / kobject.name
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    for name, attribute in kobject.files.items():
        write(draft / name, attribute)
    write(draft / "uevent", _uevent_file(kobject, bound=False))
    for name, target in {"subsystem": kobject.subsystem_path, **kobject.links}.items():
        (draft / name).symlink_to(relative(f"{kobject.path}/{name}", target))
    (root / kobject.path).parent.mkdir(parents=True, exist_ok=True)
    draft.rename(root / kobject.path)
    link(root, kobject.entry, kobject.path)


def bind(root: Path, kobject: Kobject) -> None:
    """Links device and driver to each other."""
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
    """Parts device and driver."""
    (root / kobject.driver_path / kobject.name).unlink(missing_ok=True)
    (root / kobject.path / "driver").unlink(missing_ok=True)
    write(root / kobject.path / "uevent", _uevent_file(kobject, bound=False))


def remove(root: Path, staging: Path, kobject: Kobject) -> None:
    """Takes the link away, then the directory in one step, with the folder that grouped it if now empty."""
    (root / kobject.entry).unlink(missing_ok=True)
    grave = staging / f"{kobject.name}.removed"
    shutil.rmtree(grave, ignore_errors=True)
    (root / kobject.path).rename(grave)
    shutil.rmtree(grave)
    parent = (root / kobject.path).parent
    if parent.name == kobject.subsystem and not any(parent.iterdir()):
        parent.rmdir()


def write(path: Path, attribute: Attribute) -> None:
    """Writes a file in one step: a reader sees the old content or the new. See `taken` for its time."""
    draft = path.with_name(f".{path.name}.new")
    try:
        draft.write_bytes(attribute.content)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(attribute.content)
    draft.chmod(attribute.mode)
    os.utime(draft, (0, 0))
    draft.replace(path)


def taken(path: Path) -> str | None:
    """Return what another process has written to a file since the tree or the last call did; None if none has, or it is gone.

    A file that the tree wrote is of 1970; whoever writes to it changes that.
    """
    try:
        status = path.stat()
        if status.st_mtime_ns == 0:
            return None
        if not status.st_mode & 0o400:
            path.chmod(status.st_mode | 0o400)  # only root could read it otherwise
        os.utime(path, (0, 0))  # before it is read: what is written from now on is new
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return None
    # It is empty while a process has opened it and not yet written.
    return text or None


def rewrite(path: Path, attribute: Attribute) -> None:
    """Write a file unless it has this content already."""
    if not path.is_file() or path.read_bytes() != attribute.content:
        write(path, attribute)


def link(root: Path, place: str, target: str) -> None:
    """A relative link at `place` to `target`, both below the root."""
    path = root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(relative(place, target))


def relative(place: str, target: str) -> str:
    """The link text at `place` that leads to `target`, as sysfs writes it: always through target's parent."""
    folder, _, name = target.rpartition("/")
    return f"{os.path.relpath(folder, str(Path(place).parent))}/{name}"


def _uevent_file(kobject: Kobject, *, bound: bool) -> Attribute:
    lines = "".join(f"{key}={value}\n" for key, value in kobject.variables(bound=bound).items())
    return Attribute(content=lines.encode(), mode=0o644)
