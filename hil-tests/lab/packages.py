"""What the lab takes from Debian: the kernel with its modules, and a static busybox.

Packages are downloaded and unpacked into a folder of the cache, never installed, so root is not needed. A folder
appears in the cache at once and whole: another run sees all of it or nothing.
"""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import errors

KERNEL = "linux-image-amd64"
BUSYBOX = "busybox-static"
QEMU = "qemu-system-x86_64"
DOWNLOAD_SECONDS = 300
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
_UNUSED = (
    "usr",
    *(f"lib/modules/*/kernel/{folder}" for folder in ("sound", "net/[!9]*", "drivers/[!bcdnv]*")),
)
"""Of the 400 MB, what no guest has a use for is not kept: the drivers that it has are block, char, cxl, dax, net, n* and v*."""
_IMAGE = re.compile(r"^\s*Depends: (linux-image-\d\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel from its package, unpacked.

    Attributes:
        release: as `uname -r` prints it.
        image: what is booted.
        modules: the folder below which its modules lie.
    """

    release: str
    image: Path
    modules: Path

    @property
    def builtin(self) -> frozenset[str]:
        """The names of the modules that are part of the image."""
        listed = (self.modules / "modules.builtin").read_text().splitlines()
        return frozenset(Path(line).stem.replace("-", "_") for line in listed)


def cache() -> Path:
    """Where the lab keeps what it has downloaded: below XDG_CACHE_HOME."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "drawbar-lab"


def kernel(folder: Path) -> Kernel:
    """Debian's current kernel, from the cache or downloaded into it (70 MB, 10 s to unpack).

    Raises:
        errors.Unavailable: it cannot be had; the message names the remedy.
    """
    # The newest that is there is good enough: a test run does not depend on a package index.
    unpacked = sorted(folder.glob("linux-image-[0-9]*"))
    root = unpacked[-1] if unpacked else _unpacked(_image_package(), folder)
    images = sorted(root.glob("boot/vmlinuz-*"))
    modules = sorted(root.glob("lib/modules/*"))
    if not images or not modules:
        raise errors.Unavailable(
            f"{root} holds no kernel with modules: delete it, and it is downloaded again"
        )
    return Kernel(release=modules[-1].name, image=images[-1], modules=modules[-1])


def busybox(folder: Path) -> Path:
    """A busybox that needs no library: the installed one, or Debian's.

    Raises:
        errors.Unavailable: it cannot be had.
    """
    for installed in (Path("/bin/busybox"), Path("/usr/bin/busybox")):
        if installed.exists() and _is_static(installed):
            return installed
    root = folder / BUSYBOX
    if not root.exists():
        root = _unpacked(BUSYBOX, folder)
    paths = [root / name for name in ("bin/busybox", "usr/bin/busybox") if (root / name).exists()]
    if not paths:
        raise errors.Unavailable(f"{root} holds no busybox: delete it, and it is downloaded again")
    return paths[0]


def qemu() -> str:
    """The path of QEMU.

    Raises:
        errors.Unavailable: it is not installed.
    """
    program = shutil.which(QEMU)
    if program is None:
        raise errors.Unavailable(
            f"{QEMU} is not installed: apt-get install --no-install-recommends qemu-system-x86"
        )
    return program


def tools() -> None:
    """Check for the small programs that every Debian has.

    Raises:
        errors.Unavailable: one is missing.
    """
    for program, package in (("setpriv", "util-linux"), ("mkfs.ext4", "e2fsprogs")):
        if shutil.which(program, path=_PATH) is None:
            raise errors.Unavailable(f"{program} is not installed: apt-get install {package}")


def file_system(path: Path, size_bytes: int) -> None:
    """Make an empty ext4 file system in a file."""
    with path.open("wb") as file:
        file.truncate(size_bytes)
    program = shutil.which("mkfs.ext4", path=_PATH) or "mkfs.ext4"
    # Without lazy initialisation nothing writes to it later unasked.
    _output([program, "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", str(path)])


def _is_static(program: Path) -> bool:
    # A dynamic program names its loader.
    return b"/ld-linux" not in program.read_bytes()


def _image_package() -> str:
    match = _IMAGE.search(_output(["apt-cache", "depends", KERNEL]))
    if match is None:
        raise errors.Unavailable(f"apt knows no {KERNEL}: run apt-get update, on Debian")
    return match[1]


def _unpacked(package: str, folder: Path) -> Path:
    """Download a package and unpack it below the cache folder; return where."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as text:
        temporary = Path(text)
        _output(["apt-get", "download", package], cwd=temporary)
        files = sorted(temporary.glob("*.deb"))
        if not files:
            raise errors.Unavailable(f"apt-get download {package} brought no file: run apt-get update")
        # The version is in the file's name, and so in the cache's.
        target = folder / (package if package == BUSYBOX else files[0].name.removesuffix(".deb"))
        _output(["dpkg", "-x", str(files[0]), str(temporary / "root")])
        for pattern in _UNUSED:
            for path in (temporary / "root").glob(pattern):
                shutil.rmtree(path, ignore_errors=True)
        # Loses against another run that was faster.
        with contextlib.suppress(FileExistsError, OSError):
            (temporary / "root").rename(target)
        return target


def _output(command: Sequence[str], cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=True
        )
    except FileNotFoundError as error:
        raise errors.Unavailable(
            f"{command[0]} is not installed: the lab takes its kernel from Debian and needs apt and dpkg"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise errors.Unavailable(
            f"{' '.join(command)} took more than {DOWNLOAD_SECONDS} s: is the package mirror reachable?"
        ) from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip().splitlines() or ["nothing"])[-1][:200]
        raise errors.Unavailable(
            f"{' '.join(command)} failed ({said}): run apt-get update and look whether the mirror is reachable"
        ) from error
    return done.stdout
