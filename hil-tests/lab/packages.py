"""What the lab takes from Debian: the kernel with its modules, a static busybox, and a newer QEMU and kernel of its backports.

Packages are downloaded and unpacked into a folder of the cache, never installed, so root is not needed. A folder
appears in the cache at once and whole: another run sees all of it or nothing. apt reads the packages of the backports by a
configuration of its own there, so nothing of this machine's package lists changes.
"""

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import errors

KERNEL = "linux-image-amd64"
BUSYBOX = "busybox-static"
QEMU = "qemu-system-x86_64"
DOWNLOAD_SECONDS = 300
BACKPORTS = "bookworm-backports"
MIRROR = "http://deb.debian.org/debian"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_QEMU_PACKAGES = ("qemu-system-x86", "qemu-system-data", "seabios")
_QEMU_DATA = ("usr/share/qemu", "usr/share/seabios")
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
_UNUSED = (
    "usr",
    *(
        f"lib/modules/*/kernel/{folder}"
        for folder in ("sound", "net/[!9]*", "drivers/[!bcdinv]*", "drivers/i[!2]*")
    ),
)
"""Of the 400 MB, what no guest has a use for is not kept: the drivers that it has are block, char, cxl, dax, i2c, net, n* and v*."""
_KEPT = hashlib.sha256(repr(_UNUSED).encode()).hexdigest()[:8]
"""In the names of folders of kernels: one of which something else was kept is unpacked again."""
_IMAGE = re.compile(r"^\s*Depends: (linux-image-\d\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Qemu:
    """A QEMU.

    Attributes:
        program: its path.
        data: the folders of its firmware; empty where it finds them itself.
    """

    program: str
    data: tuple[Path, ...] = ()


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
        """Return the names of the modules that are part of the image."""
        listed = (self.modules / "modules.builtin").read_text().splitlines()
        return frozenset(Path(line).stem.replace("-", "_") for line in listed)


def cache() -> Path:
    """Return the folder of the lab's downloads, below XDG_CACHE_HOME."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "drawbar-lab"


def kernel(folder: Path) -> Kernel:
    """Return Debian's current kernel, from the cache or downloaded into it (70 MB, 10 s to unpack).

    Raises:
        errors.Unavailable: it cannot be had; the message names the remedy.
    """
    # The newest that is there is good enough: a test run does not depend on a package index.
    unpacked = sorted(folder.glob(f"linux-image-[0-9]*.{_KEPT}"))
    return _kernel(unpacked[-1] if unpacked else _download_package(_image_package(), folder))


def newer(folder: Path) -> tuple[Qemu, Kernel]:
    """Return QEMU 10.0 and Linux 6.12 of Debian's backports, from the cache or downloaded into it (120 MB).

    QEMU 10.0 needs no library that the QEMU of Debian 12 does not, so it runs where that is installed.

    Raises:
        errors.Unavailable: they cannot be had; the message names the remedy.
    """
    own = folder / BACKPORTS
    kernels = sorted(own.glob(f"linux-image-[0-9]*.{_KEPT}"))
    programs = [sorted(own.glob(f"{name}_*")) for name in _QEMU_PACKAGES]
    if not kernels or not all(programs):
        try:
            environment = _apt(own)
            _output(["apt-get", "-qq", "update"], environment=environment)
            kernels = kernels or [_download_package(_image_package(environment), own, environment)]
            programs = [
                unpacked or [_download_package(name, own, environment, unused=())]
                for name, unpacked in zip(_QEMU_PACKAGES, programs, strict=True)
            ]
        except errors.Unavailable as error:
            raise errors.Unavailable(
                f"the lab's newer QEMU and kernel are in {BACKPORTS} of {MIRROR}, and cannot be had: {error}"
            ) from error
    roots = [unpacked[-1] for unpacked in programs]
    program = roots[0] / "usr/bin" / QEMU
    if not program.exists():
        raise errors.Unavailable(f"{roots[0]} holds no {QEMU}: delete it, and it is downloaded again")
    data = tuple(root / path for root in roots for path in _QEMU_DATA if (root / path).is_dir())
    return Qemu(program=str(program), data=data), _kernel(kernels[-1])


def _apt(folder: Path) -> Mapping[str, str]:
    """Write a configuration of apt with the backports alone; return the environment in which apt reads it.

    Raises:
        errors.Unavailable: this machine has no keys to check the packages with.
    """
    if not KEYRING.exists():
        raise errors.Unavailable(f"{KEYRING} is not there: apt-get install debian-archive-keyring")
    apt = folder / "apt"
    for path in ("state/lists/partial", "cache/archives/partial"):
        (apt / path).mkdir(parents=True, exist_ok=True)
    (apt / "sources.list").write_text(f"deb [signed-by={KEYRING}] {MIRROR} {BACKPORTS} main\n")
    (apt / "apt.conf").write_text(
        f'Dir::State "{apt}/state";\nDir::Cache "{apt}/cache";\nDir::State::status "/var/lib/dpkg/status";\n'
        f'Dir::Etc::sourcelist "{apt}/sources.list";\nDir::Etc::sourceparts "/dev/null";\n'
        # Without it an update that fetched nothing ends with status 0.
        'APT::Update::Error-Mode "any";\nAPT::Sandbox::User "";\n'
    )
    return {"APT_CONFIG": str(apt / "apt.conf")}


def _kernel(root: Path) -> Kernel:
    """Return the kernel of an unpacked package."""
    images = sorted(root.glob("boot/vmlinuz-*"))
    modules = sorted(root.glob("lib/modules/*"))
    if not images or not modules:
        raise errors.Unavailable(
            f"{root} holds no kernel with modules: delete it, and it is downloaded again"
        )
    return Kernel(release=modules[-1].name, image=images[-1], modules=modules[-1])


def busybox(folder: Path) -> Path:
    """Return the path of a busybox that needs no library: the installed one, or Debian's.

    Raises:
        errors.Unavailable: it cannot be had.
    """
    for installed in (Path("/bin/busybox"), Path("/usr/bin/busybox")):
        if installed.exists() and _is_static(installed):
            return installed
    root = folder / BUSYBOX
    if not root.exists():
        root = _download_package(BUSYBOX, folder)
    paths = [root / name for name in ("bin/busybox", "usr/bin/busybox") if (root / name).exists()]
    if not paths:
        raise errors.Unavailable(f"{root} holds no busybox: delete it, and it is downloaded again")
    return paths[0]


def qemu() -> Qemu:
    """Return the installed QEMU.

    Raises:
        errors.Unavailable: it is not installed.
    """
    program = shutil.which(QEMU)
    if program is None:
        raise errors.Unavailable(
            f"{QEMU} is not installed: apt-get install --no-install-recommends qemu-system-x86"
        )
    return Qemu(program=program)


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


def _image_package(environment: Mapping[str, str] | None = None) -> str:
    match = _IMAGE.search(_output(["apt-cache", "depends", KERNEL], environment=environment))
    if match is None:
        raise errors.Unavailable(f"apt knows no {KERNEL}: run apt-get update, on Debian")
    return match[1]


def _download_package(
    package: str,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    unused: Sequence[str] = _UNUSED,
) -> Path:
    """Download a package and unpack it below the cache folder; return where."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as text:
        temporary = Path(text)
        _output(["apt-get", "download", package], cwd=temporary, environment=environment)
        files = sorted(temporary.glob("*.deb"))
        if not files:
            raise errors.Unavailable(f"apt-get download {package} brought no file: run apt-get update")
        # The version is in the file's name, and so in the cache's.
        name = package if package == BUSYBOX else files[0].name.removesuffix(".deb")
        target = folder / (f"{name}.{_KEPT}" if package.startswith("linux-image-") else name)
        _output(["dpkg", "-x", str(files[0]), str(temporary / "root")])
        for pattern in unused:
            for path in (temporary / "root").glob(pattern):
                shutil.rmtree(path, ignore_errors=True)
        # Loses against another run that was faster.
        with contextlib.suppress(FileExistsError, OSError):
            (temporary / "root").rename(target)
        return target


def _output(
    command: Sequence[str], cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=None if environment is None else os.environ | dict(environment),
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_SECONDS,
            check=True,
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
        reported = (error.stderr.strip().splitlines() or ["nothing"])[-1][:200]
        raise errors.Unavailable(
            f"{' '.join(command)} failed ({reported}): run apt-get update and look whether the mirror is reachable"
        ) from error
    return done.stdout
